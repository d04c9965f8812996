"""Call context: what a handler is given of one call, beside the request's own context."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast

from pegboard.model.attempts import attempted, running_step
from pegboard.model.context import ToolContext
from pegboard.model.context_ports import Client, StepRunner
from pegboard.model.error import CallError
from pegboard.model.event import Event, EventType
from pegboard.model.json_types import JSONValue, is_list, is_object
from pegboard.model.result import ToolResult

_SUB_AGENT_ENDS = frozenset({"cancelled", "timeout", "budget_exceeded"})


class Emit(Protocol):
    """Sends one event of a call; with `of` it is one of a call below, which goes out under that call's own ids."""

    def __call__(
        self,
        event_type: EventType,
        payload: Mapping[str, JSONValue],
        ok: bool | None = None,
        /,
        of: Event | None = None,
    ) -> Awaitable[None]: ...


class RunningCall(Protocol):
    """The call that a context belongs to, as far as its tool may use it."""

    @property
    def reason(self) -> str | None:
        """Why it was told to stop; `None` while it was not."""
        ...

    def run_agent(
        self, agent: str, query: str, data: Mapping[str, JSONValue], *, transform: str | None
    ) -> Awaitable[ToolResult]:
        """Run an agent as a part of this call; `transform` is a template that makes its context of `data`."""
        ...

    async def in_thread(self, code: Callable[..., Any], /, *args: Any) -> Any:
        """Run code that may take long in a thread, one of its caller's share, and await what it gives to await."""
        ...

    async def check_standing(self) -> None:
        """See whether the call would still be let through, after somebody was waited for; raises `CallError` if not."""
        ...


class _AskedClient:
    """The client of a running call. A person may take an hour: after each wait for one the call is judged again.

    What is asked leaves the server as results do: without secrets.
    """

    def __init__(self, client: Client, call: RunningCall, redactor: TextRedactor | None) -> None:
        self._client, self._call, self._redactor = client, call, redactor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def elicit(self, message: str, schema: JSONValue = None, **options: Any) -> JSONValue:
        answer = await self._client.elicit(*_question_without_secrets(message, schema, self._redactor), **options)
        await self._call.check_standing()
        return answer

    async def sample(self, prompt: str, **options: Any) -> JSONValue:
        if self._redactor is not None:
            prompt = self._redactor.text(prompt)
        answer = await self._client.sample(prompt, **options)
        await self._call.check_standing()
        return answer


class TextRedactor(Protocol):
    """Removes every secret in use from a text."""

    def text(self, text: str) -> str: ...

    def finds(self, text: str) -> bool: ...

    @property
    def telling(self) -> TextRedactor:
        """The same for secrets that are no word, which no name or value needs to have."""
        ...


def _question_without_secrets(message: str, schema: JSONValue, redactor: TextRedactor | None) -> tuple[str, JSONValue]:
    return (message, schema) if redactor is None else (redactor.text(message), _form_without_secrets(schema, redactor))


def _form_without_secrets(schema: JSONValue, redactor: TextRedactor) -> JSONValue:
    """Return a form without secrets in its prose.

    Raises:
        CallError: one stands in a name or a value, which the answer is judged by.
    """
    if is_object(schema):
        return {
            _judged_by(key, redactor): redactor.text(value)
            if key in ("title", "description") and isinstance(value, str)
            else _form_without_secrets(value, redactor)
            for key, value in schema.items()
        }
    if is_list(schema):
        return [_form_without_secrets(value, redactor) for value in schema]
    return _judged_by(schema, redactor) if isinstance(schema, str) else schema


def _judged_by(text: str, redactor: TextRedactor) -> str:
    if redactor.telling.finds(text):
        raise CallError("tool_error", "The question was not asked: a secret stands in a name or a value of its form.")
    return text


class SubAgent:
    """What a running sub-agent reports; made by `CallContext.sub_agent`. Never seen by the parent's model."""

    def __init__(self, emit: Emit, *, sub_id: str, agent: str, depth: int = 1) -> None:
        self._emit, self._base = emit, {"sub_id": sub_id, "agent": agent, "depth": depth}

    def chunk(self, text: str) -> Awaitable[None]:
        return self._emit("on_sub_agent_chunk", {**self._base, "text": text}, None)

    def tool_call(self, tool: str, arguments: JSONValue = None, *, call_id: str = "") -> Awaitable[None]:
        payload = {**self._base, "call_id": call_id, "tool": tool, "arguments": arguments}
        return self._emit("on_sub_agent_tool_call", payload, None)

    def tool_result(
        self, tool: str, result: JSONValue = None, *, ok: bool = True, call_id: str = ""
    ) -> Awaitable[None]:
        payload = {**self._base, "call_id": call_id, "tool": tool, "result": result}
        return self._emit("on_sub_agent_tool_result", payload, ok)

    def pass_on(self, event: Event) -> Awaitable[None]:
        """Report an event of a call of the sub-agent's own, or of one further below, under its own ids."""
        return self._emit(event.type, event.payload, event.ok, of=event)


