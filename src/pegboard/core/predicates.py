"""Predicates: decide from the context whether a tool is available now."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from pegboard.core.coroutine_runner import BOUND_CODE, LOOP_BLOCKED_S, SLOW_CODE, is_cancelled, is_on_loop
from pegboard.core.names import nearest
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.context import ToolContext, context_fields
from pegboard.model.error import DefinitionError, NoFactoryError
from pegboard.model.loop_record import LoopRecord
from pegboard.model.memo import FirstRunError, Question
from pegboard.model.source_state import SourceState

log = logging.getLogger("pegboard")
SLOW_PREDICATE = "Predicate %r took %.0f ms: it runs in a worker thread from now on. Make it async, or quick."
DOWN = SourceState(is_up=False)
_LIMIT_S = DEFAULT_BOUNDS.predicate_s


class States(Protocol):
    """The states of all sources; a dict works."""

    def get(self, name: str, default: SourceState, /) -> SourceState: ...


class Answer(NamedTuple):
    """Yes or no, and the reason for a no. `is_known` is false if a check failed; then `not` is not a yes either."""

    yes: bool
    why: str = ""
    is_known: bool = True


YES = Answer(True)
OFF = Answer(False, "it is switched off (available: false)")


class Availability(NamedTuple):
    """A compiled condition: its description, its predicates, and a function that evaluates it for a context.

    `answer` raises `AsyncPredicateError` if it meets an async predicate that has not been awaited.
    """

    words: str
    questions: tuple[Question, ...]
    answer: Callable[[ToolContext, States], Answer]


class Conditions(NamedTuple):
    """Several conditions, and the questions that must be awaited first: their predicates, and others."""

    each: tuple[Availability, ...]
    awaited: tuple[Question, ...]

    @classmethod
    def of(cls, each: Iterable[Availability], others: Iterable[Question] = ()) -> Conditions:
        every = tuple(each)
        questions = (*[question for one in every for question in one.questions if question.waits], *others)
        return cls(every, tuple({question.key: question for question in questions}.values()))

    def and_others(self, others: Conditions) -> Conditions:
        """Return these conditions and others."""
        return Conditions.of((*self.each, *others.each), (*self.awaited, *others.awaited))


def predicate(
    name: str,
    ask: Callable[[Any], Any],
    *,
    blocking: bool = False,
    key: object = None,
    limit_s: float = _LIMIT_S,
    is_quick: bool = False,
) -> Question:
    """Return the question for a function `(ctx) -> bool`, sync or async; `blocking` runs it in a thread.

    Any failure of `ask` means no: a failed check must not make a tool available. A function that has blocked the event
    loop runs in a thread from then on, if the caller can wait.
    """
    pace = LoopRecord()
    is_async = inspect.iscoroutinefunction(ask) or inspect.iscoroutinefunction(getattr(ask, "__call__", None))

    def judge(value: object) -> Answer:
        if not isinstance(value, bool):
            meant = '; to ask for a factory, write `"name" in ctx.factories`' if callable(value) else ""
            return no(f"gave {type(value).__name__}, not a bool{meant}")
        return YES if value else Answer(False, f"predicate {name!r} answered no")

    def no(fault: str, error: BaseException | None = None) -> Answer:
        log.warning("Predicate %r %s: its tools are hidden.", name, fault, exc_info=error)
        return Answer(False, f"predicate {name!r} {fault}", is_known=False)

    def raised_by(error: BaseException) -> Answer:
        if isinstance(error, NoFactoryError):
            # The usual way to ask for a factory, and no fault of the predicate.
            return Answer(False, f"predicate {name!r} answered no: {error}")
        return no(f"raised {type(error).__name__}", error)

    def ask_now(ctx: ToolContext) -> Answer:
        started = time.monotonic()
        try:
            found = judge(ask(ctx))
        except BaseException as error:  # noqa: BLE001 - boundary: foreign code
            # A failure after a wait, as of a connection, is not one of the thread.
            is_quick_failure = time.monotonic() - started <= LOOP_BLOCKED_S
            if is_quick_failure and pace.is_slow and not is_on_loop() and pace.record_thread_run(failed=True):
                log.warning(BOUND_CODE, "Predicate", name)
            return raised_by(error)
        finally:
            held_s = time.monotonic() - started
            if held_s <= LOOP_BLOCKED_S:
                pace.is_tried = True
            elif is_on_loop() and pace.record_loop_run():
                log.warning(SLOW_CODE, "Predicate", name, held_s * 1e3)
        if pace.is_slow and not is_on_loop():
            pace.record_thread_run(failed=False)
        late = not blocking and held_s > limit_s
        return no(f"took more than {limit_s:g} s") if late else found

    def try_out(ctx: ToolContext) -> Answer:
        started = time.monotonic()
        raised: BaseException | None = None
        value: object = None
        try:
            value = ask(ctx)
        except BaseException as error:  # noqa: BLE001 - boundary: foreign code
            raised = error
        taken_s = time.monotonic() - started
        if raised is not None and taken_s <= LOOP_BLOCKED_S:
            raise FirstRunError from raised
        is_first = not pace.is_tried
        pace.was_tried(is_slow=taken_s > LOOP_BLOCKED_S)
        if pace.is_slow and is_first:
            log.warning(SLOW_PREDICATE, name, taken_s * 1e3)
        if raised is not None:
            return no(f"raised {type(raised).__name__}", raised)
        return no(f"took more than {limit_s:g} s") if taken_s > limit_s else judge(value)

    async def ask_later(ctx: ToolContext) -> Answer:
        try:
            return judge(await ask(ctx))
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            return no("cancelled itself", error)
        except BaseException as error:  # noqa: BLE001 - boundary: foreign code
            return raised_by(error)

    return Question(key or ask, name, ask_later if is_async else ask_now, is_async, blocking, limit_s, pace, try_out)


def compile_availability(
    form: Any, *, predicates: Mapping[str, Question], sources: frozenset[str], context_type: type[ToolContext],
    limit_s: float = _LIMIT_S,
) -> Availability:  # fmt: skip
    """Compile one of the accepted forms.

    `None`, `True`, `"always"` · `False` · a predicate's name · a callable `(ctx) -> bool` · `{"all": […]}` · `{"any":
    […]}` · `{"not": …}` · `{"source": name}`.

    Raises:
        DefinitionError: an unknown predicate or source, or another form.
    """
    read = partial(
        compile_availability, predicates=predicates, sources=sources, context_type=context_type, limit_s=limit_s
    )
    match form:
        case None | True | "always":
            return Availability("always", (), _always)
        case False:
            return Availability("available: true", (), _never)
        case str():
            return _asking(predicates.get(form) or _attribute(form, context_type, predicates, limit_s))
        case {"all": [*parts]} if len(form) == 1:
            return _all(list(map(read, parts)))
        case {"any": [*parts]} if len(form) == 1:
            return _any(list(map(read, parts)))
        case {"not": part} if len(form) == 1:
            return _not(read(part))
        case {"source": str(name)} if len(form) == 1:
            if name not in sources:
                raise DefinitionError(f"available: no source {name!r}.{nearest(name, sources, label='Sources')}")
            return _source_up(name)
        case _ if callable(form):
            return _asking(predicate(getattr(form, "__qualname__", repr(form)), form, limit_s=limit_s))
        case _:
            raise DefinitionError(
                f"available={form!r}: write a predicate's name, a callable, true, false, or one of "
                "{all: […]}, {any: […]}, {not: …}, {source: name}."
            )


def unanswerable(fault: str) -> Availability:
    """Return a condition that hides its tool, because it cannot be evaluated."""

    def answer(_ctx: ToolContext, _states: States) -> Answer:
        return Answer(False, fault, is_known=False)

    return Availability("unknown", (), answer)


def _always(_ctx: ToolContext, _states: States) -> Answer:
    return YES


def _never(_ctx: ToolContext, _states: States) -> Answer:
    return OFF


def _asking(question: Question) -> Availability:
    def answer(ctx: ToolContext, states: States) -> Answer:
        try:
            return ctx.memo.answer(question, ctx)
        except (TimeoutError, RecursionError) as error:
            return Answer(False, f"predicate {question.name!r}: {error}", is_known=False)

    return Availability(question.name, (question,), answer)


def _all(parts: Sequence[Availability]) -> Availability:
    def answer(ctx: ToolContext, states: States) -> Answer:
        noes: list[Answer] = []
        for part in parts:
            found = part.answer(ctx, states)
            if not found.yes and found.is_known:
                return found
            if not found.yes:
                noes.append(found)
        return noes[0] if noes else YES

    return Availability(" and ".join(part.words for part in parts), _questions(parts), answer)


def _any(parts: Sequence[Availability]) -> Availability:
    def answer(ctx: ToolContext, states: States) -> Answer:
        noes: list[Answer] = []
        for part in parts:
            found = part.answer(ctx, states)
            if found.yes:
                return YES
            noes.append(found)
        words = "none of: " + "; ".join(no.why for no in noes)
        return Answer(False, words, is_known=all(no.is_known for no in noes))

    return Availability(" or ".join(part.words for part in parts), _questions(parts), answer)


def _not(part: Availability) -> Availability:
    def answer(ctx: ToolContext, states: States) -> Answer:
        found = part.answer(ctx, states)
        if not found.is_known:
            return found
        return Answer(False, f"not: {part.words}") if found.yes else YES

    return Availability(f"not {part.words}", part.questions, answer)


def _source_up(name: str) -> Availability:
    def answer(ctx: ToolContext, states: States) -> Answer:
        return YES if states.get(name, DOWN).is_up else Answer(False, f"source {name!r} is not up")

    return Availability(f"source {name!r} is up", (), answer)


def _questions(parts: Sequence[Availability]) -> tuple[Question, ...]:
    return tuple(question for part in parts for question in part.questions)


def _attribute(name: str, context_type: type[ToolContext], known: Mapping[str, Question], limit_s: float) -> Question:
    """Return the question for a method, property or field of the context (or of a subclass the host defined)."""
    owner = next((kind for kind in _with_subclasses(context_type) if _has(kind, name)), None)
    if owner is None or name.startswith("_"):
        # Only the declared class: its subclasses depend on the modules that this process has imported.
        members = {*dir(context_type)} - {*dir(ToolContext)}
        raise DefinitionError(
            f"Unknown predicate {name!r}.{nearest(name, known.keys() | members, label='Predicates')} "
            "Register it with @catalog.predicate or under `predicates:`, or make it a member of your context class."
        )
    is_field = name in context_fields(owner)

    def ask(ctx: ToolContext) -> Any:
        value = getattr(ctx, name)
        # Test for presence, not truth: an empty queue counts as present.
        return value is not None if is_field else value() if callable(value) else value

    async def ask_async(ctx: ToolContext) -> Any:
        return await getattr(ctx, name)()

    is_async = inspect.iscoroutinefunction(getattr(owner, name, None))
    ask_it = ask_async if is_async else ask
    return predicate(name, ask_it, key=f"attribute:{name}", limit_s=limit_s, is_quick=is_field)


def _with_subclasses(kind: type[ToolContext]) -> Iterator[type[ToolContext]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _with_subclasses(child)


def _has(kind: type[ToolContext], name: str) -> bool:
    return hasattr(kind, name) or name in context_fields(kind)
