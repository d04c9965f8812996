"""Problems: what is wrong with a config, each at its place in the file, in words that say what would be right."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from pegboard.config.unsupported import refusal
from pegboard.config.value_types import FLAG, MAPPING, TEXT
from pegboard.config.yaml_tree import At, Step
from pegboard.core.names import nearest, nearest_one
from pegboard.core.redaction import Redactor
from pegboard.model.error import Problem
from pegboard.model.secret import Secret

# What was expected, for the types of pydantic's errors.
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "tuple_type": "a list, such as [a, b]",
    "list_type": "a list, such as [a, b]",
}
_COMPARED = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
_KEY = "[key]"
_KEY_FAULTS = {"string_too_short": "may not be empty"}
_ASIDE = frozenset({_KEY, MAPPING, TEXT, FLAG})
_QUOTED = re.compile(r"'([^']*)'")


def explain(error: ValidationError, at: At, model: type[BaseModel]) -> Iterator[Problem]:
    """Yield a problem for each error that `model` found in what stands at `at`."""
    for fault in error.errors(include_url=False, include_input=False):
        loc = keys_of(fault["loc"])
        if fault["loc"][-1:] == (_KEY,):
            yield at.under(loc).problem(
                f"the key {str(loc[-1])!r}: {_KEY_FAULTS.get(fault['type'], fault['msg'])}", at_key=True
            )
            continue
        yield _explain(fault["type"], fault.get("ctx", {}), fault["msg"], at.under(loc), _keys(model, loc))


def keys_of(loc: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps of a fault that stand in the file, without what pydantic says of its own alternatives."""
    return tuple(step for step in loc if step not in _ASIDE)


def _explain(kind: str, ctx: Mapping[str, Any], said: str, at: At, keys: Mapping[str, str]) -> Problem:
    name = str(at.steps[-1]) if at.steps else ""
    match kind:
        case "extra_forbidden":
            message = refusal(at.steps) or f"unknown key {name!r}.{nearest(name, keys, label='Keys')}"
            return at.problem(message, at_key=True)
        case "missing":
            return at.problem(f"the key {name!r} is missing{': ' + keys[name] if keys.get(name) else ''}")
        case "literal_error" | "enum":
            return at.problem(_choice(at, _QUOTED.findall(str(ctx.get("expected", "")))))
        case "not_yet":
            return at.problem(refusal(at.steps, said) or f"expected `python:module:function`, not {at.shown}")
        case "definition" | "one_key" | "null":
            return at.problem(said)
        case _ if kind in _EXPECTED:
            return at.problem(f"expected {_EXPECTED[kind]}, not {at.shown}")
        case _ if kind in _COMPARED:
            words, bound = _COMPARED[kind]
            return at.problem(f"must be {words} {ctx[bound]:g}, not {at.shown}")
        case "string_pattern_mismatch":
            return at.problem(f"expected text of the form {ctx['pattern']}, not {at.shown}")
        case "string_too_short":
            return at.problem("may not be empty")
        case "value_error":
            return at.problem(str(ctx["error"]))
        case _:
            return at.problem(f"{said}, not {at.shown}")


def _choice(at: At, choices: list[str]) -> str:
    near = nearest_one(at.text, choices)
    unknown = f"{at.shown} is none of {', '.join(choices)}." + (f" Did you mean {near!r}?" if near else "")
    return refusal(at.steps, at.text) or unknown


def _keys(model: type[BaseModel], loc: tuple[Step, ...]) -> Mapping[str, str]:
    """Return the keys, with what they are for, of the mapping that holds the last step of `loc`."""
    here: set[type[BaseModel]] = {model}
    for step in loc[:-1]:
        annotations = [
            field.annotation
            for form in here
            for name, field in form.model_fields.items()
            if (field.alias or name) == step
        ]
        # An index, a chosen name or the tag of a union leads to no other form.
        here = {form for annotation in annotations for form in _forms(annotation)} if annotations else here
    return {
        field.alias or name: (field.description or "").split(". ")[0].rstrip(".")
        for form in sorted(here, key=lambda form: form.__name__)
        for name, field in form.model_fields.items()
    }


def _forms(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the forms that an annotation is made of."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _forms(part)


class Report:
    """The problems of one load, as they are found. At one place only the first counts: the rest follows from it."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Problem] = {}

    def add(self, *problems: Problem) -> None:
        for problem in problems:
            self._found.setdefault((problem.where or problem.message, problem.path), problem)

    def __bool__(self) -> bool:
        return bool(self._found)

    def sorted(self, files: Iterable[Path], secrets: Mapping[str, Secret]) -> list[Problem]:
        """Return the problems by file, in the order of `files`, and by line; without any secret."""
        order = {str(file): index for index, file in enumerate(files)}
        redactor = Redactor(secrets.values())

        def key(problem: Problem) -> tuple[int, str, int, int]:
            file, line, column = _split(problem.where)
            return order.get(file, len(order)), file, line, column

        return [
            Problem(where=problem.where, path=problem.path, message=redactor.text(problem.message))
            for problem in sorted(self._found.values(), key=key)
        ]


def _split(where: str) -> tuple[str, int, int]:
    """Split `file:line:column`, `module:line` or a bare file."""
    numbers: list[int] = []
    rest = where
    while len(numbers) < 2 and rest.rpartition(":")[2].isdigit():
        rest, _, digits = rest.rpartition(":")
        numbers.insert(0, int(digits))
    line, column = (*numbers, 0, 0)[:2]
    return rest, line, column
