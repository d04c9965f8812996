"""Record: one call, the ports it uses, and the running state that all calls of an executor share."""

from __future__ import annotations

import logging
import time
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from threading import Lock, get_ident
from typing import Any, Final, Literal, NamedTuple, Protocol

from msgspec import Struct, field

from pegboard.core.after_fork import leave_to_parent
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.call.budget_meter import BudgetMeter
from pegboard.core.call.deliveries import AsyncObservers, Deliveries
from pegboard.core.call.finished_call import CallObserver, FinishedRun, StartedCall
from pegboard.core.call.handler_threads import WorkerPool
from pegboard.core.call.limit_keys import FloodGuard, Key, owner_of
from pegboard.core.call.listeners import DELIVERED, Delivered, Listeners
from pegboard.core.call.repeats import RepeatBreaker
from pegboard.core.coroutine_runner import CancelScope
from pegboard.core.hooks import ToolHooks
from pegboard.core.ports import (
    AuditLog,
    Backpressure,
    BudgetStore,
    ConsentRecords,
    LimitStore,
    LocalBudgetStore,
    LocalLimitStore,
    UsedAnswers,
)
from pegboard.core.redaction import Redactor
from pegboard.core.registry import Registry
from pegboard.core.snapshot import Plan
from pegboard.core.steady_clock import steady_time
from pegboard.core.view import View
from pegboard.model.agent import AgentEntry, AgentResult, ModelSpec
from pegboard.model.bounds import Bounds
from pegboard.model.budget import Charge, Spending, micros
from pegboard.model.call_context import AccountUse, CallContext, UpstreamOutcome
from pegboard.model.consent import ConsentRequest
from pegboard.model.context import ToolContext, sharing_answers
from pegboard.model.error import CallError
from pegboard.model.event import Event, EventType
from pegboard.model.json_types import JSON, JSONValue, is_awaitable
from pegboard.model.rate_limit import RateLimit
from pegboard.model.record import replace
from pegboard.model.result import ToolResult, new_tuple
from pegboard.model.secret import Secret
from pegboard.model.tool import ToolEntry, ToolSpec

FLOOD_WINDOW_S = 60.0  # how long a caller's invalid calls are counted, in seconds
REDACTORS_REMEMBERED = 256  # redactors in the cache, one for each set of secrets

log = logging.getLogger("pegboard")


class TaskEngine(Protocol):
    """Runs long calls as tasks; called at the run stage, after every guard has passed."""

    async def start(self, call: Call) -> ToolResult:
        """Store the call and return the handle that its caller gets instead of a result.

        Raises:
            CallError: `storage_unavailable` if it cannot be stored; `invalid_arguments` if its arguments contain a
                secret.
        """
        ...

    async def close(self) -> None:
        """Stop the tasks that run here; durable ones continue elsewhere or later."""
        ...

    def reopen(self) -> None:
        """Accept tasks again after `close`."""
        ...


class AgentRunner(Protocol):
    """Runs an agent as part of a call."""

    async def load(self, agent: str | ModelSpec) -> None:
        """Import the packages of an agent and the agents below it, or of a model; missing ones fail the run later."""
        ...

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
        """Run it with at most the rights of the call's view; raises `CallError` unless it completes."""
        ...

    async def run_own(
        self, agent: AgentEntry, query: str, *, on_text: Callable[[str], None], ctx: CallContext, view: View
    ) -> AgentResult:
        """Run a private agent of the call's tool, under every restriction of the call's view."""
        ...


class CallAudit(AuditLog, Protocol):
    """The audit, as calls and agents' runs use it."""

    def begin_run(self, started: StartedCall) -> None:
        """Record the start of an agent's run that no call of a tool surrounds."""
        ...

    def end_run(self, run: FinishedRun) -> None:
        """Record the end of such a run."""
        ...


