"""The registry and its snapshots, beside the catalog's own tests: reloads, bounds on memory, odd sources."""

import asyncio
import gc
from typing import Any
from weakref import ref

import pytest

from pegboard import Catalog, DefinitionError, DuplicateToolError, Policy, Profile, ToolContext, ToolSpec
from pegboard.core.call.finished_call import FinishedCall, StartedCall
from pegboard.core.judge import Selection, decide
from pegboard.core.names import nearest
from pegboard.model.decision import Fix
from pegboard.model.source_state import SourceState
from tests.core.parts import ANN, FakeSource, echo, foreign, kind_of, one_tool


def reloaded(catalog: Catalog, other: Catalog) -> None:
    catalog.registry.swap(other.registry.declarations)


async def test_a_reload_takes_everything_over_in_one_step_and_tells_the_subscribers() -> None:
    catalog, other = Catalog(), Catalog()
    catalog.register(ToolSpec(name="old"), echo)
    told: list[list[str]] = []
    catalog.subscribe(lambda: told.append(catalog.view(ANN).names()))
    source = FakeSource(name="git", listed=[foreign("git", "log")])
    other.register(ToolSpec(name="new", groups=("fresh",), available="p"), echo)
    other.predicate(name="p")(lambda ctx: True)
    other.profile(Profile(name="chat", include=("fresh",)))
    other.mirror("M", groups="fresh")
    other.builder(lambda: ["dynamic"], groups="fresh")(lambda ctx: ToolSpec(name="dynamic").bind(echo))
    other.add_source(source)
    reloaded(catalog, other)
    assert catalog.view(ANN, profile="chat").names() == ["new", "dynamic", "M"]
    assert told[0] == catalog.view(ANN).names()
    before = len(told)
    source.relist([])
    assert len(told) > before, "the catalog listens to the sources it took over"
    assert "git__log" not in catalog.view(ANN).names()


async def test_a_call_in_flight_survives_a_reload_that_drops_its_tool() -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def work(ctx: Any, args: Any) -> str:
        entered.set()
        await release.wait()
        return "kept"

    catalog = one_tool(work)
    running = asyncio.create_task(catalog.view(ANN).call("echo"))
    await entered.wait()
    reloaded(catalog, Catalog())
    assert kind_of(await catalog.view(ANN).call("echo")) == "not_found"
    release.set()
    assert (await running).text == "kept"


def test_names_from_a_callable_must_be_free_and_may_fail() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="taken"), echo)
    wanted: list[str] = []
    catalog.builder(lambda: wanted)(lambda ctx: [ToolSpec(name=name).bind(echo) for name in wanted])
    assert catalog.view(ANN).names() == ["taken"]
    wanted.append("taken")
    with pytest.raises(DuplicateToolError):
        catalog.view(ANN).names()

    broken = Catalog()

    def names() -> list[str]:
        raise ConnectionRefusedError("no database")

    broken.register(ToolSpec(name="fine"), echo)
    broken.builder(names)(lambda ctx: [])
    assert broken.view(ANN).names() == ["fine"], "one that cannot say its names hides only its own tools"


def test_nothing_is_kept_of_what_a_source_listed_that_has_left() -> None:
    catalog = Catalog()
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", "log")]))
    assert catalog.view(ANN).names() == ["git__log"]
    listed = ref(catalog.snapshot().entries[0])
    catalog.reset()
    assert catalog.view(ANN).names() == []
    gc.collect()
    assert listed() is None


def test_a_tool_of_a_source_that_is_not_there_any_more_is_judged_without_it() -> None:
    catalog = Catalog()
    catalog.add_source(FakeSource(name="git", listed=[foreign("other", "log")]))
    assert catalog.view(ANN).names() == ["other__log"], "a source may list under another namespace"


def test_a_schema_that_says_what_more_it_takes_is_left_as_it_is() -> None:
    for said in ({"additionalProperties": {"type": "integer"}}, {"unevaluatedProperties": {"type": "integer"}}):
        catalog = Catalog()
        catalog.register(ToolSpec(name="echo", input_schema={"type": "object", **said}), echo)
        assert catalog.view(ANN).schema("echo") == {"type": "object", **said}
        assert kind_of(asyncio.run(catalog.view(ANN).call("echo", {"a": 1}))) == "ok"
        assert kind_of(asyncio.run(catalog.view(ANN).call("echo", {"a": "x"}))) == "invalid_arguments"


