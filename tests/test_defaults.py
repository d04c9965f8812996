"""Defaults: what a reset takes away and `load_defaults` brings back; renames and mirrors that reach everywhere."""

import asyncio
import gc
from collections.abc import Generator
from typing import Any

import jsonschema
import pytest

from pegboard import Catalog, DefinitionError, Policy, Profile, Tool, ToolContext, ToolSpec, default_catalog
from pegboard.testing import call_context, isolated_catalog
from tests.core.parts import FakeSource, foreign

ANN = ToolContext(user_id="ann", budget=None)


@pytest.fixture(autouse=True)
def _empty_default_catalog() -> Generator[None]:
    # Of its own, since a reset and `load_defaults` bring back whatever class of other tests lives yet.
    with isolated_catalog():
        yield


def declared(catalog: Catalog) -> list[str]:
    """Declare one of each by decorators, and return what was asked of them."""
    asked: list[str] = []

    @catalog.predicate
    def is_ready(ctx: ToolContext) -> bool:
        asked.append("predicate")
        return True

    @catalog.tool(available="is_ready", groups="kitchen")
    def boil() -> str:
        """Boil water."""
        return "hot"

    @catalog.builder("made")
    def _(ctx: ToolContext) -> Any:
        return ToolSpec(name="made").bind(lambda ctx, args: "made")

    @catalog.builder(lambda: ["later"])
    def _(ctx: ToolContext) -> Any:
        return ToolSpec(name="later").bind(lambda ctx, args: "later")

    @catalog.resource("note://one")
    def note() -> str:
        """One note."""
        return "note"

    @catalog.before("boil")
    def look(call: Any) -> None:
        asked.append("hook")

    catalog.group("empty", "Nothing yet")
    catalog.mirror("WebSearch", groups="web")
    catalog.profile(Profile(name="cook", include=("kitchen",), exposure="direct"))
    return asked


async def test_reset_then_load_defaults_brings_back_all_that_code_declared() -> None:
    catalog = Catalog()
    asked = declared(catalog)

    class Fry(Tool, register=False):
        """Fry something."""

        def perform(self) -> str:
            return "fried"

    catalog.register(Fry)
    catalog.register(ToolSpec(name="by_hand"), lambda ctx, args: "x")
    before = sorted(catalog.view(ANN).names())
    for _ in range(2):
        catalog.reset()
        assert catalog.view(ANN).names() == []
        assert catalog.registry.profiles == {}
        catalog.load_defaults()
        assert sorted(catalog.view(ANN).names()) == [name for name in before if name != "by_hand"]
        assert catalog.registry.groups == {"empty": "Nothing yet"}
        assert catalog.view(ANN, profile="cook").names() == ["boil"]
        assert catalog.view(ANN, include=["web"]).names() == ["WebSearch"]
        assert len(catalog.registry.hooks) == 1
        assert [entry.spec.name for entry in catalog.resources.view(ANN).tools()] != []
        asked.clear()
        assert (await catalog.view(ToolContext()).call("boil", {})).text == "hot"
        assert asked == ["predicate", "hook"]
        assert (await catalog.view(ANN).call("later", {})).text == "later"
        assert (await catalog.view(ANN).call("fry", {})).text == "fried"


def test_what_a_test_declares_between_two_resets_is_gone_afterwards() -> None:
    catalog = Catalog()
    declared(catalog)
    before = catalog.view(ANN).names()
    catalog.reset()
    catalog.tool(name="temporary")(lambda: "x")
    catalog.predicate(name="passing")(lambda ctx: True)
    catalog.profile(Profile(name="passing"))
    catalog.reset()
    catalog.load_defaults()
    assert catalog.view(ANN).names() == before
    assert "passing" not in {*catalog.registry.profiles, *catalog.registry.predicates}


def test_a_loader_runs_again_and_nothing_of_its_comes_twice() -> None:
    catalog = Catalog()

    @catalog.default_loader
    def load(target: Catalog) -> None:
        declared(target)

        class Steam(Tool, register=False):
            """Steam something."""

            def perform(self) -> str:
                return "steamed"

        target.register(Steam)

    catalog.load_defaults()
    names, hooks = catalog.view(ANN).names(), len(catalog.registry.hooks)
    for _ in range(3):
        catalog.reset()
        catalog.load_defaults()
        assert (catalog.view(ANN).names(), len(catalog.registry.hooks)) == (names, hooks)