class Ports(Struct, frozen=True, kw_only=True, eq=False):
    """The parts of other packages that an executor needs, as one frozen value.

    To change a port, swap the whole value: `executor.swap(replace(executor.ports, consents=store))`. A call reads the
    ports when it starts and again after it has waited for a person.

    `clock` is monotonic; `wall_clock` counts seconds since 1970. `local_limits` counts rate limits in memory: it
    decides while `limits`, the shared store, does not answer. `limits_without_store` replaces it in a process that is
    one of several workers. `invalid_calls` counts the callers that send invalid calls. `budgets` counts calls and
    costs; `local_budgets` counts them in this process while that store does not answer. `backpressure` makes calls wait
    while the audit has too many records to store.
    """

    limits: LimitStore
    local_limits: LocalLimitStore
    invalid_calls: LocalLimitStore
    budgets: BudgetStore
    local_budgets: LocalBudgetStore
    consents: ConsentRecords
    limits_without_store: LimitStore | None = None
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = steady_time
    used_answers: UsedAnswers | None = None
    tasks: TaskEngine | None = None
    agents: AgentRunner | None = None
    audit: CallAudit | None = None
    audit_required: bool = False
    backpressure: Backpressure | None = None
    repair: Callable[[Call, Callable[[object], JSON]], bool] = lambda call, judge: False
    listeners: Listeners = field(default_factory=Listeners)
    """Receive the events of every call."""
    call_observers: tuple[CallObserver, ...] = ()
    """Receive the started and finished record of every call."""
    times_stages: bool = False
    """Whether one of them needs the seconds of each stage."""
    is_shared: bool = False
    """Whether unrelated callers share this process, as over HTTP: then no caller may take every place."""

    def with_limits(self, store: LimitStore | None) -> Ports:
        """Return the ports with rate limits counted in another store; `None` means the default of this process."""
        # Compare with `None`: an empty store may be falsy.
        stores = (store, self.limits_without_store, self.local_limits)
        return replace(self, limits=next(each for each in stores if each is not None))

    def with_call_observers(self, observers: tuple[CallObserver, ...]) -> Ports:
        """Return the ports with these observers of calls."""
        times_stages = any(getattr(observer, "times_stages", False) for observer in observers)
        return replace(self, call_observers=observers, times_stages=times_stages)

    def with_budgets(self, store: BudgetStore | None) -> Ports:
        """Return the ports with budgets counted in another store; `None` means in this process."""
        return replace(self, budgets=self.local_budgets if store is None else store)


