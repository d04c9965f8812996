"""Normalise: converts any return value of a handler to a result."""

from __future__ import annotations

import base64
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import Enum
from pathlib import PurePath
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import orjson
from msgspec import Struct

from pegboard.core.json_text import json_bytes
from pegboard.core.sdk_blocks import is_block_class, is_result_class, read_block, read_result, wire_form
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSONValue, is_object
from pegboard.model.result import (
    CONTENT_TYPES,
    AudioContent,
    Content,
    ImageContent,
    ResourceContent,
    TextContent,
    ToolResult,
    new_tuple,
)


def normalise(value: object) -> ToolResult:
    """Return a result for any value: text, JSON, a model, a dataclass, bytes, content blocks, or a result itself.

    A list with a content block, or with the bytes of an image or a sound, gives one block for each item.
    """
    if is_object(value):
        return structured(value)
    if isinstance(value, str):
        return ToolResult((TextContent(_encodable(str(value))),))
    if isinstance(value, ToolResult):
        sound = _sound(value)
        return sound if sound.has_structured or sound.structured is None else _mirrored(sound)
    if is_whole_result(value):
        return normalise(read_result(value, tuple(map(_block, cast("Any", value).content))))
    if _is_block(type(value)) or isinstance(value, _RAW):
        return ToolResult((_block(value),))
    return _several(cast("Sequence[object]", value)) if isinstance(value, _SEVERAL) else _single(value)


def is_whole_result(value: object) -> bool:
    """Tell whether a tool built the whole result, so that its structured value need not be that of its text."""
    return isinstance(value, ToolResult) or is_result_class(type(value))


# Constants, since a union in `isinstance` would be created again for every result.
_RAW = (bytes, bytearray)
_SEVERAL = (list, tuple)


def _mirrored(value: ToolResult) -> ToolResult:
    """Return a result built from a structured value with that value and a text for it."""
    whole = structured(value.structured)
    return value._replace(content=value.content or whole.content, structured=whole.structured, has_structured=True)


def _single(value: object) -> ToolResult:
    """Return one value as JSON and as text; a date, a path or another value with a text form without quotes."""
    result = structured(value)
    text = result.structured
    return result._replace(content=(TextContent(text),)) if type(text) is str else result


def _several(value: Sequence[object]) -> ToolResult:
    match value:
        case (bytes(raw), str(mime_type)) if type(value) is tuple:
            return ToolResult((_of_mime_type(raw, mime_type),))
        case _:
            # There are far fewer types than items, and a list of plain JSON is the most common.
            kinds = set(map(type, value))
            has_media = not kinds.isdisjoint(_RAW) and any(isinstance(item, _RAW) and _known(item) for item in value)
            return (
                ToolResult(tuple(map(_block, value))) if has_media or any(map(_is_block, kinds)) else structured(value)
            )


def _is_block(kind: type[Any]) -> bool:
    return issubclass(kind, CONTENT_TYPES) or is_block_class(kind)


def _block(item: object) -> Content:
    """Return an item of a list of blocks as a block: text as text, bytes as media, any other value as JSON text."""
    if _is_block(type(item)):
        return _sound_block(cast("Content", item))
    if isinstance(item, _RAW):
        return _media(bytes(item))
    return TextContent(_encodable(str(item))) if isinstance(item, str) else _single(item).content[0]


# ---------------------------------------------------------------- results built by tools


