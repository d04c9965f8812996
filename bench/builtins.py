"""Built-ins: a call of the three quick built-in tools, against a call of a tool that does nothing.

All four run in this process, on the same guarded path and without hooks or limits, which would cost all of
them the same and make the ratio smaller. The empty tool takes nothing and gives nothing; the others get the first
example of their own declarations (`cache_store` keeps a value, `json_transform` filters a list).
"""

from __future__ import annotations

import asyncio

from bench.measure import THOROUGH, Effort, Row, awaited, compared
from pegboard import Catalog, ToolContext, View
from pegboard.model.json_types import JSON
from pegboard.sources.builtin.builtins import builtin_entry, builtin_kind

FLOOR = "an empty guarded tool"
QUICK = ("datetime_now", "cache_store", "json_transform")


def view() -> View:
    catalog = Catalog()

    @catalog.tool(inline=True)
    def empty() -> None:
        """Do nothing."""

    for name in QUICK:
        catalog.register(builtin_entry(name))
    # Without a budget, since one request makes all these calls.
    return catalog.view(ToolContext(user_id="ann", space_id="s1", budget=None))


def run(effort: Effort = THOROUGH) -> list[Row]:
    """Measure one call of each."""
    tools = view()

    def calling(name: str, args: JSON):
        async def call() -> None:
            result = await tools.call(name, args)
            assert result.error is None

        return call

    # Each with the first example of its own declaration.
    calls: dict[str, tuple[str, JSON]] = {FLOOR: ("empty", {})}
    calls |= {name: (name, dict(builtin_kind(name).spec.examples[0])) for name in QUICK}
    with asyncio.Runner() as runner:
        ways = {what: awaited(calling(*call), effort.times(1_000), runner) for what, call in calls.items()}
        return compared(ways, effort, floor=FLOOR, held=dict.fromkeys(QUICK, (4, None)))
