"""Schema cost: count the steps of validating a value, and refuse a schema that takes more than `schema_steps`.

The engine cannot be interrupted and holds the GIL, so the steps are counted before it starts. A step is about the
work of reading one character. A subschema counts once for each way to reach it at a place of the value. All
values with the same subschemas are counted together. Every weight below is an upper bound in steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from heapq import heapify, heappop, heappush
from itertools import chain
from math import frexp, isfinite
from typing import Any, NamedTuple

from pegboard.core.limits import PATTERN_STEPS, SCHEMA_HOPS
from pegboard.core.pattern_cost import pattern_cost
from pegboard.core.schema_references import SchemaReferences
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

# To compile a schema, validate one value, or explain its faults: some 18 ms each by default.
MAX_STEPS = DEFAULT_BOUNDS.schema_steps

# The weights are tiers: what the engine does is put into the next one above it.
_RULE = 8  # one rule at one place, a member of an object, a character of a format
_SLOW = 32  # a digit, an option inside a container, a value in a unique item, a value counted here
_HEAVY = 250  # a comparison with a fraction, a digit in a unique item, a value copied into an error
_BUILT = 2_000  # an error, an atom of a pattern, a subschema compiled again
_META_SCHEMA = 25 * _BUILT  # the engine's own meta-schema, once

_DIGITS_A_BYTE = 64  # `5e-324` has the highest ratio: 377 digits in six bytes
_MAX_LEVELS = 32  # levels of a schema that are examined for the cost of any value
_MAX_EXPLAINED = 1_000  # values in a value of which all faults are listed
_ENDLESS = 1 << 60
_WORD, _SHORTEST = 1 << 63, 20  # the range of machine integers, and the digits of the shortest other number
_ANNOTATIONS = frozenset({
    "$schema", "$id", "$anchor", "$dynamicAnchor", "$comment", "$defs", "definitions", "title", "description",
    "default", "examples", "deprecated", "readOnly", "writeOnly", "nullable",
})  # fmt: skip
# A schema with none of these rules is plain, and is never counted.
COSTLY_RULES = frozenset({
    "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "dependencies",
    "unevaluatedProperties", "unevaluatedItems", "patternProperties", "propertyNames", "contains", "uniqueItems",
    "pattern", "format", "const", "enum", "multipleOf", "dependentRequired", "minLength", "maxLength",
})  # fmt: skip
# The same holds for these, unless the bound is a fraction.
BOUND_RULES = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
# Without these keywords, errors contain no other errors, and there is no pattern.
ALTERNATIVE_RULES = COSTLY_RULES - {
    "$ref", "allOf", "uniqueItems", "format", "minLength", "maxLength", "multipleOf", "enum", "const",
}  # fmt: skip
# These may take too long for any value, so they are counted before the schema is compiled.
MULTIPLYING_RULES = frozenset({
    "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "dependencies",
    "unevaluatedProperties", "unevaluatedItems", "patternProperties", "pattern",
})  # fmt: skip
_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "integer": (int, float), "number": (int, float),
}  # fmt: skip


class Size(NamedTuple):
    """The size of a value: inner values, characters, slowly compared digits, and integers beyond 64 bits."""

    values: int
    chars: int
    digits: int
    long_integers: int


class _Node:
    """One subschema: the subschemas of its rules, and the steps that its rules take per place, character and digit."""

    __slots__ = (
        "additional", "char", "digit", "each", "faults", "in_place", "items", "key_faults", "kinds", "large_digit",
        "names", "number", "place", "prefix", "properties", "rank", "required", "rest", "unevaluated", "unique",
    )  # fmt: skip

    def __init__(self) -> None:
        self.in_place: list[_Node] = []
        self.properties: dict[str, _Node] = {}
        self.additional: _Node | None = None  # properties without their own subschema
        self.each: list[_Node] = []  # every property
        self.prefix: list[_Node] = []
        self.rest: _Node | None = None  # items after `prefix`
        self.items: list[_Node] = []  # every item
        self.names: list[_Node] = []  # every key, as a text
        self.required: list[str] = []
        self.kinds: frozenset[type] | None = None
        self.unevaluated = self.unique = False
        self.place = _RULE
        self.number = self.digit = 0  # for each number, and for each of its digits
        self.large_digit = 0  # like `digit`, only for numbers beyond 64 bits
        self.char = self.faults = self.key_faults = self.rank = 0

    def below(self) -> Iterator[_Node]:
        """Yield the subschemas that may apply to one member, item or key."""
        yield from {*self.properties.values(), *self.prefix, *filter(None, (self.additional, self.rest))}
        yield from chain(self.each, self.items, self.names)


Counts = dict[_Node, int]


class SchemaCost:
    """Counts the steps of one schema.

    Raises:
        CallError: `schema_too_complex`, if compiling it, or validating any value at all, takes too many steps.
    """

    def __init__(self, schema: JSON, *, max_steps: int = MAX_STEPS) -> None:
        self.max_steps = max_steps
        self._references: SchemaReferences | None = None
        self._whole = schema
        self._compile = 0
        self._known: dict[int, _Node] = {}
        self._unread: list[tuple[JSON, _Node]] = []
        self._patterns: dict[str, int] = {}
        self._never, self._nodes = _Node(), list[_Node]()
        self._never.faults = 1
        self._root = self._node(schema)
        while self._unread:
            self._read(*self._unread.pop())
        self._check()
        self.uncounted_bytes = self._uncounted_bytes()

    def hold(self, value: JSONValue) -> None:
        """Check that the value may be validated.

        Raises:
            CallError: `schema_too_complex`.
        """
        if self.steps(value) > self.max_steps:
            raise CallError(
                "schema_too_complex",
                f"The schema is too complex to validate this value: that takes more than {self.max_steps:,} steps. "
                "Send less at once, have the schema made simpler (fewer nested alternatives, references and regular "
                "expressions), or have `limits.schema_steps` raised.",
            )

    def explaining_steps(self, value: JSONValue) -> int:
        """Return the steps of listing every fault of a value; above `max_steps` is too many."""
        is_small = size_of(value, at_most=_MAX_EXPLAINED).values <= _MAX_EXPLAINED
        return self.steps(value, is_explained=True) if is_small else _ENDLESS

    def steps(self, value: JSONValue, *, is_explained: bool = False) -> int:
        """Count the steps of validating a value, level by level; counting stops above `max_steps`."""
        total = 0
        level: dict[Any, list[JSONValue]] = {frozenset([(self._root, 1)]): [value]}
        while level:
            below: dict[Any, list[JSONValue]] = {}
            for counts, mixed in level.items():
                total += _SLOW * len(mixed)
                kinds: set[type] = {type(each) for each in mixed}
                for kind in kinds:
                    values: list[Any] = [each for each in mixed if type(each) is kind]
                    going: list[tuple[_Node, int]] = []
                    size = _OwnSize(values)
                    error = _BUILT * len(values)
                    if is_explained:
                        error += sum(_copy_steps(size_of(each)) for each in values)
                    for node, count in _applied(dict(counts), partial(_goes_on, kind, values)):
                        total += _HEAVY + count * _node_steps(node, kind, values, size, at_most=self.max_steps)
                        if is_explained:
                            total += count * _faults(node, kind, values) * error
                        if total > self.max_steps:
                            return total
                        if _goes_on(kind, values, node):
                            going.append((node, count))
                    for counts_below, inner in _below(kind, values, going):
                        total += _HEAVY * len(going)
                        if total > self.max_steps:
                            return total
                        below.setdefault(frozenset(counts_below.items()), []).extend(inner)
            level = below
        return total

    # -- the schema

    def _check(self) -> None:
        """Refuse a schema that takes too many steps for any value, or to compile."""
        order = _ordered(self._nodes)
        if order is None:
            raise CallError("schema_too_complex", "The schema refers to itself without going into the value.")
        flat: Counts = {}  # steps at one place
        ways: Counts = {}
        for node in reversed(order):
            node.rank = 1 + max((child.rank for child in node.in_place), default=-1)
            # What `unevaluated…` concerns is validated up to three times.
            times = 3 if node.unevaluated else 1
            flat[node] = min(node.place + times * sum(flat[child] for child in node.in_place), _ENDLESS)
            ways[node] = min(1 + sum(ways[child] for child in node.in_place), _ENDLESS)
            # `unevaluated…` compiles a copy of every subschema applied at its place.
            self._compile += _BUILT * ways[node] * node.unevaluated
            if node.rank > SCHEMA_HOPS:
                raise CallError(
                    "schema_too_complex",
                    f"The schema leads through more than {SCHEMA_HOPS} references and alternatives at one place.",
                )
            if flat[node] > self.max_steps:
                raise CallError(
                    "schema_too_complex",
                    "The schema is too complex: its nested alternatives and references multiply to more than "
                    f"{self.max_steps:,} steps for one value (`limits.schema_steps`).",
                )
        if self._compile > self.max_steps:
            raise CallError(
                "schema_too_complex",
                f"The schema is too complex to compile: that takes more than {self.max_steps:,} steps. It has too "
                "many or too long regular expressions, or nested `unevaluated…` (`limits.schema_steps`).",
            )

    def _uncounted_bytes(self) -> int:
        """Return the length of JSON below which a value certainly takes few steps; 0 if the steps grow with its depth.

        Follows the subschemas that may apply at one place, level by level, until there are no new ones.
        """
        seen: set[frozenset[tuple[_Node, int]]] = set()
        level: Counts = {self._root: 1}
        most = unique = 0  # steps a byte
        while level and (state := frozenset(level.items())) not in seen:
            seen.add(state)
            below: Counts = {}
            a_byte = _SLOW
            for node, count in _applied(level, lambda node: True):
                digits = node.digit + node.large_digit + _HEAVY * node.unique
                a_byte += count * (2 * _RULE + node.place + node.number + node.char + _DIGITS_A_BYTE * digits)
                unique += count * _SLOW * node.unique
                for child in node.below():
                    below[child] = min(below.get(child, 0) + count, _ENDLESS)
            most = max(most, a_byte)
            if most > self.max_steps or len(seen) > _MAX_LEVELS:
                return 0
            level = below
        # Each level of a recursive schema compares items that must be unique again.
        return 0 if level and unique else self.max_steps // (most + unique)

    def _node(self, schema: JSONValue) -> _Node:
        """Return the node of a subschema; its rules are read later."""
        if not is_object(schema):
            return self._never
        node = self._known.get(id(schema))
        if node is None:
            node = self._known[id(schema)] = _Node()
            self._nodes.append(node)
            self._unread.append((schema, node))
        return node

    def _each(self, schemas: JSONValue) -> list[_Node]:
        parts = schemas.values() if is_object(schemas) else schemas if is_list(schemas) else (schemas,)
        # In earlier drafts, a list in `dependencies` holds names.
        return [self._node(part) for part in parts if part is not True and not is_list(part)]

    def _read(self, schema: JSON, node: _Node) -> None:
        for rule, value in schema.items():
            if rule in _ANNOTATIONS:
                continue
            node.place += _RULE
            node.faults += rule not in ("type", "properties", "items", "prefixItems", "$ref")
            match rule:
                case "type":
                    names = value if is_list(value) else [value]
                    node.kinds = frozenset(kind for name in names for kind in _KINDS.get(str(name), ()))
                case "allOf" | "anyOf" | "oneOf" | "dependentSchemas" | "dependencies":
                    node.in_place += self._each(value)
                case "not" | "if" | "then" | "else":
                    node.in_place += self._each([value])
                case "$ref" | "$dynamicRef" | "$recursiveRef":
                    node.in_place += self._referred(rule, str(value), schema)
                case "properties" if is_object(value):
                    node.properties = {name: self._node(part) for name, part in value.items() if part is not True}
                case "patternProperties" if is_object(value):
                    node.each += self._each(value)
                    keys = _Node()
                    # Once for its own subschema, once for `additionalProperties`.
                    keys.place = 2 * _RULE * len(value)
                    keys.char = sum(2 * self._pattern(pattern) for pattern in value)
                    node.names.append(keys)
                case "additionalProperties" if is_object(value):
                    node.additional = self._node(value)
                case "unevaluatedProperties" | "unevaluatedItems":
                    node.unevaluated = True
                    if is_object(value):
                        node.each.append(self._node(value))
                        node.items.append(self._node(value))
                case "items" | "additionalItems" | "prefixItems" if is_list(value):
                    node.prefix += [self._node(part) for part in value]
                case "items" | "additionalItems" if is_object(value):
                    node.rest = self._node(value)
                case "contains":
                    node.items += self._each([value])
                case "propertyNames":
                    node.names += self._each([value])
                    node.key_faults = 1
                case "required" if is_list(value):
                    node.required = [name for name in value if isinstance(name, str)]
                case "dependentRequired" if is_object(value):
                    names = sum(len(part) for part in value.values() if is_list(part))
                    node.faults += names
                    node.place += 2 * _RULE * names
                case "enum" if is_list(value):
                    _read_options(node, value)
                case "const":
                    _read_options(node, [value])
                case "pattern":
                    node.char += self._pattern(str(value))
                case "format":
                    node.char += _SLOW if value in ("regex", "idn-hostname") else _RULE
                case "minLength" | "maxLength":
                    node.char += 1
                case "uniqueItems":
                    node.unique = value is True
                case "multipleOf" | "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
                    if rule != "multipleOf" and is_machine_number(value):
                        # If all options are machine numbers, they are compared as such.
                        node.large_digit += _SLOW
                        node.number += 2 * _RULE
                        continue
                    node.digit += _SLOW
                    node.number += _HEAVY
                    node.number += 0 if is_whole_number(value) else _SLOW * (_digits(value) - _SHORTEST)
                case _:
                    pass

    def _pattern(self, pattern: str) -> int:
        """Return the steps of a pattern per character."""
        steps = self._patterns.get(pattern)
        if steps is None:
            cost = pattern_cost(pattern)
            self._compile += _BUILT * (8 + cost.atoms)
            steps = self._patterns[pattern] = 2 * PATTERN_STEPS if cost.backtracks else 3 + 2 * _RULE * cost.states
        return steps

    def _referred(self, rule: str, reference: str, holder: JSON) -> list[_Node]:
        """Return the subschemas that a reference may mean."""
        if self._references is None:
            self._references = SchemaReferences(self._whole)
        references = self._references
        find = references.recursive_targets if rule == "$recursiveRef" else references.targets
        targets = find(reference, holder)
        if targets:
            return [*dict.fromkeys(self._node(target) for target in targets if target is not True)]
        # The engine's own meta-schema.
        node = _Node()
        self._nodes.append(node)
        node.place, node.char, node.faults = _META_SCHEMA, _SLOW, 100
        node.each, node.items = [node], [node]
        return [node]


def _read_options(node: _Node, options: list[JSONValue]) -> None:
    kinds: set[type] = {type(option) for option in options}
    size = size_of(options)
    node.char += 1
    # Options of one simple kind are looked up, others are compared one by one.
    node.place += 2 * _RULE if kinds in ({str}, {int}) else _RULE * len(options)
    if not kinds.isdisjoint((dict, list)):
        node.place += _SLOW * size.values + size.chars
    numbers = sum(kind in (int, float, dict, list) for kind in map(type, options))
    node.digit += _SLOW * numbers
    node.place += _SLOW * size.digits


def _ordered(nodes: list[_Node]) -> list[_Node] | None:
    """Return the subschemas, each before those that it leads to; `None` if one leads back to itself."""
    parents = Counter(child for node in nodes for child in node.in_place)
    order = [node for node in nodes if not parents[node]]
    for node in order:
        for child in node.in_place:
            parents[child] -= 1
            if not parents[child]:
                order.append(child)
    return order if not any(parents.values()) else None


# ---------------------------------------------------------------- one group of values


def _applied(counts: Counts, goes_on: Callable[[_Node], bool]) -> Iterator[tuple[_Node, int]]:
    """Yield each subschema that applies at a place, and how often it runs."""
    again: Counts = {}  # runs to find out which members `unevaluated…` concerns
    queue = [(-node.rank, id(node), node) for node in counts]
    heapify(queue)
    while queue:
        node = heappop(queue)[2]
        count = counts[node]
        yield node, count
        if not node.in_place or not goes_on(node):
            continue
        collected = again.get(node, 0) + count * node.unevaluated
        for child in node.in_place:
            if child not in counts:
                counts[child] = 0
                heappush(queue, (-child.rank, id(child), child))
            # Each matching alternative is validated again to find out which members it evaluated.
            counts[child] = min(counts[child] + count + 2 * collected, _ENDLESS)
            again[child] = min(again.get(child, 0) + collected, _ENDLESS)


def _goes_on(kind: type, values: list[Any], node: _Node) -> bool:
    """Return False if the cheap rules, which the engine checks first, refuse all the values."""
    if node.kinds is not None and kind not in node.kinds:
        return False
    return kind is not dict or not node.required or any(all(name in each for name in node.required) for each in values)


class _OwnSize:
    """The characters of texts, the members of objects, or the digits of numbers, of all values together.

    Each is counted when a rule first needs it, since counting takes time.
    """

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    @cached_property
    def length(self) -> int:
        return sum(map(len, self._values))

    @cached_property
    def digits(self) -> int:
        return sum(map(_digits, self._values))

    @cached_property
    def large_digits(self) -> int:
        """The digits of numbers beyond 64 bits."""
        return sum([_digits(each) for each in self._values if not -_WORD < each < _WORD])


def _node_steps(node: _Node, kind: type, values: list[Any], size: _OwnSize, *, at_most: int) -> int:
    """Return the steps of one subschema for some values; counting stops above `at_most`."""
    steps = node.place * len(values)
    if steps > at_most:
        return steps
    if kind is str:
        steps += node.char * size.length if node.char else 0
    elif kind is dict:
        steps += _RULE * size.length
    elif kind in (int, float):
        steps += node.number * len(values)
        steps += node.digit * size.digits if node.digit else 0
        steps += node.large_digit * size.large_digits if node.large_digit else 0
    elif kind is list and node.unique:
        # All lists are measured at once: there may be very many short ones.
        inner = size_of(values, at_most=at_most // _SLOW)
        steps += 2 * _SLOW * inner.values + _HEAVY * inner.digits
        # Each pair of integers beyond 64 bits is compared.
        steps += 2 * _RULE * inner.long_integers * inner.digits
    return steps


def _faults(node: _Node, kind: type, values: list[Any]) -> int:
    faults = node.faults + (node.kinds is not None and kind not in node.kinds)
    if kind is dict:
        faults += max(sum(name not in each for name in node.required) for each in values)
        faults += node.key_faults * max(map(len, values))
    return faults


def _copy_steps(size: Size) -> int:
    return size.values * _HEAVY + size.chars + size.digits


def _below(kind: type, values: list[Any], going: list[tuple[_Node, int]]) -> Iterator[tuple[Counts, list[JSONValue]]]:
    """Yield the inner values with the subschemas that apply to them."""
    if kind not in (dict, list):
        return
    by_place: dict[str | int | None, list[JSONValue]] = {}
    if kind is dict:
        keys = Counter[_Node]()
        for node, count in going:
            keys.update(dict.fromkeys(node.names, count))
        if keys:
            yield keys, [*chain.from_iterable(values)]
        present = {*chain.from_iterable(values)}
        names = {name for node, _ in going for name in node.properties.keys() & present}
        for each in values:
            for name, inner in each.items():
                by_place.setdefault(name if name in names else None, []).append(inner)
    else:
        first = max((len(node.prefix) for node, _ in going), default=0)
        left = values
        for at in range(first):
            left = [each for each in left if len(each) > at]
            if not left:
                break
            by_place[at] = [each[at] for each in left]
        by_place[None] = [item for each in left for item in each[first:]]
    for place, inner in by_place.items():
        counts: Counts = {}
        for node, count in going:
            for child in _judging(node, place, is_member=kind is dict):
                counts[child] = min(counts.get(child, 0) + count, _ENDLESS)
        if counts and inner:
            yield counts, inner


def _judging(node: _Node, place: str | int | None, *, is_member: bool) -> Iterator[_Node]:
    if is_member:
        own = node.properties.get(place, node.additional) if isinstance(place, str) else node.additional
        yield from node.each
    else:
        own = node.prefix[place] if isinstance(place, int) and place < len(node.prefix) else node.rest
        yield from node.items
    if own is not None:
        yield own


# ---------------------------------------------------------------- values


def size_of(value: JSONValue, *, at_most: int = _ENDLESS) -> Size:
    """Return the size of a value, without recursion; counting stops above `at_most` values."""
    row: list[Any] = [value]
    values = chars = digits = long_integers = 0
    while row:
        values += len(row)
        if values > at_most:
            break
        below: list[Any] = []
        kinds: set[type] = {type(item) for item in row}
        if str in kinds:
            chars += sum([len(item) for item in row if type(item) is str])
        if int in kinds:
            long = [item for item in row if type(item) is int and not -_WORD < item < _WORD]
            long_integers += len(long)
            digits += sum(map(_digits, long))
        if float in kinds:
            digits += sum([_digits(item) for item in row if type(item) is float])
        if dict in kinds:
            for item in row:
                if item and is_object(item):
                    chars += sum(map(len, item))
                    below += item.values()
        if list in kinds:
            for item in row:
                if item and is_list(item):
                    below += item
        row = below
    return Size(values, chars, digits, long_integers)


def _digits(value: JSONValue) -> int:
    """Return how many digits the engine compares one by one; 0 for integers within 64 bits."""
    if type(value) is float:
        # The engine writes it out: 1e-300 has three hundred digits.
        return _SHORTEST + (abs(frexp(value)[1]) // 3 if isfinite(value) else 0)
    return _SHORTEST + value.bit_length() // 3 if type(value) is int and not -_WORD < value < _WORD else 0


def is_machine_number(value: JSONValue) -> bool:
    """Tell whether comparing with this number is fast: it is not a fraction and fits into 64 bits."""
    return is_whole_number(value) and (not isinstance(value, int | float) or -_WORD < value < _WORD)


def is_whole_number(value: JSONValue) -> bool:
    """Tell whether comparing with this number is fast: it is not a fraction."""
    return not isinstance(value, float) or value.is_integer()