def test_what_was_taken_back_or_replaced_stays_so() -> None:
    catalog = Catalog()
    for name in ("kept", "gone", "swapped"):
        catalog.tool(name=name)(lambda: "x")
    catalog.group("shelf", "older")
    catalog.unregister("gone")
    catalog.register(ToolSpec(name="swapped"), lambda ctx, args: "y", replace=True)
    catalog.reset()
    catalog.tool(name="kept", groups="newer")(lambda: "newer")
    catalog.group("shelf", "newer")
    catalog.load_defaults()
    assert catalog.registry.groups == {"shelf": "newer"}
    assert [(entry.spec.name, entry.spec.groups) for entry in catalog.snapshot().entries] == [("kept", ("newer",))]


def test_classes_on_the_default_catalog_come_back_while_they_live() -> None:
    class Living(Tool):
        """Live."""

        def perform(self) -> str:
            return "alive"

    def define() -> None:
        class Dying(Tool):
            """Die."""

            def perform(self) -> str:
                return "dead"

        assert "dying" in default_catalog.view(ANN).names()
        del Dying

    define()
    default_catalog.reset()
    gc.collect()
    default_catalog.load_defaults()
    names = default_catalog.view(ANN).names()
    assert "living" in names
    assert "dying" not in names
    assert Living.is_registered


def test_loading_without_a_reset_runs_the_loaders_alone() -> None:
    catalog = Catalog()
    declared(catalog)
    before = catalog.view(ANN).names()
    catalog.load_defaults()
    assert catalog.view(ANN).names() == before


# ---------------------------------------------------------------- rename


def test_a_rename_reaches_every_catalog_that_holds_the_class() -> None:
    first, second, third = Catalog(), Catalog(), Catalog()

    class Mail(Tool):
        """Send a mail."""

        def perform(self) -> str:
            return "sent"

    first.register(Mail)
    second.register(Mail)
    second.unregister("mail")
    third.register(ToolSpec(name="mail"), lambda ctx, args: "another")
    Mail.rename("post")
    assert [catalog.view(ANN).names() for catalog in (default_catalog, first, second, third)] == [
        ["post"], ["post"], [], ["mail"],
    ]  # fmt: skip


def test_a_rename_that_one_catalog_refuses_changes_none() -> None:
    first, second = Catalog(), Catalog()

    class Mail(Tool, register=False):
        """Send a mail."""

        def perform(self) -> str:
            return "sent"

    for catalog in (first, second):
        catalog.register(Mail)
    second.register(ToolSpec(name="post"), lambda ctx, args: "taken")
    with pytest.raises(DefinitionError, match="declared twice"):
        Mail.rename("post")
    assert (first.view(ANN).names(), second.view(ANN).names()) == (["mail"], ["mail", "post"])
    assert Mail.tool_entry.spec.name == "mail"
    Mail.rename("letter")
    assert (first.view(ANN).names(), second.view(ANN).names()) == (["letter"], ["post", "letter"])


# ---------------------------------------------------------------- mirrors and names


def sdk() -> Catalog:
    catalog = Catalog("acme")
    catalog.register(ToolSpec(name="read"), lambda ctx, args: "x")
    catalog.predicate(name="is_ann")(lambda ctx: ctx.user_id == "ann")
    catalog.mirror("Bash", "shell", "is_ann")
    catalog.mirror("WebSearch", available=False)
    catalog.mirror("Edit", full_names=["Edit", "Write"])
    return catalog


def test_a_mirrored_name_obeys_availability_and_policy() -> None:
    catalog = sdk()
    assert catalog.view(ANN).names() == ["read", "Bash", "Edit", "Write"]
    assert catalog.view(ToolContext(user_id="bob")).names() == ["read", "Edit", "Write"]
    for policy in (Policy(deny=("Bash",)), Policy(deny=("b*sh",)), Policy(allow=("read", "Edit"))):
        assert catalog.view(ToolContext(user_id="ann", policy=policy)).names() == ["read", "Edit", "Write"]
    catalog.profile(Profile(name="safe", policy=Policy(deny=("Edit", "Bash"))))
    assert catalog.view(ANN, profile="safe").names() == ["read"]
    assert catalog.policy_faults(Policy(deny=("Bash", "Edit"))) == ([], [])


