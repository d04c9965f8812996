"""Kept contexts and ids: what a tool keeps of one call is of no use in another, and ids tell nothing of others."""

import asyncio
import os
import re
from collections.abc import Callable
from copy import copy
from typing import Any

import pytest

from pegboard import CallContext, CallError, Catalog, ToolContext, http_app
from pegboard.core.identifiers import new_id
from pegboard.model.record import replace
from tests.core.parts import ANN, Recorder, kind_of
from tests.server.doors import inside

BOB = ToolContext(user_id="bob", budget=None)


class Person:
    supports_ui = False

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def elicit(self, message: str, schema: Any = None) -> Any:
        self.asked.append(message)
        return "yes"

    async def approve(self, request: Any) -> bool | None:
        return None


async def calls_by(catalog: Catalog, kept: CallContext) -> object:
    return kind_of(await catalog.view(kept).call("whoami"))


async def runs_a_step(catalog: Catalog, kept: CallContext) -> object:
    return await kept.step("again", lambda: "ran")


async def asks(catalog: Catalog, kept: CallContext) -> object:
    return await kept.ask("Still there?")


async def asks_through_the_client(catalog: Catalog, kept: CallContext) -> object:
    return await kept.client.elicit("Still there?")  # type: ignore[union-attr] - there is one


async def begins_an_agent(catalog: Catalog, kept: CallContext) -> object:
    async with kept.sub_agent("late"):
        return "ran"


async def makes_a_child(catalog: Catalog, kept: CallContext) -> object:
    return kind_of(await catalog.view(kept.child()).call("whoami"))


async def takes_the_plain_one(catalog: Catalog, kept: CallContext) -> object:
    return kind_of(await catalog.view(kept.plain()).call("whoami"))


async def copies_it(catalog: Catalog, kept: CallContext) -> object:
    return kind_of(await catalog.view(copy(kept)).call("whoami"))


async def uses_it_in_a_loop_of_its_own(catalog: Catalog, kept: CallContext) -> object:
    """As a thread does that a tool left behind."""

    async def use() -> object:
        return [kind_of(await catalog.view(kept).call("whoami")), await kept.step("again", lambda: "ran")][-1]

    return await asyncio.to_thread(asyncio.run, use())


USES: list[Callable[[Catalog, CallContext], Any]] = [
    calls_by, runs_a_step, asks, asks_through_the_client, begins_an_agent, makes_a_child,
    takes_the_plain_one, copies_it, uses_it_in_a_loop_of_its_own,
]  # fmt: skip


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
async def test_a_kept_context_serves_no_later_call_of_anybody(use: Callable[[Catalog, CallContext], Any]) -> None:
    catalog, kept, users, person, used = Catalog(), list[CallContext](), list[str | None](), Person(), list[object]()

    @catalog.tool
    async def whoami(ctx: ToolContext) -> str:
        users.append(ctx.user_id)
        return str(ctx.user_id)

    @catalog.tool
    async def work(ctx: CallContext) -> None:
        kept.append(ctx)
        # Its own context does all of it while it runs; what somebody else kept does nothing.
        try:
            used.append(await use(catalog, kept[0]))
        except CallError as error:
            used.append(error.error.kind)

    recorder = Recorder()
    ann = replace(ANN, client=person, callbacks=recorder)
    await catalog.view(ann).call("work")
    asked, heard = len(person.asked), len(recorder.events)
    assert used[0] in ("ok", "ran", "yes")
    users.clear()
    await catalog.view(BOB).call("work")
    assert used[1] == "tool_error"
    assert (users, len(person.asked), len(recorder.events)) == ([], asked, heard)


async def test_a_call_that_is_over_sends_no_more_events_whoever_still_works_for_it() -> None:
    catalog, kept, recorder = Catalog(), list[CallContext](), Recorder()

    @catalog.tool
    async def work(ctx: CallContext) -> None:
        kept.append(ctx)

    await catalog.view(replace(ANN, callbacks=recorder)).call("work")
    await kept[0].progress(0.5, "late")
    await asyncio.to_thread(kept[0].emit, {"late": True})
    await asyncio.sleep(0)
    assert recorder.types() == ["on_tool_call", "on_tool_result"]


async def test_ids_of_calls_and_requests_tell_nothing_of_others() -> None:
    catalog, recorder = Catalog(), Recorder()

    @catalog.tool
    async def step() -> None: ...

    catalog.observe(recorder)
    async with inside(http_app(catalog)) as client:
        for _ in range(300):
            assert (await client.post("/v1/tools/step/call", json={})).status_code == 200
    for ids in ({event.call_id for event in recorder.events}, {event.request_id for event in recorder.events}):
        assert len(ids) == 300
        assert all(re.fullmatch(r"[0-9a-f]{32}", one) for one in ids)
        # No part of them is shared or counts up.
        # Halves: of 300 quarters, which have 32 bits, two are equal in one run of 24,000.
        assert len({one[:16] for one in ids}) == len({one[-16:] for one in ids}) == 300


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_draws_other_ids_than_its_parent() -> None:
    new_id()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, " ".join(new_id() for _ in range(300)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as said:
        theirs = set(said.read().split())
    assert len(theirs) == 300
    assert theirs.isdisjoint(new_id() for _ in range(300))
