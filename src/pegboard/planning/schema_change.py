"""Schema change: prove that valid values stay valid, find one that does not, or say that neither was possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

import orjson
from msgspec import Struct

from pegboard.core.schema import compile_schema, shown
from pegboard.model.error import PegboardError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

PLAN_PROOF_STEPS = 20_000  # comparisons of subschemas, before one pair of schemas is called unclear
PLAN_SCHEMA_LEVELS = 40  # of nested comparisons
PLAN_SAMPLES = 400  # values that are tried as a counterexample to one pair of schemas
PLAN_DIFFERENCES = 6  # of one pair of schemas that are listed

SchemaVerdict = Literal["same", "compatible", "breaking", "unclear"]

_TYPES = ("null", "boolean", "number", "string", "array", "object")
# Keywords of JSON Schema 2020-12 that no value can fail.
_ANNOTATIONS = frozenset(
    "$comment $defs $schema contentEncoding contentMediaType contentSchema default definitions deprecated description "
    "examples readOnly title writeOnly".split()
)
# Keywords that are proven only by the same keyword with the same value. Their meaning does not depend on others.
_TAKEN_WHOLE = frozenset("not dependentSchemas dependentRequired propertyNames pattern format enum const".split())
# Keywords that are read together.
_TAKEN_TOGETHER = (("if", "then", "else"), ("contains", "minContains", "maxContains"))
# Their meaning depends on every keyword next to them, or on where they were reached from.
_UNPROVABLE = frozenset("unevaluatedProperties unevaluatedItems $dynamicRef $recursiveRef dependencies".split())
_OF_TYPE = {
    "minimum": "number", "maximum": "number", "exclusiveMinimum": "number", "exclusiveMaximum": "number",
    "multipleOf": "number", "minLength": "string", "maxLength": "string", "pattern": "string", "format": "string",
    "minItems": "array", "maxItems": "array", "uniqueItems": "array", "items": "array", "prefixItems": "array",
    "contains": "array", "minContains": "array", "maxContains": "array",
    "required": "object", "properties": "object", "additionalProperties": "object", "patternProperties": "object",
    "propertyNames": "object", "minProperties": "object", "maxProperties": "object", "dependentSchemas": "object",
    "dependentRequired": "object",
}  # fmt: skip
_ITEMS = frozenset({"items", "prefixItems"})
_PROPERTIES = frozenset({"properties", "additionalProperties", "patternProperties"})

Parts = tuple[JSON, ...]


class SchemaChange(Struct, frozen=True, kw_only=True):
    """Whether values valid before are valid after, what differs, and as `example` a value that is no longer valid.

    `compatible` and `breaking` are proven: by the schemas, and by the example. Everything else is `unclear`.
    """

    verdict: SchemaVerdict
    differences: tuple[str, ...] = ()
    example: str = ""


SAME = SchemaChange(verdict="same")


def compare_schemas(before: JSON, after: JSON) -> SchemaChange:
    """Tell whether every value that `before` allows is allowed by `after`.

    >>> compare_schemas({"type": "integer", "maximum": 9}, {"type": "number"}).verdict
    'compatible'
    >>> compare_schemas({"type": "string"}, {"type": "string", "maxLength": 3})
    SchemaChange(verdict='breaking', differences=('$: maxLength is new: 3',), example='"aaaa"')
    """
    if _written(_without_annotations(before)) == _written(_without_annotations(after)):
        return SAME
    differences = tuple(_differences(before, after))
    try:
        was_valid, is_valid = compile_schema(before).is_valid, compile_schema(after).is_valid
        if _Proof(before, after).holds(before, after):
            return SchemaChange(verdict="compatible", differences=differences)
    except (_TooLargeError, PegboardError):
        return SchemaChange(verdict="unclear", differences=differences)
    for value in _Samples(before, after).whole():
        try:
            is_lost = was_valid(value) and not is_valid(value)
        except PegboardError:
            continue
        if is_lost:
            return SchemaChange(verdict="breaking", differences=differences, example=shown(value))
    return SchemaChange(verdict="unclear", differences=differences)


class _TooLargeError(Exception):
    """The schemas need more comparisons than one pair may take."""


# ---------------------------------------------------------------- the proof


class _Proof:
    """Proves that one schema allows only what another allows. Whatever it does not understand, it does not prove.

    A schema is read as its parts, each of which a value must fulfil: those of `allOf` and behind `$ref` too. To leave
    out a part of the schema before only makes it allow more, so the proof never depends on a keyword being understood
    there; each keyword of the schema after must be proven.
    """

    def __init__(self, before: JSON, after: JSON) -> None:
        self._before, self._after = before, after
        self._left = PLAN_PROOF_STEPS
        self._has_same_definitions = _definitions(before) == _definitions(after)

    def holds(self, before: JSONValue, after: JSONValue, level: int = 0) -> bool:
        """Tell whether it is proven; `False` says only that it is not."""
        self._left -= 1
        if self._left < 0 or level > PLAN_SCHEMA_LEVELS:
            raise _TooLargeError
        if after is True or before is False:
            return True
        parts = self._parts(before, self._before)
        if parts is None:
            return True
        return self._proven(parts, after, level)

    def _proven(self, parts: Parts, after: JSONValue, level: int) -> bool:
        self._left -= 1
        if self._left < 0:
            raise _TooLargeError
        if after is True:
            return True
        if any(self._is_same(part, after) for part in parts):
            return True
        types = _types_of(parts)
        if len(types) == 0:
            return True
        values = _values_of(parts, types)
        if values is not None:
            return all(self._is_taken(value, after) for value in values if self._was_valid(value, parts))
        if len(types) > 1:
            return all(self._proven((*parts, {"type": kind}), after, level) for kind in types)
        if self._fulfilled(parts, types[0], after, level):
            return True
        for place, part in enumerate(parts):
            for rule in ("anyOf", "oneOf"):
                if is_list(part.get(rule)):
                    others = (*parts[:place], {key: part[key] for key in part if key != rule}, *parts[place + 1 :])
                    return all(
                        self._proven((*others, *chosen), after, level + 1)
                        for branch in part[rule]
                        if (chosen := self._parts(branch, self._before)) is not None
                    )
        return False

    def _fulfilled(self, parts: Parts, kind: str, after: JSONValue, level: int) -> bool:
        """Tell whether every value of one type that fulfils the parts fulfils each part of `after`."""
        wanted = self._parts(after, self._after)
        return wanted is not None and all(self._part_fulfilled(parts, kind, part, level) for part in wanted)

    def _part_fulfilled(self, parts: Parts, kind: str, wanted: JSON, level: int) -> bool:
        if not _UNPROVABLE.isdisjoint(wanted):
            return False
        family = "number" if kind == "integer" else kind
        rules = [rule for rule in wanted if rule not in _ANNOTATIONS and _OF_TYPE.get(rule, family) == family]
        return all(self._rule_fulfilled(parts, kind, rule, wanted, level) for rule in rules)

    def _rule_fulfilled(self, parts: Parts, kind: str, rule: str, wanted: JSON, level: int) -> bool:
        value: Any = wanted[rule]
        for together in _TAKEN_TOGETHER:
            if rule in together:
                theirs = {key: wanted[key] for key in together if key in wanted}
                return any(self._is_same({key: part[key] for key in together if key in part}, theirs) for part in parts)
        if any(rule in part and self._is_same(part[rule], value) for part in parts) and rule not in (
            _ITEMS | _PROPERTIES
        ):
            return True
        if rule in _TAKEN_WHOLE:
            return False
        if rule == "type":
            allowed = (value,) if isinstance(value, str) else tuple(value)
            return kind in allowed or (kind == "integer" and "number" in allowed)
        if rule in ("anyOf", "oneOf"):
            return self._one_fulfilled(parts, kind, value, level, is_exact=rule == "oneOf")
        if rule in _ITEMS:
            return self._items_fulfilled(parts, wanted, level)
        if rule in _PROPERTIES:
            return self._properties_fulfilled(parts, wanted, level)
        if rule == "required":
            return set(value) <= _required(parts)
        if rule in _BOUNDS:
            return _is_bounded(parts, rule, value)
        if rule == "multipleOf":
            return (kind == "integer" and value == 1) or any(
                isinstance(part.get(rule), int) and isinstance(value, int) and part[rule] % value == 0 for part in parts
            )
        if rule == "uniqueItems":
            return value is not True or _most(parts, "maxItems", 1)
        # Validators ignore keywords that JSON Schema does not define.
        return rule not in _KNOWN

    def _one_fulfilled(self, parts: Parts, kind: str, branches: Any, level: int, *, is_exact: bool) -> bool:
        for place, branch in enumerate(branches):
            if not self._proven(parts, branch, level + 1):
                continue
            others = [*branches[:place], *branches[place + 1 :]]
            if not is_exact or all(self._is_of_other_type(kind, other) for other in others):
                return True
        return False

    def _is_of_other_type(self, kind: str, schema: JSONValue) -> bool:
        parts = self._parts(schema, self._after)
        if parts is None:
            return True
        types = _types_of(parts)
        return (
            kind not in types
            and not (kind == "integer" and "number" in types)
            and not (kind == "number" and "integer" in types)
        )

    def _items_fulfilled(self, parts: Parts, wanted: JSON, level: int) -> bool:
        first: Any = wanted.get("prefixItems", [])
        places = max([len(first), *(len(part.get("prefixItems", ())) for part in parts)])
        if not all(_has_readable_items(part) for part in (*parts, wanted)):
            return False
        for place in range(places + 1):
            if _most(parts, "maxItems", place):
                return True
            theirs: Any = first[place] if place < len(first) else wanted.get("items", True)
            ours: list[Any] = [
                part["prefixItems"][place] if place < len(part.get("prefixItems", ())) else part.get("items", True)
                for part in parts
            ]
            if not self.holds({"allOf": ours}, theirs, level + 1):
                return False
        return True

    def _properties_fulfilled(self, parts: Parts, wanted: JSON, level: int) -> bool:
        patterns = wanted.get("patternProperties")
        # A name may match several patterns, so they are proven only as a whole.
        sharing = [part for part in parts if patterns and self._is_same(part.get("patternProperties"), patterns)]
        if patterns and not sharing:
            return False
        named: dict[str, Any] = wanted.get("properties", {})
        others: Any = wanted.get("additionalProperties", True)
        names = dict.fromkeys([*named, *(name for part in parts for name in part.get("properties", {}))])
        for name in names:
            ours = [_property(part, name) for part in parts]
            if not self.holds({"allOf": ours}, named.get(name, others), level + 1):
                return False
        rest: list[Any] = [
            part.get("additionalProperties", True) if part in sharing or not part.get("patternProperties") else True
            for part in parts
        ]
        return self.holds({"allOf": rest}, others, level + 1)

    # -- parts

    def _parts(self, schema: JSONValue, root: JSON) -> Parts | None:
        """Return all conditions on a value; `None` if no value fulfils them. Only references that lead further stay."""
        parts: list[JSON] = []
        waiting: list[Any] = [schema]
        followed: set[str] = set()
        while waiting:
            self._left -= 1
            if self._left < 0:
                raise _TooLargeError
            part = waiting.pop()
            if part is False:
                return None
            if not is_object(part):
                continue
            ref = part.get("$ref")
            if isinstance(ref, str) and ref not in followed:
                followed.add(ref)
                target = _pointed_at(root, ref)
                if target is not None:
                    waiting.append(target)
                elif root is self._after:
                    parts.append({"$dynamicRef": ref})  # not followed, so never proven
            waiting += part.get("allOf", [])
            own = {key: value for key, value in part.items() if key not in ("$ref", "allOf")}
            if own:
                parts.append(own)
        return tuple(parts)

    # -- values

    def _was_valid(self, value: JSONValue, parts: Parts) -> bool:
        return _judge({"allOf": list(parts)}, self._before)(value)

    def _is_taken(self, value: JSONValue, after: JSONValue) -> bool:
        return _judge({"allOf": [after]}, self._after)(value)

    def _is_same(self, before: JSONValue, after: JSONValue) -> bool:
        written = _written(before)
        if written != _written(after):
            return False
        if b'"$dynamicRef"' in written or b'"$recursiveRef"' in written:
            return False
        return b'"$ref"' not in written or self._has_same_definitions


def _definitions(root: JSON) -> bytes:
    """Return everything that a reference may lead to."""
    text = _written(root)
    if b'"$ref"' not in text:
        return b""
    is_plain = b'"$id"' not in text and b'"$anchor"' not in text
    leads_to_definitions = all(ref.startswith(("#/$defs/", "#/definitions/")) for ref in _references(root))
    definitions = (
        {key: root.get(key) for key in ("$defs", "definitions")} if is_plain and leads_to_definitions else root
    )
    return _written(definitions)


def _references(value: JSONValue) -> Iterator[str]:
    if is_object(value):
        ref = value.get("$ref")
        if isinstance(ref, str):
            yield ref
        for inner in value.values():
            yield from _references(inner)
    elif is_list(value):
        for inner in value:
            yield from _references(inner)


def _pointed_at(root: JSON, ref: str) -> JSONValue:
    """Return the schema that a reference leads to; `None` for all but plain pointers into the same schema."""
    if not ref.startswith("#/") or "%" in ref or b'"$id"' in _written(root):
        return None
    part: JSONValue = root
    for step in ref[2:].split("/"):
        part = part.get(step.replace("~1", "/").replace("~0", "~")) if is_object(part) else None
    return part


def _judge(schema: JSON, root: JSON) -> Any:
    definitions = {key: root[key] for key in ("$defs", "definitions") if key in root}
    return compile_schema({**definitions, **schema}).is_valid


def _types_of(parts: Parts) -> Sequence[str]:
    """Return the types that a value of these parts may have; `integer` only where `number` is not allowed."""
    left = set(_TYPES)
    for part in parts:
        named: Any = part.get("type")
        if named is None:
            continue
        allowed = {named} if isinstance(named, str) else set(cast("list[str]", named))
        is_narrowed = "number" in left and "number" not in allowed and "integer" in allowed
        is_narrow_already = "integer" in left and "number" in allowed
        left = (left & allowed) | ({"integer"} if is_narrowed or is_narrow_already else set[str]())
    return sorted(left)


def _values_of(parts: Parts, types: Sequence[str]) -> list[JSONValue] | None:
    """Return all values that these parts may allow, if they are few; `None` otherwise."""
    for part in parts:
        if "const" in part:
            return [part["const"]]
        if is_list(part.get("enum")):
            return list(part["enum"])
    if set(types) <= {"null", "boolean"}:
        return [None] * ("null" in types) + [False, True] * ("boolean" in types)
    return None


def _required(parts: Parts) -> set[str]:
    return {name for part in parts for name in part.get("required", ())}


def _property(part: JSON, name: str) -> JSONValue:
    named: Any = part.get("properties", {})
    if name in named:
        return named[name]
    return True if part.get("patternProperties") else part.get("additionalProperties", True)


def _has_readable_items(part: JSON) -> bool:
    return is_object(part.get("items", True)) or isinstance(part.get("items", True), bool)


# -- bounds


def _least(parts: Parts, rule: str, bound: Any) -> bool:
    return any(part[rule] >= bound for part in parts if rule in part)


def _most(parts: Parts, rule: str, bound: Any) -> bool:
    return any(part[rule] <= bound for part in parts if rule in part)


_BOUNDS = frozenset(
    "minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength minItems maxItems minProperties "
    "maxProperties".split()
)


def _is_bounded(parts: Parts, rule: str, bound: Any) -> bool:
    """Tell whether values of these parts keep a bound."""
    match rule:
        case "minimum" | "exclusiveMinimum":
            is_above = _least(parts, "exclusiveMinimum", bound)
            is_strict = rule == "exclusiveMinimum"
            return is_above or any(
                part["minimum"] > bound or (part["minimum"] == bound and not is_strict)
                for part in parts
                if "minimum" in part
            )
        case "maximum" | "exclusiveMaximum":
            is_below = _most(parts, "exclusiveMaximum", bound)
            is_strict = rule == "exclusiveMaximum"
            return is_below or any(
                part["maximum"] < bound or (part["maximum"] == bound and not is_strict)
                for part in parts
                if "maximum" in part
            )
        case "minProperties":
            return bound <= len(_required(parts)) or _least(parts, rule, bound)
        case "maxProperties":
            return _most(parts, rule, bound) or any(
                part.get("additionalProperties") is False
                and not part.get("patternProperties")
                and len(part.get("properties", {})) <= bound
                for part in parts
            )
        case "minLength" | "minItems":
            return bound <= 0 or _least(parts, rule, bound)
        case _:
            return _most(parts, rule, bound)


_KNOWN = frozenset({
    *_OF_TYPE, *_TAKEN_WHOLE, *_UNPROVABLE, "type", "anyOf", "oneOf", "allOf", "$ref", "if", "then", "else", "$id",
    "$anchor", "$dynamicAnchor", "$vocabulary",
})  # fmt: skip


# ---------------------------------------------------------------- a counterexample


class _Samples:
    """Values at the edges of two schemas: most fulfil the one before, and each is judged before it is believed."""

    def __init__(self, before: JSON, after: JSON) -> None:
        self._before, self._after = before, after
        self._left = PLAN_SAMPLES

    def whole(self) -> Iterator[JSONValue]:
        """Yield values for the whole schemas."""
        for value in self._of(self._before, self._after, 0):
            self._left -= 1
            if self._left < 0:
                return
            yield value

    def _of(self, before: JSONValue, after: JSONValue, level: int) -> Iterator[JSONValue]:
        ours, theirs = _merged(before, self._before), _merged(after, self._after)
        if level > 6:
            return
        if "const" in ours:
            yield ours["const"]
            return
        if is_list(ours.get("enum")):
            yield from ours["enum"]
            return
        for rule in ("default", "examples"):
            known = ours.get(rule)
            yield from known if rule == "examples" and is_list(known) else [known] * (rule in ours)
        for branch in (*ours.get("anyOf", ()), *ours.get("oneOf", ())):
            yield from self._of({**ours, "anyOf": [], "oneOf": [], **_merged(branch, self._before)}, theirs, level + 1)
        types = ours.get("type", [*_TYPES, "integer"])
        for kind in [types] if isinstance(types, str) else types:
            yield from self._of_type(kind, ours, theirs, level)

    def _of_type(self, kind: str, ours: JSON, theirs: JSON, level: int) -> Iterator[JSONValue]:
        match kind:
            case "null":
                yield None
            case "boolean":
                yield from (True, False)
            case "integer" | "number":
                yield from _numbers(kind, ours, theirs)
            case "string":
                sizes = [
                    schema[rule] for schema in (ours, theirs) for rule in ("minLength", "maxLength") if rule in schema
                ]
                yield from ("a" * size for size in sorted({1, *_around(sizes)}) if 0 <= size <= 10_000)
            case "array":
                items: list[Any] = list(self._few(ours.get("items", True), theirs.get("items", True), level))
                sizes = [
                    schema[rule] for schema in (ours, theirs) for rule in ("minItems", "maxItems") if rule in schema
                ]
                for size in sorted({0, 1, *_around(sizes)}):
                    if 0 <= size <= 100:
                        yield from ([item] * size for item in items or [0])
                yield items
            case _:
                yield from self._objects(ours, theirs, level)

    def _objects(self, ours: JSON, theirs: JSON, level: int) -> Iterator[JSONValue]:
        named: dict[str, Any] = ours.get("properties", {})
        wanted: dict[str, Any] = theirs.get("properties", {})
        values = {
            name: list(self._few(schema, wanted.get(name, theirs.get("additionalProperties", True)), level))
            for name, schema in named.items()
        }
        required: Any = ours.get("required", ())
        least: dict[str, Any] = {name: next(iter(values.get(name, ())), 0) for name in required}
        every: dict[str, Any] = {name: many[0] for name, many in values.items() if many} | least
        yield dict(least)
        yield dict(every)
        for name, many in values.items():
            for value in many:
                yield {**least, name: value}
            if name not in required:
                yield {key: value for key, value in every.items() if key != name}
        others = ours.get("additionalProperties", True)
        for name in [*(name for name in wanted if name not in named), "other"]:
            for value in self._few(others, wanted.get(name, theirs.get("additionalProperties", True)), level):
                yield {**least, name: value}

    def _few(self, ours: JSONValue, theirs: JSONValue, level: int) -> Iterator[JSONValue]:
        if ours is False:
            return
        for count, value in enumerate(self._of(ours, theirs, level + 1)):
            if count == 24:
                return
            yield value


def _merged(schema: JSONValue, root: JSON) -> JSON:
    """Return one mapping of a schema with what it refers to; where two say the same keyword, the nearest counts."""
    merged: JSON = {}
    waiting: list[Any] = [schema]
    seen = 0
    while waiting and seen < 50:
        seen += 1
        part = waiting.pop(0)
        if not is_object(part):
            continue
        for key, value in part.items():
            if key in ("properties", "required") and key in merged:
                merged[key] = {**value, **merged[key]} if key == "properties" else [*merged[key], *value]
            else:
                merged.setdefault(key, value)
        if isinstance(part.get("$ref"), str):
            waiting.append(_pointed_at(root, part["$ref"]))
        waiting += part.get("allOf", [])
    return merged


def _numbers(kind: str, ours: JSON, theirs: JSON) -> Iterator[JSONValue]:
    rules = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
    known = [schema[rule] for schema in (ours, theirs) for rule in rules if rule in schema]
    for number in sorted({0, 1, *_around(known)}):
        yield int(number) if kind == "integer" else number
    if kind == "number":
        yield 0.5


def _around(sizes: Sequence[Any]) -> set[Any]:
    return {near for size in sizes for near in (size - 1, size, size + 1)}


# ---------------------------------------------------------------- words


def _differences(before: JSON, after: JSON) -> Iterator[str]:
    """Yield the first differences between two schemas, each with its path."""
    for count, text in enumerate(_compared(before, after, "$")):
        if count == PLAN_DIFFERENCES:
            yield "and more"
            return
        yield text


def _compared(before: JSONValue, after: JSONValue, path: str) -> Iterator[str]:
    if not (is_object(before) and is_object(after)):
        if _written(before) != _written(after):
            yield f"{path}: {shown(before)} → {shown(after)}"
        return
    for rule in dict.fromkeys([*before, *after]):
        old, new = before.get(rule), after.get(rule)
        if rule in _ANNOTATIONS - {"$defs", "definitions"} or _written(old) == _written(new):
            continue
        if rule == "properties" and is_object(old or {}) and is_object(new or {}):
            yield from _properties_compared(cast("JSON", old or {}), cast("JSON", new or {}), path)
        elif rule == "required":
            yield from (f"{path}.{name}: now required" for name in new or () if name not in (old or ()))
            yield from (f"{path}.{name}: no longer required" for name in old or () if name not in (new or ()))
        elif rule in ("items", "additionalProperties", "$defs", "definitions") and is_object(old) and is_object(new):
            yield from _compared(old, new, f"{path}.{rule}" if rule != "items" else f"{path}[]")
        elif rule not in before:
            yield f"{path}: {rule} is new: {shown(new)}"
        elif rule not in after:
            yield f"{path}: {rule} is gone: {shown(old)}"
        else:
            yield f"{path}: {rule} {shown(old)} → {shown(new)}"


def _properties_compared(before: JSON, after: JSON, path: str) -> Iterator[str]:
    yield from (f"{path}.{name}: is gone" for name in before if name not in after)
    yield from (f"{path}.{name}: is new" for name in after if name not in before)
    for name in before:
        if name in after:
            yield from _compared(before[name], after[name], f"{path}.{name}")


def _without_annotations(value: JSONValue, *, is_names: bool = False) -> JSONValue:
    """Return a schema without titles, descriptions and examples; names of properties are not keywords."""
    if is_list(value):
        return [_without_annotations(inner) for inner in value]
    if not is_object(value):
        return value
    rules = value if is_names else {k: v for k, v in value.items() if k not in _ANNOTATIONS - {"$defs", "definitions"}}
    return {
        key: inner
        if key in ("enum", "const", "required") and not is_names
        else _without_annotations(
            inner,
            is_names=not is_names
            and key in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"),
        )
        for key, inner in rules.items()
    }


def _written(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=str)
