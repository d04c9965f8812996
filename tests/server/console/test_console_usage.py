"""Usage and agents in the console: what operators learn of past calls, from the same records as the command line."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from html import unescape
from pathlib import Path

import pytest

from pegboard import Catalog, agent_tool
from pegboard.config import load_catalog
from pegboard.model.agent import AgentBudgets, ModelSpec
from pegboard.server.console.shown_time import took
from tests.agents.team import agent, playing
from tests.server.console.browsing import Browser, console, text_of
from tests.server.console.test_console_login import Office
from tests.timing import PATIENCE_S

SHOP = """
from pegboard import default_catalog

@default_catalog.tool(groups=("core", "math"), cost={"amount": 0.25, "unit": "EUR"})
def add(a: int, b: int) -> int:
    return a + b

@default_catalog.tool(groups="erase", consent="always")
def erase() -> str:
    return "x"

@default_catalog.tool(groups="core")
def unused() -> str:
    return "x"
"""
CONFIG = """
python: [usage_shop]
audit: {store: "sqlite:./audit.db"}
consents: {store: "sqlite:./consents.db"}
profiles: {all: {include: [core]}, none: {include: []}, careful: {include: [erase]}}
"""


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncGenerator[Browser]:
    """A browser of a server with an audit and an agent, after six calls, one of them by the agent; two were refused."""
    tmp_path.chmod(0o700)
    (tmp_path / "usage_shop.py").write_text(SHOP)
    path = tmp_path / "pegboard.yaml"
    path.write_text(CONFIG)
    catalog, config = load_catalog(path)
    model = ModelSpec(provider="openai_compatible", name="counter", base_url="http://127.0.0.1:9/v1")
    catalog.agent(agent("counter", groups=("math",), model=model))
    catalog.register(agent_tool("count", agent="counter", description="Count.", groups=("core",)))
    catalog.runtime.agents.make_model = playing({"counter": [[("add", {"a": 2, "b": 3})], "five"]})
    async with console(catalog, config=config) as browser:
        for arguments in ({"a": 1, "b": 41}, {"a": 1, "b": 2}, {"a": "one"}):
            await browser.client.post("/v1/tools/add/call?profile=all", json=arguments)
        await browser.client.post("/v1/tools/delete_all/call?profile=all", json={})
        ran = await browser.client.post("/v1/tools/count/call?profile=all", json={"query": "add"})
        assert ran.status_code == 200, ran.text
        await browser.log_in()
        yield browser


async def shown(browser: Browser, path: str, words: str) -> str:
    """Return a page when its text has these words: the audit is written by a thread."""
    async with asyncio.timeout(PATIENCE_S):
        while words not in text_of((await browser.get(path)).text):
            await asyncio.sleep(0.01)
    return text_of(browser.page)


async def test_usage_counts_the_calls_of_the_audit_by_tool_and_other_fields(shop: Browser) -> None:
    # A call that outlasts a batch of the audit is counted before it has ended.
    page = await shown(shop, "/usage", "calls 6 ran 4 failed or refused 2")
    assert re.search(r"cost in EUR 0\.75 ", page)
    assert re.search(r"main\.add 4 3 .* 0\.75 EUR delete_all", page)
    assert re.search(r"main\.add 4 3 wrong arguments 1 [\d.]+ .s [\d.]+ .s", page)
    assert re.search(r"delete_all 1 0 always refused not found 1", page)
    assert "Never called 2 of 4 tools erase unused" in page
    assert "Always refused 1 delete_all" in page
    by_profile = text_of((await shop.get("/usage?by=profile&since=1h")).text)
    assert "By profile" in by_profile
    assert re.search(r"all 5 3 .*\(none\) 1 1 ", by_profile)
    plot = json.loads(unescape(re.findall(r'data-plot="([^"]+)"', shop.page)[0]))
    assert (sum(plot["calls"]), sum(plot["errors"]), len(plot["at"])) == (6, 2, 61)
    # A wrong word is the usual one.
    assert "By tool" in text_of((await shop.get("/usage?by=nonsense&since=nonsense")).text)


async def test_a_tool_whose_calls_wait_for_a_person_is_not_called_always_refused(shop: Browser) -> None:
    waiting = await shop.client.post("/v1/tools/erase/call?profile=careful", json={})
    assert waiting.json()["kind"] == "consent_required"
    page = await shown(shop, "/usage", "main.erase 1 0 none has run yet waits for a person 1")
    assert "Always refused 1 delete_all" in page


async def test_usage_says_what_the_list_of_each_profile_costs(shop: Browser) -> None:
    page = await shown(shop, "/usage", "all 3 direct")
    assert re.search(r"all 3 direct \d+ –", page)
    assert "none 0 direct" in page


async def test_an_agent_shows_its_tools_and_its_recent_calls(shop: Browser) -> None:
    assert "counter openai_compatible:counter 0 group math" in text_of((await shop.get("/agents")).text)
    page = await shown(shop, "/agents/counter", "main.count")
    assert "1 tool if a caller runs it with profile all" in page
    assert re.search(r"main\.add made by it anonymous ok", page)
    assert re.search(r"main\.count started it anonymous ok", page)
    assert (await shop.get("/agents/nobody")).status_code == 404


async def test_the_graph_shows_who_runs_whom_once(tmp_path: Path) -> None:
    catalog = Catalog("team")
    catalog.agent(agent("writer", description="Writes."))
    run_writer = agent_tool("write", agent="writer", description="Have it written.")
    for name in ("lead", "editor"):
        budgets = AgentBudgets(tool_calls=12) if name == "lead" else AgentBudgets()
        catalog.agent(agent(name, budgets=budgets), tools=[run_writer])
    catalog.agent(agent("boss"), tools=[agent_tool("ask", agent="lead", description="Ask the lead.")])
    async with console(catalog) as browser:
        await browser.log_in()
        page = text_of((await browser.get("/agents")).text)
        assert "Who runs whom boss ask → lead write → writer editor write → writer" in page
        one = text_of((await browser.get("/agents/lead")).text)
        assert "tool calls at most 12" in one
        assert "run by boss with ask" in one
        assert "write runs writer" in one
        assert "No audit is kept, so past calls are not known" in one


async def test_a_server_without_agents_or_audit_says_what_to_write() -> None:
    async with console(Catalog("bare")) as browser:
        await browser.log_in()
        assert "files: [agents/*.yaml]" in text_of((await browser.get("/agents")).text)
        page = text_of((await browser.get("/usage")).text)
        assert 'audit: store: "sqlite:./audit.db"' in page
        assert "What the lists cost" in page


async def test_usage_and_agents_are_for_operators(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.catalog.agent(agent("writer"))
    async with console(office.catalog) as browser:
        for name, status in (("paul", 404), ("olga", 200)):
            await browser.log_in(office.key[name])
            for path in ("/usage", "/agents", "/agents/writer"):
                assert (await browser.get(path)).status_code == status
            await browser.get("")
            await browser.post("/logout")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 µs"), (0.000_42, "420 µs"), (0.000_999_6, "1 ms"), (0.0123, "12.3 ms"), (0.9994, "999 ms"),
        (0.9996, "1 s"), (59.9, "59.9 s"), (125.0, "2 min 5 s"),
    ],
)  # fmt: skip
def test_durations_have_one_unit_and_no_powers_of_ten(seconds: float, words: str) -> None:
    assert took(seconds) == words