def test_the_judge_can_be_asked_by_name() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="read"), echo)
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", "log")]))
    snapshot = catalog.snapshot()
    down = {"git": SourceState(status="auth_required", is_up=False, reason="log in again")}
    assert decide("read", snapshot, ANN, Selection(), {}).visible
    assert decide("nothing", snapshot, ANN, Selection(), {}).code == "unknown"
    decision = decide("git__log", snapshot, ANN, Selection(), down)
    assert (decision.code, decision.reason) == ("source", "source 'git' is auth_required: log in again")
    for name in ("git__push", "git.push"):
        decision = decide(name, snapshot, ANN, Selection(), down)
        reason = f"{name!r} is not known, as source 'git' is auth_required: log in again"
        assert (decision.code, decision.reason) == ("source", reason)
        assert decision.fix == Fix("source", "git", "bring source 'git' up (pegboard doctor)")
        assert decide(name, snapshot, ANN, Selection(), {}).code == "unknown"


def test_a_rule_of_a_profile_is_named_with_its_place() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="read", groups=("fs",)), echo)
    catalog.group("chat")
    policy = Policy(allow=("write",), deny=("re*",), origin="pegboard.yaml:12")
    catalog.profile(Profile(name="visitor", include=("chat",), origin="pegboard.yaml:9"))
    catalog.profile(Profile(name="writer", policy=policy))
    hidden = catalog.view(ANN, profile="visitor").why("read")
    assert hidden.reason == "not in include=['chat'] of profile 'visitor' (pegboard.yaml:9); its groups are ['fs']"
    denied = catalog.view(ANN, profile="writer").why("read")
    assert denied.reason == "denied by ['re*'] (pegboard.yaml:12); not in allow=['write'] (pegboard.yaml:12)"
    assert denied.fix is not None
    assert denied.fix.text == "remove ['re*'] from deny and add 'main.read' to allow"
    assert denied.next == "visible"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raed", " Did you mean 'read'?"),
        ("zzz", " Tools: append, read, write."),
        ("x" * 100_000, " Tools: append, read, write."),
    ],
    ids=["near", "far", "long"],
)
def test_a_wrong_name_is_answered_with_a_near_one_or_with_all(name: str, words: str) -> None:
    assert nearest(name, ["write", "read", "append"], label="Tools") == words


def test_a_long_list_of_names_is_cut_and_an_empty_one_says_so() -> None:
    many = nearest("?", [f"t{number:02}" for number in range(30)], label="Tools")
    assert many.endswith("t19, +10 more.")
    assert nearest("?", [], label="Tools") == " Tools: none."


async def test_broken_telemetry_breaks_no_call() -> None:
    class Broken:
        times_stages = True

        def started(self, call: StartedCall) -> None:
            raise OSError("no disk")

        def finished(self, call: FinishedCall) -> None:
            raise OSError("no disk")

    catalog = one_tool()
    catalog.executor.record(Broken())
    assert kind_of(await catalog.view(ANN).call("echo")) == "ok"


def test_a_context_asks_nothing_until_somebody_looks() -> None:
    asked: list[ToolContext] = []
    catalog = one_tool(available=lambda ctx: not asked.append(ctx))
    catalog.view(ToolContext())
    assert asked == []
    with pytest.raises(DefinitionError):
        catalog.view(ToolContext()).export("nothing")


async def test_a_tool_of_one_catalog_may_hang_in_another() -> None:
    first, second = one_tool(), Catalog()
    [tool] = first.view(ANN).tools()
    second.register(tool)
    assert kind_of(await second.view(ANN).call("echo", {"a": 1})) == "ok"


@pytest.mark.parametrize(
    "schema", [{"type": "array", "items": {}}, {"type": "string"}, {"type": ["array", "null"]}, True, []], ids=str
)
def test_a_schema_that_no_object_fits_is_refused_at_registration_and_says_what_to_write(schema: Any) -> None:
    catalog = Catalog()
    with pytest.raises(DefinitionError, match=r'that of an object, not of .* "properties": \{"value": …'):
        catalog.register(ToolSpec(name="t", input_schema=schema), echo)
        catalog.snapshot()


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": ["object", "null"]},
        {"anyOf": [{"required": ["a"]}]},
        {"type": "object", "anyOf": [{"type": "array"}, {"required": ["a"]}]},
        {"allOf": [{"type": "object"}, {"anyOf": [{"type": ["array", "object"]}, True]}]},
        {"oneOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "object"}}},
        {"enum": [{"a": 1}, {}]},
    ],
    ids=str,
)
def test_a_schema_that_some_object_fits_is_taken(schema: Any) -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="t", input_schema=schema), echo)
    assert catalog.view(ANN).names() == ["t"]
