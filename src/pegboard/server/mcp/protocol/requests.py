"""McpRequest: one request in the form that every handler takes, for all transports and revisions."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pegboard.model.hops import HOPS_KEY
from pegboard.model.json_types import JSON
from pegboard.server.mcp.asking.notifications import MessageOutlet
from pegboard.server.mcp.protocol.revisions import VERSION
from pegboard.server.mcp.sessions.sessions import Session
from pegboard.server.principal import Principal

RESERVED: Final = "io.modelcontextprotocol/"
VERSION_KEY: Final = RESERVED + "protocolVersion"
CAPABILITIES_KEY: Final = RESERVED + "clientCapabilities"
CLIENT_KEY: Final = RESERVED + "clientInfo"
LEVEL_KEY: Final = RESERVED + "logLevel"
PROGRESS_KEY: Final = "progressToken"


class Era(NamedTuple):
    """The eras: revisions with sessions, or 2026-07-28, which does not have them."""

    session: Session | None = None

    @property
    def is_earlier(self) -> bool:
        """Whether the revision is one before 2026-07-28."""
        return self.session is not None

    @property
    def version(self) -> str:
        """The revision; empty in a session that has not been initialised."""
        return VERSION if self.session is None else self.session.version


MODERN: Final = Era()
"""2026-07-28."""


class McpRequest(NamedTuple):
    """A request whose form was checked; `params` are as the client sent them.

    `principal` is the caller, within its session if there is one. `token` requests progress and `level` log messages
    from that level. `state` is an opened request state.
    """

    method: str
    request_id: int | str
    params: JSON
    principal: Principal
    era: Era
    capabilities: JSON
    outlet: MessageOutlet | None = None
    token: int | str | None = None
    level: str | None = None
    state: str | None = None

    @property
    def hops(self) -> object:
        """The servers that the request has passed through, unvalidated; `None` if it does not list any."""
        meta: Any = self.params.get("_meta")
        if meta is None or HOPS_KEY not in meta:
            return None
        # Null is not a path, and is refused like any other invalid value.
        return () if meta[HOPS_KEY] is None else meta[HOPS_KEY]

    @property
    def session(self) -> Session:
        """The session of a request of an earlier revision."""
        assert self.era.session is not None
        return self.era.session
