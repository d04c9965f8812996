"""Schema: validates JSON against a schema, strictly, within bounds, and without network access."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from heapq import nsmallest
from itertools import islice
from typing import Any, NamedTuple

import jsonschema_rs

from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.digests import quick_digest
from pegboard.core.json_text import is_written_within
from pegboard.core.limits import PATTERN_STEPS
from pegboard.core.names import MAX_NAME_CHARS, fold, nearest_one
from pegboard.core.pattern_lengths import with_pattern_lengths
from pegboard.core.schema_cost import (
    ALTERNATIVE_RULES,
    BOUND_RULES,
    COSTLY_RULES,
    MULTIPLYING_RULES,
    SchemaCost,
    is_machine_number,
    size_of,
)
from pegboard.model.bounds import DEFAULT_BOUNDS, MIB, Bounds
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

NAMES_MEANT = 3  # unknown arguments that get a suggestion
PROPERTIES_COUNTED = 200  # properties that are compared by their letters
PROPERTIES_COMPARED = 5  # most similar properties that are then compared exactly
SCHEMAS_REMEMBERED = 20_000  # compiled schemas in the cache
SCHEMA_PATTERN_BYTES = 4 * MIB  # memory of one compiled regular expression
SCHEMA_VALUES = 20_000  # values in one schema: names, options and everything else
LONG_DIGITS = 50_000  # digits of all numbers beyond 64 bits in one value
COPIED_VALUES = 10_000  # values that an engine error may copy
SHOWN_OPTIONS = 20  # options of an enum shown in an error
PROBLEMS = 50  # problems reported for one set of arguments

# Linear time first; patterns that need look-around run with a step limit instead.
_LINEAR = jsonschema_rs.RegexOptions(size_limit=SCHEMA_PATTERN_BYTES)
_BACKTRACKING = jsonschema_rs.FancyRegexOptions(backtrack_limit=PATTERN_STEPS, size_limit=SCHEMA_PATTERN_BYTES)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The types that CPython compares fastest.
_LEAST, _MOST = -(1 << 30) + 1, (1 << 30) - 1
_BEYOND, _BEYOND_DIGITS = 1 << 63, 20
_SHORT = frozenset({int, bool, float})
_SHARED = frozenset({str, int, bool, float, type(None)})
NO_ARGUMENT = "is not an argument here"
_VALUE_CHARS = 80  # characters of a value in an error


class ArgumentProblem(NamedTuple):
    """One fault in a value: `$.path`, the schema rule, a sentence, and the value cut to 80 characters."""

    path: str
    rule: str
    message: str
    value: str


class Compiled:
    """A schema ready to validate: its validator, the defaults of its properties, and the cost of validating.

    No check blocks the event loop for long: `is_valid` raises `CallError` of kind `schema_too_complex` instead.
    """

    __slots__ = ("_cost", "_has_alternatives", "_max_steps", "_validator", "defaults", "is_valid", "schema")

    def __init__(
        self, schema: JSON, validator: Any, rules: frozenset[str], cost: SchemaCost | None, *, max_steps: int
    ) -> None:
        self.schema = schema
        self._max_steps = max_steps
        self._validator = validator
        self._cost = cost
        self._has_alternatives = not ALTERNATIVE_RULES.isdisjoint(rules)
        # Plain schemas need no cost check; others are examined when they are first used.
        self.is_valid: Callable[[JSONValue], bool] = self._counted_valid if rules else validator.is_valid
        properties = schema.get("properties")
        self.defaults: tuple[tuple[str, JSONValue], ...] = tuple(
            (name, inner["default"])
            for name, inner in (properties.items() if is_object(properties) else ())
            if is_object(inner) and "default" in inner
        )

    def _counted_valid(self, value: JSONValue) -> bool:
        cost = self._cost_counted()
        # Most values are so short that the cost cannot matter; serialising them is fifty times as fast as counting.
        if not is_written_within(value, cost.uncounted_bytes):
            cost.hold(value)
        return self._validator.is_valid(value)

    def _cost_counted(self) -> SchemaCost:
        if self._cost is None:
            self._cost = SchemaCost(self.schema, max_steps=self._max_steps)
        return self._cost

    def with_defaults(self, args: JSON) -> JSON:
        """Return `args` with the top-level defaults that are missing; containers are copied."""
        for name, value in self.defaults:
            if name not in args:
                args = {**args, name: copied(value)}
        return args

    def explaining_steps(self, value: JSONValue) -> int:
        """Return an upper bound for the steps of `errors`; if it exceeds `schema_steps`, do not call `errors`."""
        return self._cost_counted().explaining_steps(value)

    def errors(self, value: JSONValue) -> list[Any]:
        """Return every error of the engine for a value; check `explaining_steps` first."""
        return list(self._validator.iter_errors(value))

    def _first_error(self, value: JSONValue) -> list[Any]:
        """Return only the first error; nothing if even that takes too long, since an error copies the value."""
        if self._has_alternatives or size_of(value, at_most=COPIED_VALUES).values > COPIED_VALUES:
            return []
        found: list[Any] = []
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            found.append(error)
        return found

    def problems(self, value: JSONValue) -> list[ArgumentProblem]:
        """Return at most the first 50 faults of a value.

        If finding all of them takes too long, return only the first one, or the obvious ones at the top level.
        """
        found: list[ArgumentProblem] = []
        left = [NAMES_MEANT]
        is_too_long = self.explaining_steps(value) > self._max_steps
        if is_too_long and self.is_valid(value):
            return []
        for error in self._first_error(value) if is_too_long else self.errors(value):
            found.extend(_explain(error, self.schema, left))
            if len(found) >= PROBLEMS:
                break
        return _plain_problems(self.schema, value) if is_too_long and not found else found[:PROBLEMS]


_compiled = BoundedCache[tuple[str | None, int, int, int], Compiled](max_entries=SCHEMAS_REMEMBERED)


def _refuse(uri: str) -> JSONValue:
    raise ValueError(f"{uri!r} is outside this schema, and Pegboard fetches no schema: put it under $defs")


def compile_schema(schema: JSON | bool, *, bounds: Bounds = DEFAULT_BOUNDS) -> Compiled:
    """Return the validator for a JSON Schema 2020-12; equal schemas share one.

    Raises:
        CallError: `schema_too_complex`, if it is deeper or larger than the bounds.
        DefinitionError: it is not a valid schema, or refers to something outside itself.
    """
    whole: JSON = schema if isinstance(schema, dict) else {"allOf": [schema]}
    # A schema that was accepted under these bounds is accepted again: checking every part takes most of the time.
    hashed = quick_digest(whole)
    key = (hashed, bounds.schema_depth, bounds.subschemas, bounds.schema_steps)
    cached = _compiled.get(key)
    if cached is not None:
        return cached
    rules = check_schema_size(whole, bounds=bounds)
    if "pattern" in rules:
        whole = with_pattern_lengths(whole)
    # Before compiling, which takes time as well.
    cost = SchemaCost(whole, max_steps=bounds.schema_steps) if rules & MULTIPLYING_RULES else None
    compiled = Compiled(whole, _validator(whole), rules, cost, max_steps=bounds.schema_steps)
    return compiled if hashed is None else _compiled.remember(key, compiled)


def _validator(schema: JSON) -> Any:
    fault: Exception | None = None
    for options in (_LINEAR, _BACKTRACKING):
        try:
            return jsonschema_rs.Draft202012Validator(
                schema, validate_formats=True, retriever=_refuse, pattern_options=options, mask="the value"
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            fault = error
    raise DefinitionError(f"Invalid JSON Schema: {_place_of(fault)}{_first_line(fault)}") from fault


def _place_of(fault: Exception | None) -> str:
    """Return where a schema is at fault; empty if the engine does not say.

    The value is left out: a pattern may have been rewritten with its lengths.
    """
    place = fault.instance_path if isinstance(fault, jsonschema_rs.ValidationError) else []
    return f"{json_path(place)}: " if place else ""


def _first_line(error: object) -> str:
    return (str(error).splitlines() or [""])[0][:300]


def check_schema_size(schema: JSONValue, *, bounds: Bounds) -> frozenset[str]:
    """Refuse schemas that are too large: deeper than `schema_depth`, too many subschemas, or too many other values.

    Also refuses integers that JSON readers round. Returns the rules that may make validating slow.

    Raises:
        CallError: `schema_too_complex`.
    """
    count = values = depth = 0
    rules: frozenset[str] = frozenset()
    level: list[JSONValue] = [schema] if isinstance(schema, dict | list) else []
    while level:
        depth += 1
        below: list[JSONValue] = []
        for value in level:
            inside: Collection[JSONValue] = value
            if is_object(value):
                count += 1
                inside = value.values()
                if not COSTLY_RULES.isdisjoint(value):
                    rules |= COSTLY_RULES & value.keys()
                if not BOUND_RULES.isdisjoint(value):
                    rules |= {rule for rule in BOUND_RULES & value.keys() if not is_machine_number(value[rule])}
                # A subschema of an object is two JSON levels down: `properties`, then the name.
                if depth > 2 * bounds.schema_depth:
                    text = f"The schema is more than {bounds.schema_depth} levels deep (`limits.schema_depth`)."
                    raise CallError("schema_too_complex", text)
            values += len(inside)
            if values > SCHEMA_VALUES:
                raise CallError("schema_too_complex", f"The schema has more than {SCHEMA_VALUES:,} values.")
            for inner in inside:
                # Most are texts; only containers are put on the stack.
                if type(inner) is str:
                    continue
                if isinstance(inner, dict | list):
                    below.append(inner)
                elif isinstance(inner, int) and not -(1 << 64) <= 2 * inner < 1 << 65:
                    raise CallError("schema_too_complex", "The schema has an integer of more than 64 bits.")
        if count > 2 * bounds.subschemas:
            text = f"The schema has more than {bounds.subschemas} subschemas (`limits.subschemas`)."
            raise CallError("schema_too_complex", text)
        level = below
    return rules


# ---------------------------------------------------------------- values


def check_bounds(value: JSONValue, *, bounds: Bounds = DEFAULT_BOUNDS) -> None:
    """Refuse values that no validator should see: too deep or large, huge integers, NaN, keys that are not strings.

    Does not recurse, and stops at the first fault.

    Raises:
        CallError: `invalid_arguments`.
    """
    _walk_within(value, bounds, is_copied=False)


def bounded_copy(value: JSONValue, *, bounds: Bounds = DEFAULT_BOUNDS) -> Any:
    """Check a value as `check_bounds` does, and return a copy that shares nothing mutable with it.

    Raises:
        CallError: see `check_bounds`.
    """
    return _walk_within(value, bounds, is_copied=True)


def _walk_within(value: JSONValue, bounds: Bounds, *, is_copied: bool) -> Any:
    values = long_digits = 0
    result: list[Any] = [value]
    # The containers still to visit: the original, its copy in the parent, the place there, and the level.
    stack: list[tuple[Any, Any, Any, int]] = [(value, result, 0, 1)]
    while stack:
        item, holder, place, depth = stack.pop()
        kind = type(item)  # pyright: ignore[reportUnknownVariableType] - any JSON
        if kind is dict or kind is list:
            _check_container(item, depth, bounds)
            values += len(item)
            if values > bounds.json_values:
                raise _refused(f"they have more than {bounds.json_values} values in all (`limits.json_values`)")
            copy = item
            if is_copied:
                copy = holder[place] = item.copy()
            for at, inner in item.items() if kind is dict else enumerate(item):
                kind = type(inner)  # pyright: ignore[reportUnknownVariableType] - any JSON
                # Most are short scalars; only the rest is put on the stack.
                if kind is not str and inner is not None and not (kind in _SHORT and _LEAST < inner < _MOST):
                    stack.append((inner, copy, at, depth + 1))
        elif kind is int:
            # A digit has slightly more than 3.32 bits: below that, no power needs to be computed.
            if item.bit_length() > bounds.integer_digits * 3.32 and abs(item) >= 10**bounds.integer_digits:
                raise _refused(f"an integer has more than {bounds.integer_digits} digits (`limits.integer_digits`)")
            if not -_BEYOND < item < _BEYOND:
                long_digits += item.bit_length() // 3
        elif kind is float:
            if not math.isfinite(item):
                raise _refused(f"{item!r} is not a JSON number")
            if not -_BEYOND < item < _BEYOND:
                long_digits += _BEYOND_DIGITS
        elif not (kind is str or kind is bool or item is None):
            # Exact types only: the validator does not accept subclasses of str or int.
            raise _refused(f"a {kind.__name__} is not a JSON value")
        if long_digits > LONG_DIGITS:
            raise _refused(f"their numbers beyond 64 bits have more than {LONG_DIGITS} digits in all")
    return result[0]


def is_small(value: JSON) -> bool:
    """Tell whether an object needs no further check: it has only a few short scalars, as most arguments do."""
    if len(value) > 64:  # larger objects are checked in full
        return False
    for key, item in value.items():
        if type(key) is not str:
            return False
        kind = type(item)  # pyright: ignore[reportUnknownVariableType] - any JSON
        if kind is not str and item is not None and not (kind in _SHORT and _LEAST < item < _MOST):
            return False
    return True


def _check_container(item: dict[object, object] | list[object], depth: int, bounds: Bounds) -> None:
    if depth > bounds.json_depth:
        raise _refused(f"they are nested more than {bounds.json_depth} levels deep (`limits.json_depth`)")
    if type(item) is dict:
        if len(item) > bounds.object_keys:
            raise _refused(f"an object has {len(item)} keys, more than {bounds.object_keys} (`limits.object_keys`)")
        for key in item:
            if type(key) is not str:
                raise _refused(f"the key {key!r} is not a string")


def refused_arguments(text: str, rule: str, *, path: str = "$", value: JSONValue = None) -> CallError:
    """Return the error for arguments with a single problem."""
    problem = ArgumentProblem(path, rule, text, shown(value))
    return CallError("invalid_arguments", text, details={"problems": [problem._asdict()]})


def copied(value: Any) -> Any:
    """Return a copy of a JSON value that shares nothing mutable with it."""
    if is_object(value):
        for item in value.values():
            if type(item) not in _SHARED:
                return {name: item if type(item) in _SHARED else copied(item) for name, item in value.items()}
        return {**value}
    return [item if type(item) in _SHARED else copied(item) for item in value] if is_list(value) else value


def _refused(what: str) -> CallError:
    return refused_arguments(f"The arguments were refused unread: {what}.", "bounds", value="(not read)")


# ---------------------------------------------------------------- problems


def json_path(steps: Iterator[str | int] | list[str | int]) -> str:
    """Return `$.a[0]["odd key"]` for the steps to a value."""
    path = "$"
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if _IDENTIFIER.fullmatch(step) else f"[{json.dumps(step, ensure_ascii=False)}]"
    return path


def shown(value: JSONValue) -> str:
    """Return a value as JSON, cut to 80 characters, without walking all of a large one."""
    if (is_object(value) or is_list(value)) and len(value) > _VALUE_CHARS:
        return f"({'an object' if is_object(value) else 'a list'} with {len(value)} entries)"
    text = json.dumps(_beginning(value, [_VALUE_CHARS]), ensure_ascii=False, default=str)
    return text if len(text) <= _VALUE_CHARS else text[: _VALUE_CHARS - 1] + "…"


def _beginning(value: JSONValue, left: list[int]) -> JSONValue:
    """Return the part of a value that is shown; `left` holds the number of characters that still fit."""
    if isinstance(value, str):
        left[0] -= len(value)
        return value[: _VALUE_CHARS + 1]
    left[0] -= 2
    if is_object(value):
        return {key[: _VALUE_CHARS + 1]: _beginning(item, left) for key, item in value.items() if left[0] >= 0}
    if is_list(value):
        return [_beginning(item, left) for item in value if left[0] >= 0]
    return value


def _explain(error: Any, schema: JSONValue, left: list[int]) -> Iterator[ArgumentProblem]:
    """Convert one validator error to problems with exact paths, e.g. a missing property at its own path.

    `left` holds the number of names that may still get a suggestion.
    """
    steps: list[str | int] = list(error.instance_path)
    rule: str = error.kind.name
    match error.kind:
        case jsonschema_rs.ValidationErrorKind.Required(property=name):
            yield _missing(steps, name)
        case jsonschema_rs.ValidationErrorKind.AdditionalProperties(unexpected=names):
            known = _properties_at(schema, error.schema_path[:-1])
            yield from _unexpected(steps, rule, names, error.instance, known, left)
        case jsonschema_rs.ValidationErrorKind.UnevaluatedProperties(unexpected=names):
            known = _properties_at(schema, error.schema_path[:-1])
            yield from _unexpected(steps, rule, names, error.instance, known, left)
        case jsonschema_rs.ValidationErrorKind.AnyOf(context=branches):
            yield from _closest_branch(error, branches, schema, left)
        case jsonschema_rs.ValidationErrorKind.OneOfNotValid(context=branches):
            yield from _closest_branch(error, branches, schema, left)
        case jsonschema_rs.ValidationErrorKind.Enum(options=[_, _, _, _, *_] as options):
            listed = ", ".join(shown(option) for option in options[:SHOWN_OPTIONS])
            more = f" and {len(options) - SHOWN_OPTIONS} more" if len(options) > SHOWN_OPTIONS else ""
            message = f"the value is not one of {listed}{more}"
            yield ArgumentProblem(json_path(steps), rule, message, shown(error.instance))
        case jsonschema_rs.ValidationErrorKind.Type(types=["boolean"] | ["null", "boolean"]):
            message = f"{_first_line(error.message)}: write true or false"
            yield ArgumentProblem(json_path(steps), rule, message, shown(error.instance))
        case jsonschema_rs.ValidationErrorKind.MinLength(limit=1):
            yield ArgumentProblem(json_path(steps), rule, "can't be blank", shown(error.instance))
        case _:
            message = _first_line(error.message)
            yield ArgumentProblem(json_path(steps), rule, message, shown(error.instance))


def _plain_problems(schema: JSON, value: JSONValue) -> list[ArgumentProblem]:
    """Return the problems that need no engine: missing and unknown names at the top level."""
    found: list[ArgumentProblem] = []
    if is_object(value):
        properties, required = schema.get("properties"), schema.get("required")
        names = [name for name in required if isinstance(name, str)] if is_list(required) else []
        found += [_missing([], name) for name in names if name not in value]
        if schema.get("additionalProperties") is False and "patternProperties" not in schema:
            known = properties if is_object(properties) else {}
            unknown = list(islice((name for name in value if name not in known), PROBLEMS))
            found.extend(_unexpected([], "additionalProperties", unknown, value, known, [NAMES_MEANT]))
    text = "the value does not fit the schema, and both are too large to tell where: send less at once"
    return found[:PROBLEMS] or [ArgumentProblem("$", "schema", text, shown(value))]


def _missing(steps: list[str | int], name: str) -> ArgumentProblem:
    return ArgumentProblem(json_path([*steps, name]), "required", f"{name!r} is required", "(missing)")


def _unexpected(
    steps: list[str | int], rule: str, names: list[str], instance: JSON, known: JSON, left: list[int]
) -> Iterator[ArgumentProblem]:
    for name in names:
        message = f"{name[:_VALUE_CHARS]!r} {NO_ARGUMENT}{_missing_name(name, instance, known, left)}"
        yield ArgumentProblem(json_path([*steps, name]), rule, message, shown(instance.get(name)))


def _missing_name(name: str, instance: JSON, known: JSON, left: list[int]) -> str:
    """Return the missing property that an unknown name was probably meant to be. Comparing names is slow."""
    if left[0] <= 0 or len(name) > MAX_NAME_CHARS:
        return ""
    left[0] -= 1
    folded = fold(name)
    letters = frozenset(folded)
    missing = {fold(one): one for one in islice((one for one in known if one not in instance), PROPERTIES_COUNTED)}
    likely = nsmallest(PROPERTIES_COMPARED, missing, key=lambda one: len(letters ^ frozenset(one)))
    near = nearest_one(folded, likely)
    return "" if near is None else f" (did you mean {missing[near]!r}?)"


def _properties_at(schema: JSONValue, steps: Sequence[str | int]) -> JSON:
    """Return the properties declared by the subschema at a path; empty if several schemas apply there."""
    at: Any = schema
    with suppress(LookupError, TypeError):
        for step in steps:
            at = at[step]
    properties: JSONValue = at.get("properties") if is_object(at) else None
    return properties if is_object(properties) else {}


def _closest_branch(
    error: Any, branches: list[list[Any]], schema: JSONValue, left: list[int]
) -> Iterator[ArgumentProblem]:
    """Explain the alternative that matches the value best: the one whose first fault is deepest."""
    depth = len(error.instance_path)
    inner = [branch for branch in branches if branch and len(branch[0].instance_path) > depth]
    meant = [branch for branch in branches if branch and all(item.kind.name != "type" for item in branch)]
    chosen = max(inner or meant, key=lambda branch: (len(branch[0].instance_path), -len(branch)), default=None)
    if chosen is None:
        message = _first_line(error.message)
        yield ArgumentProblem(json_path(list(error.instance_path)), error.kind.name, message, shown(error.instance))
    else:
        for item in chosen:
            yield from _explain(item, schema, left)
