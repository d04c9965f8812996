"""Schemas: what OpenAPI 3.0 and 3.1 say of values, as JSON Schema 2020-12 that stands by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pegboard.core.names import legal
from pegboard.model.bounds import OPENAPI_SCHEMA_LEVELS, Bounds
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.sources.foreign_text import cleaned, has_hidden
from pegboard.sources.openapi.document import Document, UnfitError

_ONE = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
                  "unevaluatedItems", "unevaluatedProperties", "contentSchema"})  # fmt: skip
_SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})
_KEPT = frozenset(
    "type enum const default format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength "
    "pattern minItems maxItems uniqueItems minContains maxContains minProperties maxProperties required "
    "dependentRequired title description examples deprecated contentEncoding contentMediaType".split()
)
# They change what a reference means; an API that needs them is none that we can read.
_BASES = frozenset({"$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"})
_PROSE = frozenset({"title", "description"})


class Drawing:
    """The schemas of one operation. What they refer to is collected in `definitions`, for `$defs`."""

    def __init__(self, document: Document, *, bounds: Bounds, is_request: bool) -> None:
        self.definitions: JSON = {}
        self._document, self._bounds = document, bounds
        # What only the server sets is nothing to ask for, and what only we may know is nothing that comes back.
        self._left_out = "readOnly" if is_request else "writeOnly"
        self._names: dict[str, str] = {}
        self._waiting: list[tuple[str, str]] = []
        self._left = 2 * bounds.subschemas

    def whole(self, schema: JSON) -> JSON:
        """Return a drawn schema with the definitions that it needs.

        Raises:
            UnfitError: one of them cannot be used.
        """
        while self._waiting:
            name, reference = self._waiting.pop()
            target = self._document.target(reference)
            self._check_not_endless(target)
            self.definitions[name] = self.draw(target)
        return {**schema, "$defs": self.definitions} if self.definitions else schema

    def draw(self, schema: JSONValue, *, depth: int = 0) -> Any:
        """Return one schema.

        Raises:
            UnfitError: it cannot be used.
        """
        self._left -= 1
        if self._left < 0 or depth > OPENAPI_SCHEMA_LEVELS:
            raise UnfitError("its schemas are too large, or nested too deep")
        if isinstance(schema, bool):
            return schema
        if not is_object(schema):
            raise UnfitError("one of its schemas is no object")
        if _BASES & set(schema):
            raise UnfitError(f"its schemas use {sorted(_BASES & set(schema))[0]!r}")
        drawn = _of_30(self._keys(schema, depth), schema)
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return drawn
        there = {"$ref": f"#/$defs/{self._defined(reference)}"}
        # In 3.0 nothing beside a reference counts.
        return there if self._document.is_30 else {**drawn, **there}

    def _keys(self, schema: JSON, depth: int) -> JSON:
        drawn: JSON = {}
        for key, value in schema.items():
            if key in _ONE and (is_object(value) or isinstance(value, bool)):
                drawn[key] = self.draw(value, depth=depth + 1)
            elif key in _SEVERAL and is_list(value):
                drawn[key] = [self.draw(item, depth=depth + 1) for item in value]
            elif key in _NAMED and is_object(value):
                drawn[key] = self._members(value, schema, drawn, depth)
            elif key in _PROSE:
                drawn[key] = cleaned(str(value), max_bytes=self._bounds.description_bytes)
            elif key in _KEPT and key not in drawn:
                drawn[key] = _plain(value)
        if drawn.get("required") == []:
            del drawn["required"]
        return drawn

    def _members(self, members: JSON, schema: JSON, drawn: JSON, depth: int) -> JSON:
        if (hidden := next(filter(has_hidden, members), None)) is not None:
            raise UnfitError(f"its schemas have invisible characters in {cleaned(hidden)[:40]!r}")
        left_out = {
            name for name, member in members.items() if is_object(member) and member.get(self._left_out) is True
        }
        if left_out and is_list(schema.get("required")):
            drawn["required"] = [name for name in schema["required"] if name not in tuple(left_out)]
        return {name: self.draw(member, depth=depth + 1) for name, member in members.items() if name not in left_out}

    def _defined(self, reference: str) -> str:
        """Return the name of the definition for a reference; it is drawn later, as it may lead to itself on the way."""
        if reference in self._names:
            return self._names[reference]
        base = legal(reference.rpartition("/")[2])
        taken = set(self._names.values())
        name = next(name for name in (base, *(f"{base}_{n}" for n in range(2, 10_000))) if name not in taken)
        self._names[reference] = name
        self._waiting.append((name, reference))
        return name

    def _check_not_endless(self, target: JSONValue) -> None:
        seen: list[JSONValue] = []
        while is_object(target) and isinstance(target.get("$ref"), str):
            if any(target is known for known in seen):
                raise UnfitError("its schemas have a $ref that leads to itself")
            seen.append(target)
            target = self._document.target(target["$ref"])


def _plain(value: JSONValue) -> JSONValue:
    """Return a value of a schema. An integer of more than 64 bits becomes the number that most readers make of it."""
    if is_object(value):
        return {_plain_text(key): _plain(inner) for key, inner in value.items()}
    if is_list(value):
        return [_plain(inner) for inner in value]
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        try:
            return float(value)
        except OverflowError:
            raise UnfitError("its schemas have a number that is too large") from None
    return _plain_text(value) if isinstance(value, str) else value


def _plain_text(text: str) -> str:
    if has_hidden(text):
        raise UnfitError(f"its schemas have invisible characters in {cleaned(text)[:40]!r}")
    return text


def _of_30(drawn: JSON, schema: Mapping[str, Any]) -> JSON:
    """Return a schema with the words of OpenAPI 3.0 in those of 2020-12; many a description of 3.1 has them too."""
    for bound in ("Minimum", "Maximum"):
        exclusive, plain = f"exclusive{bound}", bound.lower()
        if isinstance(drawn.get(exclusive), bool) and drawn.pop(exclusive) and plain in drawn:
            drawn[exclusive] = drawn.pop(plain)
    if schema.get("nullable") is not True:
        return drawn
    if is_list(drawn.get("enum")) and None not in drawn["enum"]:
        drawn["enum"] = [*drawn["enum"], None]
    if isinstance(drawn.get("type"), str):
        return {**drawn, "type": [drawn["type"], "null"]}
    return {"anyOf": [drawn, {"type": "null"}]} if drawn else drawn
