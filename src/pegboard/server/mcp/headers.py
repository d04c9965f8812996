"""RequestHeaders: what the headers of a request say, read once for equal headers."""

from __future__ import annotations

from typing import NamedTuple

from pegboard.core.bounded_cache import BoundedCache
from pegboard.model.hops import HOPS_HEADER, ids_of_header
from pegboard.server.body_reader import is_json_body
from pegboard.server.host_guard import Headers, HostGuard, Refusal
from pegboard.server.mcp.protocol.revisions import EARLIER_VERSIONS, VERSION
from pegboard.server.mcp.ready_bytes import TARGETS, Announced

HEADER_SETS_REMEMBERED = 2_048  # that were let in
HEADERS_REMEMBERED = 24  # of no more headers than this

_TARGETS = {method.encode(): target for method, target in TARGETS.items()}
_EARLIER = frozenset((None, *(version.encode() for version in EARLIER_VERSIONS)))
"""Values of the version header of the revisions with sessions; the first of them had no such header."""
_HOPS = HOPS_HEADER.encode()
_JSON_KINDS = frozenset((b"*/*", b"application/*", b"application/json"))
_EVENT_KINDS = frozenset((b"*/*", b"text/*", b"text/event-stream"))
_PRIVATE = frozenset((b"authorization", b"cookie"))


class RequestHeaders(NamedTuple):
    """The headers of one request, without white space around values, which httptools leaves (RFC 9110, 5.5).

    Credentials are left out: nothing behind the authenticator needs them. `plain` is set when a request with these
    headers may be recognised without the models of the SDK; `is_json` when they announce JSON that we read. `hops` are
    the servers that the request says it has passed, unread. `is_earlier` is set when they name a revision with
    sessions, or none; `session` is the session that they name. `accepts_events` and `accepts_both` tell what the client
    takes for an answer.
    """

    pairs: list[tuple[bytes, bytes]]
    by_name: dict[bytes, bytes]
    refusal: Refusal | None = None
    plain: Announced | None = None
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
        accepts_json, accepts_events = _accepted(trimmed)
        session = by_name.get(b"mcp-session-id")
        headers = RequestHeaders(
            trimmed,
            by_name,
            None,
            _plain(trimmed, by_name) if accepts_json and accepts_events else None,
            is_json_body(by_name.get(b"content-type", b"")),
            ids_of_header(by_name[_HOPS].decode("latin-1")) if _HOPS in by_name else None,
            None if session is None else session.decode("latin-1"),
            by_name.get(b"mcp-protocol-version") in _EARLIER,
            accepts_json and accepts_events,
            accepts_events,
        )
        if len(key) <= HEADERS_REMEMBERED:
            self._known.remember(key, headers)
        return headers


def _accepted(headers: Headers) -> tuple[bool, bool]:
    """Tell whether a client takes JSON, and whether it takes events, with wildcards as in RFC 9110, 12.5.1."""
    said = b",".join([value for name, value in headers if name == b"accept"])
    kinds = {kind.partition(b";")[0].strip().lower() for kind in said.split(b",")}
    return not _JSON_KINDS.isdisjoint(kinds), not _EVENT_KINDS.isdisjoint(kinds)


def _plain(trimmed: list[tuple[bytes, bytes]], by_name: dict[bytes, bytes]) -> Announced | None:
    """Return method and target of a request whose every header is in order; `None` for all others."""
    method = by_name.get(b"mcp-method", b"")
    name = by_name.get(b"mcp-name", b"").decode("latin-1")
    target = _TARGETS.get(method)
    if (
        target is None
        or len(by_name) != len(trimmed)
        or _HOPS in by_name
        or by_name.get(b"mcp-protocol-version") != VERSION.encode()
        or (target and (not name or not name.isascii() or name.startswith("=?")))
        or (method == b"tools/call" and any(name.startswith(b"mcp-param-") for name in by_name))
    ):
        return None
    return Announced(method.decode(), name if target else "")
