"""Request bodies: selects the media type of an operation's body, and writes arguments in it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, field

from pegboard.core.json_text import json_bytes
from pegboard.egress.responses import is_json
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.sources.http_service import query_of, scalar
from pegboard.sources.openapi.api_description import Document, UnfitError
from pegboard.sources.openapi.limits import OPENAPI_REF_HOPS
from pegboard.sources.openapi.parameter_styles import STYLES, in_query

FORM: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"
JSON_MEDIA: Final = "application/json"
BYTES: Final = "application/octet-stream"
_NO_RANK: Final = 9
_MEDIA = re.compile(r"[\w.+-]+/[\w.+-]+")
_RANGES: Final = {"*/*": JSON_MEDIA, "application/*": JSON_MEDIA, "*": JSON_MEDIA, "text/*": "text/plain"}
_TEXTS = re.compile(
    r"text/.+|.+\+(xml|yaml)|application/(xml|yaml|x-yaml|graphql|sql|javascript|xhtml.*)"
    r"|application/((x-)?ndjson|(x-)?jsonl|x-jsonlines|json-seq)"
)
_XML = re.compile(r"(text|application)/xml|.+\+xml|application/xhtml.*")
# One JSON value per line, or after a separator.
_SEQUENCES = re.compile(r"application/((x-)?ndjson|(x-)?jsonl|x-jsonlines|json-seq)")
_ALTERNATIVES = frozenset({"allOf", "anyOf", "oneOf"})
# As browsers escape names in the head of a part, so that none ends it.
_QUOTED: Final = {'"': "%22", "\r": "%0D", "\n": "%0A"}


class Field(Struct, frozen=True, kw_only=True):
    """How to write one field of a form: in a query style, as a part with this type, or as a file."""

    style: str | None = None
    explode: bool = True
    allow_reserved: bool = False
    media: str | None = None
    is_file: bool = False


class Body(Struct, frozen=True, kw_only=True):
    """How to write a body. `argument` is the argument that is the whole body, if there is one.

    With `is_file` that argument is the bytes of the body, in base64.
    """

    media: str
    argument: str | None = None
    is_file: bool = False
    fields: Mapping[str, Field] = field(default_factory=dict[str, Field])


# ---------------------------------------------------------------- selection


def media_of(content_type: object) -> str:
    """Return a media type without its parameters."""
    return str(content_type).partition(";")[0].strip().lower()


def content_of(body: JSON) -> tuple[str | None, JSON]:
    """Return the preferred media type of a body and its content: JSON, form, text, and bytes last.

    A range such as `*/*` is treated as JSON, or as bytes if the schema says so.
    """
    content: Any = body.get("content")
    known = {media: value for media, value in content.items() if is_object(value)} if is_object(content) else {}
    by_rank: dict[int, tuple[str, JSON]] = {}
    for declared, value in known.items():
        rank, media = _ranked(media_of(declared), value)
        by_rank.setdefault(rank, (media, value))
    best = min(by_rank, default=_NO_RANK)
    return (None, {}) if best == _NO_RANK else by_rank[best]


def _ranked(declared: str, content: JSON) -> tuple[int, str]:
    """Return the preference of a media type, and the type of the sent body."""
    schema: Any = content.get("schema")
    media = (
        BYTES if declared in _RANGES and is_object(schema) and _is_binary(schema) else _RANGES.get(declared, declared)
    )
    if media.endswith("/*"):
        media = BYTES
    if not _MEDIA.fullmatch(media):
        return _NO_RANK, media
    if media in ("text/json", "application/x-json"):
        media = JSON_MEDIA
    # ASP.NET and Kubernetes name JSON Patch first, which is a list of operations.
    is_own_json = is_json(media) and declared not in _RANGES
    order = (
        is_own_json and media == JSON_MEDIA,
        is_own_json and media != "application/json-patch+json",
        is_own_json,
        is_json(media),
        media == FORM,
        media == MULTIPART,
        _TEXTS.fullmatch(media),
        not media.startswith("multipart/"),
    )
    return next((rank for rank, holds in enumerate(order) if holds), _NO_RANK), media


def is_text(media: str) -> bool:
    """Tell whether a body of this type is sent as plain text."""
    return _TEXTS.fullmatch(media) is not None


def is_xml(media: str) -> bool:
    """Tell whether a body of this type is XML, which cannot be built from a JSON object."""
    return _XML.fullmatch(media) is not None


def form_of(schema: JSON, document: Document) -> JSON | None:
    """Return the schema of a form as one object with known fields; `None` if it cannot be an object.

    The fields of all parts of an `allOf`, `anyOf` or `oneOf` are fields of the form, required if each part must match.
    """
    if schema.get("type", "object") not in ("object", ["object"]):
        return None
    if not _ALTERNATIVES & set(schema):
        return {**schema, "type": "object"}
    properties: JSON = {}
    required: dict[str, None] = {}
    joined: set[int] = set()

    def join(part: JSONValue, *, is_certain: bool, levels: int) -> None:
        target: JSON = {} if isinstance(part, bool) or levels > OPENAPI_REF_HOPS else document.follow(part, "a form")
        if id(target) in joined:
            return
        joined.add(id(target))
        declared = target.get("properties")
        for name, inner in declared.items() if is_object(declared) else ():
            properties.setdefault(name, inner)
        if is_certain and is_list(target.get("required")):
            required.update(dict.fromkeys(name for name in target["required"] if isinstance(name, str)))
        for key in sorted(_ALTERNATIVES & set(target)):
            for inner in target[key] if is_list(target[key]) else ():
                join(inner, is_certain=is_certain and key == "allOf", levels=levels + 1)

    join(schema, is_certain=True, levels=0)
    form: JSON = {"type": "object", "properties": properties, "required": list(required)}
    return form | ({"description": schema["description"]} if "description" in schema else {})


def fields_of(content: JSON, members: Mapping[str, Any], document: Document, *, media: str) -> dict[str, Field]:
    """Return how to write the fields of a form that differ from the default.

    Raises:
        UnfitError: a field cannot be written.
    """
    declared: Any = content.get("encoding")
    encoding: JSON = declared if is_object(declared) else {}
    fields: dict[str, Field] = {}
    for name, schema in members.items():
        how: JSON = encoding[name] if is_object(encoding.get(name)) else {}
        is_whole_file = media == MULTIPART and is_file(schema, document)
        style = how.get("style", "form" if {"explode", "allowReserved"} & set(how) else None)
        if style is not None and style not in STYLES["query"]:
            raise UnfitError(f"the field {name!r} of its form has the style {str(style)[:20]!r}")
        first = str(how.get("contentType", "")).partition(",")[0].strip()
        fields[name] = Field(
            style=style if media == FORM else None,
            explode=how.get("explode", style == "form") is True,
            allow_reserved=how.get("allowReserved") is True,
            media=first if _MEDIA.fullmatch(first) else _media_of_file(schema, document) if is_whole_file else None,
            is_file=is_whole_file,
        )
    return {name: how for name, how in fields.items() if how != Field(explode=False)}


def is_file(schema: JSONValue, document: Document, known: dict[int, bool] | None = None) -> bool:
    """Tell whether a field, or each of its items, is a file in every alternative."""
    if isinstance(schema, bool):
        return False
    try:
        target = document.follow(schema, "a field of its form")
    except UnfitError:
        return False
    known = {} if known is None else known
    if id(target) not in known:
        # A circular schema is not a file.
        known[id(target)] = False
        known[id(target)] = _is_file(target, document, known)
    return known[id(target)]


def _is_file(target: JSON, document: Document, known: dict[int, bool]) -> bool:
    if target.get("type") in ("array", ["array"]) and target.get("items") is not None:
        return is_file(target["items"], document, known)
    if _is_binary(target):
        return True
    parts: dict[str, list[Any]] = {key: target[key] for key in _ALTERNATIVES if is_list(target.get(key))}
    # Of several alternatives a text one can be written; `null` is ignored.
    several = [
        part
        for part in (*parts.get("anyOf", ()), *parts.get("oneOf", ()))
        if not (is_object(part) and part.get("type") == "null")
    ]
    return any(is_file(part, document, known) for part in parts.get("allOf", ())) or (
        bool(several) and all(is_file(part, document, known) for part in several)
    )


def _is_binary(schema: JSON) -> bool:
    is_typed = schema.get("contentMediaType") is not None and schema.get("contentEncoding") is None
    return schema.get("format") == "binary" or is_typed or schema.get("type") == "file"


def _media_of_file(schema: JSONValue, document: Document, levels: int = 3) -> str | None:
    """Return the media type of a file from its schema; of several alternatives the first counts."""
    target = _file_of(schema, document)
    media = str(target.get("contentMediaType", ""))
    if _MEDIA.fullmatch(media) or not levels:
        return media or None
    ways = [way for key in sorted(_ALTERNATIVES) if is_list(target.get(key)) for way in target[key]]
    media_types = (_media_of_file(way, document, levels - 1) for way in (target.get("items", False), *ways))
    return next(filter(None, media_types), None)


def as_base64(schema: JSONValue, document: Document) -> JSON:
    """Return the schema of one or several files as base64 texts."""
    target = _file_of(schema, document)
    words = f"{target.get('description', '')} The bytes of a file, in base64.".strip()
    single: JSON = {"type": "string", "contentEncoding": "base64", "description": words}
    several: JSON = {"type": "array", "items": {**single, "description": "The bytes of a file, in base64."}}
    several |= {key: target[key] for key in ("description", "minItems", "maxItems") if key in target}
    if target.get("type") in ("array", ["array"]):
        return several
    ways = [_file_of(part, document) for key in ("anyOf", "oneOf") if is_list(target.get(key)) for part in target[key]]
    can_be_several = any(way.get("type") in ("array", ["array"]) for way in ways)
    can_be_null = any(way.get("type") in ("null", ["null"]) for way in ways)
    accepted = [single, *([several] if can_be_several else ()), *([{"type": "null"}] if can_be_null else ())]
    return {"anyOf": accepted} if len(accepted) > 1 else single


def _file_of(schema: JSONValue, document: Document) -> JSON:
    try:
        return {} if isinstance(schema, bool) else document.follow(schema, "a file")
    except UnfitError:
        return {}


# ---------------------------------------------------------------- one call


def written(body: Body, value: JSONValue) -> tuple[bytes, str]:
    """Return a serialised body and its content type.

    Raises:
        CallError: invalid_arguments for a file that is not base64.
    """
    if body.is_file:
        return _bytes("body", value), body.media
    if is_json(body.media):
        return json_bytes(value), body.media
    if body.media == MULTIPART and is_object(value):
        return _multipart([part for name, item in value.items() for part in _parts(name, item, body.fields)])
    if body.media == FORM and is_object(value):
        pairs = [pair for name, item in value.items() for pair in _pairs(name, item, body.fields.get(name))]
        return "&".join(pairs).encode(), body.media
    if _SEQUENCES.fullmatch(body.media) and not isinstance(value, str):
        mark = b"\x1e" if body.media.endswith("json-seq") else b""
        return b"".join(mark + json_bytes(item) + b"\n" for item in (value if is_list(value) else [value])), body.media
    return scalar(value).encode("utf-8", "replace"), body.media


def _pairs(name: str, value: JSONValue, how: Field | None) -> list[str]:
    if how is None or how.style is None:
        return [pair] if (pair := query_of({name: value})) else []
    return in_query(name, value, style=how.style, explode=how.explode, allow_reserved=how.allow_reserved)


def _parts(name: str, value: JSONValue, fields: Mapping[str, Field]) -> Iterator[bytes]:
    how = fields.get(name, Field())
    for item in value if is_list(value) else [value]:
        if item is None:
            continue
        media = how.media or (BYTES if how.is_file else None)
        if media is None and (is_object(item) or is_list(item)):
            media = JSON_MEDIA
        quoted = "".join(_QUOTED.get(char, char) for char in name)
        head = f'Content-Disposition: form-data; name="{quoted}"' + (f'; filename="{quoted}"' if how.is_file else "")
        head += f"\r\nContent-Type: {media}" if media else ""
        yield head.encode() + b"\r\n\r\n" + (_bytes(name, item) if how.is_file else scalar(item).encode())


def _bytes(name: str, value: JSONValue) -> bytes:
    try:
        return base64.b64decode(scalar(value), validate=True)
    except (binascii.Error, ValueError):
        text = f"{name!r} is a file: give its bytes in base64, without line breaks."
        raise CallError("invalid_arguments", text) from None


def _multipart(parts: list[bytes]) -> tuple[bytes, str]:
    # A digest of the content: no part can contain a boundary that depends on that part.
    boundary = hashlib.sha256(b"\0".join(parts)).hexdigest()[:40]
    lines = [line for part in parts for line in (f"--{boundary}".encode(), part)]
    return b"\r\n".join([*lines, f"--{boundary}--".encode(), b""]), f"{MULTIPART}; boundary={boundary}"
