"""Scale: what a catalog of ten thousand tools costs: a wrong name, lists of many callers, conditions, and a change.

All in this process, in processor time; the median of some rounds. A caller is new where nothing is said, and lists are
bytes for MCP. Callers are told apart by what a policy of their own denies, so that a list of each is another one. What
a change costs is all that its caller and the next list do: nothing of it is done elsewhere, so it is what the event
loop is held for at most.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bench.measure import THOROUGH, Effort
from bench.tools import spec
from pegboard import Catalog, Policy, ToolContext, ToolSpec
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry

TOOLS, LISTED, OF_SOURCE, CALLERS = 10_000, 1_000, 200, 10_000
ANN = ToolContext(user_id="ann", budget=None)
US, MS = 1e6, 1e3


async def answer(_ctx: object, _args: object) -> str:
    return "done"


def lines(effort: Effort = THOROUGH) -> Iterator[str]:
    """Measure all of it."""
    yield "| what | found | hold | |"
    yield "|---|---:|---:|---|"
    count = effort.times(TOOLS)
    catalog = filled(count)
    catalog.view(ANN).export_bytes("mcp")
    yield from wrong_names(catalog, effort)
    yield from changes(catalog, count, effort)
    yield from callers(filled(effort.times(LISTED)), effort)
    yield from conditions(effort)


def tool(number: int) -> ToolSpec:
    """Return a tool that hangs on nothing."""
    return replace(spec(number), groups=("core",), available=None)


def filled(count: int, *, available: Callable[[int], str | None] = lambda number: None) -> Catalog:
    """Return a catalog of so many tools of its own."""
    catalog = Catalog("scale")
    for number in range(count):
        catalog.register(replace(tool(number), available=available(number)), answer)
    return catalog


def row(what: str, found: float, unit: str, hold: float | None = None) -> str:
    verdict = "beside" if hold is None else "PASS" if found <= hold else "short"
    return f"| {what} | {found:.3g} {unit} | {'' if hold is None else f'≤ {hold:g} {unit}'} | {verdict} |"


def median_s(work: Callable[[int], object], rounds: int) -> float:
    """Return the seconds that one round takes, without what a collection of garbage happens to add."""
    taken: list[float] = []
    gc.collect()
    gc.disable()
    for number in range(rounds):
        began = time.process_time()
        work(number)
        taken.append(time.process_time() - began)
    gc.enable()
    return statistics.median(taken)


# ---- a name that no tool has -----------------------------------------------------------------------------------------


def wrong_names(catalog: Catalog, effort: Effort) -> Iterator[str]:
    """Measure calls of names that a tool nearly has, each another one, so that no answer is at hand."""

    async def seconds(number: int) -> float:
        began = time.process_time()
        result = await catalog.view(replace(ANN)).call(f"tool_{number * 7 % TOOLS}x{number}")
        taken = time.process_time() - began
        assert result.error is not None
        return taken

    async def rounds() -> float:
        await seconds(-1)
        gc.collect()
        gc.disable()
        try:
            return statistics.median([await seconds(number) for number in range(effort.times(200))])
        finally:
            gc.enable()

    # All in one loop, as a server answers: to start one for each takes as long as the answer.
    found = asyncio.run(rounds())
    yield row(f"a wrong name among {TOOLS:,} tools, each another one", found * US, "µs", 100)


# ---- a change --------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Source:
    """A source whose tools are those that it was given last."""

    name: str
    listed: list[ToolEntry]
    heard: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def entries(self) -> list[ToolEntry]:
        return self.listed

    def groups(self) -> frozenset[str]:
        return frozenset({"core"})

    def state(self) -> SourceState:
        return SourceState()

    def subscribe(self, on_change: Callable[[], None]) -> None:
        self.heard.append(on_change)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def relist(self, listed: list[ToolEntry]) -> None:
        self.listed = listed
        for hear in self.heard:
            hear()


def source_of(name: str, count: int, text: str = "") -> Source:
    tools = [
        ToolSpec(
            name=f"tool_{number}", namespace=name, description=f"Number {number}. {text}",
            input_schema=spec(number).input_schema,
        ).bind(answer)
        for number in range(count)
    ]  # fmt: skip
    return Source(name=name, listed=[replace(tool, source=name) for tool in tools])


def changes(catalog: Catalog, count: int, effort: Effort) -> Iterator[str]:
    """Measure what one tool, and one source, that changes holds the loop for until a list was made anew."""
    rounds = max(3, effort.rounds // 2)
    target = tool(count // 2)

    def listed() -> bytes:
        return catalog.view(replace(ANN)).export_bytes("mcp")

    def replaced(number: int) -> None:
        catalog.register(replace(target, description=f"Anew {number}."), answer, replace=True)
        listed()

    def added(number: int) -> None:
        catalog.register(tool(count + number), answer)
        listed()

    def taken_out(number: int) -> None:
        catalog.unregister(f"main.tool_{count + number}")
        listed()

    for what, change in (("replaced", replaced), ("added", added), ("taken out", taken_out)):
        yield row(f"one tool of {count:,} {what}, and a list", median_s(change, rounds) * MS, "ms", 20)
    source = source_of("git", OF_SOURCE)
    catalog.add_source(source)
    listed()
    lists = [source_of("git", OF_SOURCE, f"In round {number}.").listed for number in range(rounds)]

    def relisted(number: int) -> None:
        source.relist(lists[number])
        listed()

    yield row(f"a source of {OF_SOURCE} that lists others, and a list", median_s(relisted, rounds) * MS, "ms", 20)


# ---- callers ---------------------------------------------------------------------------------------------------------


def callers(catalog: Catalog, effort: Effort) -> Iterator[str]:
    """Measure the lists of callers who each may use others of the tools, at first and again."""
    count = effort.times(CALLERS)
    policies = [Policy(deny=(f"tool_{number}",)) for number in range(count)]

    def lists(number: int) -> None:
        catalog.view(ToolContext(user_id="ann", policy=policies[number])).tools()

    first, again = median_s(lists, count), median_s(lists, count)
    yield row(f"the tools of one of {count:,} callers, each others of {LISTED:,}, at first", first * US, "µs")
    yield row("... and again", again * US, "µs", 100)
    few = [Policy(deny=(f"tool_{number % 200}", f"none_{number}")) for number in range(count)]

    def bytes_of(number: int) -> None:
        catalog.view(ToolContext(user_id="ann", policy=few[number])).export_bytes("mcp")

    median_s(bytes_of, count)
    again = median_s(bytes_of, count)
    yield row(f"the bytes of one of {count:,} callers of 200 kinds, again", again * US, "µs", 100)


# ---- conditions ------------------------------------------------------------------------------------------------------


def conditions(effort: Effort) -> Iterator[str]:
    """Measure lists of a thousand tools: plain ones, those of a source, and those that hang on predicates."""
    rounds, count = effort.times(200), effort.times(LISTED)
    own = filled(count)
    foreign = Catalog("scale")
    foreign.add_source(source_of("git", count))
    ten = filled(count, available=lambda number: f"asked_{number % 10}")
    for number in range(10):
        ten.predicate(name=f"asked_{number}")(lambda ctx: True)

    def cost_s(catalog: Catalog) -> float:
        catalog.view(ANN).export_bytes("mcp")
        return median_s(lambda _: catalog.view(ToolContext(user_id="ann")).export_bytes("mcp"), rounds)

    base = cost_s(own)
    yield row(f"a list of {count:,} tools of one's own", base * US, "µs")
    yield row("... of a source", cost_s(foreign) * US, "µs", round(2 * base * US))
    yield row("... that hang on ten predicates", cost_s(ten) * US, "µs", 132)
