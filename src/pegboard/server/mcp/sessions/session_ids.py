"""SessionIds: session ids of earlier revisions, which contain everything a worker must know about the session.

An id is sealed: only holders of the server's keys can create, change or read one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple, cast

import orjson

from pegboard.core.steady_clock import steady_time
from pegboard.model.json_types import JSON
from pegboard.server.mcp.asking.client_channel import UI_EXTENSION, UI_MIME_TYPE, declares_ui
from pegboard.server.sealing import Sealing

SESSION_ID_CHARS = 2_000  # characters of a session id; clients and proxies accept more
CLIENT_NAME_CHARS = 64  # characters of a client's name, which is in the id of its session
SESSION_S = 7 * 86_400.0  # seconds that an id is valid; then its client must start again
SESSIONS_ENDED = 100_000  # ended ids that are remembered, so that they are not accepted again

_BINDING_BYTES = 16


class Client(NamedTuple):
    """A client's declarations at the start of its session: its revision, capabilities and name."""

    version: str
    capabilities: JSON
    name: str = ""


class OpenedId(NamedTuple):
    """The content of an id: the client, and the end of its validity in seconds since 1970."""

    client: Client
    ends_at: float


class SessionIds:
    """Creates and opens session ids, and remembers which were ended early.

    Args:
        sealing: the server's keys.
        wall_clock: seconds since 1970, the same for all workers.
    """

    def __init__(self, sealing: Sealing, wall_clock: Callable[[], float] = steady_time) -> None:
        self._sealing, self._clock = sealing, wall_clock
        self._ended = OrderedDict[bytes, float]()

    def seal(self, owner: str, client: Client) -> tuple[str, OpenedId]:
        """Return a new id for an owner, and its content; capabilities are reduced to those used here."""
        ends_at = int(self._clock() + SESSION_S)
        known = Client(client.version, _used_capabilities(client.capabilities), client.name[:CLIENT_NAME_CHARS])
        payload = orjson.dumps([ends_at, *known])
        return self._sealing.codec.seal(self._binding(owner) + payload), OpenedId(known, ends_at)

    def open(self, session_id: str, owner: str) -> OpenedId | None:
        """Return the content of an id; `None` if it is forged, expired, ended or belongs to another owner."""
        payload = self._sealing.codec.open(session_id) if len(session_id) <= SESSION_ID_CHARS else None
        if payload is None or payload[:_BINDING_BYTES] != self._binding(owner):
            return None
        # Ids of earlier versions of Pegboard have no name.
        ends_at, *declared = orjson.loads(payload[_BINDING_BYTES:])
        if ends_at <= self._clock() or name_of(session_id) in self._ended:
            return None
        return OpenedId(Client(*declared), ends_at)

    def is_over(self, ends_at: float) -> bool:
        """Tell whether a still valid id was ended."""
        return ends_at <= self._clock()

    def end(self, name: bytes, ends_at: float) -> None:
        """Refuse the id with this name from now on. If there are too many, the oldest entry is forgotten."""
        now = self._clock()
        while self._ended and (len(self._ended) >= SESSIONS_ENDED or next(iter(self._ended.values())) <= now):
            self._ended.popitem(last=False)
        self._ended[name] = ends_at

    def _binding(self, owner: str) -> bytes:
        # A separate prefix: values sealed for another purpose are not session ids.
        return sha256(orjson.dumps(["session", self._sealing.audience, owner])).digest()[:_BINDING_BYTES]


def name_of(session_id: str) -> bytes:
    """Return the name of a session for places where its id, which is a secret, must not appear."""
    return sha256(session_id.encode()).digest()[:_BINDING_BYTES]


def _used_capabilities(capabilities: JSON) -> JSON:
    """Return only the capabilities that are used here, to keep ids short."""
    known: JSON = {}
    for name, modes in (("elicitation", ("form", "url")), ("sampling", ("tools", "context")), ("roots", ())):
        declared: Any = capabilities.get(name)
        if isinstance(declared, Mapping):
            modes_by_name: JSON = {mode: {} for mode in modes if mode in declared}
            # An elicitation capability that names only unknown modes supports nothing that is asked for.
            if modes_by_name or not declared or name != "elicitation":
                known[name] = modes_by_name
    if declares_ui(cast("Mapping[str, Any]", capabilities)):
        known["extensions"] = {UI_EXTENSION: {"mimeTypes": [UI_MIME_TYPE]}}
    return known
