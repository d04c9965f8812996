"""Agent runtime: runs agents with their tools, and counts all nested calls in their budgets and events."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage

from pegboard.agents.access import denials, selection_of
from pegboard.agents.agent_run import Answer, Chunk, Run
from pegboard.agents.agent_spans import note_outcome, run_span, traced_model
from pegboard.agents.away_sources import away_sources
from pegboard.agents.budgets import RunBudget
from pegboard.agents.conversations import ConversationStore, MemoryConversations
from pegboard.agents.missing_tools import MissingTool
from pegboard.agents.model_factory import ModelFactory
from pegboard.agents.relay import Relay
from pegboard.agents.templates import SandboxedTemplates
from pegboard.core.agent_graph import agent_graph, reachable
from pegboard.core.call.listeners import SubAgentObservers, as_observers
from pegboard.core.call.output import clean_error
from pegboard.core.names import nearest
from pegboard.core.ports import RunRecorder
from pegboard.core.redaction import Redactor
from pegboard.core.registry import Registry
from pegboard.core.view import AgentTools, View, ViewParts
from pegboard.model.agent import AgentEntry, AgentResult, AgentSpec, ModelSpec, RunStatus
from pegboard.model.budget import micros
from pegboard.model.call_context import CallContext
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError, ToolError
from pegboard.model.event import Event
from pegboard.model.json_types import JSONValue
from pegboard.model.policy import Policy
from pegboard.model.record import replace
from pegboard.model.result import TextContent, ToolResult, call_error

AGENT_MODELS_KEPT = 256  # language model clients kept in a process
AGENT_STREAM_ITEMS = 1_000  # items of one run waiting for its reader; then the run waits, too
AGENT_ENDING_S = 0.2  # seconds for a stopped run to clean up, within the grace period of the surrounding call

log = logging.getLogger("pegboard")
StreamItem: TypeAlias = str | Event | AgentResult
"""Items of a streamed run: text, events of tools and sub-agents, and finally the result."""
_STATUS: Mapping[str, RunStatus] = {
    "timeout": "timeout", "budget_exceeded": "budget_exceeded", "cancelled": "cancelled",
}  # fmt: skip
_NO_USAGE = RequestUsage()


def _kind(spec: ModelSpec) -> tuple[str, bool]:
    """Return the properties of a model that determine the packages it needs."""
    return spec.provider, spec.base_url is None


def _unheard(text: str) -> None:
    """Ignore streamed text."""


@dataclass(slots=True)
class _LoopState:
    """Resources of one event loop: model clients, and the children that render templates."""

    templates: SandboxedTemplates = field(default_factory=SandboxedTemplates)
    models: dict[int, tuple[ModelSpec, Model]] = field(default_factory=dict[int, tuple[ModelSpec, Model]])


class AgentRuntime:
    """Runs the agents that a catalog declares; made by `runtime.assemble`, and closed with the catalog.

    Each run has its own View: the agent's private tools, and the tools that it selects from the catalog and that both
    its own permissions and those of its caller allow. Every tool call goes through the Executor, like any other call.
    """

    def __init__(
        self,
        registry: Registry,
        parts: ViewParts,
        *,
        make_model: ModelFactory,
        load_model: Callable[[ModelSpec], None] | None = None,
        clock: Callable[[], float],
        redactor: Callable[[ToolContext], Redactor | None],
        store: ConversationStore | None = None,
    ) -> None:
        self._registry, self._parts, self._clock, self._redactor = registry, parts, clock, redactor
        self.make_model, self._load_model = make_model, load_model
        self._loaded: set[tuple[str, bool]] = set()
        self.store = store or MemoryConversations()
        self._tools: dict[str, AgentTools] = {}
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopState] = WeakKeyDictionary()
        self._running: dict[str, _Running] = {}

    # -- running

    async def run(
        self,
        agent: str,
        query: str,
        *,
        context: Mapping[str, JSONValue] | None = None,
        session_id: str | None = None,
        callbacks: object = None,
        ctx: ToolContext | None = None,
        on_text: Chunk | None = None,
        run_id: str | None = None,
    ) -> AgentResult:
        """Run an agent to its end, and return the outcome.

        Args:
            agent: its name.
            query: the task.
            context: variables for its prompt, as `{{ context.company }}` or `{{ company }}`.
            session_id: the conversation to continue; without one, and without one in `ctx`, nothing is remembered.
            callbacks: observers of its tools' events and of all nested calls.
            ctx: the caller and its rights; without it an anonymous caller.
            on_text: receives the answer as it streams, sync or async.
            run_id: the id for `cancel`.

        Raises:
            CallError: `not_found`; there is no such agent. All other errors are in the result.
            asyncio.CancelledError: the caller's own task was cancelled.
        """
        entry = self._entry(agent)
        whole = (ctx or ToolContext()).plain()
        if session_id is not None:
            whole = replace(whole, session_id=session_id)
        if callbacks is not None:
            observers = (*as_observers(whole.callbacks), *as_observers(callbacks))
            whole = whole.with_request(observers=observers)
        redactor = self._redactor(whole)
        if entry.spec.secrets is not None:
            whole = _with_secrets(whole, entry.spec.secrets)
        run_id = run_id or os.urandom(8).hex()
        recorder = self._parts.runner.observe_run(whole, agent, run_id)
        whole = replace(whole, agent=agent)
        result: AgentResult | None = None
        try:
            result = await self._ended(entry, query, context or {}, whole, on_text or _unheard, run_id, redactor)
            return result
        finally:
            _record(recorder, query, context or {}, result)

    async def stream(self, agent: str, query: str, **options: Any) -> AsyncGenerator[StreamItem]:
        """Run an agent, and yield its text and events as they come, then its `AgentResult`. Arguments as for `run`.

        Leaving the iteration early cancels the run.
        """
        items: asyncio.Queue[StreamItem | None] = asyncio.Queue()
        room = asyncio.Event()
        room.set()

        async def heard(text: str) -> None:
            await room.wait()
            items.put_nowait(text)
            if items.qsize() >= AGENT_STREAM_ITEMS:
                room.clear()

        callbacks = (*as_observers(options.pop("callbacks", None)), _Events(items))
        running = asyncio.ensure_future(self.run(agent, query, callbacks=callbacks, on_text=heard, **options))
        running.add_done_callback(lambda _: items.put_nowait(None))
        try:
            while (item := await items.get()) is not None:
                if items.qsize() < AGENT_STREAM_ITEMS:
                    room.set()
                yield item
            yield running.result()
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await running

    def cancel(self, run_id: str) -> bool:
        """Stop a run by its id; `False` if no such run exists. Call it from the loop's own thread."""
        running = self._running.get(run_id)
        if running is not None:
            running.stop()
        return running is not None

    async def load(self, agent: str | ModelSpec) -> None:
        """Import the packages of a model, or of an agent and all agents that it may run.

        The first import takes seconds, which do not count towards the time limit of an agent or of a tool
        that runs one.
        """
        if isinstance(agent, ModelSpec):
            await self._load(agent)
            return
        declared = self._registry.declarations
        if self._load_model is None or all(_kind(each.spec.model) in self._loaded for each in declared.agents.values()):
            return
        for name in reachable(agent_graph(declared), agent):
            await self._load(declared.agents[name].spec.model)

    async def run_below(
        self,
        agent: str,
        query: str,
        data: Mapping[str, JSONValue],
        *,
        transform: str | None,
        ctx: CallContext,
        view: View,
    ) -> ToolResult:
        """Run an agent as part of a call, with at most the rights of the call's view, its budget and its observers."""
        entry = self._entry(agent)
        self._check_depth(agent, ctx)
        self._check_circle(agent, ctx)
        ctx.check_running()
        context = {} if transform is None else await self._state().templates.json_object(transform, data)
        policy = ctx.policy.intersect(view.selection.policy)
        result = await self._below(entry, query, context, ctx, policy=policy)
        if result.error is not None:
            raise call_error(result.error)
        return _as_tool_result(result)

    async def run_own(
        self, agent: AgentEntry, query: str, *, on_text: Callable[[str], None], ctx: CallContext, view: View
    ) -> AgentResult:
        """Run an agent that is private to the tool of a call, and return the outcome.

        It has only its own tools, without those that a policy denies by name to the call's caller. Allow-lists do not
        limit the tools inside it, because an allow-list cannot name them.

        Raises:
            CallError: `recursion_limit`.
        """
        self._check_depth(agent.spec.name, ctx)
        policy = denials(ctx.policy.intersect(view.selection.policy))
        return await self._below(agent, query, {}, ctx, policy=policy, on_text=on_text)

    async def _below(
        self,
        entry: AgentEntry,
        query: str,
        context: Mapping[str, JSONValue],
        ctx: CallContext,
        *,
        policy: Policy,
        on_text: Callable[[str], None] = _unheard,
    ) -> AgentResult:
        """Run an agent within a call, whose observers receive its events; return the outcome."""
        spec = entry.spec
        result: AgentResult | None = None
        try:
            async with ctx.sub_agent(spec.name) as sub:

                async def heard(text: str) -> None:
                    on_text(text)
                    await sub.chunk(text)

                child = ctx.child(
                    agent=spec.name, credentials=spec.secrets or (), callbacks=SubAgentObservers((Relay(sub),))
                )
                child = replace(_with_secrets(child, spec.secrets or ()), policy=policy)
                # Secrets of the caller must be redacted here too, although this run does not have them.
                result = await self._ended(entry, query, context, child, heard, None, self._redactor(ctx))
                if result.error is not None:
                    # The end event for observers is made from this error.
                    raise call_error(result.error)
        except CallError:
            if result is None:
                raise
        assert result is not None
        return result

    # -- agents

    def names(self) -> list[str]:
        """Return the names of the agents, in alphabetical order."""
        return sorted(self._registry.declarations.agents)

    def spec(self, agent: str) -> AgentSpec:
        """Return the declaration of an agent.

        Raises:
            CallError: `not_found`.
        """
        return self._entry(agent).spec

    def view(self, agent: str, ctx: ToolContext | None = None) -> View:
        """Return the tools that a run of the agent would have now.

        Raises:
            CallError: `not_found`.
        """
        return self._view(self._entry(agent), ctx or ToolContext())

    async def close(self) -> None:
        """Stop the running agents, and close the child processes and model clients of this event loop."""
        for running in tuple(self._running.values()):
            running.stop()
        state = self._loops.pop(asyncio.get_running_loop(), None)
        if state is not None:
            await state.templates.close()

    def _entry(self, agent: str) -> AgentEntry:
        agents = self._registry.declarations.agents
        if agent not in agents:
            raise CallError("not_found", f"There is no agent {agent[:200]!r}.{nearest(agent, agents, label='Agents')}")
        return agents[agent]

    def _view(self, entry: AgentEntry, ctx: ToolContext) -> View:
        spec = entry.spec
        tools = self._tools.get(spec.name)
        if tools is None or tools.agent is not entry:
            tools = AgentTools(self._registry, entry)
            if self._registry.declarations.agents.get(spec.name) is entry:
                # An agent made for one call runs only once, so nothing is cached.
                self._tools[spec.name] = tools
        return View(self._parts, ctx, selection_of(entry, self._registry), tools_of=tools)

    def _check_depth(self, agent: str, ctx: CallContext) -> None:
        """Refuse an agent that is nested too deep.

        Raises:
            CallError: `recursion_limit`.
        """
        limit = self._registry.bounds.agent_depth
        if ctx.depth >= limit:
            text = f"Agents may be nested {limit} deep, and {agent!r} would be deeper. Answer without it."
            raise CallError("recursion_limit", text)

    def _check_circle(self, agent: str, ctx: CallContext) -> None:
        """Refuse an agent that is already running further up.

        Raises:
            CallError: `recursion_limit`.
        """
        budget = ctx.budget
        above = [each.agent for each in budget.chain()] if isinstance(budget, RunBudget) else []
        if agent in above:
            way = " → ".join([*reversed(above[: above.index(agent) + 1]), agent])
            raise CallError("recursion_limit", f"Agents would run each other in a circle: {way}. Answer without it.")

    # -- one run

    async def _ended(
        self,
        entry: AgentEntry,
        query: str,
        context: Mapping[str, JSONValue],
        ctx: ToolContext,
        on_chunk: Chunk,
        run_id: str | None,
        redactor: Redactor | None,
    ) -> AgentResult:
        """Run it in its own task, and return the outcome."""
        spec, run_id = entry.spec, run_id or os.urandom(8).hex()
        bounds = self._registry.bounds
        budget = RunBudget(spec.name, spec.budgets, ctx.budget)
        account = self._parts.runner.account(ctx, spec.name)
        timeout_s = bounds.agent_timeout_s if spec.timeout_s is None else spec.timeout_s
        state = self._state()
        running = _Running()
        away = away_sources(entry, self._registry.sources, self._registry.states())
        missing: list[MissingTool] = []

        async def work() -> Answer:
            if spec.budgets.usd is not None or budget.wants_prices:
                budget.price(spec.model, _NO_USAGE)
            await self.load(spec.name if self._registry.declarations.agents.get(spec.name) is entry else spec.model)
            ends = self._clock() + timeout_s
            deadline = ends if ctx.deadline is None else min(ends, ctx.deadline)
            run = Run(
                spec=spec,
                view=self._view(entry, ctx.with_request(budget=budget, deadline=deadline, spending=account.spending)),
                budget=budget,
                account=account,
                model=traced_model(self._model(state, spec.model)),
                templates=state.templates,
                store=self.store,
                query=query,
                context=context,
                on_chunk=on_chunk,
                redactor=redactor,
                off_loop=self._parts.runner.off_loop,
                away=away,
                own_tools=self._registry.own_tools(entry),
                missing=missing,
                left_s=lambda: deadline - self._clock(),
            )
            async with asyncio.timeout(max(deadline - self._clock(), 0.0)):
                return await run.answer()

        self._running[run_id] = running
        with run_span(spec.name, ctx.session_id) as span:
            try:
                answer, error = await running.outcome(work(), spec)
            finally:
                self._running.pop(run_id, None)
                await account.settle()
            if error is not None and redactor is not None:
                error = clean_error(error, redactor)
            result = AgentResult(
                agent=spec.name,
                status="completed" if error is None else _STATUS.get(error.kind, "failed"),
                output=answer.output,
                stopped_reason=answer.stopped_reason,
                error=error,
                usage=budget.usage(),
                run_id=run_id,
                away_sources=away,
                missing_tools=tuple(map(str, missing)),
            )
            note_outcome(span, result)
            return result

    async def _load(self, spec: ModelSpec) -> None:
        """Import the packages of a model in a thread, since it takes seconds that are not the agent's own."""
        if self._load_model is not None and _kind(spec) not in self._loaded:
            with suppress(ImportError):
                await asyncio.to_thread(self._load_model, spec)
            self._loaded.add(_kind(spec))

    def _state(self) -> _LoopState:
        loop = asyncio.get_running_loop()
        state = self._loops.get(loop)
        if state is None:
            state = self._loops[loop] = _LoopState()
        return state

    def _model(self, state: _LoopState, spec: ModelSpec) -> Model:
        known = state.models.get(id(spec))
        if known is None:
            if len(state.models) >= AGENT_MODELS_KEPT:
                state.models.pop(next(iter(state.models)))
            known = state.models[id(spec)] = (spec, self.make_model(spec))
        return known[1]


