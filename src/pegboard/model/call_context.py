"""Call context: what a handler can read and do during one call."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from pegboard.model.attempts import attempted, running_step
from pegboard.model.context import ToolContext
from pegboard.model.context_ports import Client, StepRunner
from pegboard.model.error import CallError
from pegboard.model.event import Event, EventType
from pegboard.model.fastmcp_names import CONTEXT_NAMES, missing_attribute
from pegboard.model.json_types import JSONValue, is_list, is_object
from pegboard.model.result import ToolResult
from pegboard.model.secret import Secret

_SUB_AGENT_ENDS = frozenset({"cancelled", "timeout", "budget_exceeded"})


class Emit(Protocol):
    """Sends one event of a call; `of` is an event of a nested call, which is sent under that call's own ids."""

    def __call__(
        self,
        event_type: EventType,
        payload: Mapping[str, JSONValue],
        ok: bool | None = None,
        /,
        of: Event | None = None,
    ) -> Awaitable[None]: ...


def same_step(name: str) -> str:
    """Return the error for a step whose name an earlier step of the call has."""
    return f"Two steps are called {name!r}: each needs its own name."


class AccountUse(NamedTuple):
    """The account over which a call was sent, and its rights, without the token. A service's own has no connection."""

    connection_id: str
    issuer: str
    scopes: tuple[str, ...]


class UpstreamOutcome(NamedTuple):
    """The answer of each upstream layer to a call; empty for a layer that was not reached or does not exist.

    `transport` is `ok` or the kind of the error. `protocol` is the HTTP status of a service; for an MCP server `ok`, or
    the code of its JSON-RPC error. `tool` is `ok` or `is_error`, of MCP servers only.
    """

    transport: str = ""
    protocol: str = ""
    tool: str = ""


class RunningCall(Protocol):
    """The running call behind a context, as its tool may use it."""

    @property
    def may_be_task(self) -> bool:
        """Whether calls of the tool may run as tasks."""
        ...

    @property
    def reason(self) -> str | None:
        """Why the call was told to stop; `None` if it was not."""
        ...

    def run_agent(
        self, agent: str, query: str, data: Mapping[str, JSONValue], *, transform: str | None
    ) -> Awaitable[ToolResult]:
        """Run an agent as part of this call; `transform` is a template that builds the agent's context from `data`."""
        ...

    def load_agent(self, agent: str) -> Awaitable[None]:
        """Import the packages that a run of this agent needs, and runs of the agents below it."""
        ...

    async def in_thread(self, code: Callable[..., Any], /, *args: Any) -> Any:
        """Run slow code in one of the caller's threads; if it returns an awaitable, await that."""
        ...

    def report_cost(self, amount: float, unit: str) -> None:
        """Count a cost of the call in its budgets."""
        ...

    def sends(self, secret: Secret) -> None:
        """Redact a token that the call sends to a service from all that the call says from now on."""
        ...

    def uses_account(self, use: AccountUse) -> None:
        """Record over which account the call is sent."""
        ...

    def ends_upstream(self, outcome: UpstreamOutcome) -> None:
        """Record what an upstream answered; the last answer counts."""
        ...

    async def check_standing(self) -> None:
        """Check that the call is still allowed, after a wait for a person; raises `CallError` if it is not."""
        ...


class _RecheckingClient:
    """The client of a running call. A person may take an hour to answer, so the call is checked again after each wait.

    Questions are redacted like results before they leave the server.
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
        """A redactor that skips secrets which are ordinary words, since names and values may contain those."""
        ...


def _question_without_secrets(message: str, schema: JSONValue, redactor: TextRedactor | None) -> tuple[str, JSONValue]:
    return (message, schema) if redactor is None else (redactor.text(message), _form_without_secrets(schema, redactor))


def _form_without_secrets(schema: JSONValue, redactor: TextRedactor) -> JSONValue:
    """Return a form with the secrets removed from its titles and descriptions.

    Raises:
        CallError: a secret is in a name or a value. It cannot be removed there, because the answer is validated against
            it.
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
        raise CallError("tool_error", "The question was not asked: a name or a value of its form contains a secret.")
    return text


class SubAgent:
    """Reports what a running sub-agent does; made by `CallContext.sub_agent`. The parent's model never sees it."""

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
        """Report an event of one of the sub-agent's calls, or of a call nested in it, under that call's ids."""
        return self._emit(event.type, event.payload, event.ok, of=event)


