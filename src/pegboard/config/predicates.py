"""Predicates: register the predicates under `predicates:`, which tools name under `available:`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pegboard.config.build_context import BuildContext
from pegboard.config.config import Declared
from pegboard.config.forms.predicate_form import PredicateForm, PredicateRef
from pegboard.config.yaml.tree import At
from pegboard.core.names import nearest
from pegboard.core.predicates import YES, Answer, Availability, compile_availability, predicate
from pegboard.model.context import ToolContext, context_fields
from pegboard.model.error import DefinitionError
from pegboard.model.memo import Question

_WORDS_FOR_NO = frozenset({"", "false", "no", "off", "0"})


def declare_predicates(build: BuildContext) -> None:
    """Register every predicate of the config, each after those that it names."""
    builder = _PredicateBuilder(build)
    for name in build.config.refused.predicates:
        builder.stand_in(name)
    for name, declared in build.config.predicates.items():
        builder.make(name, declared)


class _PredicateBuilder:
    """Converts forms to conditions for core; predicates nested in them without a name are cached by their text."""

    def __init__(self, build: BuildContext) -> None:
        self._build = build
        self._registry = build.catalog.registry
        self._limit_s = self._registry.bounds.predicate_s
        self._from_python = frozenset(self._registry.predicates)
        self._unnamed: dict[str, Question] = {}
        self._open: list[str] = []

    def stand_in(self, name: str) -> None:
        """Register "no" under the name of a refused predicate, so that only its own fault is reported."""
        if name not in self._registry.predicates:
            self._registry.add_predicate(name, self._composed(name, form=False))

    def make(self, name: str, declared: Declared[PredicateForm]) -> None:
        """Register one predicate, after those that it names."""
        if name in self._from_python:
            self._report(
                declared.at, f"a Python module registers a predicate {name!r} already; rename one", at_key=True
            )
        elif name in self._open:
            chain = " → ".join([*self._open[self._open.index(name) :], name])
            self._report(declared.at, f"the predicate asks for itself: {chain}", at_key=True)
        elif name not in self._registry.predicates:
            self._open.append(name)
            form = self._form(declared.value, declared.at)
            self._open.pop()
            leaf = self._unnamed.get(form) if isinstance(form, str) else None
            question = leaf._replace(name=name) if leaf else self._composed(name, form)
            self._registry.add_predicate(name, question)

    def _form(self, form: PredicateRef, at: At) -> object:
        """Return a form as core reads it; `False` for a reported one, so that nothing else is reported."""
        match form:
            case str(name):
                return self._named(name, at)
            case PredicateForm(secret=str(name)):
                return self._unless(f"secret {name}", f"the secret {name} is missing or empty", self._secret(name))
            case PredicateForm(context=str(name)):
                return self._context(name, at / "context")
            case PredicateForm(setting=str(name)):
                return self._setting(name, at / "setting")
            case PredicateForm(python=str(reference)):
                return self._python(reference, at / "python")
            case PredicateForm(all=tuple(parts)):
                return {"all": [self._form(part, at / "all" / index) for index, part in enumerate(parts)]}
            case PredicateForm(any=tuple(parts)):
                return {"any": [self._form(part, at / "any" / index) for index, part in enumerate(parts)]}
            case _:
                return {"not": self._form(form.not_, at / "not") if form.not_ is not None else False}

    def _named(self, name: str, at: At) -> object:
        declared = self._build.config.predicates.get(name)
        if declared is not None:
            self.make(name, declared)
        try:
            self._compiled(name)
        except DefinitionError as error:
            if declared is None:
                self._build.refused(error, at)
            return False
        return name

    def _secret(self, name: str) -> Callable[[ToolContext], bool]:
        from_environment = self._build.config.secrets.get(name)
        return lambda ctx: bool(ctx.secrets.get(name, from_environment))

    def _context(self, name: str, at: At) -> object:
        known = {name for kind in _kinds(ToolContext) for name in context_fields(kind)}
        if name not in known:
            self._report(at, f"the context has no field {name!r}.{nearest(name, known, label='Fields')}")
            return False
        # Test for presence, not truth: an empty queue counts as present, an empty text does not.
        return self._unless(
            f"context {name}", f"the context has no {name}", lambda ctx: getattr(ctx, name, None) not in (None, "")
        )

    def _setting(self, name: str, at: At) -> object:
        settings = self._build.config.settings
        if name not in settings:
            hint = nearest(name, settings, label="Settings")
            self._report(at, f"there is no setting {name!r} under `settings:`.{hint}")
            return False
        value = settings[name]
        return self._unless(
            f"setting {name}", f"the setting {name} is off", lambda ctx: _is_on(ctx.settings.get(name, value))
        )

    def _python(self, reference: str, at: At) -> object:
        function = self._build.resolve(reference, at)
        if function is None:
            return False
        self._unnamed[reference] = predicate(reference.removeprefix("python:"), function, limit_s=self._limit_s)
        return reference

    def _unless(self, words: str, why_not: str, is_yes: Callable[[ToolContext], bool]) -> str:
        def ask(ctx: ToolContext) -> Answer:
            return YES if is_yes(ctx) else Answer(False, why_not)

        return self._unnamed.setdefault(words, Question(key=ask, name=words, ask=ask)).name

    def _compiled(self, form: object) -> Availability:
        predicates = {**self._registry.predicates, **self._unnamed}
        sources = frozenset(self._registry.sources)
        return compile_availability(
            form, predicates=predicates, sources=sources, context_type=ToolContext, limit_s=self._limit_s
        )

    def _composed(self, name: str, form: object) -> Question:
        """Return one predicate for several; each of them still runs at most once per context."""
        tree, states = self._compiled(form), self._registry.states
        waiting = [question for question in tree.questions if question.waits]

        def ask(ctx: ToolContext) -> Answer:
            return tree.answer(ctx, states())

        async def ask_async(ctx: ToolContext) -> Answer:
            await ctx.memo.answer_async(waiting, ctx)
            return ask(ctx)

        return Question(
            ask, name, ask_async if waiting else ask, is_async=bool(waiting), limit_s=self._limit_s,
            parts=tree.questions,
        )  # fmt: skip

    def _report(self, at: At, message: str, *, at_key: bool = False) -> None:
        self._build.report.add(at.problem(message, at_key=at_key))


def _is_on(value: Any) -> bool:
    # Variables are texts: one that means "no", such as "false", must not make a tool available.
    return value.strip().casefold() not in _WORDS_FOR_NO if isinstance(value, str) else bool(value)


def _kinds(kind: type[ToolContext]) -> Iterator[type[ToolContext]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _kinds(child)
