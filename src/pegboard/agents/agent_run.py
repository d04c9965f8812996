"""Agent run: one run of an agent. pydantic-ai provides the loop; budgets, memory and streaming are ours."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic_ai import Agent, ModelRetry, RunContext, StructuredDict, ToolOutput
from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ModelHTTPError, UserError
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from pegboard.agents.budgets import IterationsOverError, RunBudget, price_of
from pegboard.agents.conversations import ConversationStore, SessionKey
from pegboard.agents.guardrails import GuardedRun, OffLoop, guarded
from pegboard.agents.missing_tools import MissingTool, missing_tools
from pegboard.agents.run_tasks import RunTasks
from pegboard.agents.text_redaction import TextStream
from pegboard.agents.view_toolset import AGENT_ITERATIONS, ViewToolset
from pegboard.core.ports import CostAccount, TemplateRenderer
from pegboard.core.redaction import Redactor
from pegboard.core.schema import compile_schema
from pegboard.core.view import View
from pegboard.model.agent import AgentSpec
from pegboard.model.bounds import MIB
from pegboard.model.error import CallError, ErrorKind
from pegboard.model.json_types import JSON, JSONValue, is_awaitable
from pegboard.model.record import replace
from pegboard.model.result import call_error
from pegboard.model.tool import ToolEntry
from pegboard.models.retries import retried

CONVERSATION_BYTES = 4 * MIB  # bytes of one turn of a conversation

log = logging.getLogger("pegboard")
# We limit the requests ourselves: pydantic-ai would end a run at its fiftieth.
_UNLIMITED = UsageLimits(request_limit=None)
# The session name that transports without sessions use for all unknown callers.
_OF_ALL_STRANGERS = "anonymous"
T = TypeVar("T")
Chunk = Callable[[str], Awaitable[None] | None]


@dataclass(kw_only=True, slots=True)
class Answer:
    """The outcome of a run: its answer, or the partial answer so far."""

    output: JSONValue = None
    stopped_reason: str | None = None


@dataclass(kw_only=True, slots=True)
class Run:
    """The state of one run. Made by `AgentRuntime` for one query; `answer` runs it once."""

    spec: AgentSpec
    view: View
    budget: RunBudget
    account: CostAccount
    model: Model
    templates: TemplateRenderer
    store: ConversationStore
    query: str
    context: Mapping[str, JSONValue]
    on_chunk: Chunk
    redactor: Redactor | None
    off_loop: OffLoop
    away: tuple[str, ...]
    """The sources of its tools that are not up, with the reason."""
    own_tools: Sequence[ToolEntry]
    missing: list[MissingTool]
    """Filled when it begins: what it declares and does not have."""
    left_s: Callable[[], float]
    """The seconds until its deadline."""
    answer_parts: list[str] = field(default_factory=list[str])
    """The text of the model's last answer so far."""

    async def answer(self) -> Answer:
        """Return the answer.

        Raises:
            CallError: the run ended with it.
        """
        spec = self.spec
        await self._check_tools()
        bounds = self.view.snapshot.declared.bounds
        asked = GuardedRun(agent=spec.name, ctx=self.view.ctx, value=self.query)
        query = await guarded(spec.input_guardrails, asked, limit_s=bounds.hook_s, off_loop=self.off_loop)
        names = {**self.context, "context": dict(self.context)}
        instructions = await self.templates.text(spec.prompt, names)
        key = self._session()
        history = [] if key is None else await self._history(key)
        stopped: str | None = None
        try:
            value, new_messages = await self._loop(str(query), instructions, history)
        except IterationsOverError:
            # If there is an output schema, text outside of it is not an answer.
            value = "".join(self.answer_parts) if spec.output_schema is None else None
            new_messages, stopped = None, "max_iterations"
        judged = replace(asked, value=value)
        output = await guarded(spec.output_guardrails, judged, limit_s=bounds.hook_s, off_loop=self.off_loop)
        if self.redactor is not None:
            output = self.redactor.value(output)
        if spec.output_guardrails and isinstance(output, str):
            # The answer was held back until the guardrails had judged it.
            await _awaited(self.on_chunk(output))
        if key is not None and new_messages is not None:
            await self._remember(key, new_messages)
        return Answer(output=output, stopped_reason=stopped)

    async def _check_tools(self) -> None:
        """Report declared tools that are missing; without any tool left, the model would make its answer up.

        Raises:
            CallError: `upstream_unavailable`, sources are not up; `config_invalid`, the tools do not exist.
        """
        name, tools = self.spec.name, await self.view.atools()
        self.missing += await missing_tools(self.spec, self.view, self.own_tools, tools)
        if self.away:
            which = ", ".join(self.away)
            if not tools:
                text = f"Agent {name!r} did not run: it has no tools, because these sources are not up: {which}."
                hint = "Wait for the sources (`await catalog.start()`), or try again later."
                raise CallError("upstream_unavailable", text, hint=hint, retryable=True)
            log.warning("Agent %r runs without the tools of these sources: %s.", name, which)
        if not self.missing:
            return
        which = "; ".join(map(str, self.missing))
        are_hidden = all(each.is_hidden for each in self.missing)
        if not tools and not are_hidden:
            text = f"Agent {name!r} did not run: none of the tools that it declares is available: {which}."
            raise CallError("config_invalid", text, hint="Correct its declaration, or add the tools again.")
        # A rule may hide a tool from one caller; that is not a fault.
        log.log(logging.INFO if are_hidden else logging.WARNING, "Agent %r runs without: %s.", name, which)

    # -- loop

    async def _loop(
        self, query: str, instructions: str, history: Sequence[ModelMessage]
    ) -> tuple[JSONValue, list[ModelMessage]]:
        toolset = ViewToolset(self.view, self.budget)
        counted = CountedModel(self.model, run=self, toolset=toolset)
        tool_names = [entry.wire_name for entry in await self.view.atools()] if self.spec.output_schema else ()
        agent, tasks = agent_of(self.spec, taken=tool_names), RunTasks()
        try:
            result = await agent.run(
                query,
                model=counted,
                instructions=instructions or None,
                message_history=list(history) or None,
                toolsets=[toolset],
                usage_limits=_UNLIMITED,
                event_stream_handler=self._stream,
                capabilities=[tasks],
            )
        except (AgentRunError, UserError) as error:
            raise failure(error, self.spec) from error
        finally:
            tasks.end()
        return result.output, result.new_messages()

    async def _stream(self, ctx: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
        """Receive one answer of the model and stream its text, unless guardrails must judge it first."""
        self.answer_parts.clear()
        text_out = TextStream(self.redactor)
        async for event in events:
            match event:
                case PartStartEvent(part=TextPart(content=text)) if text:
                    pass
                case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
                    pass
                case _:
                    continue
            self.answer_parts.append(text)
            if not self.spec.output_guardrails and (piece := text_out.feed(text)):
                await _awaited(self.on_chunk(piece))
        if rest := text_out.end():
            await _awaited(self.on_chunk(rest))

    # -- memory

    def _session(self) -> SessionKey | None:
        ctx = self.view.ctx
        if not self.spec.memory.conversation or ctx.session_id is None:
            return None
        if ctx.user_id is None and ctx.session_id == _OF_ALL_STRANGERS:
            # Unknown callers must not see each other's conversations.
            return None
        return SessionKey(self.spec.name, ctx.user_id, ctx.space_id, ctx.session_id)

    async def _history(self, key: SessionKey) -> list[ModelMessage]:
        try:
            turns = await self.store.turns(key, last=self.spec.memory.max_turns)
        except ConnectionError as error:
            raise CallError("storage_unavailable", "The conversations of agents cannot be read now.") from error
        return [message for turn in turns for message in ModelMessagesTypeAdapter.validate_json(turn)]

    async def _remember(self, key: SessionKey, messages: list[ModelMessage]) -> None:
        turn = ModelMessagesTypeAdapter.dump_json(messages)
        if len(turn) > CONVERSATION_BYTES:
            log.warning("A turn of %d bytes of agent %r is too large to be remembered.", len(turn), self.spec.name)
            return
        try:
            await self.store.append(key, turn, keep=self.spec.memory.max_turns)
        except ConnectionError:
            # The answer exists and was paid for, so a failing store does not fail the run.
            log.warning("A turn of agent %r could not be remembered.", self.spec.name, exc_info=True)


async def _awaited(value: Awaitable[None] | None) -> None:
    if is_awaitable(value):
        await value


class CountedModel(WrapperModel):
    """The model of one run: each request is checked against the budgets and counted."""

    def __init__(self, wrapped: Model, *, run: Run, toolset: ViewToolset) -> None:
        super().__init__(wrapped)
        self._run, self._toolset, self._requests = run, toolset, 0

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        await self._begin()
        response = await self._retried(lambda: self.wrapped.request(messages, model_settings, model_request_parameters))
        self._count(response)
        await self._refuse_unknown(response, model_request_parameters)
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        await self._begin()
        async with AsyncExitStack() as streams:
            # A failure before the first event can be retried, a later one cannot.
            stream = await self._retried(
                lambda: streams.enter_async_context(
                    self.wrapped.request_stream(messages, model_settings, model_request_parameters, run_context)
                )
            )
            try:
                yield stream
            finally:
                # An incomplete answer was paid for, too.
                self._count(stream.get())
        await self._refuse_unknown(stream.get(), model_request_parameters)

    async def _begin(self) -> None:
        if self._requests >= (self._run.spec.max_iterations or AGENT_ITERATIONS):
            raise IterationsOverError
        await self._run.account.check()
        self._requests += 1
        self._run.budget.begin_request()

    async def _retried(self, send: Callable[[], Awaitable[T]]) -> T:
        return await retried(
            send,
            max_retries=self._run.spec.model.max_retries,
            left_s=self._run.left_s,
            before_retry=self._run.budget.begin_request,
        )

    def _count(self, response: ModelResponse) -> None:
        usage, model, account = response.usage, self._run.spec.model, self._run.account
        self._run.budget.count(usage, model)
        account.report_cost(usage.input_tokens + usage.output_tokens, "tokens")
        # A model without a known price costs no money here; `pegboard check` warns about it.
        if account.wants("usd") and (price := price_of(model, usage)) is not None:
            account.report_cost(float(price), "usd")

    async def _refuse_unknown(self, response: ModelResponse, parameters: ModelRequestParameters) -> None:
        known = {tool.name for tool in (*parameters.function_tools, *parameters.output_tools)}
        for part in response.parts:
            if isinstance(part, ToolCallPart) and part.tool_name not in known:
                await self._toolset.call_unknown(part.tool_name, part.args)


def agent_of(spec: AgentSpec, *, taken: Sequence[str]) -> Agent[None, Any]:
    """Return pydantic-ai's agent for a declaration; each run adds the model and tools.

    For an output schema, the model returns its answer with a tool whose name is not in `taken`.
    """
    retries = spec.max_iterations or AGENT_ITERATIONS
    schema = spec.output_schema
    if schema is None:
        return Agent(output_type=str, retries=retries, name=spec.name)
    judge = compile_schema(schema)
    name = "final_answer"
    while name in taken:
        name += "_"
    output = ToolOutput(StructuredDict(dict(schema), name="answer"), name=name)
    agent: Agent[None, Any] = Agent(output_type=output, retries=retries, name=spec.name)

    @agent.output_validator
    def _judged(value: JSON) -> JSON:
        if not judge.is_valid(value):
            faults = "; ".join(f"{problem.path}: {problem.message}" for problem in judge.problems(value))
            raise ModelRetry(f"This does not fit the schema of the answer: {faults}")
        return value

    return agent


def failure(error: Exception, spec: AgentSpec) -> CallError:
    """Return the typed error for an exception of the loop or the model's client."""
    cause: BaseException | None = error
    while cause is not None:
        # Errors of our clients, guards and budgets are kept.
        if isinstance(cause, CallError):
            return call_error(cause.error)
        cause = cause.__cause__ or cause.__context__
    model = f"The language model {spec.model.name!r} of the agent {spec.name!r}"
    if isinstance(error, ModelHTTPError):
        kind: ErrorKind = _KINDS.get(error.status_code, "upstream_error")
        if error.status_code >= 500:
            kind = "upstream_unavailable"
        retry_after_s = error.retry_after if kind == "rate_limited" else None
        return CallError(kind, f"{model} answered with HTTP status {error.status_code}.", retry_after_s=retry_after_s)
    if isinstance(error, ModelAPIError):
        return CallError("upstream_unavailable", f"{model} cannot be reached.")
    return CallError("upstream_error", f"{model} gave no usable answer: {str(error)[:200]}")


_KINDS: Mapping[int, ErrorKind] = {401: "upstream_auth", 403: "upstream_auth", 429: "rate_limited"}
