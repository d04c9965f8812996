"""Schema translation: converts schemas of OpenAPI 3.0 to 3.2 to self-contained JSON Schema 2020-12.

Untranslatable parts are left open: references to nothing or to other files, keywords of other dialects, too deep
levels. The tool stays usable, and the API validates the rest.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from pegboard.core.names import legal
from pegboard.model.bounds import Bounds
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.sources.earlier_keywords import with_todays_keywords
from pegboard.sources.foreign_text import cleaned, has_hidden
from pegboard.sources.openapi.api_description import Document, UnfitError, reference_of
from pegboard.sources.openapi.schema_words import TAKEN_OVER, UnusableError, usable

_ONE = frozenset({
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "contentSchema",
})  # fmt: skip
_SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})
_PROSE = frozenset({"title", "description"})
# The JSON levels above a schema under `properties` or `$defs`, and those that a translation may add.
_ABOVE: Final = 3
_ADDED: Final = 4


class _Definition(NamedTuple):
    """A translated definition: its references, and its number of objects."""

    schema: Any
    references: tuple[str, ...]
    objects: int


class SchemaTranslator:
    """The schemas of one document, for requests or for responses. Each definition is translated once."""

    def __init__(self, document: Document, *, bounds: Bounds, is_request: bool) -> None:
        self._document, self._bounds = document, bounds
        # Read-only properties are not arguments, and write-only ones do not appear in responses.
        self._left_out = "readOnly" if is_request else "writeOnly"
        self._deepest = 2 * bounds.schema_depth - _ADDED
        self._definitions: dict[str, _Definition] = {}
        self._names: dict[str, str] = {}
        self._taken: dict[str, int] = {}

    def schema(self, value: JSONValue, met: dict[str, None], *, depth: int = _ABOVE) -> Any:
        """Return one schema; its references are added to `met`.

        Raises:
            UnfitError: it requires a property with an invisible name.
        """
        if isinstance(value, bool):
            return value
        if not is_object(value) or depth > self._deepest:
            return {}
        # Descriptions of OpenAPI 3.1 still use keywords of 3.0.
        # `x-nullable` is its usual form in Swagger 2.0.
        can_be_null = {"nullable": True} if True in (value.get("nullable"), value.get("x-nullable")) else {}
        translated = with_todays_keywords(self._keys(value, met, depth) | can_be_null)
        reference = reference_of(value)
        if reference is None:
            return translated
        only = {}
        if self._leads_somewhere(reference):
            met[reference] = None
            only = {"$ref": f"#/$defs/{self.name_of(reference)}"}
        # In 3.0, keys next to a reference are ignored.
        return only if self._document.is_30 else {**translated, **only}

    def definition(self, reference: str) -> _Definition:
        """Return the target of a reference."""
        if (known := self._definitions.get(reference)) is not None:
            return known
        met: dict[str, None] = {}
        try:
            schema = self.schema(self._document.target(reference), met)
        except UnfitError:
            schema = {}
        definition = _Definition(schema, tuple(met), objects_in(schema))
        self._definitions[reference] = definition
        return definition

    def name_of(self, reference: str) -> str:
        """Return a unique name for a definition."""
        if (known := self._names.get(reference)) is not None:
            return known
        base = legal(reference.rpartition("/")[2])
        count = self._taken[base] = self._taken.get(base, 0) + 1
        name = base
        while count > 1 and (name := f"{base}_{count}") in self._taken:
            count += 1
        self._taken.setdefault(name, 1)
        self._names[reference] = name
        return name

    def _leads_somewhere(self, reference: str) -> bool:
        """Tell whether a reference leads to a schema; others are left open."""
        if reference in self._names:
            return True
        try:
            self._document.follow({"$ref": reference}, "a schema")
        except UnfitError:
            return False
        return True

    def _keys(self, schema: JSON, met: dict[str, None], depth: int) -> JSON:
        translated: JSON = {}
        for key, value in schema.items():
            if key in _PROSE:
                translated[key] = cleaned(str(value), max_bytes=self._bounds.description_bytes)
            elif key in TAKEN_OVER:
                if key not in translated:
                    try:
                        translated[key] = usable(key, value)
                    except UnusableError:
                        continue
            elif key in _ONE and (is_object(value) or isinstance(value, bool)):
                translated[key] = self.schema(value, met, depth=depth + 1)
            elif key in _SEVERAL and is_list(value) and value:
                translated[key] = [self.schema(item, met, depth=depth + 2) for item in value]
            elif key in _NAMED and is_object(value):
                self._add_members(key, value, schema, translated, met, depth)
            elif key == "items" and is_list(value) and value:
                # Tuples of drafts before 2020-12.
                translated["prefixItems"] = [self.schema(item, met, depth=depth + 2) for item in value]
        if translated.get("required") == []:
            del translated["required"]
        return translated

    def _add_members(
        self, key: str, members: JSON, schema: JSON, translated: JSON, met: dict[str, None], depth: int
    ) -> None:
        required: list[Any] = schema["required"] if is_list(schema.get("required")) else []
        left_out = [
            name
            for name, member in members.items()
            if (is_object(member) and member.get(self._left_out) is True) or has_hidden(name)
        ]
        for name in left_out:
            if has_hidden(name) and name in required:
                raise UnfitError(f"its schemas demand a name with invisible characters, {cleaned(name)[:40]!r}")
        if left_out and required and key == "properties":
            translated["required"] = [
                name for name in dict.fromkeys(filter(_is_text, required)) if name not in left_out
            ]
        translated[key] = {
            name: self.schema(member, met, depth=depth + 2) for name, member in members.items() if name not in left_out
        }


def _is_text(value: object) -> bool:
    return isinstance(value, str)


class SchemaTranslation:
    """The schemas of one operation, with their definitions."""

    def __init__(self, translator: SchemaTranslator) -> None:
        self._translator = translator
        self._met: dict[str, None] = {}

    def translate(self, schema: JSONValue) -> Any:
        """Return one schema.

        Raises:
            UnfitError: it requires a property with an invisible name.
        """
        return self._translator.schema(schema, self._met)

    def with_definitions(self, schema: JSON, *, most_objects: int) -> JSON:
        """Return a translated schema with its definitions, the nearest first; those beyond the limit are left open."""
        definitions: JSON = {}
        room = most_objects - objects_in(schema)
        waiting = deque(self._met)
        while waiting:
            reference = waiting.popleft()
            name = self._translator.name_of(reference)
            if name in definitions:
                continue
            definition = self._translator.definition(reference)
            if definition.objects > room:
                definitions[name], room = {}, room - 1
                continue
            definitions[name], room = definition.schema, room - definition.objects
            waiting.extend(definition.references)
        return {**schema, "$defs": definitions} if definitions else schema


def objects_in(schema: JSONValue) -> int:
    """Return the number of objects in a schema, including itself."""
    count, stack = 0, [schema]
    while stack:
        value = stack.pop()
        if is_object(value):
            count += 1
            stack.extend(value.values())
        elif is_list(value):
            stack.extend(value)
    return count
