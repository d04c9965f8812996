"""Builders: tools made for each context, never while names are asked, at most once."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from pegboard import Catalog, DefinitionError, DuplicateToolError, Policy, Tool, ToolContext, ToolSpec
from tests.core.parts import ANN, echo, kind_of


def counted(*built: Any) -> tuple[Callable[[ToolContext], Any], list[ToolContext]]:
    """Return a builder that gives `built`, and the contexts it ran for."""
    ran: list[ToolContext] = []

    def build(ctx: ToolContext) -> Any:
        ran.append(ctx)
        return list(built) if len(built) != 1 else built[0]

    return build, ran


def made(name: str, **said: Any) -> Any:
    return ToolSpec(name=name, **said).bind(echo)


def test_no_builder_runs_while_names_are_listed_or_the_catalog_is_declared() -> None:
    catalog = Catalog()
    build, ran = counted(made("review"))
    catalog.builder("review", groups="triggers")(build)
    catalog.snapshot()
    view = catalog.view(ToolContext(), include=["triggers"])
    assert view.names() == ["review"]
    assert view.names(server="acme") == ["mcp__acme__review"]
    assert catalog.tool_names(ToolContext()) == ["review"]
    assert ran == []


async def test_a_misspelled_name_suggests_a_built_one_without_building_it() -> None:
    catalog = Catalog()
    build, ran = counted(made("review"))
    catalog.builder("review")(build)
    result = await catalog.view(ToolContext()).call("reviw")
    assert result.text == "No tool named 'reviw' is available to this caller. Did you mean 'review'?"
    assert ran == []


async def test_a_builder_runs_once_a_context_however_often_its_tools_are_asked_for() -> None:
    catalog = Catalog()
    build, ran = counted(made("one"), made("two"))
    catalog.builder(["one", "two"])(build)
    ctx = ToolContext(budget=None)
    views = [catalog.view(ctx) for _ in range(20)]
    assert all(len(view.tools()) == 2 for view in views)
    results = await asyncio.gather(*(view.call(name, {}) for view in views for name in ("one", "two")))
    assert {kind_of(result) for result in results} == {"ok"}
    assert ran == [ctx]
    catalog.view(ctx.child()).tools()
    assert len(ran) == 2, "a child context starts a fresh memo"


def test_a_builder_that_is_not_selected_or_not_available_never_runs() -> None:
    catalog = Catalog()
    build, ran = counted(made("review"))
    catalog.builder("review", groups="triggers", available=False)(build)
    catalog.builder("denied")(build)
    catalog.group("chat")
    for view in (catalog.view(ANN, include=["chat"]), catalog.view(ToolContext(policy=Policy(deny=("denied",))))):
        assert view.tools() == ()
        assert view.find("review") is None
        assert view.why("review").code in ("group", "available")
    assert ran == []


def test_a_builder_that_raises_hides_its_tools_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    catalog = Catalog()
    built: list[int] = []

    @catalog.builder(["one", "two"])
    def _(ctx: ToolContext) -> Any:
        built.append(1)
        raise ConnectionRefusedError("no backend")

    view = catalog.view(ToolContext())
    assert view.tools() == ()
    decision = view.why("one")
    assert (decision.code, "ConnectionRefusedError: no backend" in decision.reason) == ("builder", True)
    assert "test_builders" in decision.reason, "the reason names the place of the builder"
    assert built == [1], "that it failed is remembered too"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_built_names_that_differ_from_the_declared_ones_are_an_error() -> None:
    catalog = Catalog()
    catalog.builder(["one", "two"])(counted(made("one"), made("three"))[0])
    decision = catalog.view(ToolContext()).why("one")
    assert decision.code == "builder"
    assert "declares ['one', 'two'] but built ['one', 'three']. Declare the names that it builds" in decision.reason


def test_a_built_tool_gets_the_namespace_and_groups_of_its_declaration() -> None:
    catalog = Catalog()

    def search(city: str) -> str:
        """Look up a city."""
        return city

    catalog.builder("search", namespace="geo", groups="maps", description="Declared words.")(lambda ctx: search)
    [tool] = catalog.view(ToolContext(), include=["maps"]).tools()
    assert (tool.wire_name, tool.qualified_id, tool.spec.groups) == ("search", "geo.search", ("maps",))
    assert tool.spec.description == "Look up a city."


async def test_functions_classes_and_bound_specs_can_be_built() -> None:
    class Shout(Tool, register=False):
        """Shout."""

        text: str

        def perform(self, ctx: ToolContext) -> str:
            return self.text.upper()

    def twice(text: str) -> str:
        return text * 2

    catalog = Catalog()
    catalog.builder(["shout", "twice", "echo"])(counted(Shout, twice, made("echo"))[0])
    view = catalog.view(ToolContext())
    assert [tool.wire_name for tool in view.tools()] == ["shout", "twice", "echo"]
    assert (await view.call("shout", {"text": "ab"})).text == "AB"
    assert (await view.call("twice", {"text": "ab"})).text == "abab"


async def test_an_async_builder_is_awaited_by_aview_and_by_a_call() -> None:
    catalog = Catalog()

    @catalog.builder("slow")
    async def _(ctx: ToolContext) -> Any:
        await asyncio.sleep(0)
        return made("slow")

    view = await catalog.aview(ToolContext())
    assert [tool.wire_name for tool in view.tools()] == ["slow"]
    assert kind_of(await catalog.view(ToolContext()).call("slow", {})) == "ok"


async def test_an_async_builder_that_raises_hides_its_tool() -> None:
    catalog = Catalog()

    @catalog.builder("slow")
    async def _(ctx: ToolContext) -> Any:
        raise ConnectionRefusedError

    view = await catalog.aview(ToolContext())
    assert (view.tools(), view.why("slow").code) == ((), "builder")


def test_a_caller_specific_copy_leaves_the_declaration_as_it_is() -> None:
    declared = ToolSpec(
        name="report", input_schema={"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]}
    )
    catalog = Catalog()

    @catalog.builder("report")
    def _(ctx: ToolContext) -> Any:
        teams: dict[str, Any] = {"team": {"enum": sorted(ctx.roles)}}
        return declared.extended(extra_properties=teams, extra_required=["team", "day"]).bind(echo)

    schemas = {role: catalog.view(ToolContext(roles=[role])).schema("report") for role in ("red", "blue")}
    assert schemas["red"]["properties"] == {"day": {"type": "string"}, "team": {"enum": ["red"]}}
    assert schemas["blue"]["required"] == ["day", "team"]
    assert "required" not in ToolSpec(name="a").extended(extra_properties=schemas["red"]["properties"]).input_schema
    assert declared.input_schema == {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]}


def test_names_given_by_a_callable_are_evaluated_when_they_are_asked() -> None:
    catalog = Catalog()
    names: list[str] = []
    catalog.builder(lambda: names)(lambda ctx: [made(name) for name in names])
    assert catalog.view(ToolContext()).names() == []
    names.extend(["red", "blue"])
    assert catalog.view(ToolContext()).names() == ["red", "blue"]
    assert [tool.wire_name for tool in catalog.view(ToolContext()).tools()] == ["red", "blue"]


def test_the_groups_of_a_builder_are_known_before_its_names_are() -> None:
    catalog = Catalog()
    names: list[str] = []
    catalog.builder(lambda: names, groups=["paint", "wall"])(lambda ctx: [made(name) for name in names])
    assert catalog.view(ToolContext(), include=["paint"]).names() == []
    names.append("red")
    assert catalog.view(ToolContext(), include=["wall"]).names() == ["red"]


def test_a_builder_whose_second_name_is_taken_declares_nothing() -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="two"), echo)
    with pytest.raises(DuplicateToolError):
        catalog.builder(["one", "two"])(counted(made("one"), made("two"))[0])
    assert [entry.wire_name for entry in catalog.snapshot().entries] == ["two"]


def test_declared_words_stand_in_for_those_that_a_build_lacks() -> None:
    catalog = Catalog()
    catalog.builder(["one", "two"], description={"one": "First."})(
        counted(made("one"), made("two", description="Second."))[0]
    )
    assert [tool.spec.description for tool in catalog.view(ToolContext()).tools()] == ["First.", "Second."]
    with pytest.raises(DefinitionError, match="is not a tool"):
        catalog.view(ToolContext(), extra_tools=[42])


async def test_a_builder_that_wants_to_end_the_program_hides_its_tools() -> None:
    catalog = Catalog()

    @catalog.builder("one")
    def _(ctx: ToolContext) -> Any:
        raise SystemExit(3)

    try:
        view = catalog.view(ToolContext())
        assert (view.tools(), view.find("one"), view.why("one").code) == ((), None, "builder")
        assert kind_of(await view.call("one")) == "not_found"
    except SystemExit as error:
        pytest.fail(f"{error!r} came out")
