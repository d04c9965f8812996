"""Definitions: validates a server's definition of a tool, and converts it to a declaration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from pegboard.core.relaxed_schema import SCHEMAS_BY_NAME
from pegboard.core.schema import check_bounds, check_schema_size, compile_schema
from pegboard.model.bounds import Bounds
from pegboard.model.call_intent import with_marks
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object, place_in
from pegboard.model.tool import Annotations, OfferedTitles, ToolSpec
from pegboard.sources.earlier_keywords import with_todays_keywords
from pegboard.sources.foreign_text import as_drawn, cleaned, has_hidden
from pegboard.sources.mcp.foreign_metadata import MCP_TITLE_BYTES, kept_icons, kept_meta, meta_here, shown_hints
from pegboard.sources.mcp.server_settings import ServerSettings

MCP_NAME_CHARS = 128  # characters of a foreign tool's original name

_PROSE = frozenset({"description", "title", "$comment"})
_VALUES = frozenset({"const", "default", "enum", "example", "examples"})
_PINNED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta")
_HINTS = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}


_Place = Literal["schema", "names", "value"]


class UnfitError(Exception):
    """A definition is invalid; the text says why."""


class Rejected(NamedTuple):
    """A tool that was left out, with the reason, for `doctor` and the log."""

    name: str
    reason: str


def checked_definition(raw: object, *, bounds: Bounds) -> JSON:
    """Return the relevant parts of a valid definition, unchanged.

    Raises:
        UnfitError: it is invalid.
    """
    if not is_object(raw):
        raise UnfitError(f"it is a {type(raw).__name__}, not an object")
    name = raw.get("name")
    # Any visible name is accepted; `own_names` replaces characters that the wire does not support.
    if not isinstance(name, str) or not name.strip() or len(name) > MCP_NAME_CHARS:
        raise UnfitError(f"its name is not a text of 1 to {MCP_NAME_CHARS} characters")
    if has_hidden(name) or "\n" in name or "\t" in name:
        raise UnfitError(f"its name has invisible characters: {cleaned(name)[:40]!r}")
    if not name.isascii() and (drawn := as_drawn(name)).isascii():
        # Such spelling only serves to imitate another name.
        raise UnfitError(f"its name is drawn like {drawn[:40]!r}, in letters of another alphabet")
    definition: JSON = {key: raw[key] for key in _PINNED if raw.get(key) is not None}
    # Invalid decoration is dropped instead of the tool.
    for key, cleaned_part in (("icons", list(kept_icons(raw.get("icons")))), ("_meta", kept_meta(raw.get("_meta")))):
        definition.pop(key, None)
        if cleaned_part:
            definition[key] = cleaned_part
    for key in ("title", "description"):
        if not isinstance(definition.get(key, ""), str):
            raise UnfitError(f"its {key} is not a string")
    if not is_object(definition.get("annotations", {})):
        raise UnfitError("its annotations are not an object")
    _check_schema(definition.get("inputSchema"), "inputSchema", bounds)
    if "outputSchema" in definition:
        _check_schema(definition["outputSchema"], "outputSchema", bounds)
    return definition


def checked_form(schema: JSONValue, *, bounds: Bounds) -> JSON:
    """Return a server's form for a person, with cleaned prose, if answers can be validated against it.

    Raises:
        UnfitError: they cannot, or a part of the form is invisible.
    """
    _check_schema(schema, "requestedSchema", bounds)
    assert is_object(schema)
    return _clean_schema(schema, bounds)


def _check_schema(schema: JSONValue, key: str, bounds: Bounds) -> None:
    if not is_object(schema):
        raise UnfitError(f"its {key} is not an object")
    if key == "inputSchema" and schema.get("type") not in (None, "object"):
        raise UnfitError(f'its {key} has the type {str(schema["type"])[:40]!r} instead of "type": "object"')
    try:
        check_schema_size(schema, bounds=bounds)
        check_bounds(schema)
        hidden = next(_hidden_texts(schema), None)
        if hidden is not None:
            raise UnfitError(f"its {key} has invisible characters in {cleaned(hidden)[:40]!r}")
        if _has_endless_reference(schema):
            raise UnfitError(f"its {key} has a $ref that leads to itself")
        compile_schema(_clean_schema(schema, bounds), bounds=bounds)
    except (CallError, DefinitionError, RecursionError) as error:
        raise UnfitError(f"its {key} cannot be used: {error}") from None


def _hidden_texts(schema: JSONValue) -> Iterator[str]:
    """Yield names and values with hidden characters, except prose; cleaning them would change their meaning."""
    stack: list[tuple[JSONValue, _Place]] = [(schema, "schema")]
    while stack:
        value, place = stack.pop()
        if is_object(value):
            yield from (key for key in value if has_hidden(key))
            stack.extend(
                (inner, _place_below(place, key))
                for key, inner in value.items()
                if not (place == "schema" and key in _PROSE and isinstance(inner, str))
            )
        elif is_list(value):
            stack.extend((inner, place) for inner in value)
        elif isinstance(value, str) and has_hidden(value):
            yield value


def _place_below(place: _Place, key: str) -> _Place:
    """Return the kind of value below a key: a schema, schemas by their names, or a value that is not a schema."""
    if place == "schema":
        return "names" if key in SCHEMAS_BY_NAME else "value" if key in _VALUES else "schema"
    return "schema" if place == "names" else place


def _has_endless_reference(schema: JSON) -> bool:
    """Tell whether some `$ref` leads back to itself without consuming a part of the value."""
    stack: list[JSONValue] = [schema]
    ending: set[int] = set()
    while stack:
        value = stack.pop()
        if is_object(value):
            if _is_endless(value, schema, ending):
                return True
            stack.extend(value.values())
        elif is_list(value):
            stack.extend(value)
    return False


def _is_endless(start: JSON, root: JSON, ending: set[int]) -> bool:
    """Tell whether references from here lead back; `ending` collects those known to end."""
    seen: set[int] = set()
    at: JSONValue = start
    while is_object(at) and isinstance(at.get("$ref"), str) and at["$ref"].startswith("#") and id(at) not in ending:
        if id(at) in seen:
            return True
        seen.add(id(at))
        at = _target(root, at["$ref"])
    ending |= seen
    return False


def _target(root: JSON, reference: str) -> JSONValue:
    at: JSONValue = root
    for step in reference.removeprefix("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if is_object(at):
            at = at.get(key)
        elif is_list(at) and (place := place_in(at, key)) is not None:
            at = at[place]
        else:
            return None
    return at


def _clean_schema(schema: JSON, bounds: Bounds) -> JSON:
    """Return a schema with clean, short prose, and keywords of today. The depth was checked, so this may recurse."""

    def cleaned_part(value: JSONValue, place: _Place) -> JSONValue:
        if place == "value":
            return value
        if is_list(value):
            return [cleaned_part(inner, place) for inner in value]
        if not is_object(value):
            return value
        return {
            key: cleaned(inner, max_bytes=bounds.description_bytes)
            if place == "schema" and key in _PROSE and isinstance(inner, str)
            else cleaned_part(inner, _place_below(place, key))
            for key, inner in (with_todays_keywords(value) if place == "schema" else value).items()
        }

    # The whole is always an object, whatever a server says of null.
    part: Any = cleaned_part({key: value for key, value in schema.items() if key != "nullable"}, "schema")
    return part


def declared_spec(definition: JSON, name: str, settings: ServerSettings) -> ToolSpec:
    """Return the declaration of a valid definition, under our name."""
    bounds = settings.bounds
    titles = offered_titles(definition)
    output = definition.get("outputSchema")
    # Arguments are an object, also of the servers that do not say so.
    input_schema = _clean_schema({**definition["inputSchema"], "type": "object"}, bounds)
    fields: dict[str, Any] = {
        "description": cleaned(definition.get("description", ""), max_bytes=bounds.description_bytes),
        "title": titles.title or titles.of_annotations,
        "input_schema": with_marks(input_schema, settings.filled_by_intent(definition["name"])),
        "output_schema": None if output is None else _clean_schema(output, bounds),
        "annotations": hints_of(definition, is_trusted=settings.trust_annotations),
        "icons": kept_icons(definition.get("icons")),
        "meta": meta_here(kept_meta(definition.get("_meta")), settings.name),
        "groups": settings.groups_of(definition["name"]),
        "timeout_s": settings.timeout_s,
        "origin": settings.origin or f"MCP server {settings.name!r}",
    }
    return ToolSpec(name=name, namespace=settings.name, **(fields | dict(settings.own_of(definition["name"]))))


def offered_titles(definition: JSON) -> OfferedTitles:
    """Return the titles of a definition, cleaned and short."""
    titles = (definition.get("title"), definition.get("annotations", {}).get("title"))
    return OfferedTitles(
        *(cleaned(title, max_bytes=MCP_TITLE_BYTES) if isinstance(title, str) else None for title in titles)
    )


def hints_of(definition: JSON, *, is_trusted: bool) -> Annotations:
    """Return the hints of a definition; for an untrusted server only those that make us more careful.

    Clients see the original hints, but no guard uses them.
    """
    annotations: JSON = definition.get("annotations", {})
    hints = {ours: annotations[wire] for wire, ours in _HINTS.items() if isinstance(annotations.get(wire), bool)}
    careful = {"read_only": False, "idempotent": False, "destructive": True, "open_world": True}
    guarded = {ours: value for ours, value in hints.items() if is_trusted or careful[ours] is value}
    return Annotations(**guarded, extra=shown_hints(annotations))
