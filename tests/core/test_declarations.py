"""Declarations: everything declared is one value, so that nothing of it can be forgotten by a reload or a reset."""

import asyncio
import time
from typing import Any

import pytest
from msgspec.structs import fields

from pegboard import Bounds, Budget, Catalog, DefinitionError, Policy, Profile, RateLimit, Secret, ToolSpec
from pegboard.core.declarations import Declarations, MirroredSource
from pegboard.model.agent import AgentSpec, ModelSpec
from pegboard.model.memo import Question
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from tests.core.parts import ANN, FakeSource, echo, foreign, kind_of

_ANYTHING: Any = object()


def full() -> Catalog:
    """Return a catalog that declares something of every kind."""
    catalog = Catalog("shop", bounds=Bounds(hook_s=0.5))
    catalog.register(ToolSpec(name="read"), echo)
    catalog.builder(lambda: ["later"])(lambda ctx: [ToolSpec(name="later").bind(echo)])
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", "log")]))
    catalog.mirror("Bash")
    catalog.predicate(name="open")(lambda ctx: True)
    catalog.group("chat")
    catalog.profile(Profile(name="visitor", policy=Policy(deny=("read",))))
    catalog.before()(lambda call: None)
    catalog.agent(AgentSpec(name="helper", model=ModelSpec(provider="openai", name="m")))
    catalog.budget(Budget(name="b", per="day", calls=1))
    catalog.resource("x://y", name="y")(lambda: "y")
    catalog.add_secrets(Secret("a-secret-value"))
    catalog.registry.change(default_limit=RateLimit(max_calls=9, window_s=60.0), identity=object(), documents=_ANYTHING)
    catalog.registry.change(document_sync=_ANYTHING)
    catalog.registry.change(skills={"main": _ANYTHING}, parts=_ANYTHING, alerts=_ANYTHING)
    return catalog


def test_a_reload_takes_over_every_kind_of_declared_thing_there_is_or_will_be() -> None:
    made, running = full(), Catalog()
    untouched = [
        item.name for item in fields(Declarations) if getattr(made.registry.declarations, item.name) == _default(item)
    ]
    assert untouched == [], "a kind that `full` forgets is not held by this test"
    running.registry.swap(made.registry.declarations)
    assert running.registry.declarations is made.registry.declarations
    assert running.view(ANN).names() == made.view(ANN).names()


def test_a_kind_that_is_added_in_one_place_survives_a_reload_and_ends_with_a_reset() -> None:
    class Wider(Declarations, frozen=True, kw_only=True, eq=False):
        badges: tuple[str, ...] = ()

    catalog, other = Catalog(), Catalog()
    other.registry.swap(Wider(badges=("new kind",)))
    catalog.registry.swap(other.registry.declarations)
    catalog.tool(name="t")(lambda: None)
    catalog.group("g")
    declared: Any = catalog.registry.declarations
    assert declared.badges == ("new kind",), "it survives the reload, and every change of another kind"
    assert replace(declared, badges=()) != declared
    catalog.reset()
    assert not getattr(catalog.registry.declarations, "badges", ())


def test_a_reset_forgets_what_is_offered_and_opens_no_door() -> None:
    catalog = full()
    before = catalog.registry.declarations
    catalog.reset()
    after = catalog.registry.declarations
    stays = {"name", "bounds", "default_limit", "budgets", "identity", "secrets"}
    assert {name: getattr(after, name) for name in stays} == {name: getattr(before, name) for name in stays}
    fresh = Declarations()
    forgotten = {item.name for item in fields(fresh)} - stays
    assert {name: getattr(after, name) for name in forgotten} == {name: getattr(fresh, name) for name in forgotten}
    assert list(catalog.resources.specs) == []


def test_declarations_cannot_be_changed_in_place() -> None:
    declared = full().registry.declarations
    with pytest.raises(AttributeError):
        declared.name = "other"  # type: ignore[misc]


def _default(item: Any) -> object:
    return getattr(Declarations(), item.name)


def test_a_taken_name_of_a_predicate_is_refused_and_what_is_no_tool_is_not_told_as_one() -> None:
    catalog, defined = Catalog(), list[str]()
    catalog.on_tool_defined(lambda entry: defined.append(entry.spec.name))
    catalog.tool(name="t")(lambda: None)
    catalog.resource("x://y", name="y")(lambda: "y")
    assert defined == ["t"]
    question = Question(key="q", name="q", ask=lambda ctx: True)
    catalog.registry.add_predicate("q", question)
    with pytest.raises(DefinitionError, match="a predicate 'q' already"):
        catalog.registry.add_predicate("q", question)