class ExecutorState:
    """The running state of one executor, which its calls share. `Executor` adds the way to run a call.

    `registry` holds the declarations; bounds, the default limit and the secrets are read from it for each call.
    """

    def __init__(self, registry: Registry, ports: Ports) -> None:
        self.registry = registry
        self.ports = ports
        """The current ports; `swap` replaces them."""
        self.in_flight: dict[str, Call] = {}
        self.task_runs = 0
        """The number of calls in flight that are runs of tasks; these have their own places."""
        self.closing = False
        self.workers = WorkerPool()
        """Threads that run tools."""
        self.checkers = WorkerPool(name="pegboard-check")
        """Threads for predicates and hooks that have blocked the loop; the tools' threads may all be busy for long."""
        self.async_observers = AsyncObservers()
        allowed = RateLimit(max_calls=registry.bounds.invalid_calls_per_minute, window_s=FLOOD_WINDOW_S)
        self.flood = FloodGuard(allowed, ports.invalid_calls)
        self.repeats = RepeatBreaker(ports.clock)
        self.budgets = BudgetMeter()
        self.limits_are_away = self.budgets_are_away = False
        """Whether the last call that asked the shared store got no answer, which is logged once."""
        self._redactors = BoundedCache[tuple[Secret, ...], Redactor](max_entries=REDACTORS_REMEMBERED)
        self._swapping = Lock()
        registry.wall_clock = ports.wall_clock

    def swap(self, ports: Ports) -> None:
        """Replace every port at once; running calls keep the ports they read at their start."""
        self.ports = ports
        self.registry.wall_clock = ports.wall_clock

    def observe(self, observer: object) -> Callable[[], None]:
        """Send the events of every later call to an observer; return a function that stops this."""
        with self._swapping:
            known = self.ports.listeners.observers
            self.swap(replace(self.ports, listeners=Listeners((*known, observer))))

        def end() -> None:
            with self._swapping:
                others = tuple(known for known in self.ports.listeners.observers if known is not observer)
                self.swap(replace(self.ports, listeners=Listeners(others)))

        return end

    def record(self, observer: CallObserver) -> Callable[[], None]:
        """Give the started and finished record of every later call to an observer; return a function that stops it."""
        with self._swapping:
            self.swap(self.ports.with_call_observers((*self.ports.call_observers, observer)))

        def end() -> None:
            with self._swapping:
                others = tuple(known for known in self.ports.call_observers if known is not observer)
                self.swap(self.ports.with_call_observers(others))

        return end

    def adopt_bounds(self) -> None:
        """Apply the declared bounds to the counters that hold a copy; their counts stay."""
        bounds = self.registry.bounds
        self.flood.limit = replace(self.flood.limit, max_calls=bounds.invalid_calls_per_minute)
        self.ports.local_limits.max_keys = bounds.ratelimit_keys

    def redactor(self, ctx: ToolContext, *sent: Secret) -> Redactor | None:
        """Return the redactor of every secret in use in this context, or `None` if there is no secret.

        `sent` are tokens that the call has sent to a service, which may repeat them. The token that the caller
        presented is a secret as well.
        """
        if ctx.caller.subject_token is not None:
            sent = (*sent, ctx.caller.subject_token)  # pragma: no cover - tests/connections/test_exchanging.py
        declared, host = self.registry.declarations.secrets, ctx.host
        if not (declared or host.secrets or host.upstream_credentials or sent):
            return None
        in_use = (*host.secrets.values(), *host.upstream_credentials.values(), *declared, *sent)
        return self._redactors.get(in_use) or self._redactors.remember(in_use, Redactor(in_use))

    def after_fork(self) -> None:
        """Forget the calls in flight, in a forked child: they run in its parent."""
        leave_to_parent(self.in_flight, self.async_observers)
        self.in_flight, self.async_observers, self.task_runs = {}, AsyncObservers(), 0
        # The parent may hold it at the fork, and nobody would release it here.
        self._swapping = Lock()


class Asked(Protocol):
    """The part of a call that the refusing stages need; `why` passes them a call that is not made."""

    @property
    def view(self) -> View: ...

    @property
    def name(self) -> str: ...

    @property
    def executor(self) -> ExecutorState: ...

    @property
    def ports(self) -> Ports: ...

    @property
    def bounds(self) -> Bounds: ...

    @property
    def entry(self) -> ToolEntry: ...


class Prospect(NamedTuple):
    """A hypothetical call, for asking the stages whether they would refuse it."""

    view: View
    name: str
    executor: ExecutorState
    entry: ToolEntry

    @property
    def ports(self) -> Ports:
        return self.executor.ports

    @property
    def bounds(self) -> Bounds:
        return self.executor.registry.bounds


class AskedConsent:
    """The question about one call: a person's answer, and the id of its record or of the filed question.

    `is_edited` says that a person replaced the arguments; `request` has those of the caller.
    """

    __slots__ = ("answer", "consent_id", "is_edited", "request")

    def __init__(self, request: ConsentRequest) -> None:
        self.request = request
        self.answer: Literal["yes", "no", "nobody"] = "nobody"
        self.consent_id = ""
        self.is_edited = False


NO_COSTS: Final[Mapping[str, int]] = {}
NOT_PARSED: Final = object()
"""A placeholder for the arguments of a call until they are read."""
UNRESOLVED: Final = ToolHooks()
"""A placeholder for the hooks of a tool until it is found."""


