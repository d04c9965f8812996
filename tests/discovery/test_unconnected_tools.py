"""Tools whose caller has not connected their account: lists mark them, search finds them, answers have the link."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard import Catalog, Profile, ToolContext
from tests.accounts import Accounts
from tests.discovery.calling import say, use

BOB = ToolContext(user_id="bob")
LINK = "https://gate.example/connections/mail-bob"


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog()
    catalog.add_source(Accounts("mail", tool="read_mail"))
    catalog.add_source(Accounts("post", connected=("ann", "bob"), tool="read_post_mail"))
    catalog.profile(Profile(name="all", exposure="search"))
    return catalog


def needed(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["source"], one["url"]) for one in answer["data"].get("connections", [])]


async def test_get_tools_marks_them_and_has_the_link(catalog: Catalog) -> None:
    answer = await say(catalog, "getTools", ctx=BOB, request=[{"agent": "mail"}, {"agent": "post"}])
    assert [(tool["tool"], tool.get("connect")) for tool in answer["data"]["tools"]] == [
        ("read_mail", "mail"), ("read_post_mail", None),
    ]  # fmt: skip
    assert answer["data"]["connections"] == [
        {"source": "mail", "message": f"'bob' must connect to 'mail' first. Open {LINK} in a browser.", "url": LINK}
    ]
    full = await say(catalog, "getTools", ctx=BOB, request=[{"agent": "mail", "tools": ["read_mail"]}])
    assert full["data"]["tools"][0]["connect"] == "mail"
    ann = await say(catalog, "getTools", ctx=ToolContext(user_id="ann"), request=[{"agent": "mail"}])
    assert "connections" not in ann["data"]
    assert "connect" not in ann["data"]["tools"][0]


@pytest.mark.parametrize("detail", ["name", "brief", "full"])
async def test_search_tools_marks_them_and_has_the_link(catalog: Catalog, detail: str) -> None:
    answer = await say(catalog, "searchTools", ctx=BOB, queries=["read the mail"], detail=detail)
    hits = answer["data"]["results"][0]["hits"]
    assert {hit["tool"]: hit.get("connect") for hit in hits} == {"read_mail": "mail", "read_post_mail": None}
    assert needed(answer) == [("mail", LINK)]


async def test_use_tools_answers_with_the_link(catalog: Catalog) -> None:
    calls = [{"agent": "post", "tool": "read_post_mail"}, {"agent": "mail", "tool": "read_mail"}]
    results = (await use(catalog, *calls, ctx=BOB))["data"]["results"]
    assert results[0]["data"] == "a mail"
    error = results[1]["error"]
    assert (error["kind"], error["details"]["url"]) == ("connection_required", LINK)
    assert LINK in error["message"]


async def test_a_tool_that_cannot_be_called_ranks_below_an_equal_one_that_can() -> None:
    catalog = Catalog()
    for name in ("a_mail", "b_mail"):
        catalog.add_source(
            Accounts(name, connected=("ann",) if name == "a_mail" else ("ann", "bob"), tool=f"{name}_read")
        )
    order: dict[str, list[str]] = {}
    scores: dict[str, list[float]] = {}
    for user in ("ann", "bob", "eve"):
        view = await catalog.aview(ToolContext(user_id=user))
        found = await catalog.search(view, "read the mail")
        order[user] = [one.entry.spec.namespace for one in found.tools]
        scores[user] = [one.score for one in found.tools]
    assert order == {"ann": ["a_mail", "b_mail"], "bob": ["b_mail", "a_mail"], "eve": ["a_mail", "b_mail"]}
    # Whether it can be called says nothing about whether it is the right one.
    assert scores["ann"][0] == scores["bob"][0] == scores["eve"][0]
    assert scores["bob"][1] < scores["ann"][1]


async def test_answers_come_without_a_link_while_the_store_does_not_answer(catalog: Catalog) -> None:
    source = catalog.registry.sources["mail"]
    assert isinstance(source, Accounts)
    source.is_away = True
    answer = await say(catalog, "getTools", ctx=BOB, request=[{"agent": "mail"}])
    assert (answer["success"], needed(answer), "connect" in answer["data"]["tools"][0]) == (True, [], False)
