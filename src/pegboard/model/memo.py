"""Memo: ask each question once, and keep the answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.error import AsyncPredicateError

_UNANSWERED: Any = object()


class Question(NamedTuple):
    """Something asked at most once of a context: a predicate, or a builder."""

    key: object
    name: str
    ask: Callable[[Any], Any]
    is_async: bool = False
    is_blocking: bool = False
    limit_s: float = DEFAULT_BOUNDS.predicate_s

    @property
    def waits(self) -> bool:
        return self.is_async or self.is_blocking


class Memo:
    """The answers of one context. Each question runs once, whatever the answer, under tasks and threads."""

    __slots__ = ("_answers", "_kept", "_lock", "_owners")

    def __init__(self) -> None:
        self._answers: dict[object, Future[Any]] = {}
        # The same answers where they are values: a future takes a lock each time it is asked.
        self._kept: dict[object, Any] = {}
        self._owners: dict[object, int] = {}
        self._lock = threading.Lock()

    def _claim(self, key: object) -> tuple[Future[Any], bool]:
        """Return the answer's future, and whether the caller is the one to fill it."""
        with self._lock:
            if key in self._answers:
                return self._answers[key], False
            answer = self._answers[key] = Future[Any]()
            self._owners[key] = threading.get_ident()
            return answer, True

    def answer(self, question: Question, ctx: object) -> Any:
        """Return the answer, asking now if nobody has.

        Raises:
            AsyncPredicateError: the question needs awaiting and nobody has awaited it yet.
            Exception: whatever asking raised, again for each one who asks.
        """
        kept = self._kept.get(question.key, _UNANSWERED)
        if kept is not _UNANSWERED:
            return kept
        found = self._answers.get(question.key)
        if found is not None and found.done():
            return self._kept.setdefault(question.key, found.result())
        if question.waits:
            raise AsyncPredicateError(question.name)
        answer, is_mine = self._claim(question.key)
        if is_mine:
            _fill(answer, lambda: question.ask(ctx))
        elif not answer.done() and self._owners.get(question.key) == threading.get_ident():
            raise RecursionError(f"Predicate {question.name!r} asks for itself.")
        # Two threads may each ask for what the other is asking: no wait is for ever.
        return answer.result(timeout=2 * question.limit_s)

    def has(self, key: object) -> bool:
        """Tell whether the question is answered."""
        found = self._answers.get(key)
        return found is not None and found.done()

    async def answer_async(self, question: Question, ctx: object, *, timeout_s: float) -> None:
        """Have the question answered, awaiting it if need be. What it raises is kept, not raised here."""
        answer, is_mine = self._claim(question.key)
        if is_mine:
            # A task of its own: others wait for the answer too, so one caller's cancellation must not end it.
            task = asyncio.ensure_future(_ask(question, ctx, answer, timeout_s))
            await asyncio.shield(task)
        elif not answer.done():
            await asyncio.wait([asyncio.wrap_future(answer)])


def _fill(answer: Future[Any], ask: Callable[[], Any]) -> None:
    try:
        value = ask()
    except BaseException as error:  # noqa: BLE001 - boundary: foreign code
        answer.set_exception(error)
    else:
        answer.set_result(value)


async def _ask(question: Question, ctx: object, answer: Future[Any], timeout_s: float) -> None:
    try:
        asked = asyncio.to_thread(question.ask, ctx) if question.is_blocking else question.ask(ctx)
        value = await asyncio.wait_for(asked, timeout_s)
    except TimeoutError:
        answer.set_exception(TimeoutError(f"no answer within {timeout_s:g} s"))
    except BaseException as error:  # noqa: BLE001 - boundary: foreign code
        answer.set_exception(error)
    else:
        answer.set_result(value)
