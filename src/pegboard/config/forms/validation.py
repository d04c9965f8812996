"""Validation: check the contents of a file against its form. Refuses unknown and missing keys and wrong values.

Each problem has its place in the file, and says what would be right.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from pegboard.config.forms.value_types import FLAG, MAPPING, NUMBER, TEXT
from pegboard.config.yaml.problems import Report
from pegboard.config.yaml.tree import At, Scalar, Step
from pegboard.core.names import nearest_one
from pegboard.model.error import Problem
from pegboard.model.json_types import JSON, is_object

M = TypeVar("M", bound=BaseModel)
Refusal: TypeAlias = Callable[[Sequence[Step], str | None], str | None]
"""Returns why a documented key, or one value of it, is not supported; `None` if it is."""

# The expected values, by the type of pydantic's error.
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
# Other programs' words for our values.
_OTHER_WORDS = {
    "exclude": "deny",
    "streamable-http": "http",
    "streamablehttp": "http",
    "timeout": "timeout_seconds",
}
_OF_OTHER_FILES = {
    "mcpservers": "This is the form of MCP clients: `pegboard import FILE` converts it.",
}
# The keys of a nested mapping are listed only if there are at most this many; those of the top level always are.
_LISTED_KEYS = 12
_KEY_CHARS = 80
_UNKNOWN_SHOWN = 20  # unknown keys of one mapping that are listed in a problem
_PLAIN = re.compile(r"[\w.*/-]{1,40}")  # text that may be written in a list without quotes
_KEY = "[key]"
_KEY_FAULTS = {"string_too_short": "may not be empty"}
_ASIDE = frozenset({_KEY, MAPPING, TEXT, FLAG, NUMBER})
_QUOTED = re.compile(r"'([^']*)'")


def _nothing_refused(_steps: Sequence[Step], _value: str | None) -> None:
    return None


def validated(model: type[M], plain: Any, at: At, *, report: Report, refusal: Refusal = _nothing_refused) -> M | None:
    """Return the form of `plain`, and report its faults.

    If there are faults, the faulty keys are left out, then the entries that contain them, so that the rest is checked
    as well. Returns `None` if nothing valid remains.
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
    """Remove the value at `steps`. A value in a list is removed with the list, since later items would move up."""
    for position, step in enumerate(steps):
        inner = plain.get(str(step))
        if position == len(steps) - 1 or not is_object(inner):
            plain.pop(str(step), None)
            return
        plain = inner


def explain(
    error: ValidationError, at: At, model: type[BaseModel], *, refusal: Refusal = _nothing_refused
) -> Iterator[Problem]:
    """Yield a problem for each error of `model` in the value at `at`."""
    faults = error.errors(include_url=False, include_input=False)
    misspelled = {
        (loc[:-1], suggestion)
        for fault in faults
        if fault["type"] == "extra_forbidden" and (loc := _keys_of(fault["loc"]))
        if (suggestion := _nearest_key(str(loc[-1]), _keys(model, loc))) is not None
    }
    unknown: dict[tuple[Step, ...], list[str]] = {}
    for fault in faults:
        loc = _keys_of(fault["loc"])
        # A missing key that is misspelled is reported once, as misspelled.
        if fault["type"] == "missing" and loc and (loc[:-1], loc[-1]) in misspelled:
            continue
        if fault["loc"][-1:] == (_KEY,):
            yield at.under(loc).problem(
                f"the key {str(loc[-1])!r}: {_KEY_FAULTS.get(fault['type'], fault['msg'])}", at_key=True
            )
            continue
        here = at.under(loc)
        documented = _documented(fault["type"], here, refusal)
        if documented is None and fault["type"] == "extra_forbidden":
            name, holders = str(loc[-1]), _holders(model, loc)
            if (hint := _hint(name, holders)) is None:
                unknown.setdefault(loc[:-1], []).append(name)
            else:
                yield here.problem(f"unknown key {name[:_KEY_CHARS]!r}. {hint}", at_key=True)
        else:
            yield documented or _explain(fault["type"], fault.get("ctx", {}), fault["msg"], here, _keys(model, loc))
    for parent, names in unknown.items():
        keys = _keys(model, (*parent, names[0]))
        lists_all = not parent or len(keys) <= _LISTED_KEYS
        yield at.under((*parent, names[0])).problem(_unknown_keys(names, keys, lists_all=lists_all), at_key=True)


def unknown_top_level(names: Iterable[str], at: At, model: type[BaseModel]) -> Iterator[Problem]:
    """Yield the problems of a file with only unknown keys: one for each key with a hint, one for all others."""
    hints = {name: _hint(name, [model]) for name in names}
    for name, hint in hints.items():
        if hint is not None:
            yield (at / name).problem(f"unknown key {name[:_KEY_CHARS]!r}. {hint}", at_key=True)
    if unknown := [name for name, hint in hints.items() if hint is None]:
        yield (at / unknown[0]).problem(_unknown_keys(unknown, _keys_of_forms([model]), lists_all=True), at_key=True)


