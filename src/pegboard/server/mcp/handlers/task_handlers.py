"""TaskHandlers: tasks/get, tasks/update and tasks/cancel of 2026-07-28, and what 2025-11-25 has in their place."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import HEADER_MISMATCH
from pydantic import Field

from pegboard.core.digests import digest
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.task import TaskRecord
from pegboard.providers.mcp import mcp_result
from pegboard.server.gateway import INVALID_PARAMS, MISSING_CAPABILITY, Gateway, RpcError
from pegboard.server.mcp.protocol.jsonrpc import as_object
from pegboard.server.mcp.protocol.task_wire import (
    NEEDED,
    RELATED_TASK,
    declares_tasks,
    detailed_task,
    input_request,
    rpc_error,
    task_before_2026,
)
from pegboard.server.mcp.sdk_handlers import Ctx, Principals, SdkSessionChannel, ToolHandlers, is_earlier, isolated
from pegboard.server.mcp.sdk_handlers import capabilities_of as declared_by
from pegboard.server.sealing import Sealing, UnknownCursorError
from pegboard.tasks.limits import TASK_LOOK_S

MCP_PAGE_TASKS = 200  # of one page

_METHOD_NOT_FOUND = -32601
_CANCELLED = -32603
_UNSUPPORTED = "Tasks are not supported by this server."


class TaskParams(types.RequestParams):
    """The params of what names a task."""

    task_id: str


class UpdateParams(TaskParams):
    """Those of tasks/update."""

    input_responses: dict[str, Any] = Field(default_factory=dict[str, Any])


class TaskHandlers:
    """What is answered of tasks, in both eras.

    Args:
        gateway: the catalog's answers.
        sealing: seals cursors.
        tools: makes the way back to a client of an earlier revision.
        principals: tells who asks.
    """

    def __init__(self, gateway: Gateway, sealing: Sealing, *, tools: ToolHandlers, principals: Principals) -> None:
        self._gateway, self._sealing, self._tools, self._principals = gateway, sealing, tools, principals

    def register(self, server: Server[Any]) -> None:
        """Answer for tasks."""
        add = server.add_request_handler
        add("tasks/get", TaskParams, self.get)
        add("tasks/update", UpdateParams, self.update)
        add("tasks/cancel", TaskParams, self.cancel)
        add("tasks/result", TaskParams, self.result)
        add("tasks/list", types.PaginatedRequestParams, self.list)

    def _context(self, ctx: Ctx, named: str | None) -> ToolContext:
        """Return whose tasks are meant.

        Raises:
            RpcError: this server has none; the client has not said that it follows them.
            MCPError: the header names another task.
        """
        if self._gateway.catalog.guards.tasks is None:
            raise RpcError(_METHOD_NOT_FOUND, _UNSUPPORTED)
        if not is_earlier(ctx):
            if not declares_tasks(declared_by(ctx)):
                text = "Tasks need a client that declares the extension io.modelcontextprotocol/tasks."
                raise RpcError(MISSING_CAPABILITY, text, {"requiredCapabilities": NEEDED})
            headers = getattr(ctx.request, "headers", None)
            if headers is not None and decode_header_value(headers.get(MCP_NAME_HEADER)) != named:
                text = f"{MCP_NAME_HEADER} header does not match the request body's 'taskId' parameter"
                raise MCPError(code=HEADER_MISMATCH, message=text)
        return self._gateway.context(self._principals.of(ctx))

    async def get(self, ctx: Ctx, params: TaskParams) -> JSON:
        """Handle tasks/get."""
        record = await self._record(ctx, params.task_id)
        return task_before_2026(record) if is_earlier(ctx) else {"resultType": "complete", **detailed_task(record)}

    async def _record(self, ctx: Ctx, task_id: str) -> TaskRecord:
        whose = self._context(ctx, task_id)
        try:
            return await self._gateway.catalog.tasks.get(task_id, whose)
        except CallError as error:
            raise refusal(error) from None

    async def update(self, ctx: Ctx, params: UpdateParams) -> JSON:
        """Handle tasks/update, which 2025-11-25 does not have."""
        if is_earlier(ctx):
            raise RpcError(_METHOD_NOT_FOUND, "Method not found")
        whose = self._context(ctx, params.task_id)
        answers = {key: found for key, answer in params.input_responses.items() if (found := as_object(answer))}
        try:
            await self._gateway.catalog.tasks.answer(params.task_id, whose, answers)
        except CallError as error:
            raise refusal(error) from None
        return {"resultType": "complete"}

    async def cancel(self, ctx: Ctx, params: TaskParams) -> JSON:
        """Handle tasks/cancel."""
        whose = self._context(ctx, params.task_id)
        tasks = self._gateway.catalog.tasks
        try:
            before = await tasks.get(params.task_id, whose)
            if is_earlier(ctx) and before.is_over:
                raise RpcError(INVALID_PARAMS, f"The task has ended already ({before.state}).")
            await tasks.cancel(params.task_id, whose)
            after = await tasks.get(params.task_id, whose)
        except CallError as error:
            raise refusal(error) from None
        return task_before_2026(after) if is_earlier(ctx) else {"resultType": "complete"}

    async def list(self, ctx: Ctx, params: types.PaginatedRequestParams) -> JSON:
        """Handle tasks/list of 2025-11-25."""
        if not is_earlier(ctx):
            raise RpcError(_METHOD_NOT_FOUND, "Method not found")
        whose = self._context(ctx, None)
        try:
            records = await self._gateway.catalog.tasks.list(whose)
        except CallError as error:
            raise refusal(error) from None
        owner = self._principals.of(ctx).owner
        generation = digest([record.task_id for record in records])
        try:
            page = self._sealing.page(
                "mcp", "tasks", owner, generation, size=MCP_PAGE_TASKS, length=len(records), cursor=params.cursor
            )
        except UnknownCursorError:
            text = "Unknown cursor, or the list has changed: start again without a cursor."
            raise RpcError(INVALID_PARAMS, text) from None
        shown: JSON = {"tasks": [task_before_2026(record) for record in records[page.first : page.end]]}
        return shown if page.next_cursor is None else {**shown, "nextCursor": page.next_cursor}

    async def result(self, ctx: Ctx, params: TaskParams) -> JSON:
        """Handle tasks/result of 2025-11-25: wait for the end, and ask the client meanwhile what the task asks."""
        if not is_earlier(ctx):
            raise RpcError(_METHOD_NOT_FOUND, "Method not found")
        return await isolated(self._result(ctx, params))

    async def _result(self, ctx: Ctx, params: TaskParams) -> JSON:
        whose, tasks = self._context(ctx, params.task_id), self._gateway.catalog.tasks
        try:
            record = await tasks.get(params.task_id, whose)
            while not record.is_over:
                if record.questions:
                    await self._ask(ctx, whose, record)
                await tasks.changed(record, timeout_s=TASK_LOOK_S)
                record = await tasks.get(params.task_id, whose)
        except CallError as error:
            raise refusal(error) from None
        if record.error is not None:
            shown = rpc_error(record.error)
            raise RpcError(shown["code"], shown["message"], shown["data"])
        if record.result is None:
            raise RpcError(_CANCELLED, "The task was cancelled.")
        entry = await self._gateway.exposed(self._principals.of(ctx), whose).afind(record.tool)
        schema = None if entry is None or not record.result.has_structured else entry.spec.output_schema
        answer: JSON = {"isError": False, **mcp_result(record.result, output_schema=schema, wrap_structured=True)}
        return {**answer, "_meta": {**answer.get("_meta", {}), RELATED_TASK: {"taskId": record.task_id}}}

    async def _ask(self, ctx: Ctx, whose: ToolContext, record: TaskRecord) -> None:
        """Put the questions of a task to the client that waits for it, if it can ask its person."""
        channel = await self._tools.channel(ctx, types.CallToolRequestParams(name=record.tool))
        if not isinstance(channel, SdkSessionChannel) or not channel.can("elicitation"):
            return
        for key, question in record.questions.items():
            request = input_request(question)
            request["params"]["_meta"] = {RELATED_TASK: {"taskId": record.task_id}}
            try:
                answer = await channel.put(key, request)
            except CallError:
                # Who waits for the result goes on waiting: somebody else may answer.
                continue
            await self._gateway.catalog.tasks.answer(record.task_id, whose, {key: answer})


def refusal(error: CallError) -> RpcError:
    """Return the JSON-RPC error for a task that cannot be told of."""
    shown = error.error
    code = INVALID_PARAMS if shown.kind in ("not_found", "invalid_arguments") else _CANCELLED
    return RpcError(code, shown.message, {"kind": shown.kind} if shown.kind != "not_found" else None)
