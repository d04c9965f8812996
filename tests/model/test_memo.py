"""The memo: an answer is made once, whoever waits for it."""

import threading
from contextlib import suppress
from typing import Any

import pytest

from pegboard import AsyncPredicateError, Catalog, ToolContext, ToolSpec
from pegboard.model.loop_record import LoopRecord
from pegboard.model.memo import Memo, Question, SlowPredicateError
from tests.core.parts import echo


def question(ask: Any, **said: Any) -> Question:
    return Question(key="q", name="q", ask=ask, **said)


def test_a_thread_that_comes_while_another_asks_waits_for_its_answer() -> None:
    entered, second_is_here = threading.Event(), threading.Event()
    asked: list[object] = []
    memo, answers = Memo(), list[object]()

    def ask(ctx: object) -> int:
        asked.append(ctx)
        entered.set()
        # The second thread is about to wait: a moment more lets it, and the test holds in any case.
        second_is_here.wait(60.0)
        threading.Event().wait(0.05)
        return 42

    first = threading.Thread(target=lambda: answers.append(memo.answer(question(ask), "first")))
    first.start()
    entered.wait(60.0)

    def come() -> None:
        second_is_here.set()
        answers.append(memo.answer(question(ask), "second"))

    second = threading.Thread(target=come)
    second.start()
    for thread in (first, second):
        thread.join()
    assert (answers, asked) == ([42, 42], ["first"])


async def test_awaiting_an_answer_that_is_there_asks_nothing() -> None:
    asked: list[object] = []

    async def ask(ctx: object) -> int:
        asked.append(ctx)
        return 42

    memo, waiting = Memo(), question(ask, is_async=True)
    with pytest.raises(AsyncPredicateError):
        memo.answer(waiting, "ctx")
    for _ in range(2):
        await memo.answer_async([waiting], "ctx")
    assert (memo.answer(waiting, "ctx"), asked) == (42, ["ctx"])


def test_two_threads_whose_predicates_ask_for_each_other_end_as_no() -> None:
    catalog, both = Catalog(), threading.Barrier(2)

    def asking(other: str) -> Any:
        def ask(ctx: ToolContext) -> bool:
            with suppress(threading.BrokenBarrierError):
                both.wait(10.0)
            return catalog.view(ctx).why(other).visible

        return ask

    for name, other in (("left", "right"), ("right", "left")):
        catalog.register(ToolSpec(name=name, available=asking(other)), echo)
    ctx, found = ToolContext(), list[object]()
    looks = [
        threading.Thread(target=lambda name=name: found.append(catalog.view(ctx).find(name)), daemon=True)
        for name in ("left", "right")
    ]
    for look in looks:
        look.start()
    for look in looks:
        look.join(60.0)
    assert found == [None, None]


def test_a_caller_who_can_wait_is_not_deferred_by_parts_that_are_answered() -> None:
    memo, pace = Memo(), LoopRecord()
    part = Question(key="part", name="part", ask=lambda ctx: True, pace=pace)
    whole = Question(key="whole", name="whole", ask=lambda ctx: memo.answer(part, ctx), parts=(part,))
    with pytest.raises(SlowPredicateError, match="part"):
        memo.deferring(lambda: memo.answer(whole, "ctx"))
    assert memo.answer(part, "ctx") is True
    assert memo.deferring(lambda: memo.answer(whole, "ctx")) is True
