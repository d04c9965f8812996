"""RequestHeaders: what the headers of a request say, read once for equal headers."""

from __future__ import annotations

from typing import NamedTuple

from mcp.server.streamable_http import check_accept_headers
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request

from pegboard.core.bounded_cache import BoundedCache
from pegboard.model.hops import HOPS_HEADER, ids_of_header
from pegboard.server.body_reader import is_json_body
from pegboard.server.host_guard import Headers, HostGuard, Refusal
from pegboard.server.mcp.fast_path import Announced
from pegboard.server.mcp.protocol.capabilities import VERSION

HEADER_SETS_REMEMBERED = 2_048  # that were let in
HEADERS_REMEMBERED = 24  # of no more headers than this

_PLAIN_METHODS = (b"tools/call", b"tools/list")
_EARLIER = frozenset((None, *(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)))
"""What names no later revision than those with sessions; those who name none are of the first."""
_HOPS = HOPS_HEADER.encode()
_PRIVATE = frozenset((b"authorization", b"cookie"))


class RequestHeaders(NamedTuple):
    """The headers of one request, without white space around values, which httptools leaves (RFC 9110, 5.5).

    Those that tell who somebody is are left out: nobody behind the authenticator needs them, and nobody can lose them.
    `plain` is set when they are those of a plain request of 2026-07-28; `opens_session` when a session of an earlier
    revision begins with the request; `is_json` when they announce JSON that we read. `hops` is what they say of the
    servers that the request has passed, unread. `is_earlier` when no later revision is named; `session` is that of the
    request, `accepts_events` and `accepts_both` what the client takes for an answer.
    """

    pairs: list[tuple[bytes, bytes]]
    by_name: dict[bytes, bytes]
    refusal: Refusal | None = None
    plain: Announced | None = None
    opens_session: bool = False
    is_json: bool = False
    hops: list[str] | None = None
    session: str | None = None
    is_earlier: bool = False
    accepts_both: bool = False
    accepts_events: bool = False


class HeaderReader:
    """Reads headers, and remembers those that were let in."""

    def __init__(self, host_guard: HostGuard) -> None:
        self._host_guard = host_guard
        self._known = BoundedCache[tuple[tuple[bytes, bytes], ...], RequestHeaders](max_entries=HEADER_SETS_REMEMBERED)

    def read(self, raw: Headers) -> RequestHeaders:
        """Return what the headers say."""
        key = tuple([header for header in raw if header[0] not in _PRIVATE])
        known = self._known.get(key)
        if known is not None:
            return known
        trimmed = [(name, value.strip(b" \t")) for name, value in key]
        by_name = dict(trimmed)
        refusal = self._host_guard.refusal(trimmed)
        if refusal is not None:
            return RequestHeaders(trimmed, by_name, refusal)
        accepted = check_accept_headers(Request({"type": "http", "headers": trimmed}))
        session = by_name.get(b"mcp-session-id")
        is_earlier = by_name.get(b"mcp-protocol-version") in _EARLIER
        headers = RequestHeaders(
            trimmed,
            by_name,
            None,
            _plain(trimmed, by_name) if accepted == (True, True) else None,
            is_earlier and session is None,
            is_json_body(by_name.get(b"content-type", b"")),
            ids_of_header(by_name[_HOPS].decode("latin-1")) if _HOPS in by_name else None,
            None if session is None else session.decode("latin-1"),
            is_earlier,
            accepted == (True, True) and len(by_name) == len(trimmed),
            accepted[1] and len(by_name) == len(trimmed),
        )
        if len(key) <= HEADERS_REMEMBERED:
            self._known.remember(key, headers)
        return headers


def _plain(trimmed: list[tuple[bytes, bytes]], by_name: dict[bytes, bytes]) -> Announced | None:
    """Return method and tool of a plain request, whose every header is what the SDK wants; `None` for all others."""
    method = by_name.get(b"mcp-method", b"")
    tool = by_name.get(b"mcp-name", b"").decode("latin-1")
    is_call = method == b"tools/call"
    if (
        method not in _PLAIN_METHODS
        or len(by_name) != len(trimmed)
        or _HOPS in by_name
        or by_name.get(b"mcp-protocol-version") != VERSION.encode()
        or (is_call and (not tool or not tool.isascii() or tool.startswith("=?")))
        or (is_call and any(name.startswith(b"mcp-param-") for name in by_name))
    ):
        return None
    return Announced(method.decode(), tool if is_call else "")