def _keys_of(loc: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps of a fault that are in the file, without pydantic's names of union alternatives."""
    return tuple(step for step in loc if step not in _ASIDE)


def _documented(kind: str, at: At, refusal: Refusal) -> Problem | None:
    """Return the problem of a documented key or value that is not supported."""
    match kind:
        case "extra_forbidden":
            value = None
        case "literal_error" | "enum":
            value = at.text
        case _:
            return None
    reason = refusal(at.steps, value)
    return None if reason is None else at.problem(reason, at_key=value is None)


def _explain(kind: str, ctx: Mapping[str, Any], message: str, at: At, keys: Mapping[str, str]) -> Problem:
    name = str(at.steps[-1]) if at.steps else ""
    match kind:
        case "missing":
            return at.problem(f"the key {name!r} is missing{': ' + keys[name] if keys.get(name) else ''}")
        case "literal_error" | "enum":
            return at.problem(_choice(at, _QUOTED.findall(str(ctx.get("expected", "")))))
        case "definition" | "one_key" | "null":
            return at.problem(message)
        case _ if kind in _EXPECTED:
            return at.problem(f"expected {_EXPECTED[kind]}, not {at.shown}{_as_list(kind, at)}{_in_quotes(kind, at)}")
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


def _nearest_key(name: str, keys: Mapping[str, str]) -> str | None:
    other = _OTHER_WORDS.get(name.casefold())
    return other if other in keys else nearest_one(name, sorted(keys))


def _as_list(kind: str, at: At) -> str:
    """Return a hint for a single value where a list is expected; empty for any other value."""
    is_single = kind in ("tuple_type", "list_type") and isinstance(at.node, Scalar) and isinstance(at.node.value, str)
    if not is_single or not _PLAIN.fullmatch(at.text):
        return ""
    return f"; for a single entry write `{at.steps[-1]}: [{at.text}]`"


def _in_quotes(kind: str, at: At) -> str:
    """Return a hint for a number, date or flag where text is expected; empty for any other value."""
    is_plain = isinstance(at.node, Scalar) and _PLAIN.fullmatch(at.text) and at.text in at.shown
    if kind != "string_type" or not is_plain:
        return ""
    return f'; put it in quotes: "{at.text}"'


def _unknown_keys(names: Sequence[str], keys: Mapping[str, str], *, lists_all: bool) -> str:
    """Return the problem of keys that resemble none of the known ones."""
    shown = ", ".join(repr(name[:_KEY_CHARS]) for name in names[:_UNKNOWN_SHOWN])
    more = f" and {len(names) - _UNKNOWN_SHOWN} more" if len(names) > _UNKNOWN_SHOWN else ""
    known = f"Keys: {', '.join(sorted(keys)) or 'none'}."
    if not lists_all:
        known = f"There are {len(keys)}; `pegboard schema` describes them."
    return f"unknown key{'s' if len(names) > 1 else ''} {shown}{more}. {known}"


def _hint(name: str, holders: Iterable[type[BaseModel]]) -> str | None:
    """Return a hint for an unknown key; `None` if it resembles none of the known ones."""
    keys = _keys_of_forms(holders)
    if (elsewhere := _OF_OTHER_FILES.get(re.sub("[_-]", "", name.casefold()))) is not None:
        return elsewhere
    if (suggestion := _nearest_key(name, keys)) is not None:
        return f"Did you mean {suggestion!r}?"
    if (place := _one_level_deeper(name, holders)) is not None:
        key, inner = place
        if inner == name:
            return f"It belongs under `{key}:`; write `{key}: {{{name}: …}}`."
        return f"Did you mean {inner!r}, which belongs under `{key}:`?"
    if "config" in keys:
        return "Settings of a built-in are under `config:`; `pegboard schema` describes all keys."
    return None


def _one_level_deeper(name: str, holders: Iterable[type[BaseModel]]) -> tuple[str, str] | None:
    """Return the section that has the most similar key, and that key."""
    places = {
        inner: field.alias or outer
        for form in holders
        for outer, field in form.model_fields.items()
        if not _is_of_many(field.annotation)
        for inner in _keys_of_forms(_forms(field.annotation))
    }
    suggestion = _nearest_key(name, dict.fromkeys(places, ""))
    return None if suggestion is None else (places[suggestion], suggestion)


def _choice(at: At, choices: list[str]) -> str:
    other = _OTHER_WORDS.get(at.text.casefold().replace("_", "-"))
    near = other if other in choices else nearest_one(at.text, choices)
    return f"{at.shown} is not one of {', '.join(choices)}." + (f" Did you mean {near!r}?" if near else "")


def _keys(model: type[BaseModel], loc: tuple[Step, ...]) -> Mapping[str, str]:
    """Return the keys, with their descriptions, of the mapping that holds the last step of `loc`."""
    return _keys_of_forms(_holders(model, loc))


def _holders(model: type[BaseModel], loc: tuple[Step, ...]) -> list[type[BaseModel]]:
    """Return the forms of the mapping that holds the last step of `loc`."""
    here: set[type[BaseModel]] = {model}
    for step in loc[:-1]:
        annotations = [
            field.annotation
            for form in here
            for name, field in form.model_fields.items()
            if (field.alias or name) == step
        ]
        # Indexes, chosen names and union tags lead to no other form.
        here = {form for annotation in annotations for form in _forms(annotation)} if annotations else here
    return sorted(here, key=lambda form: form.__name__)


def _keys_of_forms(forms: Iterable[type[BaseModel]]) -> Mapping[str, str]:
    return {
        field.alias or name: (field.description or "").split(". ")[0].rstrip(".")
        for form in forms
        for name, field in form.model_fields.items()
    }


def _is_of_many(annotation: Any) -> bool:
    """Tell whether an annotation contains a list or a mapping of arbitrary items."""
    origin = typing.get_origin(annotation)
    if inspect.isclass(origin) and issubclass(origin, Mapping | Sequence):
        return True
    return any(map(_is_of_many, typing.get_args(annotation)))


def _forms(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the forms that an annotation contains."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _forms(part)
