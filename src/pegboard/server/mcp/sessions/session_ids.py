"""SessionIds: ids of sessions of the earlier revisions, which say themselves what a worker must know of a session.

An id is sealed: whoever has the keys of the server opens it, nobody else can make, change or read one.
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

SESSION_ID_CHARS = 2_000  # of the id of a session; clients and proxies take more
SESSION_S = 7 * 86_400.0  # that such an id is good; then its client begins anew
SESSIONS_ENDED = 100_000  # ids that were ended before that, remembered so that none is opened again

_BINDING_BYTES = 16


class Client(NamedTuple):
    """What a client said of itself as a session began: the revision it gets, and what it can do."""

    version: str
    capabilities: JSON


class OpenedId(NamedTuple):
    """What an id says: the client, and until when it is good, in seconds since 1970."""

    client: Client
    ends_at: float


class SessionIds:
    """Makes and opens the ids of sessions, and remembers which were ended before their time.

    Args:
        sealing: the keys of the server.
        wall_clock: seconds since 1970, the same for all workers.
    """

    def __init__(self, sealing: Sealing, wall_clock: Callable[[], float] = steady_time) -> None:
        self._sealing, self._clock = sealing, wall_clock
        self._ended = OrderedDict[bytes, float]()

    def seal(self, owner: str, client: Client) -> tuple[str, OpenedId]:
        """Return a new id for an owner, and what it says: of what a client can do, that which anybody here asks for."""
        ends_at = int(self._clock() + SESSION_S)
        known = Client(client.version, _asked_for(client.capabilities))
        said = orjson.dumps([ends_at, known.version, known.capabilities])
        return self._sealing.codec.seal(self._binding(owner) + said), OpenedId(known, ends_at)

    def open(self, session_id: str, owner: str) -> OpenedId | None:
        """Return what an id says; `None` for one that is made up, another owner's, too old, or ended."""
        payload = self._sealing.codec.open(session_id) if len(session_id) <= SESSION_ID_CHARS else None
        if payload is None or payload[:_BINDING_BYTES] != self._binding(owner):
            return None
        ends_at, version, capabilities = orjson.loads(payload[_BINDING_BYTES:])
        if ends_at <= self._clock() or name_of(session_id) in self._ended:
            return None
        return OpenedId(Client(version, capabilities), ends_at)

    def is_over(self, ends_at: float) -> bool:
        """Tell whether an id that is good until then has ended."""
        return ends_at <= self._clock()

    def end(self, name: bytes, ends_at: float) -> None:
        """Open the id of this name no more. Of very many, the one that ended first is forgotten."""
        now = self._clock()
        while self._ended and (len(self._ended) >= SESSIONS_ENDED or next(iter(self._ended.values())) <= now):
            self._ended.popitem(last=False)
        self._ended[name] = ends_at

    def _binding(self, owner: str) -> bytes:
        # Its own word: what was sealed for another use is no id of a session.
        return sha256(orjson.dumps(["session", self._sealing.audience, owner])).digest()[:_BINDING_BYTES]


def name_of(session_id: str) -> bytes:
    """Return by what a session is known where its id, which opens it, has no business to be."""
    return sha256(session_id.encode()).digest()[:_BINDING_BYTES]


def _asked_for(capabilities: JSON) -> JSON:
    """Return of what a client can do only what is asked for here, as ids shall be short."""
    known: JSON = {}
    for name, modes in (("elicitation", ("form", "url")), ("sampling", ("tools", "context")), ("roots", ())):
        declared: Any = capabilities.get(name)
        if isinstance(declared, Mapping):
            kept: JSON = {mode: {} for mode in modes if mode in declared}
            # Who names modes, and none of these, can do nothing that would be asked for.
            if kept or not declared or name != "elicitation":
                known[name] = kept
    if declares_ui(cast("Mapping[str, Any]", capabilities)):
        known["extensions"] = {UI_EXTENSION: {"mimeTypes": [UI_MIME_TYPE]}}
    return known
