"""searchTools: what is needed in, tools out, and how sure that is."""

import json
from typing import Any

import anyio
import pytest

from pegboard import Catalog, Profile, ToolContext, ToolSpec
from tests.discovery.calling import say
from tests.discovery.shops import give_back, shop, spec_of


@pytest.fixture
def catalog() -> Catalog:
    return shop(things=("photo", "ticket", "lighthouse"))


async def test_hits_are_told_for_each_query_apart(catalog: Catalog) -> None:
    answer = await say(catalog, "searchTools", queries=["rename a lighthouse", "share photos"], limit=1)
    assert answer["success"] is True
    results = answer["data"]["results"]
    assert [(item["query"], len(item["hits"])) for item in results] == [("rename a lighthouse", 1), ("share photos", 1)]
    score = results[0]["hits"][0].pop("score")
    assert 0.8 <= score <= 1
    assert results[0]["hits"][0] == {
        "agent": "lighthouses",
        "tool": "rename_lighthouse",
        "call": "rename_lighthouse",
        "confidence": "strong",
        "inputSchema": spec_of("lighthouse", "rename").input_schema,
        "description": "Rename a lighthouse of the account.",
    }


@pytest.mark.parametrize(
    ("detail", "keys"),
    [
        ("name", {"agent", "tool", "call", "score", "confidence"}),
        ("brief", {"agent", "tool", "call", "score", "confidence", "description"}),
        ("full", {"agent", "tool", "call", "score", "confidence", "description", "inputSchema"}),
    ],
)
async def test_detail_decides_what_is_told_of_a_hit(catalog: Catalog, detail: str, keys: set[str]) -> None:
    answer = await say(catalog, "searchTools", queries=["count tickets"], detail=detail)
    hits = answer["data"]["results"][0]["hits"][3 if detail == "brief" else 0 :]
    assert {frozenset(hit) for hit in hits} == {frozenset(keys)}
    if detail == "full":
        assert hits[0]["inputSchema"] == spec_of("ticket", "count").input_schema


async def test_a_tool_that_always_asks_a_person_is_marked_in_hits_and_schemas(catalog: Catalog) -> None:
    catalog.tool(name="burn_ticket", groups="core", consent="always")(lambda: 1)
    for detail in ("name", "brief", "full"):
        [found] = (await say(catalog, "searchTools", queries=["burn ticket"], detail=detail))["data"]["results"]
        assert {hit["tool"] for hit in found["hits"] if hit.get("asks")} == {"burn_ticket"}
    request = [{"agent": "main", "tools": ["burn_ticket"]}]
    [shown] = (await say(catalog, "getTools", request=request))["data"]["tools"]
    assert shown["asks"] is True


async def test_a_search_answers_whatever_is_declared_while_its_predicates_wait(catalog: Catalog) -> None:
    async def is_late(_ctx: ToolContext) -> bool:
        await anyio.lowlevel.checkpoint()
        return True

    @catalog.predicate
    async def is_awake(_ctx: ToolContext) -> bool:
        if "print_ticket" not in catalog.snapshot().by_wire_name:
            catalog.predicate(name="is_late")(is_late)
            catalog.tool(name="print_ticket", groups="core", available="is_late")(lambda: 1)
        await anyio.lowlevel.checkpoint()
        return True

    catalog.tool(name="weigh_ticket", groups="core", available="is_awake")(lambda: 1)
    for word, tools in (("weigh", ["weigh_ticket"]), ("print", ["print_ticket"])):
        [found] = (await say(catalog, "searchTools", queries=[f"{word} ticket"], limit=1))["data"]["results"]
        assert [hit["tool"] for hit in found["hits"]] == tools


async def test_the_first_three_hits_can_be_called_at_once(catalog: Catalog) -> None:
    [found] = (await say(catalog, "searchTools", queries=["rename a lighthouse"]))["data"]["results"]
    assert ["inputSchema" in hit for hit in found["hits"]] == [True] * 3 + [False] * (len(found["hits"]) - 3)
    hit = found["hits"][0]
    arguments = dict.fromkeys(hit["inputSchema"]["required"], "x")
    used = await say(catalog, "useTools", calls=[{"agent": hit["agent"], "tool": hit["tool"], "params": arguments}])
    assert used["success"]


def wide(name: str, properties: int) -> ToolSpec:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {f"{name}_property_{n}": {"type": "string"} for n in range(properties)},
    }
    return ToolSpec(name=name, namespace="fruit", description=f"Peels an {name}.", input_schema=schema)


async def test_schemas_are_given_while_the_answer_stays_under_its_budget() -> None:
    catalog = Catalog()
    for name, properties in (("apple", 20), ("apricot", 500), ("avocado", 20), ("almond", 20), ("anise", 20)):
        catalog.register(wide(name, properties), give_back)
    catalog.profile(Profile(name="all", include=("core",), exposure="search"))
    queries = ["peels apple", "peels apricot", "peels avocado", "peels almond", "peels anise"]
    results = (await say(catalog, "searchTools", queries=queries))["data"]["results"]
    with_schema = [["inputSchema" in hit for hit in item["hits"]] for item in results]
    # The first of each request comes before the second of any, and one that is too large leaves room for the others.
    assert [hits[0] for hits in with_schema] == [True, False, True, True, True]
    assert len(json.dumps(results, separators=(",", ":"))) / 4.3 < 1_510
    assert not any(has for hits in with_schema for has in hits[3:])


