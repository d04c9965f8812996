"""Schema cost: how long judging a value by a schema can hold whoever waits, told before it is done.

The engine cannot be stopped, and lets no other thread run. So what it will do is counted beforehand: at how many
places of the value each subschema is tried, by however many ways (`$ref`, `anyOf`, …) it is reached, and what its rules
cost there. The count is rather too high; its unit is the nanosecond of an ordinary machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import unquote

from pegboard.core.pattern_cost import PatternCost, pattern_cost
from pegboard.model.bounds import (
    JUDGED_VALUES,
    JUDGING_NS,
    JUDGING_STEPS,
    LIGHT_PLACE_NS,
    LIGHT_ROOT_NS,
    SCHEMA_COMPILE_NS,
    SCHEMA_HOPS,
    TELLING_NS,
)
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object, place_in

# What the engine takes, measured and rounded up; nanoseconds.
_VISIT, _RULE, _REQUIRED, _OPTION = 30, 20, 60, 22  # not a limit: measured
_CONTAINER_OPTION, _OPTION_PART, _UNIQUE = 2_000, 300, 250  # not a limit: measured
_LENGTH_CHAR, _FORMAT_CHAR, _SLOW_FORMAT_CHAR = 4, 20, 150  # not a limit: measured
_NUMBER_DIGIT, _COMPARED_CHAR = 60, 1  # not a limit: measured
_ERROR, _COPIED_VALUE, _COPIED_CHAR, _ERROR_LEVEL = 6_000, 800, 3, 400  # not a limit: measured
_COMPILE_NODE, _COMPILE_AGAIN, _META_SCHEMA = 5_000, 25_000, 200_000  # not a limit: measured
_ENDLESS = 1 << 60  # not a limit: where counting stops
_WORD = 1 << 63  # not a limit: integers of the machine
_LEVELS_AHEAD = 64  # not a limit: how far a schema without an end is followed to see that it costs little
_UNRANKED, _BEING_RANKED = -1, -2
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
    """How large a value is: its scalars and containers, the characters of its texts and keys, its levels."""

    values: int
    chars: int
    levels: int


class _Node:
    """One subschema: what its rules cost at a place, and where they lead."""

    __slots__ = (
        "additional", "char_ns", "compared_ns", "each", "error_ns", "fixed", "flat_char_ns", "flat_ns", "in_place",
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
        # What a place costs with all that is tried there with it, for any value and for each character.
        self.error_ns = self.flat_ns = self.flat_char_ns = 0


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
        self._ahead: Counts | None = {self._graph.root: 1}
        self._inherited_ns = 0
        self.is_light = self._is_light()

    def hold(self, value: JSONValue) -> None:
        """Do nothing if judging the value holds nobody for long.

        Raises:
            CallError: `schema_too_complex`.
        """
        size = size_of(value, at_most=JUDGED_VALUES)
        is_little = size.values <= JUDGED_VALUES and self._at_most(size) <= JUDGING_NS
        if not is_little and not (size.values < JUDGING_STEPS and self._is_counted_within(value)):
            raise CallError(
                "schema_too_complex",
                f"The schema is too complex to judge this value by: at least {size.values} values and {size.chars} "
                "characters. Send less at once, or have the schema made simpler (fewer nested "
                "alternatives, references and regular expressions).",
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
        return self._place_ns[0] + size.values * place_ns + size.chars * max(self._char_ns[: size.levels + 1])

    def _look_ahead(self, levels: int) -> None:
        """Count what may be tried at one place, down to so many levels below the root."""
        if not self._place_ns:
            self._place_ns.append(self._graph.root.flat_ns)
            self._char_ns.append(self._graph.root.flat_char_ns)
        while len(self._place_ns) <= levels:
            if self._ahead is None or self._place_ns[-1] >= JUDGING_NS:
                self._place_ns.append(self._place_ns[-1] if self._ahead is None else _ENDLESS)
                self._char_ns.append(self._char_ns[-1])
                continue
            property_ns = item_ns = property_char_ns = item_char_ns = key_char_ns = 0
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
                key_char_ns += count * (node.key_char_ns + sum(name.flat_char_ns for name in node.names))
                self._inherited_ns = min(self._inherited_ns + count * node.item_ns, _ENDLESS)
                for child in chain({*one}, node.each):
                    of_properties[child] = of_properties.get(child, 0) + count
                for child in chain({*one_item}, node.items):
                    of_items[child] = of_items.get(child, 0) + count
            self._place_ns.append(min(max(property_ns, item_ns) + self._inherited_ns, _ENDLESS))
            self._char_ns.append(min(max(property_char_ns, item_char_ns, key_char_ns), _ENDLESS))
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
            error_ns = _ERROR + size.values * _COPIED_VALUE + size.chars * _COPIED_CHAR + self._levels * _ERROR_LEVEL
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
        return node.place_ns + node.compared_ns + (node.item_ns * size_of(value).values if node.item_ns else 0)
    return node.place_ns + node.char_ns * _chars(value)


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


def _char_ns(one: list[_Node], each: list[_Node]) -> int:
    return max((node.flat_char_ns for node in one), default=0) + sum(node.flat_char_ns for node in each)


# ---------------------------------------------------------------- values


def size_of(value: JSONValue, *, at_most: int = _ENDLESS) -> Size:
    """Return how large a value is, walking without recursion; past `at_most` values it is counted no further."""
    row: list[Any] = [value]
    values = chars = level = 0
    while row:
        values += len(row)
        if values > at_most:
            break
        below: list[Any] = []
        kinds: set[type] = {type(item) for item in row}
        if str in kinds:
            chars += sum([len(item) for item in row if type(item) is str])
        if int in kinds:
            chars += sum([item.bit_length() // 3 for item in row if type(item) is int and not -_WORD < item < _WORD])
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
    return Size(values, chars, level - 1)


def _chars(value: JSONValue) -> int:
    """Return the digits of a number too long for the machine."""
    return value.bit_length() // 3 if isinstance(value, int) and not -_WORD < value < _WORD else 0


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
        self._waiting: list[tuple[JSON, _Node, JSON]] = []
        self._patterns: dict[str, PatternCost] = {}
        self._named: dict[str, list[JSON]] | None = None
        self._never = self._new()
        self._never.rules = 1
        self._foreign: _Node | None = None
        self.root = self._node(schema, schema)
        while self._waiting:
            self._read(*self._waiting.pop())
        self.compile_ns += len(self.nodes) * _COMPILE_NODE

    def _new(self) -> _Node:
        node = _Node(len(self.nodes))
        self.nodes.append(node)
        return node

    def _node(self, schema: JSONValue, resource: JSON) -> _Node:
        """Return the subschema at an object, which is read later; `resource` is what its references begin at."""
        if not is_object(schema):
            return self._never
        node = self._known.get(id(schema))
        if node is None:
            node = self._known[id(schema)] = self._new()
            self._waiting.append((schema, node, schema if "$id" in schema else resource))
        return node

    def _nodes(self, schemas: JSONValue, resource: JSON) -> list[_Node]:
        parts = schemas.values() if is_object(schemas) else schemas if is_list(schemas) else (schemas,)
        return [self._node(part, resource) for part in parts if part is not True and not is_strings(part)]

    def _read(self, schema: JSON, node: _Node, resource: JSON) -> None:
        for rule, value in schema.items():
            if rule in _ONLY_WORDS:
                continue
            node.place_ns += _RULE
            reader = _READERS.get(rule)
            if reader is not None:
                reader(self, node, value, resource)
            elif rule != "type":
                node.rules += 1
        kinds = schema.get("type")
        if kinds is not None:
            node.kinds = frozenset(str(kind) for kind in (kinds if is_list(kinds) else [kinds]))

    # -- one function a rule

    def in_place(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        node.in_place += self._nodes(value, resource)
        node.rules += 1

    def one_in_place(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        node.in_place += self._nodes([value], resource)
        node.rules += 1

    def reference(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        node.in_place += self._referred(str(value), resource)

    def properties(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        if is_object(value):
            node.properties = {name: self._node(part, resource) for name, part in value.items() if part is not True}

    def pattern_properties(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        node.each += self._nodes(value, resource)
        for pattern in value if is_object(value) else ():
            cost = self._pattern_cost(pattern)
            node.place_ns += cost.text_ns
            # Once for its own subschema, and once more for `additionalProperties`.
            node.key_char_ns += 2 * cost.char_ns

    def additional_properties(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        node.rules += 1
        if is_object(value):
            node.additional = self._node(value, resource)

    def unevaluated(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        node.is_unevaluated = True
        node.rules += 1
        if is_object(value):
            node.each.append(self._node(value, resource))
            node.items.append(self._node(value, resource))

    def items(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        if value is not True:
            node.rest = self._node(value, resource)

    def prefix_items(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        if is_list(value):
            node.prefix += [self._node(part, resource) for part in value]

    def contains(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        node.rules += 1
        node.items += self._nodes([value], resource)

    def names(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        node.names += self._nodes([value], resource)

    def required(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        node.required = tuple(name for name in value if isinstance(name, str)) if is_list(value) else ()
        node.place_ns += len(node.required)

    def dependent_required(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        names = sum(len(part) for part in value.values() if is_list(part)) if is_object(value) else 0
        node.rules += names
        node.place_ns += names * _REQUIRED

    def options(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        node.fixed = value if is_list(value) else []
        self._compared(node, node.fixed)

    def constant(self, node: _Node, value: JSONValue, resource: JSON) -> None:
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
        node.error_ns += size.values * _COPIED_VALUE + size.chars * _COPIED_CHAR

    def pattern(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        cost = self._pattern_cost(str(value))
        node.rules += 1
        node.place_ns += cost.text_ns
        node.char_ns += cost.char_ns

    def format(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        node.rules += 1
        node.char_ns += _SLOW_FORMAT_CHAR if value in _SLOW_FORMATS else _FORMAT_CHAR

    def length(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        node.rules += 1
        node.char_ns += _LENGTH_CHAR

    def unique(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        node.rules += 1
        node.item_ns += _UNIQUE

    def number(self, node: _Node, value: JSONValue, resource: JSON) -> None:
        node.rules += 1
        node.char_ns += _NUMBER_DIGIT

    # -- references and patterns

    def _pattern_cost(self, pattern: str) -> PatternCost:
        cost = self._patterns.get(pattern)
        if cost is None:
            cost = self._patterns[pattern] = pattern_cost(pattern)
            self.compile_ns += cost.compile_ns
        return cost

    def _referred(self, reference: str, resource: JSON) -> list[_Node]:
        """Return the subschemas that a reference may mean; more than one where names are given twice."""
        uri, _, fragment = reference.partition("#")
        resources = [resource]
        if uri:
            own = str(resource.get("$id", "")).partition("#")[0]
            resources = [resource] if uri == own else self._resources(uri)
        if not fragment:
            targets: list[JSONValue] = [*resources]
        elif fragment.startswith("/"):
            targets = [part for base in resources for part in _pointed(base, fragment)]
        else:
            targets = [*self._names_given().get("#" + fragment, [])]
        if not targets:
            return [self._from_elsewhere()]
        return [self._node(target, resource) for target in targets if target is not True]

    def _resources(self, uri: str) -> list[JSON]:
        return [
            schema
            for name, schemas in self._names_given().items()
            for schema in schemas
            if not name.startswith("#") and (name == uri or name.endswith("/" + uri.rpartition("/")[2]))
        ]

    def _names_given(self) -> dict[str, list[JSON]]:
        """Return all parts that have an `$id` or an anchor, by it."""
        if self._named is None:
            self._named = {}
            waiting: list[JSONValue] = [self._whole]
            while waiting:
                part = waiting.pop()
                if is_object(part):
                    for rule, mark in (("$id", ""), ("$anchor", "#"), ("$dynamicAnchor", "#")):
                        if isinstance(part.get(rule), str):
                            self._named.setdefault(f"{mark}{part[rule]}".rstrip("#"), []).append(part)
                waiting.extend(part.values() if is_object(part) else part if is_list(part) else ())
        return self._named

    def _from_elsewhere(self) -> _Node:
        """Return what stands for a schema that the engine has of its own: those of the schema language."""
        if self._foreign is None:
            node = self._foreign = self._new()
            node.place_ns, node.char_ns, node.rules = _META_SCHEMA, _SLOW_FORMAT_CHAR, 100
            node.each, node.items = [node], [node]
        return self._foreign


def is_strings(value: JSONValue) -> bool:
    """Tell whether a value is a list: of names, in `dependencies` of earlier drafts."""
    return is_list(value)


def _pointed(base: JSON, fragment: str) -> list[JSONValue]:
    """Return what a JSON Pointer leads to, or nothing."""
    part: JSONValue = base
    for step in unquote(fragment).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if is_object(part) and name in part:
            part = part[name]
        elif is_list(part) and (place := place_in(part, name)) is not None:
            part = part[place]
        else:
            return []
    return [part]


_READERS: Mapping[str, Callable[[_Graph, _Node, JSONValue, JSON], None]] = {
    "allOf": _Graph.in_place, "anyOf": _Graph.in_place, "oneOf": _Graph.in_place,
    "dependentSchemas": _Graph.in_place, "dependencies": _Graph.in_place,
    "not": _Graph.one_in_place, "if": _Graph.one_in_place, "then": _Graph.one_in_place,
    "else": _Graph.one_in_place,
    "$ref": _Graph.reference, "$dynamicRef": _Graph.reference, "$recursiveRef": _Graph.reference,
    "properties": _Graph.properties, "patternProperties": _Graph.pattern_properties,
    "additionalProperties": _Graph.additional_properties, "propertyNames": _Graph.names,
    "unevaluatedProperties": _Graph.unevaluated, "unevaluatedItems": _Graph.unevaluated,
    "items": _Graph.items, "prefixItems": _Graph.prefix_items,
    "contains": _Graph.contains, "required": _Graph.required, "dependentRequired": _Graph.dependent_required,
    "enum": _Graph.options, "const": _Graph.constant, "pattern": _Graph.pattern, "format": _Graph.format,
    "minLength": _Graph.length, "maxLength": _Graph.length, "uniqueItems": _Graph.unique,
    "multipleOf": _Graph.number, "minimum": _Graph.number, "maximum": _Graph.number,
    "exclusiveMinimum": _Graph.number, "exclusiveMaximum": _Graph.number,
}  # fmt: skip
