"""Slow code that is not async holds the event loop once, and then runs beside it; slow observers delay nobody."""

import asyncio
import threading
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from pegboard import Bounds, CallContext, CallError, Catalog, Event, ToolContext, Verdict
from pegboard.core import predicates
from pegboard.core.call import deliveries, hook_stages
from pegboard.model.record import replace
from tests.core.parts import ANN, kind_of
from tests.timing import PATIENCE_S

HERE = threading.current_thread().name
TENANT: ContextVar[str] = ContextVar("tenant", default="")
SLOW_S = 0.12  # the log names what holds the loop for longer than a tenth of a second
# For code that is not late: no machine is so slow that these run out.
ROOMY = Bounds(predicate_s=PATIENCE_S, hook_s=PATIENCE_S)


class Clock:
    """Seconds that pass while the code of a test is slow, and not while the machine is."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


CLOCK = Clock()


@pytest.fixture(autouse=True)
def _code_is_as_slow_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicates, "time", SimpleNamespace(monotonic=CLOCK))
    monkeypatch.setattr(hook_stages, "perf_counter", CLOCK)


def fresh(**said: Any) -> ToolContext:
    return ToolContext(user_id="ann", space_id="s", budget=None, **said)


class Code:
    """A predicate or hook that takes long, or waits for the event; it notes where it ran and what it saw."""

    def __init__(self, answer: object) -> None:
        self.answer, self.threads, self.seen = answer, list[str](), list[str]()
        self.seconds, self.go = SLOW_S, threading.Event()
        self.go.set()

    def __call__(self, *_: object) -> Any:
        self.threads.append(threading.current_thread().name)
        self.seen.append(TENANT.get())
        CLOCK.sleep(self.seconds)
        assert self.go.wait(PATIENCE_S)
        return self.answer


def with_predicate(*asked: Any, available: Any = "slow") -> Catalog:
    catalog = Catalog(bounds=ROOMY)
    for predicate in asked:
        catalog.predicate(name="slow" if predicate is asked[0] else "other")(predicate)

    @catalog.tool(available=available)
    async def guarded() -> str:
        """Run where the predicate says yes."""
        return "ran"

    @catalog.tool
    async def quick() -> str:
        """Answer at once."""
        return "quick"

    return catalog


async def until(holds: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0)


async def test_a_slow_predicate_never_holds_the_loop_of_those_who_can_wait(caplog: pytest.LogCaptureFixture) -> None:
    slow = Code(True)
    catalog = with_predicate(slow)
    assert (await catalog.view(fresh()).call("guarded")).text == "ran"
    slow.go.clear()
    slow.seconds = 0
    TENANT.set("acme")
    calls = [asyncio.create_task(catalog.view(fresh()).call("guarded")) for _ in range(3)]
    lists = asyncio.create_task(catalog.aview(fresh()))
    why = asyncio.create_task(catalog.view(fresh()).awhy("guarded"))
    await until(lambda: len(slow.threads) == 6)
    assert (await catalog.view(fresh()).call("quick")).text == "quick"
    slow.go.set()
    assert [result.text for result in await asyncio.gather(*calls)] == ["ran"] * 3
    assert (await lists).names() == ["guarded", "quick"]
    assert (await why).visible
    assert (HERE in slow.threads, slow.seen[1:]) == (False, ["acme"] * 5)
    [named] = [entry.getMessage() for entry in caplog.records]
    assert named.startswith("Predicate 'slow' took ")


async def test_a_predicate_that_hangs_in_its_first_run_delays_no_other_caller() -> None:
    slow = Code(True)
    slow.go.clear()
    catalog = with_predicate(slow)
    call = asyncio.create_task(catalog.view(fresh()).call("guarded"))
    await until(lambda: slow.threads)
    assert (await catalog.view(fresh()).call("quick")).text == "quick"
    assert not call.done()
    slow.go.set()
    assert (await call).text == "ran"


async def test_a_predicate_that_was_quick_stays_on_the_loop() -> None:
    quick = Code(True)
    quick.seconds = 0
    catalog = with_predicate(quick)
    for _ in range(3):
        assert (await catalog.view(fresh()).call("guarded")).text == "ran"
    assert (quick.threads[0] == HERE, quick.threads[1:]) == (False, [HERE, HERE])


@pytest.mark.parametrize("seconds", [0, SLOW_S])
async def test_a_predicate_that_fails_in_its_first_run_is_a_no_and_is_not_run_on_the_loop_where_it_was_slow(
    seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    threads = list[str]()

    def failing(_ctx: ToolContext) -> bool:
        threads.append(threading.current_thread().name)
        CLOCK.sleep(seconds)
        raise ConnectionError("down")

    catalog = with_predicate(failing)
    for _ in range(3):
        assert kind_of(await catalog.view(fresh()).call("guarded")) == "not_found"
    assert [name == HERE for name in threads] == ([False] * 3 if seconds else [False, True, True, True])
    assert sum("raised ConnectionError" in entry.getMessage() for entry in caplog.records) == 3


async def test_a_slow_first_answer_that_is_late_is_a_no(caplog: pytest.LogCaptureFixture) -> None:
    catalog = Catalog(bounds=Bounds(predicate_s=SLOW_S))
    late = Code(True)
    late.seconds = 2 * SLOW_S
    late.go.clear()

    @catalog.tool(available=late)
    async def guarded() -> str:
        """Run where the predicate says yes in time."""
        return "ran"

    assert kind_of(await catalog.view(fresh()).call("guarded")) == "not_found"
    late.go.set()
    await until(lambda: "took more than 0.12 s" in caplog.text)


async def test_an_untried_predicate_that_asks_for_itself_is_a_no_at_once() -> None:
    def circular(ctx: ToolContext) -> bool:
        return "guarded" in catalog.view(ctx).names()

    catalog = with_predicate(circular)
    async with asyncio.timeout(PATIENCE_S):
        assert kind_of(await catalog.view(fresh()).call("guarded")) == "not_found"


async def test_attributes_of_the_context_are_read_on_the_loop() -> None:
    class Context(ToolContext):
        queue: str | None = None

    threads = list[int]()

    class Watched(Context):
        @property
        def depot(self) -> bool:
            threads.append(threading.get_ident())
            return True

    catalog = Catalog(context_type=Watched, bounds=ROOMY)

    @catalog.tool(available={"any": ["queue", "depot"]})
    async def guarded() -> str:
        """Run where there is a depot."""
        return "ran"

    ctx = Watched(user_id="ann", space_id="s", budget=None)
    assert (await catalog.view(ctx).call("guarded")).text == "ran"
    # A field is only read; a property is code.
    assert threads
    assert threads[0] != threading.get_ident()


async def test_who_cannot_wait_asks_a_slow_predicate_as_before() -> None:
    slow = Code(True)
    catalog = with_predicate(slow)
    assert (await catalog.view(fresh()).call("guarded")).text == "ran"
    assert catalog.view(fresh()).names() == ["guarded", "quick"]
    assert slow.threads[1:] == [HERE]


async def test_a_slow_predicate_is_asked_once_a_context_in_its_order_and_not_where_another_said_no() -> None:
    order, first = list[str](), [True]

    def slow(_ctx: ToolContext) -> bool:
        order.append("slow")
        CLOCK.sleep(SLOW_S if len(order) == 2 else 0)
        return True

    def other(_ctx: ToolContext) -> bool:
        order.append("other")
        return first[0]

    catalog = with_predicate(slow, other, available={"all": ["other", "slow"]})
    for _ in range(2):
        ctx = fresh()
        assert [kind_of(await catalog.view(ctx).call("guarded")) for _ in range(2)] == ["ok", "ok"]
    assert order == ["other", "slow"] * 2
    first[0] = False
    assert kind_of(await catalog.view(fresh()).call("guarded")) == "not_found"
    assert order == ["other", "slow"] * 2 + ["other"]


async def test_a_slow_predicate_that_asks_others_or_raises_is_a_no_as_before() -> None:
    def nested(ctx: ToolContext) -> bool:
        return "guarded" in catalog.view(ctx).names()

    slow = Code(True)
    catalog = with_predicate(slow)

    @catalog.tool(available=nested)
    async def outer() -> str:
        """Run where the other may."""
        return "outer"

    assert (await catalog.view(fresh()).call("guarded")).text == "ran"
    assert (await catalog.view(fresh()).call("outer")).text == "outer"
    slow.answer = "neither"
    assert kind_of(await catalog.view(fresh()).call("guarded")) == "not_found"


async def test_a_predicate_that_was_slow_in_a_thread_of_the_host_does_not_come_to_the_loop() -> None:
    slow = Code(True)
    catalog = with_predicate(slow)
    assert await asyncio.to_thread(lambda: catalog.view(fresh()).names()) == ["guarded", "quick"]
    assert (await catalog.view(fresh()).call("guarded")).text == "ran"
    assert HERE not in slow.threads


@pytest.mark.parametrize("kind", ["before", "after", "on_complete"])
async def test_a_hook_that_held_the_loop_holds_nobody_from_then_on(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    catalog, slow = with_predicate(lambda _ctx: True), Code(None)
    getattr(catalog, kind)("*guarded")(slow)
    assert (await catalog.view(ANN).call("guarded")).text == "ran"
    slow.go.clear()
    slow.seconds = 0
    TENANT.set("acme")
    call = asyncio.create_task(catalog.view(ANN).call("guarded"))
    await until(lambda: len(slow.threads) == 2)
    assert (await catalog.view(ANN).call("quick")).text == "quick"
    assert not call.done()
    slow.go.set()
    assert (await call).text == "ran"
    assert (slow.threads[0], slow.threads[1] == HERE, slow.seen) == (HERE, False, ["", "acme"])
    [named] = [entry.getMessage() for entry in caplog.records]
    assert named.startswith("Hook ")
    assert "held the event loop" in named


async def test_what_a_moved_hook_sets_and_answers_counts_as_before() -> None:
    catalog, seen, order = Catalog(bounds=ROOMY), list[str](), list[str]()
    slow_s = [SLOW_S]

    @catalog.before()
    def set_tenant(call: Any) -> Any:
        order.append("first")
        CLOCK.sleep(slow_s[0])
        TENANT.set(call.args["tenant"])
        if call.args["tenant"] == "async":
            return later()
        return Verdict.deny("not them") if call.args["tenant"] == "evil" else None

    async def later() -> Verdict:
        return Verdict.deny("not async")

    @catalog.before()
    def second(_call: Any) -> None:
        order.append("second")

    @catalog.tool
    async def show(tenant: str) -> str:
        """Show what the hook set."""
        seen.append(TENANT.get())
        return tenant

    results = [await catalog.view(ANN).call("show", {"tenant": name}) for name in ("a", "b", "evil", "async")]
    slow_s[0] = 0
    assert [kind_of(result) for result in results] == ["ok", "ok", "hook_refused", "hook_refused"]
    assert (seen, order) == (["a", "b"], ["first", "second"] * 2 + ["first"] * 2)


async def test_a_moved_hook_that_is_late_refuses_the_call_and_runs_once() -> None:
    catalog, slow = Catalog(), Code(None)

    @catalog.tool
    async def act() -> str:
        """Act."""
        return "ran"

    catalog.before()(slow)
    assert (await catalog.view(ANN).call("act")).text == "ran"
    slow.go.clear()
    assert kind_of(await catalog.view(ANN).call("act")) == "hook_refused"
    slow.go.set()
    assert len(slow.threads) == 2


async def test_a_slow_async_observer_delays_a_call_once_and_then_none(caplog: pytest.LogCaptureFixture) -> None:
    catalog, heard, go = with_predicate(lambda _ctx: True), list[str](), asyncio.Event()

    class Slow:
        async def on_tool_call(self, event: Event) -> None:
            await go.wait()
            heard.append(f"call {event.call_id}")

        async def on_tool_result(self, event: Event) -> None:
            heard.append(f"result {event.call_id}")

    end = catalog.observe(Slow())
    for _ in range(3):
        assert (await catalog.view(ANN).call("guarded")).text == "ran"
    assert heard == []
    go.set()
    await until(lambda: len(heard) == 6)
    ids = {entry.split()[1] for entry in heard}
    assert all(heard.index(f"call {one}") < heard.index(f"result {one}") for one in ids)
    end()
    assert [entry.getMessage() for entry in caplog.records] == [
        "Async observers of calls are slow: calls no longer wait for them."
    ]


async def test_what_observers_have_not_heard_is_bounded_and_a_closed_catalog_waits_for_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deliveries, "OBSERVED_EVENTS", 3)
    catalog, heard, go = with_predicate(lambda _ctx: True), list[str](), asyncio.Event()

    class Slow:
        async def on_tool_result(self, event: Event) -> None:
            await go.wait()
            heard.append(event.call_id)

    class Future:
        def on_tool_result(self, event: Event) -> Any:
            return asyncio.get_running_loop().create_future()

    catalog.observe(Slow())
    ends = catalog.observe(Future())
    for _ in range(5):
        assert (await catalog.view(ANN).call("guarded")).text == "ran"
    ends()
    assert len(catalog.executor.async_observers.unheard) == 3
    # The catalog waits this long for the one that never hears it.
    catalog.registry.swap(replace(catalog.registry.declarations, bounds=Bounds(hook_s=1.0)))
    asyncio.get_running_loop().call_later(0.01, go.set)
    await catalog.close(grace_s=0)
    assert len(heard) == 2
    assert len(caplog.records) >= 1


async def test_what_is_part_of_the_answer_goes_before_it_however_slow_others_are() -> None:
    catalog, heard = Catalog(), list[str]()

    class Slow:
        async def on_tool_call(self, event: Event) -> None:
            await asyncio.Event().wait()

    class Progress:
        part_of_answer = True

        async def on_progress(self, event: Event) -> None:
            await asyncio.sleep(0.01)
            heard.append(str(event.payload["fraction"]))

    @catalog.tool
    async def work(ctx: CallContext) -> str:
        """Tell of progress."""
        for step in range(3):
            ctx.progress(step / 4)
        return "done"

    end = catalog.observe(Slow())
    for _ in range(2):
        assert (await catalog.view(ANN).call("work", callbacks=Progress())).text == "done"
        heard.append("answer")
    assert heard == ["0.0", "0.25", "0.5", "answer"] * 2
    end()


def of_one_thread(answer: object) -> Any:
    """Return code that is slow once, and works on the thread that made it only, as a connection of sqlite3 does."""
    home, seconds = threading.get_ident(), [SLOW_S, 0, 0, 0]

    def code(*_: object) -> Any:
        if threading.get_ident() != home:
            raise RuntimeError("made in another thread")
        CLOCK.sleep(seconds.pop(0))
        return answer

    return code


async def test_code_that_works_on_one_thread_only_goes_back_to_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    catalog = with_predicate(of_one_thread(True))
    kinds = [kind_of(await catalog.view(fresh()).call("guarded")) for _ in range(4)]
    assert kinds == ["ok", "not_found", "ok", "ok"]
    hooked = Catalog(bounds=ROOMY)
    hooked.before()(of_one_thread(None))

    @hooked.tool
    async def act() -> str:
        """Act."""
        return "ran"

    kinds = [kind_of(await hooked.view(ANN).call("act")) for _ in range(4)]
    assert kinds == ["ok", "hook_refused", "ok", "ok"]
    assert sum("runs on the event loop again" in entry.getMessage() for entry in caplog.records) == 2


async def test_a_moved_hook_that_is_late_writes_into_nothing_that_was_given() -> None:
    catalog, go, wrote = Catalog(), threading.Event(), threading.Event()
    seconds = [SLOW_S, 0]

    @catalog.after()
    def meddle(_call: Any, result: Any) -> None:
        if wait_s := seconds.pop(0):
            CLOCK.sleep(wait_s)
            return
        assert go.wait(PATIENCE_S)
        result.structured["text"] = "meddled"
        wrote.set()

    @catalog.tool
    async def give() -> dict[str, str]:
        """Give."""
        return {"text": "clean"}

    await catalog.view(ANN).call("give")
    result = await catalog.view(ANN).call("give")
    go.set()
    assert await asyncio.to_thread(wrote.wait, PATIENCE_S)
    assert result.structured == {"text": "clean"}


async def test_a_moved_hook_that_refuses_in_words_stays_moved() -> None:
    catalog, slow_s, threads = Catalog(bounds=ROOMY), [SLOW_S, 0, 0, 0, 0], list[str]()

    @catalog.before()
    def refuse(_call: Any) -> None:
        threads.append(threading.current_thread().name)
        CLOCK.sleep(slow_s.pop(0))
        if len(threads) == 2:
            raise CallError("invalid_arguments", "not so")
        if len(threads) == 4:
            raise ValueError("a bug, after it has run beside the loop")

    @catalog.tool
    async def act() -> str:
        """Act."""
        return "ran"

    kinds = [kind_of(await catalog.view(ANN).call("act")) for _ in range(5)]
    assert kinds == ["ok", "invalid_arguments", "ok", "hook_refused", "ok"]
    assert [name == HERE for name in threads] == [True, False, False, False, False]
