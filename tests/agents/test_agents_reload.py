"""A reload swaps agents with everything else: what runs ends on the old ones, what begins has the new ones."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from pegboard import CallContext
from pegboard.config.build import load_catalog
from pegboard.config.reload import Reloader
from pegboard.core.declarations import PrivateSource
from pegboard.model.tool import ToolSpec
from pegboard.sources.agent_tool import agent_tool
from tests.agents.files import agent_file, write
from tests.agents.team import agent, playing
from tests.core.parts import FakeSource
from tests.upstream_mcp.parts import PLAIN, processes_with, start_of, until

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


async def test_a_server_of_an_agent_goes_on_where_it_is_reached_in_the_same_way(tmp_path: Path) -> None:
    def spec(*words: str, prompt: str = "One.") -> str:
        command, *args = start_of(PLAIN, *words)
        mcp = {"transport": "stdio", "command": command, "args": args, "trust": "any"}
        tools = json.dumps([{"name": "up", "type": "mcp", "mcp": mcp}])
        return f"prompts: {{system: {prompt}}}\ntools: {tools}"

    path = write(tmp_path, {"agents/a.yaml": agent_file("a", spec()), "agents/b.yaml": agent_file("b", "")})
    catalog, config = load_catalog(path, env={})
    reloader = Reloader(path, {}, catalog, config=config, interval_s=0.01)
    # One that cannot go on is made anew, as the agent that registered it says.
    catalog.registry.add_source(PrivateSource(FakeSource(name="fs"), "b.fs"))
    await catalog.start()

    async def pid() -> str:
        await until(lambda: "up__pid" in catalog.agents.view("a").names())
        return (await catalog.agents.view("a").call("up__pid", {})).text

    before = await pid()
    write(tmp_path, {"agents/a.yaml": agent_file("a", spec(prompt="Two."))})
    assert await reloader.reload()
    assert (catalog.agents.spec("a").prompt, await pid()) == ("Two.", before)
    write(tmp_path, {"agents/a.yaml": agent_file("a", spec(f"mark={tmp_path.name}"))})
    assert await reloader.reload()
    assert await pid() != before
    # The server of one agent is not that of another, whatever it is called.
    write(tmp_path, {"agents/a.yaml": agent_file("a", ""), "agents/b.yaml": agent_file("b", spec())})
    assert await reloader.reload()
    assert [view.names() for view in map(catalog.agents.view, "a")] == [[]]
    await until(lambda: not processes_with(f"mark={tmp_path.name}"))
    await catalog.close(grace_s=0)