class Call(CancelScope):
    """One running call; hooks see it as a `HookCall`. Only the stages write to it.

    Made by the Executor, and in `executor.in_flight` until it is over. `resolve` fills `entry` and `plan`, `arguments`
    fills `args`; `interrupt` stops it from outside, whatever it waits for.
    """

    # Slots, and all of them set in the constructor: attributes that every call reads are never looked up in the class.
    __slots__ = (
        "__weakref__",
        "account",
        "args",
        "as_task",
        "asked",
        "bounds",
        "call_id",
        "charged",
        "costs",
        "deliveries",
        "dues",
        "entry",
        "executor",
        "has_paid",
        "hooks",
        "is_by_hand",
        "is_flat",
        "is_over",
        "known_as",
        "listeners",
        "loop",
        "made_ctx",
        "marks",
        "observed",
        "parsed",
        "plan",
        "ports",
        "question",
        "ran",
        "redactor",
        "request",
        "sent_secrets",
        "spare_copy",
        "spending",
        "started",
        "thread",
        "timeout_s",
        "upstream",
        "view",
        "warnings",
    )  # fmt: skip
    entry: ToolEntry
    plan: Plan
    marks: list[str | float]
    """The stages that were entered, each followed by its time; set only if an observer times them."""

    # Positional: keyword arguments would cost every call a dictionary.
    def __init__(
        self,
        view: View,
        name: str,
        request: object,
        call_id: str,
        executor: ExecutorState,
        ports: Ports,
        listeners: Listeners,
        as_task: bool,
    ) -> None:
        # Sets the attributes of `CancelScope` without calling its constructor.
        self.name = name
        self.reason = self._stop = None
        self.is_left = False
        self.view, self.request, self.call_id = view, request, call_id
        self.executor, self.ports, self.listeners = executor, ports, listeners
        self.dues: Sequence[Charge] = ()
        """The charges of the call to budgets."""
        self.costs: Mapping[str, int] = NO_COSTS
        """The cost of the call so far, in millionths of each unit."""
        self.spending: Spending | None = None
        """Its budgets of cost, which calls below it fall under as well; set if there are budgets."""
        self.bounds, self.redactor = executor.registry.declarations.bounds, executor.redactor(view.ctx)
        self.sent_secrets: tuple[Secret, ...] = ()
        self.started = ports.clock()
        self.loop, self.thread = get_running_loop(), get_ident()
        self.args: JSON = {}
        self.parsed: Any = NOT_PARSED
        self.is_flat = False
        # The tool's wire name once it is found, before that the requested name.
        self.known_as = name
        self.hooks = UNRESOLVED
        self.question: str | None = None
        """Why a hook wants a person to be asked."""
        self.asked: AskedConsent | None = None
        """The person's answer and its record."""
        self.has_paid: bool | None = None
        """Whether an earlier round was already charged to the limits; `None` until the client has said so."""
        self.as_task = as_task
        """Whether it runs as a task; before it is resolved, whether its caller asked for a task."""
        self.ran = self.is_by_hand = False
        self.warnings: Mapping[str, JSONValue] | None = None
        self.deliveries: Deliveries | None = None
        """The async observers that have yet to receive events of the call."""
        self.spare_copy: JSONValue = None
        """An unmodified copy of its structured result, kept if after-hooks were checked against one."""
        self.is_over = False
        """Whether the call has ended; its context can then do nothing."""
        self.made_ctx: CallContext | None = None
        self.observed: StartedCall | None = None
        """The start record that observers of calls received."""
        self.charged: tuple[Key, ...] = ()
        """The rate-limit windows charged for it; filled only for observers of calls."""
        self.upstream: UpstreamOutcome | None = None
        self.account: AccountUse | None = None
        """The account over which it was sent."""

    @property
    def is_resolved(self) -> bool:
        """Whether its tool has been found: `entry`, `plan` and `hooks` are that tool's."""
        return self.hooks is not UNRESOLVED

    @property
    def runs_on_loop(self) -> bool:
        """Whether the tool's own code runs on the loop; a plain `def` runs in a worker thread."""
        return self.entry.runs != "thread"

    @property
    def tool(self) -> ToolSpec:
        return self.entry.spec

    @property
    def wire_name(self) -> str:
        return self.entry.wire_name

    @property
    def ctx(self) -> CallContext:
        """The context of this call, made when first needed."""
        if self.made_ctx is None:
            origin = self.view.ctx
            request = origin.request
            if self.spending is not None:
                request = request._replace(spending=self.spending)
            steps = request.steps
            self.made_ctx = sharing_answers(
                CallContext,
                origin,
                caller=origin.caller,
                host=origin.host,
                request=request,
                origin_context=origin,
                emitter=self.emit,
                is_running=self.is_running,
                call_id=self.call_id,
                tool=self.entry.wire_name,
                # Nested calls are not steps of the task.
                steps=None if steps is None or steps.call_id != self.call_id else steps,
                redactor=self.redactor,
                call=self,
            )
        return self.made_ctx

    async def load_agent(self, agent: str) -> None:
        """Import the packages that runs of this agent need; see `RunningCall`."""
        if self.ports.agents is not None:
            await self.ports.agents.load(agent)

    async def load_model(self, model: ModelSpec) -> None:
        """Import the packages that an agent with this model needs; see `AgentCall`."""
        if self.ports.agents is not None:
            await self.ports.agents.load(model)

    async def run_agent(
        self, agent: str, query: str, data: Mapping[str, JSONValue], *, transform: str | None
    ) -> ToolResult:
        """Run an agent as part of this call, with at most the rights of its view; see `RunningCall`.

        Raises:
            CallError: no agents can run here; or the error of the run, unless it completed.
        """
        runner = self._agent_runner(agent)
        return await runner.run_below(agent, query, data, transform=transform, ctx=self.ctx, view=self.view)

    async def run_own_agent(self, agent: AgentEntry, query: str, *, on_text: Callable[[str], None]) -> AgentResult:
        """Run a private agent of this call's tool; see `AgentCall`.

        Raises:
            CallError: no agents can run here, or the nesting is too deep.
        """
        runner = self._agent_runner(agent.spec.name)
        return await runner.run_own(agent, query, on_text=on_text, ctx=self.ctx, view=self.view)

    def _agent_runner(self, agent: str) -> AgentRunner:
        if self.ports.agents is None:
            text = f"{self.name!r} runs the agent {agent!r}, and nothing here runs agents."
            raise CallError("tool_error", text, hint="Operators: `pegboard doctor` shows what agents need.")
        return self.ports.agents

    def renew(self) -> None:
        """Read the view, ports and bounds again: anything may have changed while a person was asked."""
        self.view = self.view.renewed()
        executor = self.executor
        self.ports = executor.ports
        self.bounds = executor.registry.declarations.bounds
        self.redactor = executor.redactor(self.view.ctx, *self.sent_secrets)
        self.warnings = self.made_ctx = None
        # The host may have changed the dict that it passed.
        self.parsed = NOT_PARSED

    def report_cost(self, amount: float, unit: str) -> None:
        """Count a cost of the call in its budgets; see `RunningCall`."""
        self._add_cost(micros(amount), unit)

    def _add_cost(self, amount: int, unit: str) -> None:
        if get_ident() != self.thread:
            self.loop.call_soon_threadsafe(self._add_cost, amount, unit)
            return
        self.costs = {**self.costs, unit: self.costs.get(unit, 0) + amount}
        if self.spending is not None:  # pragma: no branch - an exit that only other folders of tests take
            self.executor.budgets.owe([due.counter for due in self.spending.costs if due.counter.unit == unit], amount)

    def sends(self, secret: Secret) -> None:
        """Redact a token that the call sends to a service from all that the call says from now on."""
        if secret not in self.sent_secrets:
            self.sent_secrets = (*self.sent_secrets, secret)
            self.redactor = self.executor.redactor(self.view.ctx, *self.sent_secrets)

    def uses_account(self, use: AccountUse) -> None:
        """Record over which account the call is sent."""
        self.account = use  # pragma: no cover - tests/connections/test_account_records.py

    def ends_upstream(self, outcome: UpstreamOutcome) -> None:
        """Record what an upstream answered; see `RunningCall`."""
        self.upstream = outcome

    @property
    def may_be_task(self) -> bool:
        return self.is_resolved and self.entry.spec.task != "forbidden"

    async def in_thread(self, code: Callable[..., Any], /, *args: Any) -> Any:
        """Run slow code in a worker thread; see `RunningCall`."""
        value = await self.executor.workers.run(partial(code, *args), caller=owner_of(self.view.ctx))
        # A plain callable may return a coroutine, e.g. a lambda or a partial: await it on the loop.
        return await value if is_awaitable(value) else value

    async def check_standing(self) -> None:
        """Check that the running call would still be allowed; its effects so far are not undone.

        Raises:
            CallError: `not_found`; `consent_mismatch` if its tool has changed its meaning.
        """
        view = self.view.renewed()
        await view.ctx.memo.renew(view.ctx)
        entry = await view.afind(self.name)
        if entry is None:
            raise CallError("not_found", view.absence(self.name), outcome_unknown=True)
        if entry.fingerprint != self.entry.fingerprint:
            text = (
                f"{self.name!r} was stopped: its definition changed while somebody was asked. Look, then call it again."
            )
            raise CallError("consent_mismatch", text, outcome_unknown=True)

    def is_running(self) -> bool:
        """Tell whether the call is still running."""
        return not self.is_over

    def emit(
        self,
        event_type: EventType,
        payload: Mapping[str, JSONValue],
        ok: bool | None = None,
        /,
        of: Event | None = None,
    ) -> Delivered:
        """Send one event from the tool, on the call's loop or in a worker thread; see `tell`."""
        if get_ident() != self.thread:
            self.loop.call_soon_threadsafe(self.emit, event_type, payload, ok, of)
            return DELIVERED
        if self.is_over:
            # A thread or task that outlived the call: no events follow the end of a call.
            return DELIVERED
        return self.tell(event_type, payload, ok, of)

    def tell(
        self,
        event_type: EventType,
        payload: Mapping[str, JSONValue],
        ok: bool | None = None,
        of: Event | None = None,
    ) -> Delivered:
        """Send one event to all observers, on the call's own loop: in order, async ones in one chain of tasks.

        `of` is an event of a nested call, which keeps its own ids.
        """
        listening = self.listeners[event_type]
        if listening:
            ctx = self.view.ctx
            request = ctx.request
            # Results are already redacted; other events are not.
            if self.redactor is not None and event_type != "on_tool_result":
                payload = self.redactor.value(dict(payload))
            event: Event = new_tuple(Event, (
                event_type, self.known_as, request.id, self.call_id, request.parent_call, next(ctx.sequence),
                self.ports.wall_clock(), ok, payload,
            ))  # fmt: skip
            if of is not None:
                event = event._replace(tool=of.tool, call_id=of.call_id, parent_call_id=of.parent_call_id)
            for listen in listening:
                try:
                    answer = listen(event)
                except BaseException:  # boundary: foreign code; a failing observer is logged only
                    log.warning("An observer raised in %s; the call continues.", event_type, exc_info=True)
                    continue
                if answer is not None and is_awaitable(answer):
                    is_part_of_answer = getattr(getattr(listen, "__self__", None), "part_of_answer", False)
                    self._deliver(answer, event_type, is_part_of_answer=is_part_of_answer)
        return DELIVERED if self.deliveries is None else self.deliveries.delivered()

    def delivered(self) -> Delivered:
        """Return an awaitable for the observers, if the call must wait for them."""
        return DELIVERED if self.deliveries is None else self.deliveries.delivered()

    def _deliver(self, answer: Awaitable[Any], event_type: str, *, is_part_of_answer: bool) -> None:
        if self.deliveries is None:
            self.deliveries = Deliveries(self.executor.async_observers, self.loop, self.bounds.hook_s)
        self.deliveries.add(answer, event_type, is_part_of_answer=is_part_of_answer)
