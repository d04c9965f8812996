"""Agents: what a run costs beside pydantic-ai's own, and whether a thousand at once stay apart in memory that is flat.

A run is two requests to a scripted model in another process, which streams, and one call of a tool in between. The
floor is the same agent of pydantic-ai alone, with the same model, tool and stream: what is above it are the view, the
guarded call, the budgets, the events and the memory of what was said. Then a lead and its helper, for each of many
agents, all at once: what comes back and is heard is compared with what this run asked for.
"""

from __future__ import annotations

import asyncio
import gc
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from bench.measure import THOROUGH, Effort, Spread, awaited, interleaved
from pegboard import Bounds, Catalog, ToolContext
from pegboard.model.agent import AgentSpec, ModelSpec
from pegboard.model.tool import ToolSpec
from pegboard.sources.agent_tool import QUERY, agent_entry
from pegboard.testing import CallsTool, EventRecorder, ModelRequest, ModelServer

AGENTS, RUNS = 100, 1_000
MANY_S = 900.0
# What one run of a lead and its helper is, in events that its caller hears.
HEARD = {
    "on_tool_call": 2, "on_tool_result": 2, "on_sub_agent_start": 1, "on_sub_agent_end": 1,
    "on_sub_agent_tool_call": 1, "on_sub_agent_tool_result": 1, "on_sub_agent_chunk": 2,
}  # fmt: skip
HELD = "PASS", "short"


def lines(effort: Effort = THOROUGH) -> Iterator[str]:
    """Measure all of it."""
    yield "| what | found | hold | |"
    yield "|---|---:|---:|---|"
    with model_server() as url:
        ours, floor = asyncio_costs(url, effort)
        ratios = Spread.of([a / b for a, b in zip(ours, floor, strict=True)])
        yield (
            f"| a run, processor time: {1000 * Spread.of(ours).median:.3g} ms, pydantic-ai's own "
            f"{1000 * Spread.of(floor).median:.3g} ms | {ratios.median:.2f}× ({ratios.low:.2f}–{ratios.high:.2f}) "
            "| | beside |"
        )
        runs = effort.times(RUNS)
        faults, took_s, resident = asyncio.run(at_once(url, min(AGENTS, runs), runs))
    verdict = HELD[bool(faults)]
    yield f"| {runs:,} runs at once, twice: lost, doubled or of another run | {len(faults)} | 0 | {verdict} |"
    growth = resident[1] / resident[0]
    yield f"| ... resident bytes after the second beside the first | {growth:.2f}× | ≤ 1.1× | {HELD[growth > 1.1]} |"
    yield f"| ... runs a second, each of four requests and three calls | {2 * runs / took_s:.3g} | | beside |"


# ---- one after another -----------------------------------------------------------------------------------------------


