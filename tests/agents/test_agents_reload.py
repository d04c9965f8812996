"""A reload swaps agents with everything else: what runs ends on the old ones, what begins has the new ones."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pegboard import CallContext
from pegboard.config.build import load_catalog
from pegboard.config.reload import Reloader
from pegboard.model.tool import ToolSpec
from pegboard.sources.agent_tool import agent_tool
from tests.agents.files import agent_file, write
from tests.agents.team import agent, playing

ASK_B = "tools: [{name: ask, type: agent, agent: b}]"


async def test_a_good_change_counts_for_the_next_run_and_a_bad_one_keeps_what_there_was(tmp_path: Path) -> None:
    path = write(tmp_path, {"agents/a.yaml": agent_file("a", "")})
    catalog, config = load_catalog(path, env={})
    scripts = {"a": [[("ask", {"query": "q"})], "end"], "b": ["from b"], "later": ["later"]}
    catalog.runtime.agents.make_model = playing(scripts)
    refused: list[str] = []
    reloader = Reloader(path, {}, catalog, config=config, on_refused=lambda found: refused.extend(map(str, found)))
    catalog.agent(agent("later"))
    write(tmp_path, {"agents/a.yaml": agent_file("a", ASK_B), "agents/b.yaml": agent_file("b", "")})
    assert await reloader.reload()
    assert catalog.agents.names() == ["a", "b", "later"]
    told: list[str] = []
    catalog.observe(type("Heard", (), {"on_sub_agent_end": lambda self, event: told.append(event.payload["agent"])})())
    assert (await catalog.agents.run("a", "go")).output == "end"
    assert told == ["b"]
    write(tmp_path, {"agents/b.yaml": agent_file("b", "tools: [{name: back, type: agent, agent: a}]")})
    assert not await reloader.reload()
    assert "a → b → a" in refused[0]
    assert (await catalog.agents.run("a", "go")).output == "end"
    assert (await catalog.agents.run("later", "go")).output == "later"
    await catalog.close()


async def test_a_run_that_is_amid_a_reload_goes_on(tmp_path: Path) -> None:
    path = write(tmp_path, {"agents/a.yaml": agent_file("a", "tools: [{group: core}]")})
    catalog, config = load_catalog(path, env={})
    catalog.runtime.agents.make_model = playing({"a": [[("wait", {})], [("wait", {})], "end"], "b": ["b"]})
    began, go_on = asyncio.Event(), asyncio.Event()

    async def wait(ctx: CallContext, args: object) -> str:
        began.set()
        await go_on.wait()
        return "waited"

    catalog.registry.add(ToolSpec(name="wait").bind(wait))
    running = asyncio.create_task(catalog.agents.run("a", "go"))
    await began.wait()
    write(tmp_path, {"agents/a.yaml": agent_file("a", "tools: [{group: core}]\nprompts: {system: New}")})
    assert await Reloader(path, {}, catalog, config=config).reload()
    go_on.set()
    assert (await running).output == "end"
    catalog.agent(agent("b"))
    catalog.registry.add(agent_tool("ask_b", agent="b"))
    await catalog.close()