def test_a_mirrored_name_stands_in_names_under_every_exposure() -> None:
    catalog = sdk()
    for exposure in ("direct", "two_tool", "search"):
        catalog.profile(Profile(name=exposure, exposure=exposure))
        names = catalog.exposed(catalog.view(ANN, profile=exposure)).names()
        assert names[-3:] == ["Bash", "Edit", "Write"]


def test_a_predicate_of_a_mirror_may_be_async_and_must_exist() -> None:
    catalog = sdk()

    @catalog.predicate
    async def slow(ctx: ToolContext) -> bool:
        return True

    catalog.mirror("Slow", available="slow")
    assert "Slow" in asyncio.run(catalog.aview(ToolContext(user_id="ann"))).names()
    catalog.mirror("Odd", available="nobody_knows")
    with pytest.raises(DefinitionError, match="nobody_knows"):
        catalog.view(ANN).names()


def test_tool_names_takes_the_catalogs_own_name_and_extra_tools() -> None:
    catalog = sdk()
    one_off = ToolSpec(name="one_off", groups=("nobody",)).bind(lambda ctx, args: "x")
    assert catalog.tool_names(ANN, include=["core"]) == ["mcp__acme__read", "Edit", "Write"]
    assert catalog.tool_names(ANN, include=["core"], server="x") == ["mcp__x__read", "Edit", "Write"]
    assert catalog.tool_names(ANN, include=[], extra_tools=[one_off]) == ["mcp__acme__one_off"]
    assert [entry.spec.name for entry in catalog.build_tools(ANN, include=[], extra_tools=[one_off])] == ["one_off"]
    nameless = Catalog()
    nameless.register(ToolSpec(name="read"), lambda ctx, args: "x")
    assert nameless.tool_names(ANN) == ["read"]


HOW = ("same", "both", "other", "structured")


async def test_perform_may_return_what_it_rendered() -> None:
    class Draw(Tool, register=False):
        """Draw something."""

        how: str

        def perform(self) -> Any:
            if self.how == "structured":
                return self.render(structured={"a": 1})
            if self.how == "both":
                return (*self.render(text="one"), *self.render_resource_link("https://a.example", name="a"))
            content = self.render(text="one")
            return content if self.how == "same" else "two"

    catalog = Catalog()
    catalog.register(Draw)
    results = {
        how: await catalog.view(ANN).call("draw", {"how": how}) for how in ("same", "both", "other", "structured")
    }
    assert {how: len(result.content) for how, result in results.items()} == {
        "same": 1, "both": 2, "other": 2, "structured": 1,
    }  # fmt: skip
    assert results["structured"].structured == {"a": 1}


async def test_the_meta_tools_have_a_title_and_say_what_they_answer_with() -> None:
    catalog = sdk()
    catalog.profile(Profile(name="p", exposure="search"))
    view = catalog.exposed(catalog.view(ANN, profile="p"))
    shown = {tool["name"]: tool for tool in view.export("mcp")}
    assert [shown[name]["title"] for name in ("searchTools", "getTools", "useTools")] == [
        "Search tools", "Get tools", "Use tools",
    ]  # fmt: skip
    answers: dict[str, dict[str, Any]] = {
        "searchTools": {"queries": ["read"]}, "getTools": {"request": []}, "useTools": {"calls": [{"tool": "nope"}]},
    }  # fmt: skip
    for name, arguments in answers.items():
        schema = shown[name]["outputSchema"]
        answered = (await view.call(name, arguments)).structured
        assert schema["required"]
        jsonschema.validate(answered, schema)
        assert isinstance(answered["success"], bool)


# ---------------------------------------------------------------- a notebook's cell, run twice

CELL = """
from pegboard import Tool

class Greet(Tool{keywords}):
    '''Greet somebody.'''

    def perform(self) -> str:
        return {answer!r}
"""


