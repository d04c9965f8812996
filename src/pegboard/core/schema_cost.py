"""Schema cost: how long judging a value by a schema can hold whoever waits, told before it is done.

The engine cannot be stopped, and lets no other thread run. So what it will do is counted beforehand: at how many
places of the value each subschema is tried, by however many ways (`$ref`, `anyOf`, …) it is reached, and what its rules
cost there. The count is rather too high; its unit is the nanosecond of an ordinary machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import chain
from math import frexp, isfinite
from typing import Any, NamedTuple

from pegboard.core.limits import SCHEMA_HOPS
from pegboard.core.pattern_cost import PatternCost, pattern_cost
from pegboard.core.schema_references import SchemaReferences
from pegboard.model.bounds import KIB
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

JUDGING_NS = 15_000_000  # of the event loop, to judge one value by its schema
TELLING_NS = 10_000_000  # and to tell what is wrong with it
JUDGED_VALUES = 60_000  # of one value, where the schema is not plain
JUDGING_STEPS = 1_000  # and steps in counting both beforehand, where it is not plain
LITTLE_BYTES = 64 * KIB  # of one value as JSON, judged by a schema that is not plain without counting what is in it
LIGHT_ROOT_NS = 1_000_000  # of one value; schemas that cost no more
LIGHT_PLACE_NS = 160  # and no more for each value inside, are not counted at all
SCHEMA_COMPILE_NS = 40_000_000  # of the event loop, to compile one schema

# What the engine takes, measured and rounded up; nanoseconds.
_VISIT, _RULE, _REQUIRED, _OPTION = 30, 20, 60, 22
_CONTAINER_OPTION, _OPTION_PART, _UNIQUE = 2_000, 300, 250
_LENGTH_CHAR, _FORMAT_CHAR, _SLOW_FORMAT_CHAR = 4, 20, 150
_COMPARED_CHAR, _FRACTION = 1, 300
# The engine reckons exactly with what is no integer of the machine, by the digit.
_WHOLE_DIGIT, _FRACTION_DIGIT, _MULTIPLE_DIGIT, _OPTION_DIGIT = 55, 70, 150, 130
_UNIQUE_DIGIT, _UNIQUE_PAIR, _UNIQUE_PAIR_DIGIT = 1_000, 600, 25
_FLOAT_DIGITS, _BITS_A_DIGIT = 20, 3
# Of JSON text: `5e-324` has the most, 377 in six bytes; integers beyond the engine's own begin with 19 digits.
_DIGITS_A_BYTE, _LONG_INTEGER_BYTES = 64, 19
_ERROR, _COPIED_VALUE, _COPIED_CHAR, _ERROR_LEVEL = 6_000, 800, 3, 400
_COMPILE_NODE, _COMPILE_AGAIN, _META_SCHEMA = 5_000, 25_000, 200_000
_ENDLESS = 1 << 60
_WORD = 1 << 63
_LEVELS_OF_LITTLE = 16  # how far a schema without an end is followed for what is surely little
_LEVELS_AHEAD = 64  # how far a schema without an end is followed to see that it costs little
_UNRANKED, _BEING_RANKED = -1, -2
_FEW_ITEMS = 16  # so many are compared each with each
_SLOW_FORMATS = frozenset({"regex", "idn-hostname"})
# Rules that cost nothing worth counting, wherever they stand, and lead nowhere.
_ONLY_WORDS = frozenset({
    "$schema", "$id", "$anchor", "$dynamicAnchor", "$comment", "$defs", "definitions", "title", "description",
    "default", "examples", "deprecated", "readOnly", "writeOnly", "nullable",
})  # fmt: skip
# A schema with any of these may cost more than a little for each value.
COSTLY_RULES = frozenset({
    "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "dependencies",
    "unevaluatedProperties", "unevaluatedItems", "patternProperties", "propertyNames", "contains", "uniqueItems",
    "pattern", "format", "const", "enum", "multipleOf", "dependentRequired", "minLength", "maxLength",
})  # fmt: skip
# And one with these, where the bound is a fraction.
BOUND_RULES = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
# One that has none of these has errors that hold no others, and no pattern, which is slower in telling than in judging.
ALTERNATIVE_RULES = COSTLY_RULES - {
    "$ref", "allOf", "uniqueItems", "format", "minLength", "maxLength", "multipleOf", "enum", "const",
}  # fmt: skip
# One with any of these may cost too much, whatever the value: it is looked at when it is compiled.
MULTIPLYING_RULES = frozenset({
    "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "dependencies",
    "unevaluatedProperties", "unevaluatedItems", "patternProperties", "pattern",
})  # fmt: skip


class Size(NamedTuple):
    """How large a value is: its scalars and containers, the characters of its texts and keys, its levels.

    `digits` are those of the numbers that the engine reckons with exactly, `long_integers` those beyond its own.
    """

    values: int
    chars: int
    levels: int
    digits: int = 0
    long_integers: int = 0


class _Node:
    """One subschema: what its rules cost at a place, and where they lead."""

    __slots__ = (
        "additional", "char_ns", "compared_ns", "digit_ns", "each", "error_ns", "fixed", "flat_char_ns",
        "flat_digit_ns", "flat_ns", "in_place",
        "index", "is_unevaluated", "item_ns", "items", "key_char_ns", "kinds", "names", "place_ns", "prefix",
        "properties", "rank", "required", "rest", "rules",
    )  # fmt: skip

    def __init__(self, index: int) -> None:
        self.index = index
        self.in_place: list[_Node] = []
        self.properties: dict[str, _Node] = {}
        self.additional: _Node | None = None  # of properties that have no subschema of their own
        self.each: list[_Node] = []  # of every property
        self.prefix: list[_Node] = []
        self.rest: _Node | None = None  # of items past those of `prefix`
        self.items: list[_Node] = []  # of every item
        self.names: list[_Node] = []  # of every key
        self.kinds: frozenset[str] | None = None
        self.fixed: list[JSONValue] | None = None
        self.required: tuple[str, ...] = ()
        self.rules, self.rank = 0, _UNRANKED
        self.is_unevaluated = False
        self.place_ns, self.char_ns, self.key_char_ns, self.compared_ns, self.item_ns = _VISIT, 0, 0, 0, 0
        self.digit_ns = 0
        # What a place costs with all that is tried there with it, for any value, each character and each digit.
        self.error_ns = self.flat_ns = self.flat_char_ns = self.flat_digit_ns = 0


Counts = dict[_Node, int]


class SchemaCost:
    """What judging by one schema costs. Made with the schema; `hold` is asked of each value, `telling_ns` after a "no".

    Raises:
        CallError: `schema_too_complex`, when compiling it takes too long, or judging any value at all.
    """

    def __init__(self, schema: JSON) -> None:
        self._graph = _Graph(schema)
        nodes = self._graph.nodes
        self._levels = _ranked(nodes)
        _check_each(nodes, self._graph.compile_ns)
        # Nanoseconds at one place and for one character, at most, so many levels below the root.
        self._place_ns: list[int] = []
        self._char_ns: list[int] = []
        self._digit_ns: list[int] = []
        self._ahead: Counts | None = {self._graph.root: 1}
        self._inherited_ns = 0
        self.is_light = self._is_light()
        # Of numbers alone, where the rest costs little.
        self.digits_ns = max(self._digit_ns)

    def little_bytes(self) -> int:
        """Return how long the JSON of a value may be for `hold` to let it through whatever stands in it; 0 for none.

        So many bytes have at most as many characters, half as many values and levels, and some digits each.
        """
        for level in range(_LEVELS_OF_LITTLE):
            self._look_ahead(level)
            if self._ahead is None:
                break
        max_levels = len(self._place_ns) - 1
        # What goes on to cost more with each level may have those that were looked at, and no more.
        max_bytes = LITTLE_BYTES if self._ahead is None else 2 * max_levels
        while max_bytes and not self._is_little(max_bytes, max_levels):
            max_bytes //= 2
        return max_bytes

    def _is_little(self, max_bytes: int, max_levels: int) -> bool:
        digits = max_bytes * _DIGITS_A_BYTE
        if self.is_light:
            return digits * self.digits_ns <= JUDGING_NS
        long_integers = max_bytes // _LONG_INTEGER_BYTES + 1
        size = Size(max_bytes // 2 + 1, max_bytes, min(max_bytes // 2, max_levels), digits, long_integers)
        return self._at_most(size) <= JUDGING_NS

    def hold(self, value: JSONValue) -> None:
        """Do nothing if judging the value holds nobody for long.

        Raises:
            CallError: `schema_too_complex`.
        """
        if self.is_light:
            self._hold_numbers(value)
            return
        size = size_of(value, at_most=JUDGED_VALUES)
        is_little = size.values <= JUDGED_VALUES and self._at_most(size) <= JUDGING_NS
        if not is_little and not (size.values < JUDGING_STEPS and self._is_counted_within(value)):
            raise CallError(
                "schema_too_complex",
                f"The schema is too complex to judge this value by: at least {size.values} values and {size.chars} "
                "characters. Send less at once, or have the schema made simpler (fewer nested "
                "alternatives, references and regular expressions).",
            )

    def _hold_numbers(self, value: JSONValue) -> None:
        """Do as `hold` does, where a schema is light but for numbers that are no integers of the machine."""
        digits = size_of(value).digits
        if digits * self.digits_ns > JUDGING_NS:
            raise CallError(
                "schema_too_complex",
                f"The value has too many long or fractional numbers to compare them all: {digits} digits. "
                "Send less at once.",
            )

    # -- beforehand

    def _is_light(self) -> bool:
        """Tell whether no value that the bounds let in can take long."""
        for level in range(_LEVELS_AHEAD):
            self._look_ahead(level)
            if self._place_ns[-1] > (LIGHT_ROOT_NS if level == 0 else LIGHT_PLACE_NS):
                return False
            if self._char_ns[-1] > _LENGTH_CHAR:
                return False
            if self._ahead is None:
                return True
        return False

    def _at_most(self, size: Size) -> int:
        self._look_ahead(size.levels)
        # Keys and texts are counted as if each were looked at by whatever looks at most of them.
        place_ns = max(self._place_ns[1 : size.levels + 1], default=0)
        numbers_ns = size.digits * max(self._digit_ns[: size.levels + 1])
        if self._inherited_ns:
            numbers_ns += self._inherited_ns // _UNIQUE * _unique_ns(size, _UNIQUE_DIGIT)
        texts_ns = size.chars * max(self._char_ns[: size.levels + 1])
        return self._place_ns[0] + size.values * place_ns + texts_ns + numbers_ns

    def _look_ahead(self, levels: int) -> None:
        """Count what may be tried at one place, down to so many levels below the root."""
        if not self._place_ns:
            self._place_ns.append(self._graph.root.flat_ns)
            self._char_ns.append(self._graph.root.flat_char_ns)
            self._digit_ns.append(self._graph.root.flat_digit_ns)
        while len(self._place_ns) <= levels:
            if self._ahead is None or self._place_ns[-1] >= JUDGING_NS:
                self._place_ns.append(self._place_ns[-1] if self._ahead is None else _ENDLESS)
                self._char_ns.append(self._char_ns[-1])
                self._digit_ns.append(self._digit_ns[-1])
                continue
            property_ns = item_ns = property_char_ns = item_char_ns = key_char_ns = digit_ns = 0
            of_properties: Counts = {}
            of_items: Counts = {}
            for node, count, _ in tried(self._ahead):
                # A property is judged by its own subschema or by that of the additional ones, and by all of `each`.
                one = [*node.properties.values(), *([node.additional] if node.additional else [])]
                property_ns += count * _place_ns(one, [*node.each, *node.names])
                one_item = [*node.prefix, *([node.rest] if node.rest else [])]
                item_ns += count * _place_ns(one_item, node.items)
                property_char_ns += count * _char_ns(one, node.each)
                item_char_ns += count * _char_ns(one_item, node.items)
                digit_ns += count * max(_digit_ns(one, node.each), _digit_ns(one_item, node.items))
                key_char_ns += count * (node.key_char_ns + sum(name.flat_char_ns for name in node.names))
                self._inherited_ns = min(self._inherited_ns + count * node.item_ns, _ENDLESS)
                for child in chain({*one}, node.each):
                    of_properties[child] = of_properties.get(child, 0) + count
                for child in chain({*one_item}, node.items):
                    of_items[child] = of_items.get(child, 0) + count
            self._place_ns.append(min(max(property_ns, item_ns) + self._inherited_ns, _ENDLESS))
            self._char_ns.append(min(max(property_char_ns, item_char_ns, key_char_ns), _ENDLESS))
            self._digit_ns.append(min(digit_ns, _ENDLESS))
            for child, count in of_items.items():
                of_properties[child] = max(of_properties.get(child, 0), count)
            is_steady = not of_properties or (of_properties == self._ahead and not self._inherited_ns)
            self._ahead = None if is_steady else of_properties

    # -- for a value

    def _is_counted_within(self, value: JSONValue) -> bool:
        """Count what a value really meets, place by place, until it is too much."""
        total_ns = steps = 0
        places: list[tuple[JSONValue, Counts]] = [(value, {self._graph.root: 1})]
        while places:
            item, counts = places.pop()
            going: list[tuple[_Node, int]] = []
            for node, count, collected in tried(counts, lambda node, item=item: _goes_on(node, item)):
                steps += 1
                total_ns += count * _at(node, item) + collected * _VISIT
                if _goes_on(node, item):
                    going.append((node, count))
            if total_ns > JUDGING_NS or steps > JUDGING_STEPS:
                return False
            places.extend(_below(item, going))
        return True

    def telling_ns(self, value: JSONValue) -> int:
        """Return what it takes at most to tell all that is wrong with a value; from `TELLING_NS` on, too long."""
        if size_of(value, at_most=JUDGING_STEPS).values > JUDGING_STEPS:
            return TELLING_NS
        total_ns = steps = 0
        places: list[tuple[JSONValue, Counts]] = [(value, {self._graph.root: 1})]
        while places:
            item, counts = places.pop()
            size = size_of(item)
            steps += size.values
            error_ns = _ERROR + size.values * _COPIED_VALUE + self._levels * _ERROR_LEVEL
            error_ns += (size.chars + size.digits) * _COPIED_CHAR
            going: list[tuple[_Node, int]] = []
            for node, count, _ in tried(counts):
                steps += 1
                total_ns += count * (_at(node, item) + _faults(node, item) * (error_ns + node.error_ns))
                going.append((node, count))
            if total_ns >= TELLING_NS or steps > JUDGING_STEPS:
                return TELLING_NS
            places.extend(_below(item, going))
        return total_ns


# ---------------------------------------------------------------- at one place


def tried(start: Counts, goes_on: Callable[[_Node], bool] = lambda node: True) -> Iterator[tuple[_Node, int, int]]:
    """Yield each subschema that is tried at a place: how often, and how often again for what `unevaluated…` asks.

    Those first that lead to others; `goes_on` tells whether a subschema tries what it leads to.
    """
    counts, again = dict(start), dict[_Node, int]()
    queue = [(-node.rank, node.index, node) for node in start]
    heapify(queue)
    while queue:
        node = heappop(queue)[2]
        count, collected = counts[node], again.get(node, 0)
        yield node, count, collected
        if not node.in_place or not goes_on(node):
            continue
        if node.is_unevaluated:
            collected += count
        for child in node.in_place:
            if child not in counts:
                counts[child] = 0
                heappush(queue, (-child.rank, child.index, child))
            # What was evaluated is asked of every alternative that fits, and whether it fits is judged once more.
            counts[child] = min(counts[child] + count + 2 * collected, _ENDLESS)
            if collected:
                again[child] = min(again.get(child, 0) + collected, _ENDLESS)


def _goes_on(node: _Node, value: JSONValue) -> bool:
    """Tell whether the engine, which looks at the cheap rules first, goes on to what a subschema leads to."""
    if node.kinds is not None and not _is_of(value, node.kinds):
        return False
    if node.fixed is not None and not (is_object(value) or is_list(value)) and value not in node.fixed:
        return False
    return not (is_object(value) and any(name not in value for name in node.required))


def _is_of(value: JSONValue, kinds: frozenset[str]) -> bool:
    match value:
        case bool():
            return "boolean" in kinds
        case int() | float():
            return "number" in kinds or ("integer" in kinds and value == value // 1)
        case None:
            return "null" in kinds
        case str():
            return "string" in kinds
        case dict():
            return "object" in kinds
        case _:
            return "array" in kinds


def _at(node: _Node, value: JSONValue) -> int:
    """Return what the rules of a subschema cost once at a value, without what stands below it."""
    if isinstance(value, str):
        return node.place_ns + node.char_ns * len(value)
    if is_object(value):
        keys_ns = node.key_char_ns * sum(map(len, value)) if node.key_char_ns else 0
        for name in node.names:
            keys_ns += name.flat_ns * len(value) + name.flat_char_ns * sum(map(len, value))
        return node.place_ns + node.compared_ns + keys_ns + _RULE * len(value)
    if is_list(value):
        unique_ns = 0
        if node.item_ns:
            size = size_of(value)
            unique_ns = size.values * node.item_ns
            unique_ns += (
                node.item_ns // _UNIQUE * _unique_ns(size, _UNIQUE_DIGIT if len(value) <= _FEW_ITEMS else _OPTION_DIGIT)
            )
        return node.place_ns + node.compared_ns + unique_ns
    return node.place_ns + node.digit_ns * _digits(value)


def _unique_ns(size: Size, digit_ns: int) -> int:
    """Return what telling numbers apart takes: few items are compared each with each, and so are all long integers."""
    pairs_ns = size.long_integers * (size.long_integers * _UNIQUE_PAIR + size.digits * _UNIQUE_PAIR_DIGIT)
    return size.digits * digit_ns + pairs_ns


def _below(value: JSONValue, going: list[tuple[_Node, int]]) -> Iterator[tuple[JSONValue, Counts]]:
    """Yield what stands below a value, with the subschemas that it is judged by."""
    if is_object(value):
        for key, inner in value.items():
            counts: Counts = {}
            for node, count in going:
                own = node.properties.get(key, node.additional)
                if own is not None:
                    counts[own] = counts.get(own, 0) + count
                for child in node.each:
                    counts[child] = counts.get(child, 0) + count
            if counts:
                yield inner, counts
    elif is_list(value):
        for index, inner in enumerate(value):
            counts = {}
            for node, count in going:
                own = node.prefix[index] if index < len(node.prefix) else node.rest
                if own is not None:
                    counts[own] = counts.get(own, 0) + count
                for child in node.items:
                    counts[child] = counts.get(child, 0) + count
            if counts:
                yield inner, counts


def _faults(node: _Node, value: JSONValue) -> int:
    """Return how many of the rules of a subschema may find fault with a value."""
    if node.kinds is not None and not node.rules and not node.in_place:
        return 0 if _is_of(value, node.kinds) else 1
    faults = node.rules + (0 if node.kinds is None or _is_of(value, node.kinds) else 1)
    if is_object(value):
        faults += sum(name not in value for name in node.required)
        # One fault for each of the names, with a copy of the object.
        faults += len(value) * len(node.names)
    return faults


def _place_ns(one: list[_Node], each: list[_Node]) -> int:
    """Return what a place costs at most that is judged by one of some subschemas, and by each of others."""
    return _RULE + max((node.flat_ns for node in one), default=0) + sum(node.flat_ns for node in each)


def _digit_ns(one: list[_Node], each: list[_Node]) -> int:
    return max((node.flat_digit_ns for node in one), default=0) + sum(node.flat_digit_ns for node in each)


def _char_ns(one: list[_Node], each: list[_Node]) -> int:
    return max((node.flat_char_ns for node in one), default=0) + sum(node.flat_char_ns for node in each)


# ---------------------------------------------------------------- values


def size_of(value: JSONValue, *, at_most: int = _ENDLESS) -> Size:
    """Return how large a value is, walking without recursion; past `at_most` values it is counted no further."""
    row: list[Any] = [value]
    values = chars = level = digits = long_integers = 0
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
            digits += sum([_digits(item) for item in long])
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
        level += 1
    return Size(values, chars, level - 1, digits, long_integers)


def _digits(value: JSONValue) -> int:
    """Return how many digits the engine has to reckon with: none of an integer of the machine, or of what is none."""
    if isinstance(value, float):
        # Written out, as the engine takes it: 1e-300 has three hundred.
        return _FLOAT_DIGITS + (abs(frexp(value)[1]) // _BITS_A_DIGIT if isfinite(value) else 0)
    if not isinstance(value, int) or -_WORD < value < _WORD:
        return 0
    return _FLOAT_DIGITS + value.bit_length() // _BITS_A_DIGIT


# ---------------------------------------------------------------- the schema


def _ranked(nodes: list[_Node]) -> int:
    """Give each subschema its rank, above all that are tried with it at the same place; returns the highest.

    Raises:
        CallError: `schema_too_complex`, when one leads back to itself there, or through too many others.
    """
    for first in nodes:
        open_nodes: list[tuple[_Node, Iterator[_Node]]] = []
        if first.rank == _UNRANKED:
            first.rank = _BEING_RANKED
            open_nodes.append((first, iter(first.in_place)))
        while open_nodes:
            node, rest = open_nodes[-1]
            child = next(rest, None)
            if child is None:
                open_nodes.pop()
                node.rank = 1 + max((inner.rank for inner in node.in_place), default=-1)
                if node.rank > SCHEMA_HOPS:
                    raise CallError(
                        "schema_too_complex",
                        f"The schema leads through more than {SCHEMA_HOPS} references and alternatives at one place.",
                    )
            elif child.rank == _BEING_RANKED:
                raise CallError("schema_too_complex", "The schema refers to itself without going into the value.")
            elif child.rank == _UNRANKED:
                child.rank = _BEING_RANKED
                open_nodes.append((child, iter(child.in_place)))
    return max(node.rank for node in nodes)


def _check_each(nodes: list[_Node], compile_ns: int) -> None:
    """Refuse a schema of which one part costs too much, whatever it is shown, or whose compilation does."""
    collected: Counts = {}
    for node in sorted(nodes, key=lambda node: node.rank):
        again = _VISIT + sum(2 * child.flat_ns + collected[child] for child in node.in_place)
        times = 3 if node.is_unevaluated else 1
        node.flat_ns = node.place_ns + node.compared_ns + sum(child.flat_ns for child in node.in_place)
        node.flat_ns = min(node.flat_ns + again * node.is_unevaluated, _ENDLESS)
        node.flat_char_ns = min(node.char_ns + times * sum(child.flat_char_ns for child in node.in_place), _ENDLESS)
        node.flat_digit_ns = min(node.digit_ns + times * sum(child.flat_digit_ns for child in node.in_place), _ENDLESS)
        collected[node] = min(again, _ENDLESS)
        if node.flat_ns > JUDGING_NS:
            raise CallError(
                "schema_too_complex",
                "The schema is too complex: its nested alternatives and references multiply to more than "
                f"{JUDGING_NS // 1_000_000} ms for one value.",
            )
        if node.is_unevaluated:
            compile_ns += again // _VISIT * _COMPILE_AGAIN
    if compile_ns > SCHEMA_COMPILE_NS:
        raise CallError(
            "schema_too_complex",
            "The schema is too complex to compile: too many or too long regular expressions, or nested `unevaluated…`.",
        )


class _Graph:
    """The subschemas of a schema that its root leads to, each once, and what compiling them costs."""

    def __init__(self, schema: JSON) -> None:
        self.nodes: list[_Node] = []
        self.compile_ns = 0
        self._whole = schema
        self._known: dict[int, _Node] = {}
        self._waiting: list[tuple[JSON, _Node]] = []
        self._patterns: dict[str, PatternCost] = {}
        self._references: SchemaReferences | None = None
        self._never = self._new()
        self._never.rules = 1
        self._foreign: _Node | None = None
        self.root = self._node(schema)
        while self._waiting:
            self._read(*self._waiting.pop())
        self.compile_ns += len(self.nodes) * _COMPILE_NODE

    def _new(self) -> _Node:
        node = _Node(len(self.nodes))
        self.nodes.append(node)
        return node

    def _node(self, schema: JSONValue) -> _Node:
        """Return the subschema at an object, which is read later."""
        if not is_object(schema):
            return self._never
        node = self._known.get(id(schema))
        if node is None:
            node = self._known[id(schema)] = self._new()
            self._waiting.append((schema, node))
        return node

    def _nodes(self, schemas: JSONValue) -> list[_Node]:
        parts = schemas.values() if is_object(schemas) else schemas if is_list(schemas) else (schemas,)
        return [self._node(part) for part in parts if part is not True and not is_strings(part)]

    def _read(self, schema: JSON, node: _Node) -> None:
        for rule, value in schema.items():
            if rule in _ONLY_WORDS:
                continue
            node.place_ns += _RULE
            reader = _READERS.get(rule)
            if reader is not None:
                reader(self, node, value, schema)
            elif rule != "type":
                node.rules += 1
        kinds = schema.get("type")
        if kinds is not None:
            node.kinds = frozenset(str(kind) for kind in (kinds if is_list(kinds) else [kinds]))

    # -- one function a rule

    def in_place(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.in_place += self._nodes(value)
        node.rules += 1

    def one_in_place(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.in_place += self._nodes([value])
        node.rules += 1

    def reference(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.in_place += self._referred(self._references_told().targets(str(value), schema))

    def recursive_reference(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.in_place += self._referred(self._references_told().recursive_targets(str(value), schema))

    def properties(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        if is_object(value):
            node.properties = {name: self._node(part) for name, part in value.items() if part is not True}

    def pattern_properties(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.each += self._nodes(value)
        for pattern in value if is_object(value) else ():
            cost = self._pattern_cost(pattern)
            node.place_ns += cost.text_ns
            # Once for its own subschema, and once more for `additionalProperties`.
            node.key_char_ns += 2 * cost.char_ns

    def additional_properties(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.rules += 1
        if is_object(value):
            node.additional = self._node(value)

    def unevaluated(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.is_unevaluated = True
        node.rules += 1
        if is_object(value):
            node.each.append(self._node(value))
            node.items.append(self._node(value))

    def items(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        if is_list(value):
            self.prefix_items(node, value, schema)
        elif value is not True:
            node.rest = self._node(value)

    def prefix_items(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        if is_list(value):
            node.prefix += [self._node(part) for part in value]

    def contains(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.rules += 1
        node.items += self._nodes([value])

    def names(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.names += self._nodes([value])

    def required(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.required = tuple(name for name in value if isinstance(name, str)) if is_list(value) else ()
        node.place_ns += len(node.required)

    def dependent_required(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        names = sum(len(part) for part in value.values() if is_list(part)) if is_object(value) else 0
        node.rules += names
        node.place_ns += names * _REQUIRED

    def options(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.fixed = value if is_list(value) else []
        self._compared(node, node.fixed)

    def constant(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.fixed = [value]
        self._compared(node, node.fixed)

    def _compared(self, node: _Node, options: list[JSONValue]) -> None:
        node.rules += 1
        size = size_of(options)
        kinds: set[type] = {type(option) for option in options}
        # Options of one simple kind are looked up, others are compared one after the other.
        node.place_ns += _OPTION * (3 if kinds in ({str}, {int}) else len(options))
        node.char_ns += _COMPARED_CHAR
        if any(is_object(option) or is_list(option) for option in options):
            node.compared_ns += len(options) * _CONTAINER_OPTION + size.values * _OPTION_PART + size.chars
        node.error_ns += size.values * _COPIED_VALUE + (size.chars + size.digits) * _COPIED_CHAR
        # A number is compared with each of the numbers, or with one in each of the containers.
        containers = sum(is_object(option) or is_list(option) for option in options)
        numbers = sum(isinstance(option, int | float) and not isinstance(option, bool) for option in options)
        node.digit_ns += _OPTION_DIGIT * max(numbers, containers)
        node.place_ns += _OPTION_DIGIT * size.digits

    def pattern(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        cost = self._pattern_cost(str(value))
        node.rules += 1
        node.place_ns += cost.text_ns
        node.char_ns += cost.char_ns

    def format(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.rules += 1
        node.char_ns += _SLOW_FORMAT_CHAR if value in _SLOW_FORMATS else _FORMAT_CHAR

    def length(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.rules += 1
        node.char_ns += _LENGTH_CHAR

    def unique(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.rules += 1
        node.item_ns += _UNIQUE

    def bound(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.rules += 1
        is_whole = is_whole_number(value)
        node.digit_ns += _WHOLE_DIGIT if is_whole else _FRACTION_DIGIT
        node.place_ns += 0 if is_whole else _FRACTION + _FRACTION_DIGIT * (_digits(value) - _FLOAT_DIGITS)

    def multiple(self, node: _Node, value: JSONValue, schema: JSON) -> None:
        node.rules += 1
        is_whole = is_whole_number(value)
        node.digit_ns += _WHOLE_DIGIT if is_whole else _MULTIPLE_DIGIT
        node.place_ns += _FRACTION
        node.place_ns += 0 if is_whole else _MULTIPLE_DIGIT * (_digits(value) - _FLOAT_DIGITS)

    # -- references and patterns

    def _pattern_cost(self, pattern: str) -> PatternCost:
        cost = self._patterns.get(pattern)
        if cost is None:
            cost = self._patterns[pattern] = pattern_cost(pattern)
            self.compile_ns += cost.compile_ns
        return cost

    def _references_told(self) -> SchemaReferences:
        if self._references is None:
            self._references = SchemaReferences(self._whole)
        return self._references

    def _referred(self, targets: list[JSONValue]) -> list[_Node]:
        """Return the subschemas that a reference may mean; without any it is one that the engine has of its own."""
        if not targets:
            return [self._from_elsewhere()]
        # One part may be meant under several names.
        return [*dict.fromkeys(self._node(target) for target in targets if target is not True)]

    def _from_elsewhere(self) -> _Node:
        """Return what stands for a schema that the engine has of its own: those of the schema language."""
        if self._foreign is None:
            node = self._foreign = self._new()
            node.place_ns, node.char_ns, node.rules = _META_SCHEMA, _SLOW_FORMAT_CHAR, 100
            node.each, node.items = [node], [node]
        return self._foreign


def is_whole_number(value: JSONValue) -> bool:
    """Tell whether numbers are compared with this one at once: it is no fraction."""
    return not isinstance(value, float) or value.is_integer()


def is_strings(value: JSONValue) -> bool:
    """Tell whether a value is a list: of names, in `dependencies` of earlier drafts."""
    return is_list(value)


_READERS: Mapping[str, Callable[[_Graph, _Node, JSONValue, JSON], None]] = {
    "allOf": _Graph.in_place, "anyOf": _Graph.in_place, "oneOf": _Graph.in_place,
    "dependentSchemas": _Graph.in_place, "dependencies": _Graph.in_place,
    "not": _Graph.one_in_place, "if": _Graph.one_in_place, "then": _Graph.one_in_place,
    "else": _Graph.one_in_place,
    "$ref": _Graph.reference, "$dynamicRef": _Graph.reference, "$recursiveRef": _Graph.recursive_reference,
    "properties": _Graph.properties, "patternProperties": _Graph.pattern_properties,
    "additionalProperties": _Graph.additional_properties, "propertyNames": _Graph.names,
    "unevaluatedProperties": _Graph.unevaluated, "unevaluatedItems": _Graph.unevaluated,
    "items": _Graph.items, "additionalItems": _Graph.items, "prefixItems": _Graph.prefix_items,
    "contains": _Graph.contains, "required": _Graph.required, "dependentRequired": _Graph.dependent_required,
    "enum": _Graph.options, "const": _Graph.constant, "pattern": _Graph.pattern, "format": _Graph.format,
    "minLength": _Graph.length, "maxLength": _Graph.length, "uniqueItems": _Graph.unique,
    "multipleOf": _Graph.multiple, "minimum": _Graph.bound, "maximum": _Graph.bound,
    "exclusiveMinimum": _Graph.bound, "exclusiveMaximum": _Graph.bound,
}  # fmt: skip