def asyncio_costs(url: str, effort: Effort) -> tuple[list[float], list[float]]:
    """Return the seconds of processor time of one run, of ours and of pydantic-ai's, round by round."""
    times = effort.times(20)
    catalog = catalog_of(1, url)
    alone = Agent(OpenAIChatModel("m", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none")))

    @alone.tool_plain
    async def mark(token: str) -> str:
        """Mark a token."""
        return f"{token} marked by 0"

    async def ours() -> None:
        result = await catalog.agents.run("helper-0", "See to <1>.", on_text=lambda text: None)
        assert result.output == "<1> is done: <1> marked by 0", result

    async def floor() -> None:
        async def heard(ctx: object, events: AsyncIterable[object]) -> None:
            async for _ in events:
                pass

        result = await alone.run("See to <1>.", event_stream_handler=heard)
        assert result.output == "<1> is done: <1> marked by 0", result

    with asyncio.Runner() as runner:
        ways = {"ours": awaited(ours, times, runner), "floor": awaited(floor, times, runner)}
        seconds = interleaved(ways, effort)
        runner.run(catalog.close())
    return seconds["ours"], seconds["floor"]


# ---- all at once -----------------------------------------------------------------------------------------------------


async def at_once(url: str, agents: int, runs: int, rounds: int = 2) -> tuple[list[str], float, list[int]]:
    """Return what was wrong with runs that are made at once, the seconds of all rounds, and resident KiB after each."""
    catalog, faults, resident = catalog_of(agents, url), list[str](), list[int]()
    began = time.monotonic()
    for _ in range(rounds):
        found = await asyncio.gather(*(fault_of(catalog, number, agents) for number in range(runs)))
        faults += filter(None, found)
        gc.collect()
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        resident.append(int(re.findall(r"VmRSS:\s+(\d+)", status)[0]))
    took_s = time.monotonic() - began
    await catalog.close()
    return faults, took_s, resident


async def fault_of(catalog: Catalog, number: int, agents: int) -> str | None:
    """Return what a run gave or heard that is not its own, or did not, if anything."""
    recorder, text = EventRecorder(), list[str]()
    token, lead = f"<{number}>", number % agents
    result = await catalog.agents.run(
        f"lead-{lead}", f"See to {token}.", callbacks=recorder, on_text=text.append,
        ctx=ToolContext(user_id=f"user-{number}"),
    )  # fmt: skip
    heard = str([event.payload for event in recorder.events])
    numbers = [event.seq for event in recorder.events]
    is_right = {
        f"it is {result.status}: {result.error}": result.status == "completed",
        f"a call failed: {heard}": all(event.ok is not False for event in recorder.events),
        f"its text was {text}": result.output == "".join(text),
        f"it answered {result.output}": set(re.findall(r"<\d+>", str(result.output))) == {token}
        and set(re.findall(r"by (\d+)", str(result.output))) == {str(lead)},
        f"it heard {recorder.types}": Counter(recorder.types) == HEARD,
        f"it heard of others: {heard}": set(re.findall(r"<\d+>", heard)) == {token},
        f"its events have the numbers {numbers}": numbers == sorted(set(numbers)),
        "its events are of several requests": len({event.request_id for event in recorder.events}) == 1,
    }
    return next((f"run {number}: {words}" for words, holds in is_right.items() if not holds), None)


def catalog_of(agents: int, url: str) -> Catalog:
    """Return a catalog of this many leads, each with a helper of its own."""
    catalog = Catalog(bounds=Bounds(calls_in_flight=20_000, agent_timeout_s=MANY_S))
    model = ModelSpec(provider="openai_compatible", name="m", base_url=f"{url}/v1", timeout_s=MANY_S)
    for number in range(agents):
        helper = AgentSpec(name=f"helper-{number}", model=model, timeout_s=MANY_S)
        catalog.agent(helper, tools=[marking(number)])
        about = ToolSpec(name="ask", description="Ask.", input_schema=QUERY, timeout_s=MANY_S)
        lead = AgentSpec(name=f"lead-{number}", model=model, timeout_s=MANY_S)
        catalog.agent(lead, tools=[marking(number), agent_entry(about, agent=helper.name)])
    return catalog


def marking(own: int) -> Any:
    async def mark(token: str) -> str:
        """Mark a token."""
        return f"{token} marked by {own}"

    return mark


# ---- the model -------------------------------------------------------------------------------------------------------


@contextmanager
def model_server() -> Iterator[str]:
    """Have the scripted model play in a process of its own; give its address."""
    words = [sys.executable, "-m", __name__]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        yield server.stdout.readline().strip()
        server.stdin.close()


def play(request: ModelRequest) -> Any:
    """Play each agent: it marks the token of its query, a lead asks its helper about it too, and then says it."""
    (token,) = set(re.findall(r"<\d+>", request.prompt))
    if not request.outcomes:
        asks = [CallsTool("ask", {"query": f"What of {token}?"})] if "ask" in request.tools else []
        return [CallsTool("mark", {"token": token}), *asks]
    return [f"{token} is ", "done: " + ", ".join(outcome.text for outcome in request.outcomes)]


if __name__ == "__main__":
    with ModelServer(play) as model:
        print(model.url, flush=True)
        sys.stdin.read()
