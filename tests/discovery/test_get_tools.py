"""getTools: schemas by name, problems told beside what was found."""

from typing import Any

import pytest

from pegboard import Catalog, Profile, Secret, ToolContext, ToolSpec
from tests.discovery.calling import say, view_of
from tests.discovery.shops import give_back, shop, spec_of

REQUIRED = (
    'Request array is required. Example: { "request": [{ "agent": "files", "tools": ["list"] }] }. '
    "See tool description for available agents and tools."
)


@pytest.fixture
def catalog() -> Catalog:
    made = shop(things=("ticket", "photo"))
    made.register(spec_of("vault", "list"), give_back)
    made.profile(Profile(name="nothing", include=()))
    return made


async def test_it_answers_in_the_order_asked(catalog: Catalog) -> None:
    request = [
        {"agent": "tickets", "tools": ["list_ticket", "create_ticket"]},
        {"agent": "photos", "tools": ["share_photo"]},
    ]
    answer = await say(catalog, "getTools", request=request)
    schema = spec_of("ticket", "list").input_schema
    assert answer["success"] is True
    assert "error" not in answer
    assert [tool["tool"] for tool in answer["data"]["tools"]] == ["list_ticket", "create_ticket", "share_photo"]
    assert answer["data"]["tools"][0] == {
        "agent": "tickets",
        "tool": "list_ticket",
        "description": "List a ticket of the account.",
        "inputSchema": schema,
    }


@pytest.mark.parametrize("item", [{"agent": "vaults"}, {"agent": "vaults", "tools": ["*"]}, {"namespace": "vaults"}])
async def test_without_names_it_gives_one_line_each(catalog: Catalog, item: dict[str, Any]) -> None:
    answer = await say(catalog, "getTools", request=[item])
    assert answer == {
        "success": True,
        "data": {
            "tools": [{"agent": "vaults", "tool": "list_vault", "description": "List a vault of the account."}],
        },
    }


@pytest.mark.parametrize("arguments", [{}, {"request": []}, {"request": "files"}, {"request": None}])
async def test_a_request_that_is_no_list_is_shown_the_form(catalog: Catalog, arguments: dict[str, Any]) -> None:
    assert await say(catalog, "getTools", **arguments) == {"success": False, "error": REQUIRED}


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({}, 'Missing or invalid "agent" field in request item'),
        ("tickets", 'Missing or invalid "agent" field in request item'),
        ({"agent": 3}, 'Missing or invalid "agent" field in request item'),
        ({"agent": "orders"}, 'Agent "orders" not found'),
        ({"agent": "TICKETS"}, 'Agent "TICKETS" not found (did you mean "tickets"?)'),
        ({"agent": "\ud800"}, 'Agent "?" not found'),
        ({"agent": "x" * 1_000}, f'Agent "{"x" * 199}…" not found'),
        ({"agent": "tickts"}, 'Agent "tickts" not found (did you mean "tickets"?)'),
        ({"agent": "tickets", "tools": []}, 'Agent "tickets" requires "tools" array with at least one tool name'),
        ({"agent": "tickets", "tools": "all"}, 'Agent "tickets" requires "tools" array with at least one tool name'),
        (
            {"agent": "tickets", "tools": ["list_tickets"]},
            'Tool "list_tickets" not found in agent "tickets" (did you mean "list_ticket"?)',
        ),
        (
            {"agent": "tickets", "tools": ["List_Ticket\udfff"]},
            'Tool "List_Ticket?" not found in agent "tickets" (did you mean "list_ticket"?)',
        ),
        ({"agent": "tickets", "tools": [7]}, 'Tool "7" not found in agent "tickets"'),
        ({"agent": "tickets", "tools": ["list_photo"]}, 'Tool "list_photo" not found in agent "tickets"'),
    ],
)
async def test_one_bad_item_does_not_fail_the_rest(catalog: Catalog, item: Any, problem: str) -> None:
    good = {"agent": "photos", "tools": ["count_photo"]}
    answer = await say(catalog, "getTools", request=[item, good])
    assert [tool["tool"] for tool in answer["data"]["tools"]] == ["count_photo"]
    assert answer["success"] is True
    assert answer["error"].startswith(f"Some items not found: {problem}")


