"""Memo: evaluate each predicate and builder once per context, and cache the answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.error import AsyncPredicateError
from pegboard.model.loop_record import LoopRecord

T = TypeVar("T")
_UNANSWERED: Any = object()


class Question(NamedTuple):
    """Something evaluated at most once per context: a predicate or a builder."""

    key: object
    name: str
    ask: Callable[[Any], Any]
    is_async: bool = False
    is_blocking: bool = False
    limit_s: float = DEFAULT_BOUNDS.predicate_s
    pace: LoopRecord | None = None
    try_out: Callable[[Any], Any] | None = None
    """Asks for the first time, in a thread; raises `FirstRunError` if the code failed at once."""
    parts: tuple[Question, ...] = ()
    """The questions that this question asks; a part may be slow even if the whole is not."""

    @property
    def waits(self) -> bool:
        return self.is_async or self.is_blocking

    @property
    def is_slow(self) -> bool:
        """Whether it is synchronous and may block the event loop: it has done so before, or has never run."""
        pace = self.pace
        return any(part.is_slow for part in self.parts) or (pace is not None and (pace.is_slow or not pace.is_tried))


class SlowPredicateError(AsyncPredicateError):
    """A slow question was met where it would block the event loop; the caller can await it in a thread."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.name)
        self.question = question


class FirstRunError(Exception):
    """Code failed at once in its first run in a worker thread; it may work on the event loop."""


class _Answers:
    """The answers since the last `renew`; replaced as a whole, so that late old answers do not mix with new ones."""

    __slots__ = ("awaited", "futures", "kept", "owners")

    def __init__(self) -> None:
        self.futures: dict[object, Future[Any]] = {}
        # Answers that are plain values: reading a future takes a lock each time.
        self.kept: dict[object, Any] = {}
        self.owners: dict[object, int] = {}
        self.awaited: dict[object, Question] = {}


class Memo:
    """The answers of one context. Each question runs once, whatever the answer, across tasks and threads.

    A person may take an hour to answer a question, and facts may change meanwhile. After that, `renew` discards all
    answers, for every context that shares the memo.
    """

    __slots__ = ("_answers", "_deferring", "_lock")

    def __init__(self) -> None:
        self._deferring: int | None = None
        # Created by the first question: most requests ask none.
        self._answers: _Answers | None = None
        self._lock = threading.Lock()

    @property
    def _now(self) -> _Answers:
        if self._answers is None:
            with self._lock:
                self._answers = self._answers or _Answers()
        return self._answers

    async def renew(self, ctx: object) -> None:
        """Forget every answer, and at once evaluate the async questions again that had one: callers rely on those."""
        before, self._answers = self._now, _Answers()
        again = before.awaited.values()
        await self.answer_async(again, ctx)

    def _claim(self, key: object, now: _Answers) -> tuple[Future[Any], bool]:
        """Return the future of the answer, and whether the caller must fill it."""
        with self._lock:
            if key in now.futures:
                return now.futures[key], False
            answer = now.futures[key] = Future[Any]()
            now.owners[key] = threading.get_ident()
            return answer, True

    def answer(self, question: Question, ctx: object) -> Any:
        """Return the answer; evaluate the question if it has none.

        Raises:
            AsyncPredicateError: the question is async and has not been awaited yet.
            Exception: the exception of the question, raised again for each caller.
        """
        now = self._now
        kept = now.kept.get(question.key, _UNANSWERED)
        if kept is not _UNANSWERED:
            return kept
        found = now.futures.get(question.key)
        if found is not None and found.done():
            return now.kept.setdefault(question.key, found.result())
        if question.waits:
            raise AsyncPredicateError(question.name)
        if self._deferring is not None and question.is_slow and self._deferring == threading.get_ident():
            slow = next(self._open_parts(question), None)
            if slow is not None:
                raise SlowPredicateError(slow)
        answer, is_mine = self._claim(question.key, now)
        if is_mine:
            # A nested question cannot be deferred.
            deferring, self._deferring = self._deferring, None
            try:
                value = now.kept[question.key] = question.ask(ctx)
            except BaseException as error:  # boundary: foreign code, whose exception is raised for each caller
                answer.set_exception(error)
                raise
            finally:
                self._deferring = deferring
            answer.set_result(value)
            return value
        if not answer.done() and now.owners.get(question.key) == threading.get_ident():
            raise RecursionError(f"Predicate {question.name!r} asks for itself.")
        # Two threads may each wait for the other's answer, so the wait is limited.
        return answer.result(timeout=2 * question.limit_s)

    def _open_parts(self, question: Question) -> Iterator[Question]:
        """Yield the unanswered parts of a question that may block the event loop."""
        if question.parts:
            for part in question.parts:
                yield from self._open_parts(part)
        elif question.is_slow and not self.has(question.key):
            yield question

    def deferring(self, ask: Callable[[], T]) -> T:
        """Return the result of `ask`, for a caller who can wait.

        Raises:
            SlowPredicateError: a question without an answer may block the event loop.
        """
        self._deferring = threading.get_ident()
        try:
            return ask()
        finally:
            self._deferring = None

    def has(self, key: object) -> bool:
        """Tell whether the question is answered."""
        found = self._now.futures.get(key)
        return found is not None and found.done()

    def is_answered_here(self, question: Question) -> None:
        """Record that the current thread evaluates the question, so that one that asks for itself is refused."""
        self._now.owners[question.key] = threading.get_ident()

    async def answer_async(self, questions: Iterable[Question], ctx: object) -> None:
        """Evaluate the questions together, awaiting async ones. Exceptions are cached, not raised here."""
        now = self._now
        waiting: list[asyncio.Future[Any]] = []
        for question in questions:
            answer, is_mine = self._claim(question.key, now)
            if is_mine:
                now.awaited[question.key] = question
                waiting.append(asyncio.ensure_future(_ask(question, ctx, answer)))
            elif not answer.done():
                waiting.append(asyncio.wrap_future(answer))
        if waiting:
            # Other callers wait for these answers too, so a cancellation here does not cancel the evaluation.
            await asyncio.wait(waiting)


async def _ask(question: Question, ctx: object, answer: Future[Any]) -> None:
    try:
        async with asyncio.timeout(question.limit_s):
            value = await (asyncio.to_thread(question.ask, ctx) if question.is_blocking else question.ask(ctx))
    except TimeoutError:
        answer.set_exception(TimeoutError(f"no answer within {question.limit_s:g} s"))
    except BaseException as error:  # noqa: BLE001 - boundary: foreign code
        answer.set_exception(error)
    else:
        answer.set_result(value)
