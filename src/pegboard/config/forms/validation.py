"""Validation: what a file says against the form for it. Unknown keys, missing ones and wrong values are refused here.

Each problem stands at its place in the file, in words that say what would be right.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from pegboard.config.forms.value_types import FLAG, MAPPING, TEXT
from pegboard.config.yaml.problems import Report
from pegboard.config.yaml.tree import At, Step
from pegboard.core.names import nearest, nearest_one
from pegboard.model.error import Problem
from pegboard.model.json_types import JSON, is_object

M = TypeVar("M", bound=BaseModel)
Refusal: TypeAlias = Callable[[Sequence[Step], str | None], str | None]
"""Tells why a key, or one value of it, is refused although it is documented; `None` where it is not."""

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
# What others call the same thing.
_OTHER_WORDS = {
    "exclude": "deny",
    "streamable-http": "http",
    "streamablehttp": "http",
}
_KEY = "[key]"
_KEY_FAULTS = {"string_too_short": "may not be empty"}
_ASIDE = frozenset({_KEY, MAPPING, TEXT, FLAG})
_QUOTED = re.compile(r"'([^']*)'")


def _nothing_refused(_steps: Sequence[Step], _value: str | None) -> None:
    return None


def validated(model: type[M], plain: Any, at: At, *, report: Report, refusal: Refusal = _nothing_refused) -> M | None:
    """Return the form of `plain`, and report its faults.

    Where it has any, the faulty keys are left out, then the entries that hold them, so that the rest is checked
    too; `None` where nothing remains.
    """
    try:
        return model.model_validate(plain)
    except ValidationError as error:
        report.add(*explain(error, at, model, refusal=refusal))
        faults = [_keys_of(fault["loc"]) for fault in error.errors()]
    for depth in (3, 2, 1) if is_object(plain) else ():
        for steps in faults:
            _drop(plain, steps[:depth])
        with suppress(ValidationError):
            return model.model_validate(plain)
    return None


def _drop(plain: JSON, steps: tuple[Step, ...]) -> None:
    """Take away what stands at `steps`; a list as a whole, as what comes after would move up."""
    for position, step in enumerate(steps):
        inner = plain.get(str(step))
        if position == len(steps) - 1 or not is_object(inner):
            plain.pop(str(step), None)
            return
        plain = inner


def explain(
    error: ValidationError, at: At, model: type[BaseModel], *, refusal: Refusal = _nothing_refused
) -> Iterator[Problem]:
    """Yield a problem for each error that `model` found in what stands at `at`."""
    for fault in error.errors(include_url=False, include_input=False):
        loc = _keys_of(fault["loc"])
        if fault["loc"][-1:] == (_KEY,):
            yield at.under(loc).problem(
                f"the key {str(loc[-1])!r}: {_KEY_FAULTS.get(fault['type'], fault['msg'])}", at_key=True
            )
            continue
        here = at.under(loc)
        documented = _documented(fault["type"], fault["msg"], here, refusal)
        yield documented or _explain(fault["type"], fault.get("ctx", {}), fault["msg"], here, _keys(model, loc))


def _keys_of(loc: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps of a fault that stand in the file, without what pydantic says of its own alternatives."""
    return tuple(step for step in loc if step not in _ASIDE)


def _documented(kind: str, message: str, at: At, refusal: Refusal) -> Problem | None:
    """Return the problem of a key or a value that is documented and not supported."""
    match kind:
        case "extra_forbidden":
            value = None
        case "not_yet":
            value = message
        case "literal_error" | "enum":
            value = at.text
        case _:
            return None
    reason = refusal(at.steps, value)
    return None if reason is None else at.problem(reason, at_key=value is None)


def _explain(kind: str, ctx: Mapping[str, Any], message: str, at: At, keys: Mapping[str, str]) -> Problem:
    name = str(at.steps[-1]) if at.steps else ""
    match kind:
        case "extra_forbidden":
            return at.problem(f"unknown key {name!r}.{_meant_key(name, keys)}", at_key=True)
        case "missing":
            return at.problem(f"the key {name!r} is missing{': ' + keys[name] if keys.get(name) else ''}")
        case "literal_error" | "enum":
            return at.problem(_choice(at, _QUOTED.findall(str(ctx.get("expected", "")))))
        case "not_yet":
            return at.problem(f"expected `python:module:function`, not {at.shown}")
        case "definition" | "one_key" | "null":
            return at.problem(message)
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
            return at.problem(f"{message}, not {at.shown}")


def _meant_key(name: str, keys: Mapping[str, str]) -> str:
    other = _OTHER_WORDS.get(name.casefold())
    return f" Did you mean {other!r}?" if other in keys else nearest(name, keys, label="Keys")


def _choice(at: At, choices: list[str]) -> str:
    other = _OTHER_WORDS.get(at.text.casefold().replace("_", "-"))
    near = other if other in choices else nearest_one(at.text, choices)
    return f"{at.shown} is none of {', '.join(choices)}." + (f" Did you mean {near!r}?" if near else "")


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
