"""TaskNotifications: notify a listening client about its tasks, in the form of `tasks/get`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, cast

from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.server.gateway import Gateway
from pegboard.server.mcp.asking.notifications import MessageOutlet
from pegboard.server.mcp.protocol.jsonrpc import INVALID_PARAMS, MISSING_CAPABILITY, RpcError
from pegboard.server.mcp.protocol.requests import McpRequest
from pegboard.server.mcp.protocol.task_wire import NEEDED, declares_tasks, detailed_task
from pegboard.server.principal import Principal
from pegboard.tasks.limits import TASK_LOOK_S

log = logging.getLogger("pegboard.serve")
MCP_LISTENING_TASKS = 100  # tasks that one stream may follow


class TaskNotifications:
    """Follows the tasks named by listen streams.

    Args:
        gateway: the catalog's answers.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def permitted(self, request: McpRequest) -> list[str]:
        """Return the named tasks that belong to the caller; others are left out, like unknown ids.

        Raises:
            RpcError: the client did not declare support for tasks; a name is not a task id, or there are too many.
        """
        wanted = _task_ids(request.params)
        if not wanted or self._gateway.catalog.executor.ports.tasks is None:
            return []
        if not declares_tasks(request.capabilities):
            text = "Tasks need a client that declares the extension io.modelcontextprotocol/tasks."
            raise RpcError(MISSING_CAPABILITY, text, {"requiredCapabilities": NEEDED})
        whose = self._gateway.context(request.principal)
        return [record.task_id for record in await self._gateway.catalog.tasks.several(wanted, whose)]

    async def tell(self, principal: Principal, heard: Sequence[str], outlet: MessageOutlet, meta: JSON) -> None:
        """Send each state of these tasks, starting with the current one, until all have ended."""
        last = dict[str, JSON]()
        tasks, whose = self._gateway.catalog.tasks, self._gateway.context(principal)
        while heard:
            try:
                records = await tasks.several(heard, whose)
                if any(last.get(record.task_id) != detailed_task(record) for record in records):
                    # The caller may have lost rights since the stream was opened.
                    caller = await tasks.caller_now(whose.caller, principal.profile)
                    records = () if caller is None else await tasks.several(heard, replace(whose, caller=caller))
                for record in records:
                    shown = detailed_task(record)
                    if last.get(record.task_id) != shown:
                        last[record.task_id] = shown
                        await outlet.notify("notifications/tasks", {**shown, "_meta": meta})
            except CallError as error:
                log.warning("A client will get its task notifications later: %s", error)
                await asyncio.sleep(TASK_LOOK_S)
                continue
            going_on = [record for record in records if not record.is_over]
            heard = [record.task_id for record in going_on]
            await tasks.one_changed(going_on, timeout_s=TASK_LOOK_S)


def _task_ids(params: JSON) -> list[str]:
    wanted: Any = params["notifications"].get("taskIds") or []
    if not isinstance(wanted, list) or not all(isinstance(one, str) for one in cast("list[object]", wanted)):
        raise RpcError(INVALID_PARAMS, "`taskIds` must be a list of ids of tasks.")
    ids = cast("list[str]", wanted)
    if len(ids) > MCP_LISTENING_TASKS:
        raise RpcError(INVALID_PARAMS, f"A stream may name {MCP_LISTENING_TASKS} tasks, not {len(ids)}.")
    return list(dict.fromkeys(ids))
