"""Tasks that wait keep nobody else from calling, and a task that finds no place waits for one: it does not fail."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from pegboard import Bounds, CallContext, Catalog, Tasks, ToolContext
from pegboard.model.record import replace
from pegboard.tasks.places import Places
from tests.sizes import examples
from tests.tasks.test_behaviour import MANY, YES
from tests.timing import PATIENCE_S

ANN, BOB = (ToolContext(user_id=who, budget=MANY) for who in ("ann", "bob"))
PLACES = 4


class Waiting:
    """A catalog with few places, tasks that wait for a person and tasks that work."""

    def __init__(self, store: str) -> None:
        self.catalog = catalog = Catalog("waiting", tasks=Tasks(store), bounds=Bounds(calls_in_flight=PLACES))
        self.working, self.most, self.goes_on = 0, Counter[str](), asyncio.Event()
        self.let_go = asyncio.Event()

        @catalog.tool(task="required")
        async def ask(ctx: CallContext) -> object:
            """Wait for a person."""
            return await ctx.ask("Go on?", schema={"type": "boolean"})

        @catalog.tool(task="required")
        async def work(ctx: CallContext) -> str:
            """Work for a while."""
            who = ctx.user_id or ""
            self.working += 1
            self.most[who] = max(self.most[who], self.working)
            await self.goes_on.wait()
            self.working -= 1
            return who

        @catalog.tool
        async def hold() -> str:
            """Hold a place."""
            await self.let_go.wait()
            return "held"

        @catalog.tool
        async def plain() -> str:
            """Answer at once."""
            return "plain"

    async def begun(self, name: str, ctx: ToolContext, count: int) -> list[str]:
        results = [await self.catalog.view(ctx).call(name, {}) for _ in range(count)]
        assert [result.error for result in results] == [None] * count
        return [result.task_id or "" for result in results]

    async def until(self, count: int, state: str, ctx: ToolContext) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while Counter(record.state for record in await self.catalog.tasks.list(ctx))[state] < count:
                await asyncio.sleep(0)


async def test_tasks_that_wait_for_people_take_no_place_from_anybody() -> None:
    waiting = Waiting("memory")
    waiting.catalog.executor.swap(replace(waiting.catalog.executor.ports, is_shared=True))
    ids = await waiting.begun("ask", ANN, 5 * PLACES)
    await waiting.until(5 * PLACES, "input_required", ANN)
    for ctx in (ANN, BOB):
        assert (await waiting.catalog.view(ctx).call("plain", {})).text == "plain"
    waiting.goes_on.set()
    [of_bob] = await waiting.begun("work", BOB, 1)
    assert (await waiting.catalog.tasks.result(of_bob, BOB, timeout_s=PATIENCE_S)).is_error is False
    for task_id in ids:
        [key] = (await waiting.catalog.tasks.get(task_id, ANN)).questions
        await waiting.catalog.tasks.answer(task_id, ANN, {key: YES})
    await waiting.until(5 * PLACES, "completed", ANN)
    await waiting.catalog.close()


async def test_tasks_beyond_the_places_wait_for_one_and_leave_some_to_others() -> None:
    waiting = Waiting("memory")
    hers = await waiting.begun("work", ANN, 5 * PLACES)
    [his] = await waiting.begun("work", BOB, 1)
    async with asyncio.timeout(PATIENCE_S):
        while waiting.most["bob"] == 0:
            await asyncio.sleep(0)
    assert (waiting.most["ann"], waiting.most["bob"]) == (3, 4)
    # Those that wait are ended as any other.
    await waiting.catalog.tasks.cancel(hers[-1], ANN)
    assert (await waiting.catalog.view(BOB).call("plain", {})).is_error is False
    waiting.goes_on.set()
    for task_id, ctx in ((his, BOB), *((one, ANN) for one in hers[:-1])):
        result = await waiting.catalog.tasks.result(task_id, ctx, timeout_s=PATIENCE_S)
        assert (result.is_error, result.text) == (False, ctx.user_id)
    assert (await waiting.catalog.tasks.get(hers[-1], ANN)).state == "cancelled"
    assert waiting.working == 0
    await waiting.catalog.close()


async def test_a_task_begins_where_calls_have_all_the_places_of_calls() -> None:
    waiting = Waiting("memory")
    ids = await waiting.begun("work", ANN, PLACES)
    holding = [asyncio.ensure_future(waiting.catalog.view(ANN).call("hold", {})) for _ in range(PLACES)]
    while sum(call.name == "hold" for call in waiting.catalog.executor.in_flight.values()) < PLACES:
        await asyncio.sleep(0)
    waiting.goes_on.set()
    for task_id in ids:
        assert (await waiting.catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)).text == "ann"
    waiting.let_go.set()
    assert [(await one).text for one in holding] == ["held"] * PLACES
    await waiting.catalog.close()


async def test_a_process_goes_on_with_more_tasks_than_it_has_places_for(tmp_path: Path) -> None:
    first = Waiting(f"sqlite:{tmp_path}/tasks.db")
    ids = await first.begun("work", ANN, 3 * PLACES)
    await first.catalog.close()
    second = Waiting(f"sqlite:{tmp_path}/tasks.db")
    second.goes_on.set()
    await second.catalog.tasks.wake()
    for task_id in ids:
        assert (await second.catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)).text == "ann"
    await second.catalog.close()


async def test_one_caller_does_not_fill_the_memory_for_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.tasks.in_process.TASKS_IN_MEMORY", 8)
    waiting = Waiting("memory")
    waiting.catalog.executor.swap(replace(waiting.catalog.executor.ports, is_shared=True))
    await waiting.begun("ask", ANN, 6)
    refused = await waiting.catalog.view(ANN).call("ask", {})
    assert refused.error is not None
    assert refused.error.kind == "busy"
    await waiting.begun("ask", BOB, 2)
    await waiting.catalog.close()


@pytest.mark.parametrize("seed", range(examples(50)))
async def test_whoever_comes_asks_and_leaves_no_place_is_lost_or_made_and_nobody_waits_for_ever(seed: int) -> None:
    chance, places, share = random.Random(seed), Places(PLACES), PLACES * 3 // 4
    working, answers = Counter[str](), list[asyncio.Event]()

    @contextmanager
    def at_work(owner: str) -> Generator[None]:
        working[owner] += 1
        assert (working.total() <= PLACES, working[owner] <= share) == (True, True)
        try:
            yield
        finally:
            working[owner] -= 1

    async def come(owner: str) -> str:
        async with places.taken(owner) as place:
            for _ in range(chance.randrange(1, 4)):
                with at_work(owner):
                    await asyncio.sleep(0)
                if chance.random() < 0.5:
                    answers.append(answer := asyncio.Event())
                    await place.free_for(answer.wait())
            with at_work(owner):
                return owner

    # One owner's queue stands before everybody else comes.
    owners = ["ann"] * 20 + [chance.choice("abcd") for _ in range(20)]
    coming = [asyncio.create_task(come(owner)) for owner in owners]
    async with asyncio.timeout(PATIENCE_S):
        while not all(task.done() for task in coming):
            await asyncio.sleep(0)
            if chance.random() < 0.2:
                # Cancelled wherever it stands: in a queue, at work, or while it waits for an answer.
                chance.choice(coming).cancel()
            if answers and chance.random() < 0.5:
                answers.pop(chance.randrange(len(answers))).set()
    ended = await asyncio.gather(*coming, return_exceptions=True)
    assert all(isinstance(end, str | asyncio.CancelledError) for end in ended)
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        for owner in ("ann", "ann", "ann", "bob"):
            await stack.enter_async_context(places.taken(owner))


async def test_the_queue_of_one_owner_lets_another_in_with_the_next_place() -> None:
    places, order, leave = Places(PLACES), list[str](), asyncio.Event()

    async def come(owner: str) -> None:
        async with places.taken(owner):
            order.append(owner)
            await leave.wait()

    coming = [asyncio.create_task(come(owner)) for owner in ("ann",) * 50 + ("bob", "carol", "dan")]
    await asyncio.sleep(0)
    # The last place is there for whoever is not her; of those who wait for one the first comes first.
    assert order == ["ann"] * 3 + ["bob"]
    leave.set()
    await asyncio.gather(*coming)
    assert order[4:7].count("ann") <= 3
    assert order.index("dan") < 12


async def test_a_run_that_waits_for_several_people_works_in_its_place_from_the_first_answer_on() -> None:
    places, answers = Places(1), [asyncio.Event() for _ in range(3)]
    order, goes_on = list[str](), asyncio.Event()

    async def runs() -> None:
        async with places.taken("ann") as place:

            async def one(number: int) -> None:
                await place.free_for(answers[number].wait())
                order.append(f"answer {number}")
                if number == 0:
                    async with place.for_step():
                        await goes_on.wait()

            await asyncio.gather(*map(one, range(2)))
            left_behind.append(asyncio.create_task(one(2)))

    async def comes(name: str) -> None:
        async with places.taken("bob"):
            order.append(name)

    async def turns() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    left_behind = list[asyncio.Task[None]]()
    running = asyncio.create_task(runs())
    await turns()
    await comes("while both wait")
    answers[0].set()
    await turns()
    coming = asyncio.create_task(comes("when the first has ended"))
    await turns()
    assert order == ["while both wait", "answer 0"], "the place is held at work, though another part waits"
    goes_on.set()
    await coming
    answers[1].set()
    await running
    answers[2].set()
    await asyncio.gather(*left_behind)
    # What a run leaves behind holds no place.
    await asyncio.wait_for(comes("at the end"), PATIENCE_S)
    assert order[2:] == ["when the first has ended", "answer 1", "answer 2", "at the end"]
