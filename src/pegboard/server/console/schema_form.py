"""Schema form: the fields of a form for a JSON Schema, and the arguments that a sent form means."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.server.console.shown_json import exact_json
from pegboard.server.console.visit import NO_FILES, SentFile

FORM_LEVELS = 3  # nested objects that have fields; deeper ones are JSON
FORM_CHOICES = 100  # values of a list; with more, the field is JSON
REFERENCES_FOLLOWED = 8  # from one definition to the next

Kind: TypeAlias = Literal["text", "lines", "integer", "number", "boolean", "choice", "file", "files", "json", "group"]


class Field(NamedTuple):
    """One field; a `group` has the fields of a nested object. `value` is the text of the field, before it is sent.

    A `file` sends the bytes of a file in base64, `files` a list of them. A `choice` sends the JSON of its value,
    `lines` one text per line, `json` any JSON. A field that is left empty is not sent on, unless the argument is a
    required text.
    """

    name: str
    label: str
    kind: Kind
    is_required: bool
    description: str
    value: str
    choices: Sequence[tuple[str, str]] = ()
    fields: Sequence[Field] = ()
    type: str = ""


class FormError(ValueError):
    """A field has a text that is not JSON."""


def fields_of(schema: JSON, values: Mapping[str, JSONValue], sent: Mapping[str, str] | None = None) -> list[Field]:
    """Return the fields for the arguments of a tool.

    `values` are arguments to fill in, `sent` what a person sent before and should find again.
    """
    return list(_fields(schema, schema, values, _Place("", 0, fills=True), sent))


def has_files(fields: Sequence[Field]) -> bool:
    """Tell whether a form needs to send files."""
    return any(field.kind in ("file", "files") or has_files(field.fields) for field in fields)


def arguments_of(schema: JSON, form: Mapping[str, str], files: Mapping[str, tuple[SentFile, ...]] = NO_FILES) -> JSON:
    """Return the arguments of a sent form. Text that is not a number is kept; the tool's validation reports it.

    Raises:
        FormError: a field is not JSON.
    """
    in_base64 = {name: tuple(b64encode(file.content).decode() for file in sent) for name, sent in files.items()}
    return _read(fields_of(schema, {}, form), form, in_base64)


class _Place(NamedTuple):
    """The place of a field; `fills` is unset in objects that are left out unless the person fills in something."""

    path: str
    level: int
    fills: bool


def _fields(
    schema: JSON, root: JSON, values: Mapping[str, JSONValue], place: _Place, sent: Mapping[str, str] | None
) -> Iterator[Field]:
    properties: Any = schema.get("properties")
    required: Any = schema.get("required", [])
    for name, declared in (properties if is_object(properties) else {}).items():
        form = _resolved(declared if is_object(declared) else {}, root)
        is_required = is_list(required) and name in required
        kind, choices = _kind(form, root, place.level)
        path, described = f"{place.path}/{name}", str(form.get("description") or form.get("title") or "")
        if kind == "group":
            inner: Any = values.get(name)
            below = _Place(path, place.level + 1, fills=place.fills and (is_required or is_object(inner)))
            fields = tuple(_fields(form, root, inner if is_object(inner) else {}, below, sent))
            yield Field(path, name, kind, is_required, described, "", fields=fields)
            continue
        value = values.get(name, form.get("default") if place.fills else None)
        text = _text(kind, value) if sent is None else sent.get(path, "")
        yield Field(path, name, kind, is_required, described, text, choices=choices, type=_type(form))


def _kind(form: JSON, root: JSON, level: int) -> tuple[Kind, Sequence[tuple[str, str]]]:
    options = _options(form)
    if options is not None:
        if len(options) > FORM_CHOICES:
            return "json", ()
        return "choice", [
            (json.dumps(value), value if isinstance(value, str) else json.dumps(value)) for value in options
        ]
    kind = form.get("type")
    if kind == "object" and is_object(form.get("properties")) and level < FORM_LEVELS:
        return "group", ()
    if kind == "array":
        items = form.get("items")
        inner = _resolved(items, root) if is_object(items) else {}
        is_text = inner.get("type") == "string" and _options(inner) is None
        return ("json" if not is_text else "files" if _is_file(inner) else "lines"), ()
    if kind == "string" and _is_file(form):
        return "file", ()
    simple: dict[object, Kind] = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
    return (simple.get(kind, "json") if isinstance(kind, str) else "json"), ()


def _is_file(form: JSON) -> bool:
    """Tell whether a text is the bytes of a file in base64, as the files of OpenAPI are."""
    return form.get("contentEncoding") == "base64" or form.get("format") in ("binary", "byte")


def _options(form: Mapping[str, Any]) -> list[Any] | None:
    """Return the values to choose from; `None` if a schema does not list them."""
    if is_list(values := form.get("enum")):
        return list(values)
    if "const" in form:
        return [form["const"]]
    return None


def _type(form: JSON) -> str:
    kind = form.get("type", "any")
    return " or ".join(map(str, kind)) if is_list(kind) else str(kind)


def _resolved(form: JSON, root: JSON) -> JSON:
    """Return a schema after its references, without the `null` of an optional value."""
    for _ in range(REFERENCES_FOLLOWED):
        target = form.get("$ref")
        if isinstance(target, str):
            found = _pointed(root, target)
            if found is None:
                return {}
            form = {**found, **{key: value for key, value in form.items() if key != "$ref"}}
            continue
        alternatives = form.get("anyOf") or form.get("oneOf")
        plain = (
            [one for one in alternatives if is_object(one) and one.get("type") != "null"]
            if is_list(alternatives)
            else []
        )
        if len(plain) != 1:
            return form
        form = {**{key: value for key, value in form.items() if key not in ("anyOf", "oneOf")}, **plain[0]}
    return {}


def _pointed(root: JSON, target: str) -> JSON | None:
    found: Any = root
    for part in target.removeprefix("#").split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if is_object(found) else None
    return found if target.startswith("#") and is_object(found) else None


def _text(kind: Kind, value: JSONValue) -> str:
    if value is None:
        return ""
    if kind == "lines" and is_list(value) and all(isinstance(one, str) for one in value):
        return "\n".join(map(str, value))
    if kind == "text" and isinstance(value, str):
        return value
    return exact_json(value) if kind == "json" else json.dumps(value, default=str)


def _read(fields: Sequence[Field], form: Mapping[str, str], files: Mapping[str, tuple[str, ...]]) -> JSON:
    read: JSON = {}
    for field in fields:
        if field.kind == "group":
            if field.is_required or _is_filled(field, form, files):
                read[field.label] = _read(field.fields, form, files)
            continue
        if field.kind in ("file", "files"):
            if sent := files.get(field.name):
                read[field.label] = sent[0] if field.kind == "file" else list(sent)
            continue
        text = form.get(field.name, "")
        if text or (field.kind == "text" and field.is_required):
            read[field.label] = _value(field, text)
    return read


def _is_filled(field: Field, form: Mapping[str, str], files: Mapping[str, tuple[str, ...]]) -> bool:
    if field.kind == "group":
        return any(_is_filled(inner, form, files) for inner in field.fields)
    return bool(form.get(field.name) or files.get(field.name))


def _value(field: Field, text: str) -> JSONValue:
    if field.kind == "text":
        return text
    if field.kind == "lines":
        return [line for line in text.split("\n") if line]
    try:
        value: Any = json.loads(text)
    except ValueError:
        if field.kind in ("json", "choice"):
            raise FormError(f'{field.label!r} is not JSON. Write texts in quotes: "like this".') from None
        return text
    return value


def whole_arguments(text: str) -> JSON:
    """Return the arguments that a person wrote as one JSON object.

    Raises:
        FormError: it is something else.
    """
    try:
        arguments: Any = json.loads(text or "{}")
    except ValueError as error:
        raise FormError(f"The arguments are not JSON: {error}.") from None
    if not is_object(arguments):
        raise FormError("The arguments must be a JSON object, such as {}.")
    return arguments
