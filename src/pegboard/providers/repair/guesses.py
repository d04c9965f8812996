"""Guesses: possible corrections of a faulty value, for each kind of fault."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal, NamedTuple

import jsonschema_rs

from pegboard.core.schema import Compiled, json_path
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.providers.repair.argument_keys import meant
from pegboard.providers.repair.text_forms import NotJSON, looks_structured, unfenced, value_in

GUESSED_KEYS = 50  # keys of one object that are compared with its properties

Kind = jsonschema_rs.ValidationErrorKind
Steps = list[str | int]
What = Literal[
    "json_in_text",
    "number_in_text",
    "boolean_in_text",
    "null_in_text",
    "code_fence",
    "single_value",
    "letter_case",
    "key_name",
    "null_for_absent",
]


class Repair(NamedTuple):
    """A correction and its place; the path is in the corrected arguments."""

    path: str
    repair: What


class Guess(NamedTuple):
    """Changed arguments and the place of the change. `is_careful`: they may cause no new faults, not even inside."""

    args: JSON
    steps: Steps
    repair: Repair
    is_careful: bool = False


def guesses(error: Any, args: JSON, compiled: Compiled, aliases: Mapping[str, str]) -> Iterator[Guess]:
    """Yield possible corrections for one fault of the arguments, likeliest first."""
    steps: Steps = list(error.instance_path)
    value = _at(args, steps)
    match error.kind:
        case Kind.Type(types=types):
            yield from _retyped(value, types, args, steps)
        case Kind.Enum(options=options):
            yield from _listed(value, options, args, steps)
        case Kind.Constant(expected_value=only):
            yield from _listed(value, [only], args, steps)
        case Kind.Required(property=name):
            own = _declared(error, compiled)
            strays = [key for key in islice(value, GUESSED_KEYS) if key not in own]
            stray = meant(name, strays)
            if stray is not None:
                yield _renamed(args, steps, stray, name)
        case Kind.AdditionalProperties(unexpected=names) | Kind.UnevaluatedProperties(unexpected=names):
            own = _declared(error, compiled)
            known = {name: name for name in own} | ({} if steps else dict(aliases))
            for key in names[:GUESSED_KEYS]:
                near = meant(key, known)
                if near is not None and known[near] not in value:
                    yield _renamed(args, steps, key, known[near])
        case _:
            pass
    if value is None and steps and isinstance(steps[-1], str):
        yield _removed(args, steps)


def _retyped(value: JSONValue, types: list[str], args: JSON, steps: Steps) -> Iterator[Guess]:
    if isinstance(value, str):
        parsed = value_in(value)
        if parsed is not NotJSON and _fits(parsed, types):
            yield _put(args, steps, parsed, _guess_name(value, parsed))
        if unfenced(value) == value and looks_structured(value):
            # Broken JSON is not wrapped as a single value of a list.
            return
    if "array" in types and value is not None and not is_list(value):
        yield _put(args, steps, [value], "single_value")


def _guess_name(text: str, parsed: JSONValue) -> What:
    if unfenced(text) != text:
        return "code_fence"
    if is_object(parsed) or is_list(parsed):
        return "json_in_text"
    if parsed is None:
        return "null_in_text"
    return "boolean_in_text" if isinstance(parsed, bool) else "number_in_text"


def _fits(value: JSONValue, types: list[str]) -> bool:
    match value:
        case None:
            return "null" in types
        case bool():
            return "boolean" in types
        case int():
            return "integer" in types or "number" in types
        case float():
            return "number" in types
        case list():
            return "array" in types
        case dict():
            return "object" in types
        case _:
            return False


def _listed(value: JSONValue, options: list[Any], args: JSON, steps: Steps) -> Iterator[Guess]:
    if not isinstance(value, str):
        return
    texts = [option for option in options if isinstance(option, str)]
    same = [option for option in texts if _letters(option) == _letters(value)]
    if len(same) == 1:
        yield _put(args, steps, same[0], "letter_case")
    parsed = value_in(value)
    for option in options:
        if option == parsed and type(option) is type(parsed) and not isinstance(option, str):
            yield _put(args, steps, option, _guess_name(value, option))


def _letters(text: str) -> str:
    return "".join(letter for letter in text.casefold() if letter not in " _-").strip()


def _declared(error: Any, compiled: Compiled) -> set[str]:
    """Return the properties in the schema of a faulty object."""
    holder: Any = compiled.schema
    for step in error.schema_path[:-1]:
        holder = holder[step] if is_object(holder) and step in holder else holder[int(step)] if is_list(holder) else {}
    names: set[str] = set()
    stack: list[JSONValue] = [holder]
    while stack:
        item = stack.pop()
        if is_object(item):
            names.update(item.get("properties") or ())
            stack.extend(part for key in ("allOf", "anyOf", "oneOf") for part in item.get(key) or ())
    return names


# ---------------------------------------------------------------- changed copies


def _at(args: JSON, steps: Steps) -> Any:
    value: Any = args
    for step in steps:
        value = value[step]
    return value


def _put(args: JSON, steps: Steps, value: JSONValue, what: What) -> Guess:
    changed = value
    if steps:
        changed = copy.deepcopy(args)
        _at(changed, steps[:-1])[steps[-1]] = value
    return Guess(changed, steps, Repair(json_path(steps), what))


def _renamed(args: JSON, steps: Steps, key: str, name: str) -> Guess:
    changed = copy.deepcopy(args)
    holder: JSON = _at(changed, steps)
    # In its old place among the other keys.
    entries = [(name if old == key else old, value) for old, value in holder.items()]
    holder.clear()
    holder.update(entries)
    return Guess(changed, [*steps, name], Repair(json_path([*steps, name]), "key_name"))


def _removed(args: JSON, steps: Steps) -> Guess:
    changed = copy.deepcopy(args)
    del _at(changed, steps[:-1])[steps[-1]]
    return Guess(changed, steps, Repair(json_path(steps), "null_for_absent"), is_careful=True)
