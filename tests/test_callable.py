"""Callable: what `why` says of a visible tool that a call would refuse is what the call says."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import force_setattr

from pegboard import Catalog, Profile, RateLimit, ToolContext, ToolSpec, Verdict
from pegboard.consent.grant_scope import grant_for
from pegboard.consent.sqlite_store import SqliteConsents
from pegboard.limits.memory import MemoryLimitStore
from pegboard.model.bounds import Bounds
from pegboard.model.decision import Blocked, Decision
from pegboard.model.error import CallError
from pegboard.model.record import replace
from pegboard.model.request import CallBudget
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry
from tests.core.parts import Clock, FakeSource, foreign

Make = Callable[[Catalog], Any]


class AuditThatIsDown:
    is_up = False


class Client:
    """A client that can, or cannot, put a question to its user."""

    supports_ui = False

    def __init__(self, *, has_user: bool) -> None:
        self.has_user = has_user

    def can(self, capability: str) -> bool:
        return self.has_user and capability == "elicitation"

    async def elicit(self, message: str, schema: Any = None) -> Any:
        raise AssertionError("nobody elicits here")

    async def approve(self, request: Any) -> bool | None:
        return True if self.has_user else None


class RemoteLimits:
    """A limit store that takes awaiting, as one in another process does."""

    def __init__(self, clock: Clock) -> None:
        self.inner, self.asked = MemoryLimitStore(clock=clock), 0

    async def _wait(self, hits: Any, charge: bool) -> float | None:
        self.asked += 1
        return self.inner.wait_s(hits, charge=charge)

    def wait_s(self, hits: Any, *, charge: bool) -> Awaitable[float | None]:
        return self._wait(hits, charge)


def add(catalog: Catalog, **options: Any) -> None:
    catalog.register(ToolSpec(name="act", description="Act.", **options), lambda ctx, args: "done")


def source(state: SourceState) -> Make:
    """Return what adds a source in this state; its one tool fails as the state says, as real ones do."""

    def make(catalog: Catalog) -> None:
        entry = foreign("git", "log")

        async def run(ctx: Any, args: Any) -> Any:
            if state.fault is not None:
                raise CallError(state.fault.kind, state.fault.message, retry_after_s=state.fault.retry_after_s)
            return "done"

        catalog.add_source(FakeSource(name="git", listed=[entry.spec.bind(run)], now=state))
        listed = catalog.registry.sources["git"].entries()[0]
        force_setattr(listed, "source", "git")

    return make


def full(catalog: Catalog) -> None:
    add(catalog, rate_limit=RateLimit(max_calls=0, window_s=60))


def budget_spent(catalog: Catalog) -> ToolContext:
    add(catalog)
    return ToolContext(budget=CallBudget(0))


def unaudited(catalog: Catalog) -> None:
    add(catalog)
    catalog.executor.swap(replace(catalog.executor.ports, audit=AuditThatIsDown(), audit_required=True))


def closing(catalog: Catalog) -> None:
    add(catalog)
    catalog.executor.closing = True


def too_deep(catalog: Catalog) -> ToolContext:
    add(catalog)
    ctx = ToolContext(budget=None)
    return ctx.with_request(depth=catalog.registry.bounds.agent_depth + 1)


def too_late(catalog: Catalog) -> ToolContext:
    add(catalog)
    return ToolContext(budget=None, deadline=catalog.executor.ports.clock() - 1)


AWAY = CallError("upstream_unavailable", "The server 'git' is not available.", retry_after_s=5).error
CASES: dict[str, tuple[Make, str]] = {
    "free": (add, ""),
    "a changed definition": (source(SourceState(changed=frozenset({"git.log"}))), "needs_review"),
    "a source in grace": (source(SourceState(status="unreachable", fault=AWAY)), "upstream_unavailable"),
    "a source that is up": (source(SourceState()), ""),
    "a full limit": (full, "rate_limited"),
    "a consent without anybody": (lambda catalog: add(catalog, consent="always"), "consent_required"),
    "a destroying tool without anybody": (
        lambda catalog: catalog.tool(consent="destructive", destructive=True)(act),
        "consent_required",
    ),
    "a destroying tool of a server": (
        lambda catalog: catalog.add_source(FakeSource(name="git", listed=[asking_entry()], now=SourceState())),
        "consent_required",
    ),
    "a harmless tool under the same rule": (lambda catalog: catalog.tool(consent="destructive")(act), ""),
    "a consent that hangs on the arguments": (lambda catalog: add(catalog, consent=lambda args: False), ""),
    "an audit that is down": (unaudited, "audit_unavailable"),
    "a spent budget": (budget_spent, "budget_exceeded"),
    "a server that shuts down": (closing, "shutting_down"),
    "an agent too deep": (too_deep, "recursion_limit"),
    "a request that is over": (too_late, "timeout"),
}


def act() -> str:
    """Act."""
    return "done"


@pytest.mark.parametrize("case", CASES)
async def test_why_says_callable_exactly_where_the_call_runs(case: str) -> None:
    make, kind = CASES[case]
    catalog = Catalog()
    catalog.executor.swap(replace(catalog.executor.ports, wall_clock=lambda: 1_800_000_000.0))
    ctx = make(catalog)
    view = catalog.view(ctx if isinstance(ctx, ToolContext) else ToolContext(budget=None))
    name = view.snapshot.entries[0].wire_name
    plain, awaited = view.why(name), await view.awhy(name)
    result = await view.call(name, {})
    assert plain == awaited
    assert plain.visible
    assert plain.callable is (result.error is None)
    assert (plain.blocked.kind if plain.blocked else "") == kind == (result.error.kind if result.error else "")


async def test_a_full_limit_says_until_when_and_looking_charges_nothing() -> None:
    clock = Clock()
    catalog = Catalog(clock=clock)
    catalog.executor.swap(replace(catalog.executor.ports, wall_clock=lambda: 1_800_000_000.0))
    add(catalog, rate_limit=RateLimit(max_calls=1, window_s=60))
    view = catalog.view(ToolContext(user_id="ann", budget=None))
    assert [view.why("act").callable for _ in range(5)] == [True] * 5
    assert not (await view.call("act", {})).is_error
    clock.now += 20
    assert view.why("act").blocked == Blocked(
        "rate_limited",
        "'act' is temporarily unavailable: its rate limit is reached. It can be used again in 40 s. "
        "Other tools may be used meanwhile.",
        datetime.fromtimestamp(1_800_000_040, UTC),
    )
    assert catalog.view(ToolContext(user_id="bob", budget=None)).why("act").callable
    clock.now += 40
    assert view.why("act").callable


async def test_a_limit_counted_elsewhere_is_asked_by_the_awaited_question() -> None:
    store = RemoteLimits(Clock())
    catalog = Catalog(limit_store=store)
    add(catalog, rate_limit=RateLimit(max_calls=1, window_s=60))
    view = catalog.view(ToolContext(budget=None))
    await view.call("act", {})
    asked = store.asked
    assert view.why("act").callable
    assert store.asked == asked
    blocked = (await view.awhy("act")).blocked
    assert blocked is not None
    assert blocked.kind == "rate_limited"


async def test_the_limit_of_the_profile_counts_too() -> None:
    catalog = Catalog()
    add(catalog)
    catalog.profile(Profile(name="p", exposure="direct", rate_limit=RateLimit(max_calls=1, window_s=60)))
    view = catalog.view(ToolContext(budget=None), profile="p")
    assert view.why("act").callable
    await view.call("act", {})
    assert not view.why("act").callable


@pytest.mark.parametrize("has_user", [True, False])
async def test_a_tool_that_always_asks_is_not_callable_before_there_is_a_yes(has_user: bool) -> None:
    catalog = Catalog()
    add(catalog, consent="always")
    client = Client(has_user=has_user)
    view = catalog.view(ToolContext(budget=None).with_request(client=client))
    decision = view.why("act")
    assert decision == await view.awhy("act")
    assert decision.blocked is not None
    assert (decision.callable, decision.asks, decision.blocked.kind) == (False, True, "consent_required")
    assert ("a person is asked" in str(decision), "nobody can be asked" in str(decision)) == (has_user, not has_user)
    assert (await view.call("act", {})).is_error is not has_user
    decision = catalog.view(ToolContext(approve=lambda request: True)).why("act")
    assert (decision.callable, decision.asks) == (False, True)


def asking_entry() -> ToolEntry:
    spec = replace(foreign("git", "push").spec, consent="destructive")
    return replace(spec.bind(lambda ctx, args: "done"), is_foreign=True)


@pytest.mark.parametrize("with_store", [False, True])
async def test_a_tool_that_always_asks_becomes_callable_with_a_yes_and_no_other_caller_gets_it(
    with_store: bool, tmp_path: Path
) -> None:
    store = SqliteConsents(tmp_path / "consents.db") if with_store else None
    catalog, refusing = Catalog(consent_store=store), [False]
    add(catalog, consent="always")

    @catalog.before("act")
    def closed(call: Any) -> Verdict | None:
        # The second time that a call is judged is after its yes, which then goes back unused.
        return Verdict.deny("closed") if refusing and refusing.pop(0) else None

    async def is_callable(**changes: Any) -> bool:
        view = catalog.view(ToolContext(budget=None, **{"user_id": "ann", "session_id": "one", **changes}))
        return (await view.awhy("act")).callable

    ctx = ToolContext(user_id="ann", session_id="one", budget=None)
    assert not await is_callable()
    if store is None:
        refusing[:] = [False, True]
        view = catalog.view(ctx.with_request(client=Client(has_user=True)))
        result = await view.call("act", {})
        assert result.error is not None
        assert result.error.kind == "hook_refused"
    else:
        await catalog.view(ctx).call("act", {})
        [question] = await store.listed()
        await store.decide(question.id, is_yes=True, decided_by="ann")
    assert [await is_callable(), await is_callable(user_id="bob"), await is_callable(session_id="two")] == [
        True, False, False,
    ]  # fmt: skip
    refusing.clear()
    assert not (await catalog.view(ctx).call("act", {})).is_error
    assert not await is_callable()
    if store is not None:
        await catalog.view(ctx).call("act", {})
        [question] = await store.listed()
        grant = grant_for(question, calls=1, lasts_s=60.0, any_other=True)
        await store.grant(grant, decided_by="ann", question_id=question.id)
        assert [await is_callable(), await is_callable(session_id="two"), await is_callable(user_id="bob")] == [
            True, True, False,
        ]  # fmt: skip
        store.path.write_bytes(b"no database" * 500)
        blocked = (await catalog.view(ctx).awhy("act")).blocked
        assert blocked is not None
        assert blocked.kind == "storage_unavailable"


async def test_a_process_that_is_full_says_busy() -> None:
    catalog = Catalog(bounds=Bounds(calls_in_flight=1))
    seen: list[Decision] = []

    @catalog.tool
    async def look(ctx: ToolContext) -> str:
        """Look from within a call."""
        seen.append(catalog.view(ctx).why("look"))
        return (await catalog.view(ctx).call("look", {})).error.kind  # pyright: ignore[reportOptionalMemberAccess] - it is refused

    result = await catalog.view(ToolContext()).call("look", {})
    assert result.text == "busy"
    assert seen[0].blocked is not None
    assert seen[0].blocked.kind == "busy"


async def test_a_flood_of_invalid_calls_blocks_and_no_other_caller() -> None:
    catalog = Catalog(bounds=Bounds(invalid_calls_per_minute=3))
    add(catalog)
    ann = catalog.view(ToolContext(user_id="ann", budget=None))
    for _ in range(3):
        await ann.call("nothing", {})
    blocked = ann.why("act").blocked
    assert blocked is not None
    assert blocked.kind == "rate_limited"
    assert blocked.until is not None
    assert catalog.view(ToolContext(user_id="bob", budget=None)).why("act").callable


async def test_hidden_tools_are_not_callable_and_say_only_why_they_are_hidden() -> None:
    catalog = Catalog()
    full(catalog)
    decision = catalog.view(ToolContext(), include=[]).why("act")
    assert (decision.visible, decision.callable, decision.blocked, decision.code) == (False, False, None, "group")


async def test_a_meta_tool_is_judged_alike() -> None:
    catalog = Catalog()
    add(catalog)
    limit = RateLimit(max_calls=0, window_s=60)
    catalog.profile(Profile(name="p", exposure="search", rate_limit=limit))
    view = catalog.exposed(catalog.view(ToolContext(budget=None), profile="p"))
    decision = await view.awhy("useTools")
    assert (decision.visible, decision.callable) == (True, False)


def sequence_of(decision: Decision) -> Sequence[object]:
    return decision.visible, decision.callable


async def test_a_built_tool_is_judged_as_it_was_built() -> None:
    catalog = Catalog()

    @catalog.builder("made")
    def _(ctx: ToolContext) -> Any:
        return ToolSpec(name="made", consent="always").bind(lambda ctx, args: "done")

    view = catalog.view(ToolContext())
    assert sequence_of(view.why("made")) == (True, False)
    assert (await view.call("made", {})).error.kind == "consent_required"  # pyright: ignore[reportOptionalMemberAccess] - it is refused
