"""TaskNotifications: what a client that listens hears of its tasks, each as `tasks/get` would show it then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Literal, cast

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY

from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.server.gateway import INVALID_PARAMS, MISSING_CAPABILITY, Gateway, RpcError
from pegboard.server.mcp.protocol.task_wire import NEEDED, declares_tasks, detailed_task
from pegboard.server.principal import Principal
from pegboard.tasks.limits import TASK_LOOK_S

MCP_LISTENING_TASKS = 100  # that one such stream tells of

Ctx = ServerRequestContext[Any, Any]
log = logging.getLogger("pegboard.serve")


class _TaskNotification(types.Notification[JSON, Literal["notifications/tasks"]]):
    """A task of 2026-07-28, whole. Source: the extension io.modelcontextprotocol/tasks, task status notifications."""


class TaskNotifications:
    """Follows the tasks that listen streams name.

    Args:
        gateway: answers for the catalog.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @asynccontextmanager
    async def followed(
        self, ctx: Ctx, principal: Principal, params: types.SubscriptionsListenRequestParams
    ) -> AsyncGenerator[Ctx]:
        """Tell of the tasks that a stream names, for as long as the block lasts; give the context to serve it with.

        Tasks that are not the caller's are left out, like those that do not exist; the acknowledgement says which are
        not.

        Raises:
            RpcError: the client has not declared that it follows tasks; what it names are no ids, or too many.
        """
        wanted = _task_ids(params)
        if not wanted or self._gateway.catalog.guards.tasks is None:
            yield ctx
            return
        declared = ctx.session.client_capabilities
        if not declares_tasks({} if declared is None else declared.model_dump(by_alias=True, exclude_none=True)):
            text = "Tasks need a client that declares the extension io.modelcontextprotocol/tasks."
            raise RpcError(MISSING_CAPABILITY, text, {"requiredCapabilities": NEEDED})
        whose = self._gateway.context(principal)
        records = await self._gateway.catalog.tasks.several(wanted, whose)
        heard = [record.task_id for record in records]
        session = _Acknowledging(ctx.session, heard)
        telling = asyncio.create_task(self._tell(ctx, principal, heard, session.has_acknowledged))
        try:
            yield replace(ctx, session=cast("ServerSession", session))
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _tell(self, ctx: Ctx, principal: Principal, heard: Sequence[str], may_begin: asyncio.Event) -> None:
        """Send each state of these tasks, the present one first, until all have ended."""
        await may_begin.wait()
        meta, last = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}, dict[str, JSON]()
        tasks, whose = self._gateway.catalog.tasks, self._gateway.context(principal)
        while heard:
            try:
                records = await tasks.several(heard, whose)
                if any(last.get(record.task_id) != detailed_task(record) for record in records):
                    # What is told is for who may hear it now, however long the stream is open.
                    caller = await tasks.caller_now(whose.caller, principal.profile)
                    records = () if caller is None else await tasks.several(heard, replace(whose, caller=caller))
                for record in records:
                    shown = detailed_task(record)
                    if last.get(record.task_id) != shown:
                        last[record.task_id] = shown
                        message = _TaskNotification(method="notifications/tasks", params={**shown, "_meta": meta})
                        await ctx.session.send_notification(cast("Any", message), related_request_id=ctx.request_id)
            except CallError as error:
                log.warning("A client that listens to its tasks is told later: %s", error)
                await asyncio.sleep(TASK_LOOK_S)
                continue
            going_on = [record for record in records if not record.is_over]
            heard = [record.task_id for record in going_on]
            await tasks.one_changed(going_on, timeout_s=TASK_LOOK_S)


class _Acknowledging:
    """A session whose acknowledgement of a listen stream says of which tasks it hears."""

    def __init__(self, session: ServerSession, heard: Sequence[str]) -> None:
        self._session, self._heard = session, heard
        self.has_acknowledged = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def send_notification(
        self, notification: types.ServerNotification, related_request_id: types.RequestId | None = None
    ) -> None:
        is_first = isinstance(notification, types.SubscriptionsAcknowledgedNotification)
        if is_first and self._heard:
            honored = {**notification.params.notifications.model_dump(), "taskIds": list(self._heard)}
            told = types.SubscriptionFilter.model_validate(honored)
            params = notification.params.model_copy(update={"notifications": told})
            notification = notification.model_copy(update={"params": params})
        await self._session.send_notification(notification, related_request_id)
        if is_first:
            self.has_acknowledged.set()


def _task_ids(params: types.SubscriptionsListenRequestParams) -> list[str]:
    wanted: Any = (params.notifications.model_extra or {}).get("taskIds") or []
    if not isinstance(wanted, list) or not all(isinstance(one, str) for one in cast("list[object]", wanted)):
        raise RpcError(INVALID_PARAMS, "`taskIds` must be a list of ids of tasks.")
    ids = cast("list[str]", wanted)
    if len(ids) > MCP_LISTENING_TASKS:
        raise RpcError(INVALID_PARAMS, f"A stream may name {MCP_LISTENING_TASKS} tasks, not {len(ids)}.")
    return list(dict.fromkeys(ids))
