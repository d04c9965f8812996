"""Schema translation: what OpenAPI 3.0 and 3.1 say of values, as JSON Schema 2020-12 that stands by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pegboard.core.names import legal
from pegboard.model.bounds import OPENAPI_SCHEMA_LEVELS, Bounds
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.sources.foreign_text import cleaned, has_hidden
from pegboard.sources.openapi.document import Document, UnfitError

_ONE = frozenset({
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "contentSchema",
})  # fmt: skip
_SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})
_TAKEN_OVER = frozenset(
    "type enum const default format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength "
    "pattern minItems maxItems uniqueItems minContains maxContains minProperties maxProperties required "
    "dependentRequired title description examples deprecated contentEncoding contentMediaType".split()
)
# They change what a reference means; an API that needs them cannot be read here.
_BASES = frozenset({"$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"})
_PROSE = frozenset({"title", "description"})


class SchemaTranslation:
    """The schemas of one operation. What they refer to is collected in `definitions`, for `$defs`."""

    def __init__(self, document: Document, *, bounds: Bounds, is_request: bool) -> None:
        self.definitions: JSON = {}
        self._document, self._bounds = document, bounds
        # What only the server sets is nothing to ask for, and what only we may know is nothing that comes back.
        self._left_out = "readOnly" if is_request else "writeOnly"
        self._names: dict[str, str] = {}
        self._waiting: list[tuple[str, str]] = []
        self._left = 2 * bounds.subschemas

    def with_definitions(self, schema: JSON) -> JSON:
        """Return a translated schema with the definitions that it needs.

        Raises:
            UnfitError: one of them cannot be used.
        """
        while self._waiting:
            name, reference = self._waiting.pop()
            target = self._document.target(reference)
            self._check_not_endless(target)
            self.definitions[name] = self.translate(target)
        return {**schema, "$defs": self.definitions} if self.definitions else schema

    def translate(self, schema: JSONValue, *, depth: int = 0) -> Any:
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
        translated = _of_30(self._keys(schema, depth), schema)
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return translated
        reference_only = {"$ref": f"#/$defs/{self._defined(reference)}"}
        # In 3.0 nothing counts that stands with a reference.
        return reference_only if self._document.is_30 else {**translated, **reference_only}

    def _keys(self, schema: JSON, depth: int) -> JSON:
        translated: JSON = {}
        for key, value in schema.items():
            if key in _ONE and (is_object(value) or isinstance(value, bool)):
                translated[key] = self.translate(value, depth=depth + 1)
            elif key in _SEVERAL and is_list(value):
                translated[key] = [self.translate(item, depth=depth + 1) for item in value]
            elif key in _NAMED and is_object(value):
                translated[key] = self._members(value, schema, translated, depth)
            elif key in _PROSE:
                translated[key] = cleaned(str(value), max_bytes=self._bounds.description_bytes)
            elif key in _TAKEN_OVER and key not in translated:
                translated[key] = _plain(value)
        if translated.get("required") == []:
            del translated["required"]
        return translated

    def _members(self, members: JSON, schema: JSON, translated: JSON, depth: int) -> JSON:
        if (hidden := next(filter(has_hidden, members), None)) is not None:
            raise UnfitError(f"its schemas have invisible characters in {cleaned(hidden)[:40]!r}")
        left_out = {
            name for name, member in members.items() if is_object(member) and member.get(self._left_out) is True
        }
        if left_out and is_list(schema.get("required")):
            translated["required"] = [name for name in schema["required"] if name not in tuple(left_out)]
        return {
            name: self.translate(member, depth=depth + 1) for name, member in members.items() if name not in left_out
        }

    def _defined(self, reference: str) -> str:
        """Return the name of the definition for a reference; it is translated later, as it may lead to itself."""
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


def _of_30(translated: JSON, schema: Mapping[str, Any]) -> JSON:
    """Return a schema with the words of OpenAPI 3.0 in those of 2020-12; many a description of 3.1 has them too."""
    for bound in ("Minimum", "Maximum"):
        exclusive, plain = f"exclusive{bound}", bound.lower()
        if isinstance(translated.get(exclusive), bool) and translated.pop(exclusive) and plain in translated:
            translated[exclusive] = translated.pop(plain)
    if schema.get("nullable") is not True:
        return translated
    if is_list(translated.get("enum")) and None not in translated["enum"]:
        translated["enum"] = [*translated["enum"], None]
    if isinstance(translated.get("type"), str):
        return {**translated, "type": [translated["type"], "null"]}
    return {"anyOf": [translated, {"type": "null"}]} if translated else translated
