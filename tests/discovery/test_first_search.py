"""The first search after a build does the work of a search: what it needs was made with the index, off the loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import pytest

from pegboard import Catalog, ToolContext
from pegboard.model.tool import ToolSpec

TOOLS = 2_000


def full_catalog() -> Catalog:
    catalog = Catalog()
    for number in range(TOOLS):
        spec = ToolSpec(
            name=f"send_mail_{number}", namespace=f"team{number % 50}", description=f"Send mail {number} to a team."
        )
        catalog.registry.add(spec.bind(lambda ctx, args: "sent"))
    return catalog


async def calls_on_the_loop(work: Callable[[], Awaitable[Any]]) -> int:
    """How many functions the thread of the event loop calls until some work is done; other threads are not counted."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        await work()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("query", ["send mail to team7", "send_ma", "qqzx wwvk"])
async def test_the_first_search_after_a_build_builds_nothing(query: str) -> None:
    catalog = full_catalog()
    view = catalog.view(ToolContext())
    await view.atools()
    finder = catalog.discovery.finder
    await finder.search(view, ["warm up"])  # what the process does once: modules, tables of languages
    catalog.registry.add(ToolSpec(name="one_more", description="Do more.").bind(lambda ctx, args: "done"))
    view = catalog.view(ToolContext())
    await view.atools()
    first = await calls_on_the_loop(lambda: finder.search(view, [query]))
    assert finder.builds == 2
    second = await calls_on_the_loop(lambda: finder.search(view, [query]))
    # Waiting for the thread costs some calls; building for so many tools takes dozens of calls for each.
    assert first < second + TOOLS, (first, second)


async def test_the_loop_turns_while_the_index_is_built() -> None:
    catalog = full_catalog()
    view = catalog.view(ToolContext())
    await view.atools()
    search = asyncio.ensure_future(catalog.discovery.finder.search(view, ["send mail"]))
    turns = 0
    while not search.done():
        turns += 1
        await asyncio.sleep(0)
    assert (await search)[0].tools
    assert turns > 10


async def test_a_caller_with_tools_of_their_own_is_answered_without_reading_the_others_on_the_loop() -> None:
    catalog = full_catalog()
    await catalog.discovery.finder.search(catalog.view(ToolContext()), ["warm up"])
    extra = ToolSpec(name="paint_wall", description="Paint a wall.").bind(lambda ctx, args: "painted")
    view = catalog.view(ToolContext(), extra_tools=[extra])
    await view.atools()
    answers: list[Any] = []

    async def search() -> None:
        answers.extend(await catalog.discovery.finder.search(view, ["paint the wall"]))

    first = await calls_on_the_loop(search)
    assert answers[0].tools[0].entry.spec.name == "paint_wall"
    # Finding which tools are the caller's own takes a few calls for each of them.
    assert first < 10 * TOOLS, first
