"""Request bodies: the media type in which an operation takes its body, and arguments written in it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pegboard.egress.responses import is_json
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.sources.http_service import query_of, scalar
from pegboard.sources.json_text import json_bytes
from pegboard.sources.openapi.document import Document, UnfitError
from pegboard.sources.openapi.parameter_styles import STYLES, in_query

FORM: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"
_NO_RANK: Final = 9  # not a limit: behind every rank
_MEDIA = re.compile(r"[\w.+-]+/[\w.+-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """How one field of a form is written: as a query would be (`style`), as a part of this type, or as a file."""

    style: str | None = None
    explode: bool = True
    allow_reserved: bool = False
    media: str | None = None
    is_file: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """How a body is written. `argument` is the argument that is all of it, if one is; else each is a member."""

    media: str
    argument: str | None = None
    fields: Mapping[str, Field] = field(default_factory=dict[str, Field])


# ---------------------------------------------------------------- what is taken


def media_of(content_type: object) -> str:
    """Return a media type without its parameters."""
    return str(content_type).partition(";")[0].strip().lower()


def content_of(body: JSON) -> tuple[str | None, JSON]:
    """Return the media type in which a body is sent and what is said of it: JSON before forms before text."""
    content: Any = body.get("content")
    known = {media: value for media, value in content.items() if is_object(value)} if is_object(content) else {}
    by_rank = {_rank(media_of(media)): (media_of(media), value) for media, value in reversed(known.items())}
    best = min(by_rank, default=_NO_RANK)
    return (None, {}) if best == _NO_RANK else by_rank[best]


def _rank(media: str) -> int:
    if not _MEDIA.fullmatch(media):
        return _NO_RANK
    order = (is_json(media), media == FORM, media == MULTIPART, media.startswith("text/"))
    return next((rank for rank, holds in enumerate(order) if holds), _NO_RANK)


def fields_of(content: JSON, members: Mapping[str, Any], document: Document, *, media: str) -> dict[str, Field]:
    """Return how the fields of a form are written, as far as that is not the usual.

    Raises:
        UnfitError: one of them cannot be written.
    """
    declared: Any = content.get("encoding")
    encoding: JSON = declared if is_object(declared) else {}
    fields: dict[str, Field] = {}
    for name, schema in members.items():
        how: JSON = encoding[name] if is_object(encoding.get(name)) else {}
        is_file = media == MULTIPART and _is_file(schema, document, name)
        style = how.get("style", "form" if {"explode", "allowReserved"} & set(how) else None)
        if style is not None and style not in STYLES["query"]:
            raise UnfitError(f"the field {name!r} of its form has the style {str(style)[:20]!r}")
        first = str(how.get("contentType", "")).partition(",")[0].strip()
        fields[name] = Field(
            style=style if media == FORM else None,
            explode=how.get("explode", style == "form") is True,
            allow_reserved=how.get("allowReserved") is True,
            media=first if _MEDIA.fullmatch(first) else None,
            is_file=is_file,
        )
    return {name: how for name, how in fields.items() if how != Field(explode=False)}


def _is_file(schema: JSONValue, document: Document, name: str) -> bool:
    """Tell whether a field, or each item of one, is a file."""
    if isinstance(schema, bool):
        return False
    target = document.follow(schema, f"the field {name!r} of its form")
    if target.get("type") in ("array", ["array"]) and target.get("items") is not None:
        return _is_file(target["items"], document, name)
    if _is_binary(target):
        return True
    parts = [part for key in ("allOf", "anyOf", "oneOf") if is_list(target.get(key)) for part in target[key]]
    if any(_is_file(part, document, name) for part in parts):
        raise UnfitError(f"the field {name!r} of its form is a file in one way of several")
    return False


def _is_binary(schema: JSON) -> bool:
    is_typed = schema.get("contentMediaType") is not None and schema.get("contentEncoding") is None
    return schema.get("format") == "binary" or is_typed


def as_base64(schema: JSONValue) -> JSONValue:
    """Return the schema of a file as that of its bytes in base64."""
    if not is_object(schema):
        return schema
    if is_object(schema.get("items")):
        return {**schema, "items": as_base64(schema["items"])}
    words = f"{schema.get('description', '')} The bytes of a file, in base64.".strip()
    return {"type": "string", "contentEncoding": "base64", "description": words}


# ---------------------------------------------------------------- one call


def written(body: Body, value: JSONValue) -> tuple[bytes, str]:
    """Return a body as it is sent, and its content type.

    Raises:
        CallError: invalid_arguments for a file that is no base64.
    """
    if is_json(body.media):
        return json_bytes(value), body.media
    if body.media == MULTIPART and is_object(value):
        return _multipart([part for name, item in value.items() for part in _parts(name, item, body.fields)])
    if body.media == FORM and is_object(value):
        pairs = [pair for name, item in value.items() for pair in _pairs(name, item, body.fields.get(name))]
        return "&".join(pairs).encode(), body.media
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
        media = how.media or ("application/octet-stream" if how.is_file else None)
        if media is None and (is_object(item) or is_list(item)):
            media = "application/json"
        head = f'Content-Disposition: form-data; name="{name}"' + (f'; filename="{name}"' if how.is_file else "")
        head += f"\r\nContent-Type: {media}" if media else ""
        yield head.encode() + b"\r\n\r\n" + (_bytes(name, item) if how.is_file else scalar(item).encode())


def _bytes(name: str, value: JSONValue) -> bytes:
    try:
        return base64.b64decode(scalar(value), validate=True)
    except (binascii.Error, ValueError):
        text = f"{name!r} is a file: give its bytes in base64, without line breaks."
        raise CallError("invalid_arguments", text) from None


def _multipart(parts: list[bytes]) -> tuple[bytes, str]:
    # Made of the content: nobody can put a boundary into a part that depends on that part.
    boundary = hashlib.sha256(b"\0".join(parts)).hexdigest()[:40]
    lines = [line for part in parts for line in (f"--{boundary}".encode(), part)]
    return b"\r\n".join([*lines, f"--{boundary}--".encode(), b""]), f"{MULTIPART}; boundary={boundary}"