def run_cell(answer: str, keywords: str = "", *, module: str = "__notebook__") -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": module}
    exec(CELL.format(answer=answer, keywords=keywords), names)
    return names


async def test_a_class_of_the_same_module_and_name_takes_the_place_of_itself() -> None:
    run_cell("one")
    run_cell("two")
    assert default_catalog.view(ANN).names() == ["greet"]
    assert (await default_catalog.view(ANN).call("greet", {})).text == "two"
    held = run_cell("three", ', name="hail"')
    assert default_catalog.view(ANN).names() == ["hail"]
    default_catalog.reset()
    default_catalog.load_defaults()
    assert "hail" in default_catalog.view(ANN).names()
    assert "greet" not in default_catalog.view(ANN).names()
    assert held["Greet"].tool_entry.spec.name == "hail"
    default_catalog.unregister("hail")


def test_a_class_of_another_module_or_a_third_tool_is_still_a_duplicate() -> None:
    run_cell("one", module="__first__")
    with pytest.raises(DefinitionError, match="declared twice"):
        run_cell("two", module="__second__")
    default_catalog.register(ToolSpec(name="hail"), lambda ctx, args: "x")
    with pytest.raises(DefinitionError, match="declared twice"):
        run_cell("three", ', name="hail"', module="__first__")
    assert default_catalog.view(ANN).names() == ["greet", "hail"]
    default_catalog.unregister("greet")


@pytest.mark.parametrize(
    ("told", "heard"), [(-1, 0.0), (0.25, 0.25), (7, 1.0), (float("nan"), 0.0), (float("inf"), 1.0), (-0.0, 0.0)]
)
async def test_progress_is_cut_to_what_it_can_be(told: float, heard: float) -> None:
    ctx = call_context()
    await ctx.progress(told)
    assert [event.payload["fraction"] for event in ctx.events] == [heard]


async def test_the_tools_of_a_mirrored_source_are_names_for_allow_lists_and_nothing_else() -> None:
    catalog = Catalog()
    source = FakeSource(name="git", listed=[foreign("git", "log"), foreign("git", "push", groups=("write",))])
    catalog.mirror(source=source)
    catalog.predicate(name="is_ann")(lambda ctx: ctx.user_id == "ann")
    other = FakeSource(name="hub", listed=[foreign("hub", "issues")])
    catalog.mirror(source=other, groups="web", available="is_ann")
    await catalog.start()
    assert (source.started, other.started) == (1, 1)

    def names(user: str = "ann", **selection: Any) -> list[str]:
        return catalog.view(ToolContext(user_id=user), **selection).names()

    every = ["mcp__git__log", "mcp__git__push", "mcp__hub__issues"]
    assert (names(), names("bob")) == (every, every[:2])
    assert names(include=["write"]) == ["mcp__git__push"]
    assert names(include=["web"]) == ["mcp__hub__issues"]
    catalog.profile(Profile(name="careful", policy=Policy(deny=("git.push", "hub"))))
    assert names(profile="careful") == ["mcp__git__log"]
    view = catalog.view(ToolContext(user_id="ann"))
    assert list(view.tools()) == []
    for name in ("git__log", "git.log", "mcp__git__log"):
        assert (await view.call(name)).error.kind == "not_found"  # type: ignore[union-attr]
    heard: list[bool] = []
    catalog.subscribe(lambda: heard.append(True))
    source.relist([foreign("git", "blame")])
    assert heard
    assert names(include=["core"]) == ["mcp__git__blame"]
    await catalog.close()
    assert source.started == 0
    for wrong in ({}, {"name": "x", "source": source}, {"source": source, "full_names": ["x"]}):
        with pytest.raises(DefinitionError, match="takes a name, or source= alone"):
            catalog.mirror(**wrong)
    with pytest.raises(DefinitionError, match=r"full_names=\['Edit', 'Write'\]"):
        catalog.mirror(["Edit", "Write"])  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="There is a source 'git' already"):
        catalog.mirror(source=source)
    catalog.mirror(source=FakeSource(name="odd", listed=[foreign("odd", "x")]), available="nobody_knows")
    with pytest.raises(DefinitionError, match="nobody_knows"):
        names()