def _sound(value: ToolResult) -> ToolResult:
    """Return a result that a tool built by hand, with fields that every transport can write.

    Raises:
        CallError: `output_invalid`, if a field has the wrong type.
    """
    content, structure, meta = value.content, value.structured, value.meta
    if not isinstance(content, tuple | list) or isinstance(content, CONTENT_TYPES):  # pyright: ignore[reportUnnecessaryIsInstance] - a tool may err
        raise _not_of_its_kind(value, "content", content, "a tuple of content blocks")
    if type(content) is not tuple or not all(map(_is_plain_text, content)):
        content = tuple(map(_sound_block, content))
    if value.has_structured and not _is_json(structure):
        structure = structured(structure).structured
    if not isinstance(meta, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - a tool may err
        raise _not_of_its_kind(value, "meta", meta, "a dict")
    if meta and not _is_json(meta):
        meta = structured(dict(meta)).structured
    if content is value.content and structure is value.structured and meta is value.meta:
        return value
    return value._replace(content=content, structured=structure, meta=meta)


def _is_json(value: object) -> bool:
    """Tell whether a value is JSON already; numbers beyond 64 bits need a closer look."""
    try:
        orjson.dumps(value, None, _AS_IT_IS)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _is_plain_text(block: object) -> bool:
    """Tell quickly whether a block is a valid plain text block, the most common kind."""
    return type(block) is TextContent and type(block[0]) is str and block[0].isascii() and block[1:] == (None, None)


def _sound_block(block: Content) -> Content:
    if _is_plain_text(block):
        return block
    if is_block_class(type(block)):
        block = read_block(block)
    if not isinstance(block, CONTENT_TYPES):  # pyright: ignore[reportUnnecessaryIsInstance] - a tool may err
        raise _not_of_its_kind(ToolResult(), "content", block, "content blocks, such as TextContent")
    optional = {name for name, default in block._field_defaults.items() if default is None}
    changes: dict[str, Any] = {}
    for name, said in block._asdict().items():
        if said is not None or name not in optional:
            member = _sound_member(block, name, said)
            if member is not said:
                changes[name] = member
    return block._replace(**changes) if changes else block


def _sound_member(block: Content, name: str, value: object) -> object:
    match name:
        case "data" | "blob":
            return _raw_bytes(block, name, value)
        case "annotations" | "meta" | "resource_meta":
            if isinstance(value, Mapping):
                return structured(dict(cast("Mapping[object, object]", value))).structured
            raise _not_of_its_kind(block, name, value, "a dict")
        case "icons":
            icons = structured(value).structured
            if isinstance(icons, list) and all(map(is_object, cast("list[object]", icons))):
                return tuple(cast("list[object]", icons))
            raise _not_of_its_kind(block, name, value, "a list of dicts")
        case "size":
            if type(value) is int:
                return value
            raise _not_of_its_kind(block, name, value, "an int")
        case _:
            # Many libraries represent addresses as objects, whose text is the address.
            if isinstance(value, str) or (name == "uri" and value is not None):
                return _encodable(str(value))
            raise _not_of_its_kind(block, name, value, "a str")


def _raw_bytes(block: Content, name: str, value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(cast("bytes | bytearray", value))
    if isinstance(value, str):
        # MCP transmits the time as text, and so do most programs that pass it on.
        with suppress(ValueError):
            return base64.b64decode(value, validate=True)
        raise _not_of_its_kind(block, name, value, "bytes, or base64 text")
    raise _not_of_its_kind(block, name, value, "bytes")


def _not_of_its_kind(holder: Content | ToolResult, name: str, value: object, needed: str) -> CallError:
    text = f"The tool gave a {type(holder).__name__} whose {name} is a {type(value).__name__}; it needs {needed}."
    return CallError("output_invalid", text, outcome_unknown=True)


# ---------------------------------------------------------------- values


def structured(value: object) -> ToolResult:
    """Return a result with the value as structured output and as text.

    Raises:
        CallError: `output_invalid`, if the value cannot be written as JSON.
    """
    try:
        try:
            if _is_flat(value):
                text, plain = orjson.dumps(value), value
            else:
                text = orjson.dumps(value, _jsonable, _ANY_KEYS)
                plain = orjson.loads(text)
        except TypeError as error:
            # An integer of more than 64 bits, or a lone surrogate.
            if not any(word in f"{error} {error.__cause__}" for word in ("64-bit", "surrogates")):
                raise
            plain = _exact(value)
            text = json_bytes(plain)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"The tool gave something that is not JSON ({error.__cause__ or error})."
        raise CallError("output_invalid", message, outcome_unknown=True) from error
    block = new_tuple(TextContent, (text.decode(), None, None))
    return new_tuple(ToolResult, ((block,), plain, False, None, NO_META, True, None))


_ANY_KEYS = orjson.OPT_NON_STR_KEYS
_AS_IT_IS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
NO_META: dict[str, JSONValue] = {}
_SCALARS = frozenset({str, int, bool, type(None)})


def _is_flat(value: Any) -> bool:
    """Tell whether a value is plain JSON of one level, as most are; others are parsed back from their text."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType] - any
    if kind is not dict:
        return kind in _SCALARS
    for key, item in value.items():  # noqa: SIM110 - a generator costs three times as much
        if type(key) is not str or type(item) not in _SCALARS:
            return False
    return True


def _exact(value: Any) -> JSONValue:
    """Return any value as plain JSON with exact integers of any length."""
    if isinstance(value, Enum):
        return _exact(value.value)
    if isinstance(value, str):
        return _encodable(str(value))
    if isinstance(value, int):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _exact(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, dict):
        written = cast("dict[object, object]", value)
        return {
            _encodable(str(key)) if isinstance(key, str) else _key(key): _exact(item) for key, item in written.items()
        }
    if isinstance(value, list | tuple):
        return [_exact(item) for item in cast("Sequence[object]", value)]
    try:
        return orjson.loads(orjson.dumps(value, _jsonable, orjson.OPT_NON_STR_KEYS))
    except TypeError:
        return _exact(_jsonable(value))


def _key(key: object) -> str:
    return str(key) if type(key) is int else next(iter(orjson.loads(orjson.dumps({key: 0}, None, _ANY_KEYS))))


def _jsonable(value: object) -> JSONValue:
    if is_block_class(type(value)):
        return wire_form(value)
    dump: Callable[..., JSONValue] | None = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()  # pyright: ignore[reportUnknownArgumentType] - any memory
    return cast("JSONValue", plain_form(value))


def plain_form(value: object) -> object:
    """Convert a value that is not JSON to a collection, a text, or the fields of an instance.

    Raises:
        TypeError: there is no such conversion.
    """
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if isinstance(value, Set | Sequence | ValuesView) and not isinstance(value, str | bytes):
        return list(cast("Sequence[object]", value))
    if isinstance(value, Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    kind = type(value)
    if isinstance(value, PurePath) or f"{kind.__module__}.{kind.__name__}" in _AS_TEXT:
        return str(value)
    if isinstance(value, timedelta):
        return _iso_duration(value)
    if callable(to_list := getattr(kind, "tolist", None)):
        # Numbers and arrays of NumPy, and columns of pandas and Polars.
        return to_list(value)
    return fields_of(value)


def _iso_duration(value: timedelta) -> str:
    sign, length = ("-", -value) if value < timedelta() else ("", value)
    fraction = f".{length.microseconds:06}" if length.microseconds else ""
    return f"{sign}PT{length.days * 86_400 + length.seconds}{fraction}S"


# Special number types and addresses: their text is exact, and pydantic writes the same.
_AS_TEXT = frozenset(
    {
        "decimal.Decimal", "fractions.Fraction", "zoneinfo.ZoneInfo", "ipaddress.IPv4Address", "ipaddress.IPv6Address",
        "ipaddress.IPv4Network", "ipaddress.IPv6Network", "ipaddress.IPv4Interface", "ipaddress.IPv6Interface",
    }
)  # fmt: skip


def has_fields(kind: type) -> bool:
    """Tell whether instances of a class are data: plain user-defined classes with fields.

    Objects of the standard library and Pegboard are locks, sockets or catalogs, which no model should see.
    """
    is_own = kind is SimpleNamespace or kind.__module__.partition(".")[0] not in _NO_DATA
    # Fields may be slots instead of entries in `__dict__`; attrs makes such classes.
    has_any = any("__dict__" in vars(base) or _slots(base) for base in kind.__mro__)
    return is_own and has_any and not issubclass(kind, _WITHOUT_FIELDS)


def _slots(kind: type) -> tuple[str, ...]:
    slots: str | Iterable[str] = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if not name.startswith("__"))


def fields_of(value: object) -> dict[str, object]:
    """Return the public fields of an instance of a plain class.

    Raises:
        TypeError: it has no fields.
    """
    kind = type(value)
    if not has_fields(kind):
        raise TypeError(f"a {kind.__name__}")
    declared = [name for base in reversed(kind.__mro__) for name in (*inspect.get_annotations(base), *_slots(base))]
    names = dict.fromkeys((*declared, *getattr(value, "__dict__", ())))
    return {name: getattr(value, name) for name in names if not name.startswith("_") and hasattr(value, name)}


# Iterators, callables, awaitables and closable objects are not data.
_NO_DATA = sys.stdlib_module_names | {"pegboard", "typing_extensions"}
_WITHOUT_FIELDS: Any = (
    type, BaseException, Iterator, AsyncIterator, Awaitable, Callable, AbstractContextManager,
    AbstractAsyncContextManager, ToolContext, ModuleType,
)  # fmt: skip


_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"),
    (b"RIFF", "audio/wav"), (b"ID3", "audio/mpeg"), (b"OggS", "audio/ogg"),
)  # fmt: skip


def _encodable(text: str) -> str:
    """Return text that can be encoded as UTF-8; a lone surrogate, which nothing can transmit, becomes `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


_MEDIA = {"image": ImageContent, "audio": AudioContent}


def _of_mime_type(raw: bytes, mime_type: str) -> Content:
    media = _MEDIA.get(mime_type.partition("/")[0])
    return media(raw, mime_type) if media else ResourceContent("pegboard://result", blob=raw, mime_type=mime_type)


def _media(raw: bytes) -> Content:
    """Return raw bytes as the kind of block that their first bytes show; unknown ones as an embedded resource."""
    return _of_mime_type(raw, _known(raw) or "application/octet-stream")


def _known(raw: bytes | bytearray) -> str | None:
    """Return the media type of an image or a sound, by its first bytes."""
    if raw.startswith(b"RIFF") and raw[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _MAGIC if raw.startswith(magic)), None)
