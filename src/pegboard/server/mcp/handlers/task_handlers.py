"""TaskHandlers: tasks/get, tasks/update and tasks/cancel of 2026-07-28, and the tasks of 2025-11-25."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from pegboard.core.cancellation import cancel_and_wait
from pegboard.core.digests import digest
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.task import Question, TaskRecord
from pegboard.providers.mcp import mcp_result
from pegboard.server.gateway import Gateway
from pegboard.server.mcp.asking.channels import session_channel
from pegboard.server.mcp.asking.unanswered_requests import UnfitAnswerError
from pegboard.server.mcp.protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    RpcError,
    as_object,
)
from pegboard.server.mcp.protocol.requests import McpRequest
from pegboard.server.mcp.protocol.task_wire import (
    NEEDED,
    RELATED_TASK,
    declares_tasks,
    detailed_task,
    input_request,
    rpc_error,
    task_before_2026,
)
from pegboard.server.sealing import Sealing, UnknownCursorError
from pegboard.tasks.limits import TASK_LOOK_S

log = logging.getLogger("pegboard.serve")
MCP_PAGE_TASKS = 200  # of one page


class TaskHandlers:
    """Handles tasks in both eras.

    Args:
        gateway: the catalog's answers.
        sealing: seals cursors.
    """

    def __init__(self, gateway: Gateway, sealing: Sealing) -> None:
        self._gateway, self._sealing = gateway, sealing

    def _context(self, request: McpRequest) -> ToolContext:
        """Return the context of the caller whose tasks are requested.

        Raises:
            RpcError: this server does not have tasks, or the client did not declare support for them.
        """
        if self._gateway.catalog.executor.ports.tasks is None:
            raise RpcError(METHOD_NOT_FOUND, "Tasks are not supported by this server.")
        if not (request.era.is_earlier or declares_tasks(request.capabilities)):
            text = "Tasks need a client that declares the extension io.modelcontextprotocol/tasks."
            raise RpcError(MISSING_CAPABILITY, text, {"requiredCapabilities": NEEDED})
        return self._gateway.context(request.principal)

    async def get(self, request: McpRequest) -> JSON:
        """Handle tasks/get."""
        whose = self._context(request)
        try:
            record = await self._gateway.catalog.tasks.get(request.params["taskId"], whose)
        except CallError as error:
            raise refusal(error) from None
        return task_before_2026(record) if request.era.is_earlier else detailed_task(record)

    async def update(self, request: McpRequest) -> JSON:
        """Handle tasks/update of 2026-07-28."""
        whose = self._context(request)
        responses: JSON = request.params.get("inputResponses") or {}
        answers = {key: found for key, answer in responses.items() if (found := as_object(answer))}
        try:
            await self._gateway.catalog.tasks.answer(request.params["taskId"], whose, answers)
        except CallError as error:
            raise refusal(error) from None
        return {}

    async def cancel(self, request: McpRequest) -> JSON:
        """Handle tasks/cancel."""
        whose, task_id = self._context(request), request.params["taskId"]
        tasks = self._gateway.catalog.tasks
        try:
            before = await tasks.get(task_id, whose)
            if request.era.is_earlier and before.is_over:
                raise RpcError(INVALID_PARAMS, f"The task has ended already ({before.state}).")
            await tasks.cancel(task_id, whose)
            after = await tasks.get(task_id, whose)
        except CallError as error:
            raise refusal(error) from None
        return task_before_2026(after) if request.era.is_earlier else {}

    async def list(self, request: McpRequest) -> JSON:
        """Handle tasks/list of 2025-11-25."""
        whose = self._context(request)
        try:
            records = await self._gateway.catalog.tasks.list(whose)
        except CallError as error:
            raise refusal(error) from None
        owner, cursor = request.principal.owner, request.params.get("cursor")
        generation = digest([record.task_id for record in records])
        try:
            page = self._sealing.page(
                "mcp", "tasks", owner, generation, size=MCP_PAGE_TASKS, length=len(records), cursor=cursor
            )
        except UnknownCursorError:
            text = "Unknown cursor, or the list has changed: start again without a cursor."
            raise RpcError(INVALID_PARAMS, text) from None
        shown: JSON = {"tasks": [task_before_2026(record) for record in records[page.first : page.end]]}
        return shown if page.next_cursor is None else {**shown, "nextCursor": page.next_cursor}

    async def result(self, request: McpRequest) -> JSON:
        """Handle tasks/result of 2025-11-25: wait for the end, and ask the client the task's questions meanwhile."""
        whose = self._context(request)
        try:
            record = await self._gateway.catalog.tasks.get(request.params["taskId"], whose)
            record = await self._ended(request, whose, record)
        except CallError as error:
            raise refusal(error) from None
        if record.error is not None:
            shown = rpc_error(record.error)
            raise RpcError(shown["code"], shown["message"], shown["data"])
        if record.result is None:
            raise RpcError(INTERNAL_ERROR, "The task was cancelled.")
        entry = await self._gateway.exposed(request.principal, whose).afind(record.tool)
        schema = None if entry is None or not record.result.has_structured else entry.spec.output_schema
        answer: JSON = {"isError": False, **mcp_result(record.result, output_schema=schema, wrap_structured=True)}
        return {**answer, "_meta": {**answer.get("_meta", {}), RELATED_TASK: {"taskId": record.task_id}}}

    async def _ended(self, request: McpRequest, whose: ToolContext, record: TaskRecord) -> TaskRecord:
        """Wait until a task has ended. The client is asked each question once; the question is withdrawn when somebody
        else answers it.

        Raises:
            RpcError: the client did not answer a question as asked. The task keeps waiting for an answer.
        """
        tasks, can_ask = self._gateway.catalog.tasks, session_channel(request).can("elicitation")
        asking: dict[str, tuple[Question, asyncio.Task[str | None]]] = {}
        ended = asyncio.Event()
        forget = self._gateway.watch(request.principal, ended.set)
        try:
            while not record.is_over:
                if ended.is_set():
                    raise RpcError(INVALID_REQUEST, "The credential of this request is no longer valid.")
                questions: Mapping[str, Question] = record.questions if can_ask else {}
                for key, (question, asked) in list(asking.items()):
                    if questions.get(key) != question:
                        asked.cancel()
                        del asking[key]
                for key, question in questions.items():
                    if key not in asking:
                        work = self._ask(request, whose, record.task_id, key, question)
                        asking[key] = question, asyncio.create_task(work)
                await self._changed(record, [asked for _, asked in asking.values() if not asked.done()])
                record = await tasks.get(record.task_id, whose)
                for key, (question, asked) in asking.items():
                    fault = asked.result() if asked.done() and asked.exception() is None else None
                    if fault is not None and record.questions.get(key) == question:
                        text = f"{fault} The task still waits for an answer: `tasks/result` asks again."
                        raise RpcError(INVALID_PARAMS, text, {"kind": "consent_required"})
            return record
        finally:
            forget()
            await cancel_and_wait(*(asked for _, asked in asking.values()))

    async def _changed(self, record: TaskRecord, asking: Sequence[asyncio.Task[str | None]]) -> None:
        """Return when a task differs from this record, the client has answered a question, or some time has passed."""
        looking = asyncio.create_task(self._gateway.catalog.tasks.changed(record, timeout_s=TASK_LOOK_S))
        try:
            await asyncio.wait([looking, *asking], return_when=asyncio.FIRST_COMPLETED)
            if looking.done():
                looking.result()
        finally:
            await cancel_and_wait(looking)

    async def _ask(
        self, request: McpRequest, whose: ToolContext, task_id: str, key: str, question: Question
    ) -> str | None:
        """Ask the client that waits for a task's result one of its questions; return what is wrong with its answer."""
        asked = input_request(question)
        asked["params"]["_meta"] = {RELATED_TASK: {"taskId": task_id}}
        try:
            answer = await session_channel(request).put(key, asked)
            await self._gateway.catalog.tasks.answer(task_id, whose, {key: answer})
        except CallError as error:
            # Somebody else may still answer; a client that cannot be asked keeps waiting for that.
            log.warning("The question %r of task %s was not answered by its client: %s", key, task_id, error)
            return str(error) if isinstance(error, UnfitAnswerError) else None
        return None


def refusal(error: CallError) -> RpcError:
    """Return the JSON-RPC error for a task that cannot be shown."""
    shown = error.error
    code = INVALID_PARAMS if shown.kind in ("not_found", "invalid_arguments") else INTERNAL_ERROR
    return RpcError(code, shown.message, {"kind": shown.kind} if shown.kind != "not_found" else None)
