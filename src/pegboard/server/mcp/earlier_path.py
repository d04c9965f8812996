"""EarlierPath: answer plain requests of the revisions before 2026-07-28. It only ever accepts; the rest is the SDK's.

They differ among themselves in nothing that these requests or their results have.
"""

from __future__ import annotations

from collections.abc import Coroutine
from types import NoneType
from typing import Any

from pegboard.model.hops import HOPS_KEY
from pegboard.model.json_types import JSON
from pegboard.server.gateway import Gateway
from pegboard.server.mcp.asking.notifications import MessageOutlet
from pegboard.server.mcp.asking.unanswered_requests import SessionChannel
from pegboard.server.mcp.fast_path import (
    PROGRESS_KEY,
    VERSION_KEY,
    Answer,
    Plan,
    answered,
)
from pegboard.server.mcp.handlers.lists import Lists
from pegboard.server.mcp.protocol.jsonrpc import as_object, json_bytes
from pegboard.server.mcp.sessions.sessions import Session
from pegboard.server.principal import Principal

_BODY_KEYS = frozenset(("jsonrpc", "id", "method", "params"))
_CALL_KEYS = frozenset(("name", "arguments", "task", "_meta"))
_CENTURY_MS = 100 * 366 * 86_400_000  # an integer of JSON may be too long for a float
_META_ONLY = frozenset(("_meta",))
_NOT_OURS = frozenset((HOPS_KEY, VERSION_KEY, "progress_token"))
"""Keys of a `_meta` with which a request is the SDK's: another era's, or of the servers that it has passed."""


class EarlierPath:
    """Plain `ping`, `tools/list` and `tools/call` of a session, for every transport.

    Args:
        gateway: answers for the catalog.
        lists: writes its lists; one that needs pages is the SDK's.
    """

    def __init__(self, gateway: Gateway, lists: Lists) -> None:
        self._gateway, self._lists = gateway, lists

    def plan(self, request: JSON, principal: Principal, session: Session) -> Plan | None:
        """Return the work for a plain request; `None` when the SDK shall look at it."""
        request_id: Any = request.get("id")
        params = as_object(request.get("params", {}))
        if (
            not request.keys() <= _BODY_KEYS
            or request.get("jsonrpc") != "2.0"
            or type(request_id) not in (int, str)
            or params is None
        ):
            return None
        meta = as_object(params.get("_meta", {}))
        if meta is None or not meta.keys().isdisjoint(_NOT_OURS):
            return None
        token: Any = meta.get(PROGRESS_KEY)
        if PROGRESS_KEY in meta and type(token) not in (int, str):
            return None
        method, outlet = request.get("method"), None
        work: Coroutine[Any, Any, Answer] | None = None
        if method == "tools/call":
            outlet = MessageOutlet()
            work = self._call(params, principal, session, outlet, token)
        elif not params.keys() <= _META_ONLY:
            return None
        elif method == "tools/list" and self._lists.fit_a_page():
            work = self._list(principal, session.capabilities)
        elif method == "ping":
            work = _pong()
        return None if work is None else Plan(json_bytes(request_id), answered(work), outlet)

    async def _list(self, principal: Principal, capabilities: JSON) -> Answer:
        return Answer(await self._lists.tools_as_bytes_before_2026(principal, capabilities))

    def _call(
        self, params: JSON, principal: Principal, session: Session, outlet: MessageOutlet, token: int | str | None
    ) -> Coroutine[Any, Any, Answer] | None:
        name: Any = params.get("name")
        raw: Any = params.get("arguments")
        arguments = {} if raw is None else as_object(raw)
        if type(name) is not str or arguments is None or not params.keys() <= _CALL_KEYS:
            return None
        channel = SessionChannel(session.capabilities)
        if "task" in params:
            asked = as_object(params["task"])
            ttl: Any = None if asked is None else asked.get("ttl")
            if asked is None or type(ttl) not in (int, NoneType):
                return None
            channel.wants_task, channel.task_ttl_s = (
                True,
                None if ttl is None else max(0, min(ttl, _CENTURY_MS)) / 1_000,
            )
        channel.tell_through(outlet, token=token, level=session.level or "debug")
        channel.ask_through(outlet, session.questions, roles=principal.identity.roles)
        return self._answer_call(principal, name, arguments, channel)

    async def _answer_call(self, principal: Principal, name: str, arguments: JSON, channel: SessionChannel) -> Answer:
        return Answer((json_bytes(await self._gateway.call(principal, name, arguments, channel, is_earlier=True)),))


async def _pong() -> Answer:
    return Answer((b"{}",))