async def test_several_problems_stand_in_one_text(catalog: Catalog) -> None:
    answer = await say(catalog, "getTools", request=[{"agent": "orders"}, {}])
    assert answer == {
        "success": True,
        "data": {"tools": []},
        "error": 'Some items not found: Agent "orders" not found, Missing or invalid "agent" field in request item',
    }


async def test_an_agent_whose_tools_are_all_hidden_is_not_found() -> None:
    catalog = shop(things=("ticket",))
    catalog.tool(name="peek", namespace="vaults", internal_only=True, groups="core")(lambda: "gold")
    catalog.tool(name="open", namespace="vaults", groups="admin")(lambda: "gold")
    answer = await say(catalog, "getTools", request=[{"agent": "vaults"}, {"agent": "vaults", "tools": ["peek"]}])
    assert answer["error"] == 'Some items not found: Agent "vaults" not found, Agent "vaults" not found'


async def test_properties_that_the_intent_fills_are_not_shown() -> None:
    catalog = Catalog()
    schema = {
        "type": "object",
        "properties": {
            "goal": {"type": "string", "x-call-intent": True},
            "why": {"type": "string", "x-call-intent": "memory"},
            "context": {"type": "string"},
        },
        "required": ["goal", "why", "context"],
    }
    catalog.register(ToolSpec(name="note", namespace="tickets", input_schema=schema), give_back)
    catalog.profile(Profile(name="all", exposure="search"))
    answer = await say(catalog, "getTools", request=[{"agent": "tickets", "tools": ["note"]}])
    assert answer["data"]["tools"][0]["inputSchema"] == {
        "type": "object",
        "properties": {"context": {"type": "string"}},
        "required": ["context"],
    }
    assert view_of(catalog).schema("note") == schema


async def test_the_unforeseen_is_told_without_secrets() -> None:
    catalog = Catalog()

    @catalog.predicate
    def breaks(ctx: ToolContext) -> bool:
        catalog.tool(name="broken", available="sesame_open")(lambda: "a predicate that nobody declared")
        return True

    catalog.tool(name="rest", available="breaks")(lambda: "nothing")
    catalog.profile(Profile(name="all", exposure="search"))
    ctx = ToolContext(secrets={"PASSWORD": Secret("sesame_open")})
    answer = await say(catalog, "getTools", ctx=ctx, request=[{"agent": "main", "tools": ["rest"]}])
    assert answer["success"] is False
    assert answer["error"].startswith("Error getting tools: ")
    assert "sesame" not in answer["error"]
    assert "[redacted]" in answer["error"]


async def test_the_third_identical_request_of_a_session_gets_a_nudge(catalog: Catalog) -> None:
    ann, ben = ToolContext(user_id="ann"), ToolContext(user_id="ben")
    request = [{"agent": "tickets"}]
    answers = [await say(catalog, "getTools", ctx=ann, request=request) for _ in range(4)]
    plain = {"success": True, "data": answers[0]["data"]}
    nudge = "You have asked this before and the answer is the same. Call useTools now, or ask differently."
    assert answers == [plain, plain, {**plain, "nudge": nudge}, {**plain, "nudge": nudge}]
    assert await say(catalog, "getTools", ctx=ben, request=request) == plain
    await say(catalog, "useTools", ctx=ann, calls=[{"agent": "photos", "tool": "list_photo", "params": {"name": "x"}}])
    assert await say(catalog, "getTools", ctx=ann, request=request) == plain


async def test_a_profile_without_tools_has_nothing_to_get(catalog: Catalog) -> None:
    catalog.profile(Profile(name="all", include=(), exposure="two_tool"))
    answer = await say(catalog, "getTools", request=[{"agent": "tickets"}])
    assert answer["error"] == 'Some items not found: Agent "tickets" not found'


async def test_the_questions_of_others_bring_no_nudge(catalog: Catalog) -> None:
    asking: list[Any] = [{}, {"user_id": "ann"}, {"space_id": "s"}, {"session_id": "t"}, {"agent": "a"}, {"agent": "b"}]
    for _ in range(2):
        for who in asking:
            assert "nudge" not in await say(catalog, "getTools", request=[{"agent": "tickets"}], ctx=ToolContext(**who))
    assert "nudge" in await say(catalog, "getTools", request=[{"agent": "tickets"}], ctx=ToolContext(agent="a"))