def _record(recorder: RunRecorder, query: str, context: Mapping[str, JSONValue], result: AgentResult | None) -> None:
    """Record the end of a run; without a result it was cancelled."""
    arguments: JSONValue = {"query": query, "context": dict(context)}
    if result is None:
        recorder.end("cancelled", arguments=arguments, costs={}, output=None)
        return
    usage = result.usage
    costs = {"tokens": micros(usage.input_tokens + usage.output_tokens)}
    if usage.usd is not None:
        costs["usd"] = micros(float(usage.usd))
    kind = "ok" if result.error is None else result.error.kind
    recorder.end(kind, arguments=arguments, costs=costs, output=result.output)


class _Running:
    """A run in its own task, which can be stopped without stopping the waiting caller."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Answer] | None = None

    def stop(self) -> None:
        """Stop it."""
        if self._task is not None:
            self._task.cancel()

    async def outcome(self, work: Coroutine[Any, Any, Answer], spec: AgentSpec) -> tuple[Answer, ToolError | None]:
        """Return the answer of the run, or the error that ended it.

        Raises:
            asyncio.CancelledError: the waiting caller was cancelled; the run gets a moment to clean up.
        """
        self._task = task = asyncio.create_task(work)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task], timeout=AGENT_ENDING_S)
            # Nobody waits for it now; without this its error would be logged as an exception that was never retrieved.
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            raise
        if task.cancelled():
            return Answer(), CallError("cancelled", f"The run of the agent {spec.name!r} was cancelled.").error
        error = task.exception()
        if error is None:
            return task.result(), None
        if isinstance(error, CallError):
            return Answer(), error.error
        if isinstance(error, TimeoutError):
            return Answer(), CallError("timeout", f"The agent {spec.name!r} did not finish in time.").error
        log.error("The agent %r failed.", spec.name, exc_info=error)
        return Answer(), CallError("tool_error", f"The agent {spec.name!r} failed unexpectedly.").error


class _Events:
    """An observer that puts every event into a queue."""

    def __init__(self, items: asyncio.Queue[StreamItem | None]) -> None:
        self._items = items

    def __getattr__(self, name: str) -> Callable[[Event], None]:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return self._items.put_nowait


def _with_secrets(ctx: ToolContext, names: Sequence[str]) -> ToolContext:
    """Return a context with only these secrets."""
    return replace(
        ctx,
        secrets={name: value for name, value in ctx.secrets.items() if name in names},
        upstream_credentials={name: value for name, value in ctx.upstream_credentials.items() if name in names},
    )


def _as_tool_result(result: AgentResult) -> ToolResult:
    meta = {} if result.stopped_reason is None else {"stopped_reason": result.stopped_reason}
    if isinstance(result.output, str):
        return ToolResult((TextContent(result.output),), meta=meta)
    text = json.dumps(result.output, ensure_ascii=False)
    return ToolResult((TextContent(text),), structured=result.output, meta=meta, has_structured=True)
