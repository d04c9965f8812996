"""Run tasks: ends the tasks that pydantic-ai leaves behind if a run is cancelled while they start or open a stream.

pydantic-ai runs the hooks of a run and of each model request in separate tasks. A cancellation that arrives in the
two turns of the event loop in which it takes such a task over (seen in 2.68) leaves the task waiting for ever, with the
connection to the model.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, WrapModelRequestHandler, WrapRunHandler
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.run import AgentRunResult


@dataclass
class RunTasks(AbstractCapability[None]):
    """The tasks of one run, as a capability of its agent, which pydantic-ai calls in each of them."""

    _tasks: list[asyncio.Task[Any]] = field(default_factory=list[asyncio.Task[Any]])

    async def wrap_run(self, ctx: RunContext[None], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Remember the task of the run."""
        self._remember()
        return await handler()

    async def wrap_model_request(
        self, ctx: RunContext[None], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """Remember the task of a model request."""
        self._remember()
        return await handler(request_context)

    def _remember(self) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.append(task)

    def end(self) -> None:
        """Cancel the tasks that still run; call it after the run has ended, in any way."""
        for task in self._tasks:
            if not task.done() and task is not asyncio.current_task():
                task.cancel()
                # Nobody waits for it, so asyncio would log its exception as never retrieved.
                task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