@dataclass(frozen=True, kw_only=True, eq=False)
class CallContext(ToolContext):
    """A ToolContext plus what belongs to one call. Made by the Executor; handlers ask for it by annotation.

    `origin_context` is the context of the request; both share one memo and one event sequence. A CallContext ends with
    its call: after that it makes no calls, asks no questions and sends no events.
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

    # Only for missing attributes; type checkers must go on reporting these.
    if not TYPE_CHECKING:  # pragma: no branch - always true when it runs

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)  # a property that fails says why itself
            raise missing_attribute(self, name, CONTEXT_NAMES)

    def plain(self) -> ToolContext:
        """Return the context of the request, in the host's own class.

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
        return super().child(**said).with_request(spending=self.request.spending)

    def check_running(self) -> None:
        """Raise an error if the call is over.

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
        """The client at the other end, while the call runs.

        If the call is forbidden while the client is being asked, the call ends when the client answers.

        Raises:
            CallError: the call is over.
        """
        self.check_running()
        client = cast("Client | None", self.request.client)
        return (
            client
            if client is None or self.call is None
            else cast("Client", _RecheckingClient(client, self.call, self.redactor))
        )

    def progress(self, fraction: float, message: str = "") -> Awaitable[None]:
        """Report the progress of the call, from 0.0 to 1.0; other numbers are clipped. Works from worker threads.

        Awaiting it is optional.
        """
        # `min` and `max` would pass NaN on.
        reached = min(max(fraction, 0.0), 1.0) if fraction == fraction else 0.0
        if self.steps is not None and self.is_running():
            self.steps.progress(reached, message)
        return self.emitter("on_progress", {"fraction": reached, "message": message}, None)

    def emit(self, event: Mapping[str, JSONValue]) -> Awaitable[None]:
        """Send a progress event with a custom payload to the observers."""
        return self.emitter("on_progress", event, None)

    def log(self, message: str, *, level: int = 20) -> None:
        """Write to the log `pegboard.tool`, with the call's id; `level` as in `logging`. The model never sees it."""
        clean = message if self.redactor is None else self.redactor.text(message)
        logging.getLogger("pegboard.tool").log(level, "%s [call %s] %s", self.tool, self.call_id, clean)

    def report_cost(self, amount: float, unit: str = "usd") -> None:
        """Add an amount to the cost of the call, in the budgets of this unit. Works from worker threads.

        A budget that is used up refuses later calls, not this one.

        Raises:
            ValueError: the amount is not a number from 0 to 10¹².
            CallError: the call is over.
        """
        self.check_running()
        if self.call is not None:
            self.call.report_cost(amount, unit)

    @asynccontextmanager
    async def sub_agent(self, name: str) -> AsyncGenerator[SubAgent]:
        """Announce a sub-agent that runs during the block, and report its end when the block ends.

        The reported status is `completed`, `cancelled`, `timeout`, `budget_exceeded`, or `failed` for any other
        exception.
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
            # A call that times out is stopped by cancellation, too.
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
        """Run a unit of work. In a task the result is stored, and the step is not run again after a restart.

        Plain functions run in a thread. Exceptions are retried up to `retries` times, with waits that double. A
        cancellation and a `CallError` that is not retryable end the step at once. `timeout_s` limits each try. In a
        tool that may run as a task, each step needs its own name; in a task it returns JSON of at most 1 MiB.

        Raises:
            ValueError: `retries` is less than 0.
            CallError: the name is taken; in a task: the result cannot be stored, or the step failed.
        """
        self.check_running()
        if retries < 0:
            raise ValueError(f"step({name!r}, retries={retries}): give 0 or more.")
        if self.call is not None and not inspect.iscoroutinefunction(run):
            # In the shared thread pool, a few slow steps of one caller would block all other callers.
            run = partial(self.call.in_thread, run)
        if self.steps is not None:
            return await self.steps.step(name, run, args, retries=retries, timeout_s=timeout_s)
        if self.call is not None and self.call.may_be_task:
            # The same call may run as a task, where a step is found again by its name.
            names: set[str] = self.scratch.setdefault("pegboard.steps", set())
            if name in names:
                raise CallError("tool_error", same_step(name))
            names.add(name)
        return await attempted(
            name, run, args, retries=retries, timeout_s=timeout_s, check=self.check_running, of=self.call_id
        )

    @property
    def step_key(self) -> str:
        """The idempotency key of the running step: the same on every try, and different for every other step.

        Raises:
            CallError: no step is running.
        """
        step = running_step.get()
        if step is None:
            raise CallError("tool_error", "`step_key` exists only in a step: use it in the function of `ctx.step`.")
        return step

    async def ask(self, question: str, *, schema: JSONValue = None) -> JSONValue:
        """Ask the person behind the call.

        Raises:
            CallError: `consent_required`, if no person can be asked.
        """
        self.check_running()
        if self.steps is not None:
            answer = await self.steps.ask(*_question_without_secrets(question, schema, self.redactor))
            await self.memo.renew(self.plain())
            return answer
        if self.client is not None:
            answer = await self.client.elicit(question, schema)
            # A person may take an hour to answer, so nested calls are checked against current facts.
            await self.memo.renew(self.plain())
            return answer
        raise CallError("consent_required", f"{self.tool!r} needs an answer from a person: {question}")
