"""TaskRoutes: /v1/tasks: list a caller's tasks, answer their questions, cancel and resume them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pegboard.model.context import ToolContext
from pegboard.server.http_api.api_app import Api, ApiRequest
from pegboard.server.http_api.problem_details import ProblemError, answered, not_found
from pegboard.server.http_api.responses import Reply, json_reply
from pegboard.tasks.task_json import task_json

if TYPE_CHECKING:
    from pegboard.tasks.tasks import Tasks


class TaskRoutes:
    """GET /v1/tasks and /v1/tasks/{id}, POST /v1/tasks/{id}/answer, /cancel and /resume."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, request: ApiRequest) -> Reply:
        """Return the tasks of this caller, the newest first."""
        tasks, ctx = self._tasks_and_context(request)
        return json_reply({"tasks": [task_json(record) for record in await answered(tasks.list(ctx))]})

    async def show(self, request: ApiRequest) -> Reply:
        """Return one task, with its result where it has ended."""
        tasks, ctx = self._tasks_and_context(request)
        return json_reply(task_json(await answered(tasks.get(request.path["id"], ctx))))

    async def answer(self, request: ApiRequest) -> Reply:
        """Answer a task's questions: by key `{"action", "content"}`."""
        tasks, ctx = self._tasks_and_context(request)
        answers = await self._api.body(request)
        record = await answered(tasks.get(request.path["id"], ctx))
        strange = [key for key in answers if key not in record.questions]
        if strange or not answers:
            raise _not_asked(strange, list(record.questions))
        await answered(tasks.answer(record.task_id, ctx, answers))
        return await self.show(request)

    async def cancel(self, request: ApiRequest) -> Reply:
        """Cancel a task; an ended task does not change."""
        tasks, ctx = self._tasks_and_context(request)
        await answered(tasks.cancel(request.path["id"], ctx))
        return await self.show(request)

    async def resume(self, request: ApiRequest) -> Reply:
        """Resume an interrupted task; one that runs or has ended does not change."""
        tasks, ctx = self._tasks_and_context(request)
        await answered(tasks.resume(request.path["id"], ctx))
        return await self.show(request)

    def _tasks_and_context(self, request: ApiRequest) -> tuple[Tasks, ToolContext]:
        gateway = self._api.gateway
        if gateway.catalog.executor.ports.tasks is None:
            raise not_found("This server keeps no tasks.")
        return gateway.catalog.tasks, gateway.context(request.principal)


def _not_asked(strange: Sequence[str], open_keys: Sequence[str]) -> ProblemError:
    """Return the refusal of answers to questions that the task does not ask: none of them is accepted."""
    reason = f"{', '.join(repr(key[:100]) for key in strange[:10])} is not asked" if strange else "There is no answer"
    wanted = f"Answer {', '.join(map(repr, open_keys))}" if open_keys else "The task asks nothing at present"
    text = f'{reason}. {wanted}; the body is {{KEY: {{"action": "accept", "content": …}}}}.'
    return ProblemError(422, "invalid_arguments", text, more={"questions": list(open_keys)})