@dataclass(frozen=True, kw_only=True, eq=False)
class CallContext(ToolContext):
    """A ToolContext plus what belongs to one call. Made by the Executor; handlers ask for it by annotation.

    `origin_context` is the request's own context, whose memo and sequence of events it shares. It ends with its call:
    who keeps it can make no calls with it, ask nobody and send no events.
    """

    origin_context: ToolContext = field(repr=False)
    emitter: Emit = field(repr=False)
    call_id: str = ""
    tool: str = ""
    steps: StepRunner | None = field(default=None, repr=False)
    redactor: TextRedactor | None = field(default=None, repr=False)
    is_running: Callable[[], bool] = field(default=lambda: True, repr=False)
    scratch: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    call: RunningCall | None = field(default=None, repr=False)

    def plain(self) -> ToolContext:
        """Return the request's context, of the host's own class.

        Raises:
            CallError: the call is over.
        """
        self.check_running()
        return self.origin_context

    def child(self, **said: Any) -> ToolContext:
        """Return the context of a sub-agent of this call; see `ToolContext.child`.

        Raises:
            CallError: the call is over.
        """
        self.check_running()
        return super().child(**said)

    def check_running(self) -> None:
        """Refuse to act for a call that is over.

        Raises:
            CallError: `tool_error`.
        """
        if not self.is_running():
            text = (
                f"The call of {self.tool!r} that this context was made for is over. Use the context of your own call."
            )
            raise CallError("tool_error", text)

    @property
    def client(self) -> Client | None:  # pyright: ignore[reportIncompatibleVariableOverride] - a property there too
        """The client at the other end, while the call runs. What it answers ends a call that was forbidden meanwhile.

        Raises:
            CallError: the call is over.
        """
        self.check_running()
        client = cast("Client | None", self.request.client)
        return (
            client
            if client is None or self.call is None
            else cast("Client", _AskedClient(client, self.call, self.redactor))
        )

    def progress(self, fraction: float, message: str = "") -> Awaitable[None]:
        """Report how far the call is, 0.0 to 1.0; what is beyond that is cut. Works from worker threads.

        Awaiting it is optional.
        """
        # Not a number is no progress: `min` would hand it on.
        reached = min(max(fraction, 0.0), 1.0) if fraction == fraction else 0.0
        if self.steps is not None and self.is_running():
            self.steps.progress(reached, message)
        return self.emitter("on_progress", {"fraction": reached, "message": message}, None)

    def emit(self, event: Mapping[str, JSONValue]) -> Awaitable[None]:
        """Send observers a progress event with a payload of one's own."""
        return self.emitter("on_progress", event, None)

    def log(self, message: str, *, level: int = 20) -> None:
        """Write to the log `pegboard.tool`, with the call's id; `level` as in `logging`. The model never sees it."""
        clean = message if self.redactor is None else self.redactor.text(message)
        logging.getLogger("pegboard.tool").log(level, "%s [call %s] %s", self.tool, self.call_id, clean)

    @asynccontextmanager
    async def sub_agent(self, name: str) -> AsyncGenerator[SubAgent]:
        """Announce a sub-agent for the time of the block; its end says how that ended.

        That is `completed`, `cancelled`, `timeout`, `budget_exceeded`, or `failed` for whatever else it raised.
        """
        self.check_running()
        sub_id = os.urandom(8).hex()
        base = {"sub_id": sub_id, "agent": name, "depth": self.depth + 1}
        await self.emitter("on_sub_agent_start", base, None)
        status = "failed"
        try:
            yield SubAgent(self.emitter, sub_id=sub_id, agent=name, depth=self.depth + 1)
            status = "completed"
        except asyncio.CancelledError:
            # A call whose time is over is stopped as one that is cancelled is.
            status = "timeout" if self.call is not None and self.call.reason == "timeout" else "cancelled"
            raise
        except TimeoutError:
            status = "timeout"
            raise
        except CallError as error:
            status = error.error.kind if error.error.kind in _SUB_AGENT_ENDS else "failed"
            raise
        finally:
            await self.emitter("on_sub_agent_end", {**base, "status": status}, status == "completed")

    async def step(
        self, name: str, run: Callable[..., Any], *args: Any, retries: int = 0, timeout_s: float | None = None
    ) -> Any:
        """Run a unit of work; inside a task its result is stored, and it is not run again.

        A plain function runs in a thread. What it raises is tried again up to `retries` times, after waits that double;
        what is raised for good is not: a cancellation, and a `CallError` that says it is not retryable. `timeout_s` is
        for each try. In a task each step has a name of its own, and gives JSON of at most 1 MiB.

        Raises:
            ValueError: `retries` is less than 0.
            CallError: in a task: a name that is taken, a result that cannot be stored, and whatever the step raised.
        """
        self.check_running()
        if retries < 0:
            raise ValueError(f"step({name!r}, retries={retries}): give 0 or more.")
        if self.call is not None and not inspect.iscoroutinefunction(run):
            # In the threads of all, a few slow steps of one caller would hold every other's.
            run = partial(self.call.in_thread, run)
        if self.steps is not None:
            return await self.steps.step(name, run, args, retries=retries, timeout_s=timeout_s)
        return await attempted(
            name, run, args, retries=retries, timeout_s=timeout_s, check=self.check_running, of=self.call_id
        )

    @property
    def step_key(self) -> str:
        """The same each time that the running step is run, and different for every other: for services that take keys.

        Raises:
            CallError: no step is running.
        """
        step = running_step.get()
        if step is None:
            raise CallError("tool_error", "`step_key` is that of a step: use it in what `ctx.step` runs.")
        return step

    async def ask(self, question: str, *, schema: JSONValue = None) -> JSONValue:
        """Ask the person behind the call.

        Raises:
            CallError: `consent_required`, when nobody can be asked here.
        """
        self.check_running()
        if self.steps is not None:
            answer = await self.steps.ask(*_question_without_secrets(question, schema, self.redactor))
            await self.memo.renew(self.plain())
            return answer
        if self.client is not None:
            answer = await self.client.elicit(question, schema)
            # A person may take an hour: what this call calls next is judged by what is true then.
            await self.memo.renew(self.plain())
            return answer
        raise CallError("consent_required", f"{self.tool!r} needs an answer from a person: {question}")
