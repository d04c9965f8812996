"""The board shows each caller's tools, and operators what is hidden and why; the page of a tool explains it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from pegboard import Catalog, Policy, Profile, ToolContext
from tests.server.console.browsing import Browser, console, text_of
from tests.server.console.test_console_login import Office

PEG = re.compile(r'<li><a class="peg ([a-z ]+)" href="([^"]+)">([^<]+)')


def pegs(page: str) -> dict[str, str]:
    """Return the class of each peg, by its name."""
    return {name: kind for kind, _, name in PEG.findall(page)}


def shop() -> Catalog:
    catalog = Catalog("shop")

    @catalog.tool(groups="read", namespace="orders", read_only=True)
    def find_orders(customer: str, limit: int = 10) -> list[str]:
        """Find the orders of a customer."""
        return [customer] * limit

    @catalog.tool(groups="write", namespace="orders", consent="always")
    def refund(order: str) -> str:
        """Pay an order back."""
        return order

    @catalog.tool(groups="write", namespace="stock")
    def delete_item(item: str) -> str:
        """Delete an item from the stock."""
        return item

    @catalog.tool(groups="read", namespace="stock", available=lambda ctx: ctx.user_id == "ann")
    def count_items(kind: str) -> int:
        """Count items."""
        return 1

    catalog.profile(Profile(name="clerk", include=("read",)))
    catalog.profile(Profile(name="boss", include=("read", "write"), policy=Policy(deny=("delete_*",))))
    catalog.profile(Profile(name="finder", include=("read", "write"), exposure="search"))
    return catalog


@pytest.fixture
async def browser() -> AsyncGenerator[Browser]:
    async with console(shop()) as browser:
        await browser.log_in()
        yield browser


async def test_pegs_are_filled_for_tools_that_may_be_used_and_outlined_with_the_code_otherwise(
    browser: Browser,
) -> None:
    clerk = await browser.get("?profile=clerk")
    assert pegs(clerk.text) == {
        "find_orders": "v", "refund": "group", "delete_item": "group", "count_items": "available",
    }  # fmt: skip
    assert "1 tool on the board for a caller with profile clerk , 3 hidden" in text_of(clerk.text)
    boss = await browser.get("?profile=boss")
    assert pegs(boss.text) == {
        "find_orders": "v", "refund": "v a", "delete_item": "policy", "count_items": "available",
    }  # fmt: skip
    # The code is there in words too.
    assert "delete_item policy" in text_of(boss.text)
    assert "a rule denies it 1" in text_of(boss.text)


async def test_the_menu_is_grouped_and_a_group_without_pages_for_this_person_is_left_out(
    browser: Browser, tmp_path: Path
) -> None:
    menu = (
        "Tools Board Matrix Agents Now Consents Tasks Live Record Usage Audit Connected Sources Documents Connections"
    )
    assert menu in text_of((await browser.get()).text)
    office = Office(tmp_path)
    async with console(office.catalog) as other:
        await other.log_in(office.key["paul"])
        menu = "Tools Board Now Consents Tasks Live Connected Documents Connections"
        assert menu in text_of((await other.get()).text)


async def test_an_operator_is_told_what_a_space_and_a_door_are_where_the_words_first_appear(browser: Browser) -> None:
    assert "A space is a tenant: its documents" in text_of((await browser.get()).text)
    assert "The door is the way a call came in" in text_of((await browser.get("/live")).text)


async def test_an_operator_looks_through_the_eyes_of_another(browser: Browser) -> None:
    page = await browser.get("?profile=clerk&user=ann&space=s1&role=editor, approver")
    assert pegs(page.text)["count_items"] == "v"
    assert "for ann in space s1 with role editor, approver with profile clerk" in text_of(page.text)
    tool = next(path for _, path, name in PEG.findall(page.text) if name == "count_items")
    assert tool == "/console/tools/count_items?profile=clerk&amp;user=ann&amp;space=s1&amp;role=editor%2C+approver"
    shown = await browser.get("/tools/count_items?profile=clerk&user=ann")
    assert "visible May be used. For ann with profile clerk" in text_of(shown.text)


@pytest.mark.parametrize("path", ["", "/tools/count_items", "/matrix", "/agents", "/usage", "/compare"])
async def test_a_band_on_each_page_says_whose_eyes_an_operator_looks_through_and_one_click_ends_it(
    browser: Browser, path: str
) -> None:
    page = (await browser.get(f"{path}?profile=clerk&user=<i>ann&space=s1&role=&q=count")).text
    assert "You look through the eyes of <i>ann in space s1 with profile clerk . Look as yourself" in text_of(page)
    assert "<i>" not in page
    [end] = re.findall(r'<aside class="band".*?href="/console([^"]*)"', page)
    assert unescape(end) == f"{path}?q=count"
    own = (await browser.get(unescape(end))).text
    assert "You look through the eyes" not in own


async def test_links_to_pages_that_are_the_persons_own_end_the_look_through_other_eyes(browser: Browser) -> None:
    page = (await browser.get("?profile=clerk&user=ann")).text
    links = dict(re.findall(r'<li><a href="/console([^"?]*)([^"]*)"', page.partition("</nav>")[0]))
    own = {"/consents", "/tasks", "/live", "/audit", "/sources", "/documents", "/connections"}
    assert {path for path, query in links.items() if not query} == own
    typed = text_of((await browser.get("/consents?user=ann")).text)
    assert "This page is your own. Elsewhere you look through the eyes of ann" in typed


async def test_the_board_says_when_agents_list_meta_tools_instead(browser: Browser) -> None:
    assert "exposure: search" in text_of((await browser.get("?profile=finder")).text)
    assert "exposure" not in text_of((await browser.get("?profile=clerk")).text)


async def test_a_search_leaves_the_pegs_with_its_words_and_shows_what_an_agent_would_find(browser: Browser) -> None:
    page = await browser.get("?profile=boss&q=an ORDER")
    assert pegs(page.text) == {"refund": "v a"}
    assert "What an agent’s search finds" in page.text
    nothing = await browser.get("?profile=boss&q=volcano")
    assert pegs(nothing.text) == {}
    assert "<h2>No tool has these words</h2>" in nothing.text
    # A tool that an agent finds with some certainty is no empty board.
    elsewhere = await browser.get("?profile=boss&q=refund volcano")
    assert pegs(elsewhere.text) == {}
    assert "refund</a>" in elsewhere.text
    assert "<h2>No tool has these words</h2>" not in elsewhere.text


async def test_the_page_of_a_hidden_tool_has_the_reason_and_the_fix(browser: Browser) -> None:
    page = text_of((await browser.get("/tools/refund?profile=clerk")).text)
    assert "group Hidden: the profile includes none of its groups." in page
    # Lists of names read as words, and the code `available` does not claim that the tool may be used.
    assert "Reason not in include=read of profile 'clerk'; its groups are write Fix" in page
    assert (
        "Fix include 'write' for profile clerk, in the config. Callers with this profile: you. Then restart the program"
        in page
    )
    assert "After that may be used; a person is asked before every call" in page
    denied = text_of((await browser.get("/tools/delete_item?profile=boss")).text)
    assert "Reason denied by delete_* Fix remove delete_* from deny for profile boss" in denied
    assert "unavailable Hidden: its condition" in text_of((await browser.get("/tools/count_items?profile=boss")).text)
    # Who can reach it.
    reach = "you clerk group the profile includes none of its groups you boss may be used; a person is asked"
    assert reach in page
    hidden = text_of((await browser.get("/tools/count_items?profile=boss")).text)
    assert "you boss unavailable its condition does not hold" in hidden


async def test_the_page_of_a_tool_shows_what_it_takes_costs_and_how_to_call_it(browser: Browser) -> None:
    page = text_of((await browser.get("/tools/find_orders?profile=boss")).text)
    for part in (
        "Find the orders of a customer.", "read-only", "group read", "tokens",
        "customer required string", "limit integer default 10",
        "curl 'http://127.0.0.1:8420/v1/tools/find_orders/call?profile=boss'", '"customer": "text"',
        "POST http://127.0.0.1:8420/mcp/boss", '"method": "tools/call"',
    ):  # fmt: skip
        assert part in page, part


async def test_the_shown_call_in_python_calls_the_tool(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (await browser.get("/tools/find_orders?profile=boss")).text
    code = text_of(page).partition("Python ")[2].partition(" MCP POST")[0]
    sent: dict[str, Any] = {}

    class Answer:
        def json(self) -> str:
            return "sent"

    def post(url: str, **more: Any) -> Answer:
        sent.update(url=url, **more)
        return Answer()

    monkeypatch.setattr("httpx2.post", post)
    exec(re.sub(r"import httpx2 ", "import httpx2\n", code).replace(" print(", "\nprint("))
    answer = await browser.client.post(sent["url"], json=sent["json"])
    assert (answer.status_code, answer.json().get("isError", False)) == (200, False)


async def test_a_person_sees_their_own_tools_alone_and_hidden_ones_read_like_unknown_ones(tmp_path: Path) -> None:
    office = Office(tmp_path)
    async with console(office.catalog) as browser:
        await browser.log_in(office.key["paul"])
        page = await browser.get("")
        assert pegs(page.text) == {"greet": "v"}
        assert "vault" not in page.text
        hidden, unknown = await browser.get("/tools/open_vault"), await browser.get("/tools/open_vaults")
        assert (hidden.status_code, unknown.status_code) == (404, 404)
        # The tokens of the form for logging out are random.
        assert text_of(hidden.text).replace("open_vault", "X") == text_of(unknown.text).replace("open_vaults", "X")
        assert "Log out" in hidden.text
        assert "Who can reach it" not in (await browser.get("/tools/greet")).text
        # Neither another profile nor another person's eyes are theirs to choose.
        assert (await browser.get("?profile=vault")).status_code == 404
        assert pegs((await browser.get("?user=olga&role=operator")).text) == {"greet": "v"}


async def test_an_operator_may_look_at_profiles_that_are_not_theirs(tmp_path: Path) -> None:
    office = Office(tmp_path)
    async with console(office.catalog) as browser:
        await browser.log_in(office.key["olga"])
        assert pegs((await browser.get("?profile=vault")).text) == {"greet": "v", "open_vault": "v"}


async def test_names_with_numbers_are_in_the_order_of_the_numbers_on_each_page() -> None:
    catalog = Catalog("shop")
    for number in (10, 2, 1):
        catalog.tool(name=f"read_{number}", namespace=f"team{number}", groups="core")(lambda: "")
    catalog.profile(Profile(name="all", include=("core",)))
    catalog.profile(Profile(name="none", include=("core",), policy=Policy(deny=("*",))))
    async with console(catalog) as browser:
        await browser.log_in()
        for path in ("", "/matrix", "/compare?profile=all&b_profile=none"):
            page = (await browser.get(path)).text
            shown = re.findall(r">(?:team\d+\.)?(read_\d+)<", page.replace("<wbr>", ""))
            assert list(dict.fromkeys(shown)) == ["read_1", "read_2", "read_10"], path


async def test_an_empty_board_says_what_to_write() -> None:
    async with console(Catalog("empty")) as browser:
        await browser.log_in()
        assert "The board is empty" in (await browser.get("")).text


async def test_every_code_that_hides_a_tool_is_on_the_board() -> None:
    catalog = Catalog("codes")

    async def is_true(ctx: ToolContext) -> bool:
        return False

    @catalog.tool(internal_only=True)
    def inner() -> str:
        return "x"

    @catalog.tool(available=is_true)
    def shut() -> str:
        return "x"

    @catalog.tool(factory="gone")
    def made() -> str:
        return "x"

    @catalog.tool(available=is_true, meta={"ui": {"visibility": ["app"]}})
    def app() -> str:
        return "x"

    async with console(catalog) as browser:
        await browser.log_in()
        assert pegs((await browser.get("")).text) == {
            "inner": "internal", "shut": "available", "made": "factory", "app": "available",
        }  # fmt: skip


async def test_two_callers_are_compared_with_the_reason_and_the_fix_for_what_differs(browser: Browser) -> None:
    address = "/compare?profile=clerk&user=ann&b_profile=boss&b_user=bob&b_space=s1"
    page = await browser.get(address)
    text = text_of(page.text)
    assert "3 tools differ, 1 is the same for both." in text
    assert "ann, clerk" in text
    assert "bob in space s1, boss" in text
    assert "refund group not in include=read of profile 'clerk'; its groups are write Fix: include" in text
    assert "count_items visible unavailable predicate" in text
    # Both sides of each tool, and the swapped pair, have an address of their own.
    assert '/console/tools/refund?profile=clerk&amp;user=ann"' in page.text
    assert '/console/tools/refund?profile=boss&amp;user=bob&amp;space=s1"' in page.text
    assert "/console/compare?profile=boss&amp;user=bob&amp;space=s1&amp;b_profile=clerk&amp;b_user=ann" in page.text


async def test_the_comparison_starts_with_the_next_profile_and_says_when_nothing_differs(browser: Browser) -> None:
    assert "you, clerk" in text_of((await browser.get("/compare?profile=boss")).text)
    assert "No differences" in (await browser.get("/compare?profile=boss&b_profile=boss")).text
    nobody = await browser.get("/compare?b_profile=nobody")
    assert nobody.status_code == 404
    assert "There is no profile 'nobody'. Choose one of these on the board: clerk, boss, finder." in text_of(
        nobody.text
    )


async def test_a_profile_that_does_not_exist_is_refused_with_what_to_do_when_there_are_none() -> None:
    async with console(Catalog("plain")) as browser:
        await browser.log_in()
        for address in ("?profile=default", "/compare?b_profile=default"):
            page = await browser.get(address)
            assert page.status_code == 404
            assert "This server has no profiles: every caller sees all its tools. Leave `profile` out" in page.text


async def test_a_person_compares_their_own_profiles_alone(tmp_path: Path) -> None:
    office = Office(tmp_path)
    async with console(office.catalog) as browser:
        await browser.log_in(office.key["paul"])
        page = await browser.get("/compare?profile=desk&b_profile=desk&b_user=olga&b_role=operator")
        assert "No differences" in page.text
        assert "olga" not in page.text
        assert (await browser.get("/compare?b_profile=vault")).status_code == 404


async def test_the_page_of_a_tool_lists_the_callers_of_the_rules_that_reach_it(tmp_path: Path) -> None:
    office = Office(tmp_path)
    async with console(office.catalog) as browser:
        await browser.log_in(office.key["olga"])
        page = text_of((await browser.get("/tools/greet?profile=desk")).text)
        assert "key olga desk may be used key paul desk may be used" in page
        await browser.post("/logout")
        await browser.log_in(office.key["paul"])
        assert "Who can reach it" not in (await browser.get("/tools/greet")).text


async def test_the_search_finds_tools_profiles_and_pages_and_lists_pages_before_a_word(browser: Browser) -> None:
    assert "page Board every tool, and who may use it" in text_of((await browser.get("/find")).text)
    page = text_of((await browser.get("/find?find=ORDER&profile=clerk")).text)
    assert (
        "tool find_orders Find the orders of a customer. tool refund hidden: the profile includes none of its groups"
        in page
    )
    assert "profile clerk its board" in text_of((await browser.get("/find?find=cle")).text)
    assert "Nothing has these words" in (await browser.get("/find?find=volcano")).text


async def test_the_search_of_an_operator_finds_callers_by_name_and_leads_to_their_board(tmp_path: Path) -> None:
    office = Office(tmp_path)
    async with console(office.catalog) as browser:
        await browser.log_in(office.key["olga"])
        agents = text_of((await browser.get("/agents")).text)
        assert "No agents" in agents
        assert "caller paul key paul, its board; profile desk" in agents
        page = (await browser.get("/find?find=paul")).text
        assert "caller paul key paul, its board; profile desk" in text_of(page)
        [board] = re.findall(r'href="/console(\?[^"]*user=paul[^"]*)"', page)
        assert "on the board for paul with profile desk" in text_of((await browser.get(unescape(board))).text)


async def test_the_search_of_a_person_has_no_hidden_tool_and_no_operators_page(tmp_path: Path) -> None:
    office = Office(tmp_path)
    async with console(office.catalog) as browser:
        await browser.log_in(office.key["paul"])
        for query in ("vault", "matrix", "open", "olga"):
            assert "Nothing has these words" in (await browser.get(f"/find?find={query}")).text