async def test_weak_matches_are_given_and_the_answer_says_what_that_means(catalog: Catalog) -> None:
    query = "rename the notary's stamp of the embassy before Thursday"
    [answer] = (await say(catalog, "searchTools", queries=[query]))["data"]["results"]
    assert {hit["confidence"] for hit in answer["hits"]} == {"weak"}
    assert answer["hits"][0]["tool"].startswith("rename_")
    assert answer["note"].startswith("No hit stands out: compare the descriptions")
    [sure] = (await say(catalog, "searchTools", queries=["rename a lighthouse"]))["data"]["results"]
    assert "note" not in sure


async def test_words_that_no_tool_has_get_weak_hits_of_each_namespace_and_a_note(catalog: Catalog) -> None:
    queries = ["transfer money abroad", "?!"]
    distant, nothing = (await say(catalog, "searchTools", queries=queries))["data"]["results"]
    assert {hit["confidence"] for hit in distant["hits"]} == {"weak"}
    assert {hit["agent"] for hit in distant["hits"]} == {"lighthouses", "photos", "tickets"}
    assert distant["note"].startswith("No tool here has a word of this request: ")
    assert (nothing["query"], nothing["hits"]) == ("?!", [])
    for answer in (distant, nothing):
        assert sorted(answer["nearest"]) == ["lighthouses", "photos", "tickets"]


async def test_the_description_promises_nothing_of_an_empty_answer(catalog: Catalog) -> None:
    described = catalog.exposed(catalog.view(ToolContext(), profile="all"))["searchTools"].spec.description
    assert "strong, fair, or weak" in described
    assert "empty" not in described


@pytest.mark.parametrize("query", [7, {"query": "share a photo"}, ["share a photo"], " "])
async def test_queries_of_which_none_is_a_text_are_refused_with_an_example(catalog: Catalog, query: Any) -> None:
    assert await say(catalog, "searchTools", queries=[query]) == {
        "success": False,
        "error": "a query must be a string that describes what is needed. "
        'Example: { "queries": ["create an issue", "send an email"] }.',
    }


@pytest.mark.parametrize("arguments", [{}, {"queries": []}, {"queries": 5}, {"queries": {}}])
async def test_without_queries_the_form_is_shown(catalog: Catalog, arguments: dict[str, Any]) -> None:
    error = 'queries array is required. Example: { "queries": ["create an issue", "send an email"] }.'
    assert await say(catalog, "searchTools", **arguments) == {"success": False, "error": error}


async def test_one_bad_query_does_not_fail_the_rest(catalog: Catalog) -> None:
    answer = await say(catalog, "searchTools", queries=[7, "share a photo", " "], detail="much", limit="many")
    assert [item["query"] for item in answer["data"]["results"]] == ["share a photo"]
    assert answer["error"] == (
        'detail "much" is not one of name, brief, full; a query must be a string that describes what is needed'
    )
    answer = await say(catalog, "searchTools", queries=["share a photo"] * 7)
    assert len(answer["data"]["results"]) == 5
    assert answer["error"] == "7 queries were given and 5 answered: send the others in another search"


async def test_what_cannot_be_repeated_is_told_as_far_as_it_can(catalog: Catalog) -> None:
    answer = await say(catalog, "searchTools", queries=["share a photo \ud800", "share a photo " * 10_000])
    first, second = answer["data"]["results"]
    assert (first["query"], first["hits"][0]["tool"]) == ("share a photo ?", "share_photo")
    assert (len(second["query"]), second["query"][-1], second["hits"][0]["tool"]) == (4_000, "…", "share_photo")


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (0, 1), (-3, 1), (3, 3), (2.0, 2), (True, 8), (None, 8)])
async def test_the_limit_is_kept_within_bounds(catalog: Catalog, limit: Any, count: int) -> None:
    answer = await say(catalog, "searchTools", queries=["a photo"], limit=limit)
    assert len(answer["data"]["results"][0]["hits"]) == count


async def test_a_single_text_is_taken_for_a_list_of_one(catalog: Catalog) -> None:
    for key in ("queries", "query"):
        answer = await say(catalog, "searchTools", ctx=None, **{key: "share a photo"})
        assert answer["data"]["results"][0]["hits"][0]["tool"] == "share_photo"


async def test_the_third_identical_search_gets_a_nudge(catalog: Catalog) -> None:
    ctx = ToolContext(user_id="ann")
    answers = [await say(catalog, "searchTools", ctx=ctx, queries=["share a photo"]) for _ in range(3)]
    assert ["nudge" in answer for answer in answers] == [False, False, True]
    assert answers[2]["data"] == answers[0]["data"]


async def test_python_asks_the_same_index(catalog: Catalog) -> None:
    view = catalog.view(ToolContext(), profile="all")
    found = await catalog.search(view, "rename a lighthouse", limit=2)
    assert found.tools[0].entry.wire_name == "rename_lighthouse"
    assert len(found.tools) <= 2
    weak = await catalog.search(view, "transfer money to a bank account abroad")
    assert {one.confidence for one in weak.tools} == {"weak"}
    assert (await catalog.search(view, "qqqq")).near_namespaces
