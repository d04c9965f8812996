"""Exposure: what a profile lists, decided by the profile alone."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from pegboard import Catalog, Policy, Profile, ToolContext
from pegboard.model.source_state import SourceState
from tests.core.parts import FakeSource, foreign
from tests.discovery.calling import say, use, view_of
from tests.discovery.shops import THINGS, shop

FEW = ("photo", "ticket")


def listed(catalog: Catalog, **options: Any) -> list[str]:
    return [tool["name"] for tool in view_of(catalog, **options).export("mcp")]


@pytest.mark.parametrize(
    ("exposure", "names"),
    [
        ("two_tool", ["getTools", "useTools"]),
        ("search", ["searchTools", "getTools", "useTools"]),
    ],
)
def test_an_exposure_lists_its_meta_tools(exposure: str, names: list[str]) -> None:
    assert listed(shop(things=FEW, exposure=exposure)) == names


def test_direct_is_the_view_itself() -> None:
    catalog = shop(things=FEW, exposure="direct")
    view = catalog.view(ToolContext(), profile="all")
    assert catalog.exposed(view) is view
    everything = catalog.view(ToolContext())
    assert catalog.exposed(everything) is everything


def test_auto_lists_the_tools_while_they_cost_no_more_than_the_budget() -> None:
    cost = len(shop(things=FEW, exposure="direct").view(ToolContext()).export_bytes("mcp")) / 4.3
    enough, short = (shop(things=FEW, exposure="auto", token_budget=round(cost) + extra) for extra in (0, -1))
    assert len(listed(enough)) == 20
    assert listed(short) == ["searchTools", "getTools", "useTools"]
    assert len(listed(shop(exposure="auto"))) == 3
    assert len(listed(shop(things=FEW, exposure="auto"))) == 20


async def test_where_auto_lists_the_tools_there_are_no_meta_tools() -> None:
    catalog = shop(things=FEW, exposure="auto")
    result = await view_of(catalog).call("getTools", {"request": [{"agent": "photos"}]})
    assert result.error is not None
    assert result.error.message == (
        "No tool named 'getTools' is available to this caller. List the tools to see what is available."
    )
    assert view_of(catalog).why("getTools").code == "unknown"


def test_pinned_tools_stay_in_the_list_as_far_as_the_caller_may_use_them() -> None:
    pinned = ("photos.*", "*_ticket", "vaults.open")
    policy = Policy(deny=("delete_*", "archive_photo"))
    catalog = shop(things=("photo",), pinned=pinned, policy=policy)
    catalog.tool(name="open", namespace="vaults", groups="admin")(lambda: "gold")
    names = listed(catalog)
    assert names[:3] == ["searchTools", "getTools", "useTools"]
    assert names[3:] == sorted(names[3:])
    assert set(names[3:]) == {f"{verb}_photo" for verb in "list create update search export share count rename".split()}


def test_the_description_names_what_the_caller_may_use_and_nothing_else() -> None:
    catalog = shop(things=FEW, exposure="two_tool", policy=Policy(deny=("delete_*",)))
    catalog.tool(name="peek", namespace="vaults", internal_only=True)(lambda: "gold")
    described = view_of(catalog)["getTools"].spec.description
    assert described == (
        "REQUIRED FIRST STEP: You MUST call getTools BEFORE calling useTools. "
        "Only it shows the parameters; calls with guessed ones are refused.\n"
        "Workflow: getTools for the parameters → useTools to run.\n"
        "Agents:\n"
        "photos: [archive_photo,count_photo,create_photo,export_photo,list_photo,rename_photo,search_photo,share_photo,"
        "update_photo]\n"
        "tickets: [archive_ticket,count_ticket,create_ticket,export_ticket,list_ticket,rename_ticket,search_ticket,"
        "share_ticket,update_ticket]"
    )


def test_over_its_budget_the_description_names_fewer_tools_and_then_counts_them() -> None:
    things = [*THINGS, *(f"spare_{thing}" for thing in THINGS)]
    many = view_of(shop(exposure="two_tool", things=things))["getTools"].spec.description.splitlines()
    assert many[3] == "beehives: [archive_beehive,count_beehive,create_beehive, +7 more]"
    assert len(many) == 3 + 100
    counted = view_of(shop(exposure="search"))["getTools"].spec.description.splitlines()
    assert counted[2].startswith("Agents: beehives(10),branchs(10),bridges(10),")
    long = Catalog()
    for number in range(300):
        long.tool(name="run", namespace=f"a_namespace_of_28_letters_{number:03}", groups="core")(lambda: "x")
    long.profile(Profile(name="all", exposure="search"))
    last = view_of(long)["getTools"].spec.description.splitlines()[2]
    assert last.startswith("Agents: a_namespace_of_28_letters_000(1),")
    assert last.endswith(" more")
    assert 1_400 * 4.3 < len(last) < 1_500 * 4.3


def test_thousands_of_tools_are_counted_by_namespace_before_any_is_named() -> None:
    catalog = Catalog()
    for number in range(120):
        for tool in range(3 if number == 77 else 1):
            catalog.tool(name=f"run_{tool}", namespace=f"namespace_{number:03}", groups="core")(lambda: "x")
    catalog.profile(Profile(name="all", exposure="search"))
    line = view_of(catalog)["getTools"].spec.description.splitlines()[2]
    assert line.count("(1)") == 119
    assert "namespace_077(3)" in line
    assert "more" not in line


def test_of_more_namespaces_than_can_be_named_the_largest_are() -> None:
    catalog = Catalog()
    for number in range(400):
        for tool in range(2 if number >= 395 else 1):
            catalog.tool(name=f"run_{tool}", namespace=f"a_namespace_{number:03}", groups="core")(lambda: "x")
    catalog.profile(Profile(name="all", exposure="search"))
    line = view_of(catalog)["getTools"].spec.description.splitlines()[2]
    assert line.count("(2)") == 5
    assert line.endswith(" more")


@pytest.mark.parametrize("exposure", ["two_tool", "search"])
def test_the_list_is_the_same_whatever_the_order_of_declaration(exposure: str) -> None:
    first = view_of(shop(things=FEW, exposure=exposure, pinned=("*_photo",))).export_bytes("mcp")
    for seed in range(20):
        shuffled = shop(things=FEW, exposure=exposure, pinned=("*_photo",), order=Random(seed))
        assert view_of(shuffled).export_bytes("mcp") == first


@pytest.mark.parametrize("exposure", ["two_tool", "search", "auto"])
def test_the_list_is_the_same_for_everybody_who_sees_the_same(exposure: str) -> None:
    """Spaces, sessions and settings stand in results, or a prompt cache would hold for one caller alone."""
    catalog = shop(exposure=exposure, require_context=True)
    one, other = (
        ToolContext(user_id=name, space_id=f"space of {name}", session_id=name, agent=name, settings={"name": name})
        for name in ("ann", "ben")
    )
    assert view_of(catalog, one).export_bytes("mcp") == view_of(catalog, other).export_bytes("mcp")


async def test_the_list_does_not_change_by_what_a_client_does() -> None:
    catalog = shop(things=FEW)
    before = view_of(catalog).export_bytes("mcp")
    for _ in range(4):
        await say(catalog, "searchTools", queries=["list photos"])
        await say(catalog, "getTools", request=[{"agent": "photos"}])
        await use(catalog, {"agent": "photos", "tool": "list_photo", "params": {"name": "x"}})
    assert view_of(catalog).export_bytes("mcp") == before


async def test_a_source_that_goes_down_leaves_the_description_and_the_search() -> None:
    catalog = shop(things=FEW)
    source = FakeSource(name="git", listed=[foreign("git", "log", description="Show the log of a repository.")])
    catalog.add_source(source)
    assert "git: [log]" in _described(catalog)
    assert (await say(catalog, "searchTools", queries=["log of a repository"]))["data"]["results"][0]["hits"]
    source.now = SourceState(status="unreachable", is_up=False)
    assert "git" not in _described(catalog)
    [gone] = (await say(catalog, "searchTools", queries=["log of a repository"]))["data"]["results"]
    assert "log" not in [hit["tool"] for hit in gone["hits"]]


def _described(catalog: Catalog) -> str:
    return view_of(catalog)["getTools"].spec.description


def test_the_published_schemas_are_strict() -> None:
    for tool in view_of(shop(things=FEW)).export("mcp"):
        assert tool["inputSchema"]["additionalProperties"] is False, tool["name"]
        assert tool["inputSchema"]["type"] == "object"
    catalog = shop(things=FEW, require_context=True)
    use_tools = view_of(catalog).schema("useTools")
    assert use_tools["required"] == ["context", "calls"]
    assert use_tools["properties"]["calls"]["maxItems"] == 50


async def test_the_exposed_view_answers_every_question_as_it_lists() -> None:
    catalog = shop(things=FEW)
    view = view_of(catalog)
    assert "useTools" in view
    assert view.why("useTools").code == "visible"
    assert "exposure" in view.why("useTools").reason
    assert (await view.awhy("list_photo")).visible
    assert view.names() == ["searchTools", "getTools", "useTools"]
    assert view.names(server="shop")[0] == "mcp__shop__searchTools"
    assert view["getTools"].spec.description == json.loads(view.export_bytes("mcp"))[1]["description"]
    with pytest.raises(KeyError, match="Call getTools to see what is available"):
        view["qqqq"]
    # The executor runs them on the exposed view too, wherever the call comes from.
    result = await catalog.executor.call(view, "getTools", {"request": "x"})
    assert result.structured["success"] is False


async def test_meta_tools_take_nothing_but_an_object() -> None:
    view = view_of(shop(things=FEW))
    for name in ("searchTools", "getTools", "useTools"):
        result = await view.call(name, ["x"])
        assert result.error is not None
        assert result.error.kind == "invalid_arguments"


async def test_auto_awaits_what_its_list_needs() -> None:
    catalog = shop(exposure="auto")

    @catalog.predicate
    async def later(ctx: ToolContext) -> bool:
        return True

    catalog.tool(name="late", available="later")(lambda: "x")
    result = await view_of(catalog).call("getTools", {"request": [{"agent": "main"}]})
    assert [tool["tool"] for tool in result.structured["data"]["tools"]] == ["late"]
    wrong = await view_of(catalog).call("qqqqq", {})
    assert wrong.error is not None
    assert wrong.error.kind == "not_found"


async def test_one_off_and_bundled_tools_are_found_shown_and_run() -> None:
    catalog = shop(things=FEW)

    def unlock_door() -> str:
        """Unlock the front door of the house."""
        return "open"

    @catalog.builder("house", full_names=[])
    def _(ctx: ToolContext) -> Any:
        def water_plants() -> str:
            """Water the plants on the balcony."""
            return "wet"

        return [water_plants]

    plain = catalog.view(ToolContext(), profile="all", extra_tools=[unlock_door])
    view = catalog.exposed(plain)
    found = (await view.call("searchTools", {"queries": ["unlock the front door", "water the plants"]})).structured
    names = [item["hits"][0]["tool"] for item in found["data"]["results"]]
    assert names == ["unlock_door", "water_plants"]
    used = (await view.call("useTools", {"calls": [{"tool": name} for name in names]})).structured
    assert [item["data"] for item in used["data"]["results"]] == ["open", "wet"]
    # Another caller of the profile finds what is bundled, and not what was given to somebody else.
    others = await say(catalog, "searchTools", queries=["unlock the front door", "water the plants"])
    names = [[hit["tool"] for hit in item["hits"]] for item in others["data"]["results"]]
    assert names[1] == ["water_plants"]
    assert "unlock_door" not in names[0]


async def test_a_hundred_callers_with_different_views_share_one_index() -> None:
    catalog = shop()
    for number in range(100):
        policy = Policy(deny=(f"*_{('photo', 'ticket', 'bridge')[number % 3]}", f"nothing_{number}"))
        ctx = ToolContext(user_id=f"u{number}", policy=policy)
        found = await say(catalog, "searchTools", ctx=ctx, queries=["rename a lighthouse"])
        assert found["data"]["results"][0]["hits"][0]["tool"] == "rename_lighthouse"
    assert catalog.discovery.finder.builds == 1
    catalog.tool(name="knit_scarf", groups="core")(_knit)
    found = await say(catalog, "searchTools", queries=["knit a scarf"])
    assert found["data"]["results"][0]["hits"][0]["tool"] == "knit_scarf"
    assert catalog.discovery.finder.builds == 2


def _knit() -> str:
    """Knit a scarf of wool."""
    return "warm"