async def test_limits_are_counted_where_the_config_says_now() -> None:
    class Full:
        def wait_s(self, hits: Any, *, charge: bool) -> float:
            return 9.0

    catalog = Catalog()
    catalog.tool(name="t", rate_limit="5/60s")(lambda: "done")
    catalog.executor.swap(catalog.executor.ports.with_limits(Full()))
    assert kind_of(await catalog.view(ANN).call("t")) == "rate_limited"
    catalog.executor.swap(catalog.executor.ports.with_limits(None))
    assert kind_of(await catalog.view(ANN).call("t")) == "ok"


def test_policies_narrow_each_other_however_often() -> None:
    first, second, third = Policy(deny=("a",)), Policy(deny=("b",)), Policy(deny=("c",))
    catalog = Catalog()
    for name in "abcd":
        catalog.tool(name=name)(lambda: None)
    narrow = first.intersect(second.intersect(third))
    assert catalog.view(replace(ANN, policy=narrow)).names() == ["d"]
    assert Policy().intersect(first) is first


async def test_a_view_answers_in_a_targets_words_and_awaits_what_why_needs() -> None:
    catalog = Catalog()

    @catalog.predicate
    async def slow(ctx: object) -> bool:
        return False

    catalog.tool(name="add", available="slow")(lambda: None)
    catalog.tool(name="sum")(_sum)
    view = catalog.view(ANN)
    assert (await view.awhy("add")).code == "available"
    assert view.wire_name("openai", "sum") == "sum"
    assert view.decode("openai_strict", "sum", '{"a": 1, "b": null}') == {"a": 1}


def _sum(a: int, b: int = 2) -> int:
    return a + b


def test_a_quarantined_tool_says_how_it_is_let_in() -> None:
    catalog = Catalog()
    state = SourceState(quarantined=frozenset({"git.log"}))
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", "log")], now=state))
    why = catalog.view(ANN).why("git__log")
    assert (why.code, why.fix and why.fix.text) == ("quarantine", "pegboard lock accept git.log")


@pytest.mark.parametrize(("parts", "is_there"), [([True, False], False), ([True, True], True), ([False, True], False)])
def test_all_of_several_conditions_must_hold(parts: list[bool], *, is_there: bool) -> None:
    catalog = Catalog()
    catalog.tool(name="t", available={"all": parts})(lambda: None)
    assert catalog.view(ANN).names() == (["t"] if is_there else [])


def test_a_condition_that_fails_to_answer_hides_like_a_no() -> None:
    catalog = Catalog()

    @catalog.predicate
    def broken(ctx: object) -> bool:
        raise OSError("no database")

    catalog.tool(name="t", available={"all": ["broken", True]})(lambda: None)
    assert catalog.view(ANN).names() == []


async def test_a_hook_that_holds_the_loop_past_its_time_refuses_the_call() -> None:
    catalog = Catalog(bounds=Bounds(hook_s=0.001))
    catalog.tool(name="t")(lambda: "done")

    @catalog.before()
    def slow(call: object) -> None:
        ends = time.perf_counter() + 0.01
        while time.perf_counter() < ends:
            pass

    assert kind_of(await catalog.view(ANN).call("t")) == "hook_refused"


def test_a_source_that_outlives_a_reload_does_not_keep_the_registry_of_the_reload() -> None:
    source = FakeSource(name="git", listed=[foreign("git", "log")])
    running = Catalog()
    running.add_source(source)
    for _ in range(3):
        made = Catalog()
        made.registry.lend_sources({"git": source})
        assert made.view(ANN).names() == ["git__log"], "its own questions reach the source"
        running.registry.swap(made.registry.declarations)
    assert len(source.listeners) == 1


@pytest.mark.parametrize("fault", [OSError, asyncio.CancelledError, SystemExit])
async def test_whatever_an_observer_of_calls_raises_breaks_no_call(fault: type[BaseException]) -> None:
    class Broken:
        def started(self, call: Any) -> None:
            raise fault

        def finished(self, call: Any) -> None:
            raise fault

    catalog = Catalog()
    catalog.tool(name="t")(lambda: "done")
    catalog.executor.record(Broken())  # type: ignore[arg-type] - it does not say whether it times stages, either
    assert (await catalog.view(ANN).call("t")).text == "done"


async def test_a_mirrored_source_that_starts_slowly_is_waited_for() -> None:
    class Slow(FakeSource):
        waited = 0

        async def first_listed(self) -> None:
            self.waited += 1

    slow, quick = Slow(name="git", listed=[]), FakeSource(name="quick", listed=[])
    for source in (slow, quick):
        await MirroredSource(source).first_listed()
    assert slow.waited == 1
