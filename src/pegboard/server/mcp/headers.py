"""RequestHeaders: the parsed headers of a request, cached by their bytes."""

from __future__ import annotations

from typing import NamedTuple

from pegboard.core.bounded_cache import BoundedCache
from pegboard.model.hops import HOPS_HEADER, ids_of_header
from pegboard.server.body_reader import is_json_body
from pegboard.server.host_guard import Headers, HostGuard, Refusal
from pegboard.server.mcp.protocol.revisions import EARLIER_VERSIONS, VERSION
from pegboard.server.mcp.ready_bytes import TARGETS, Announced

HEADER_SETS_REMEMBERED = 2_048  # parsed headers that are remembered
HEADERS_REMEMBERED = 24  # bytes of headers that are remembered

_TARGETS = {method.encode(): target for method, target in TARGETS.items()}
_EARLIER = frozenset((None, *(version.encode() for version in EARLIER_VERSIONS)))
"""Values of the version header of revisions with sessions; the first of them did not have this header."""
_HOPS = HOPS_HEADER.encode()
_JSON_KINDS = frozenset((b"*/*", b"application/*", b"application/json"))
_EVENT_KINDS = frozenset((b"*/*", b"text/*", b"text/event-stream"))
_PRIVATE = frozenset((b"authorization", b"cookie"))


class RequestHeaders(NamedTuple):
    """The headers of one request, without the whitespace around values that httptools keeps (RFC 9110, 5.5).

    Credentials are left out: nothing after the authenticator needs them. `plain` is set if a request with these headers
    may be recognised without the models of the SDK; `is_json` if the body is JSON we can read. `hops` lists the servers
    the request has passed through, unvalidated. `is_earlier` is set if the revision has sessions or none is named;
    `session` is the named session. `accepts_events` and `accepts_both` describe the accepted response types.
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
    """Parses headers and remembers the parsed ones."""

    def __init__(self, host_guard: HostGuard) -> None:
        self._host_guard = host_guard
        self._known = BoundedCache[tuple[tuple[bytes, bytes], ...], RequestHeaders](max_entries=HEADER_SETS_REMEMBERED)

    def read(self, raw: Headers) -> RequestHeaders:
        """Return the parsed headers."""
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
    """Tell whether a client accepts JSON and whether it accepts events, with wildcards as in RFC 9110, 12.5.1."""
    said = b",".join([value for name, value in headers if name == b"accept"])
    kinds = {kind.partition(b";")[0].strip().lower() for kind in said.split(b",")}
    return not _JSON_KINDS.isdisjoint(kinds), not _EVENT_KINDS.isdisjoint(kinds)


def _plain(trimmed: list[tuple[bytes, bytes]], by_name: dict[bytes, bytes]) -> Announced | None:
    """Return the method and target of a request with consistent headers; `None` for all others."""
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
