"""Schema words: converts the values of foreign schema keywords to valid JSON Schema 2020-12."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pegboard.core.schema import compile_schema
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSONValue, is_list, is_object
from pegboard.sources.foreign_text import has_hidden

_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})


class UnusableError(Exception):
    """A keyword has an invalid value. It is left out, which leaves its place open, and the tool stays usable."""


def usable(key: str, value: JSONValue) -> JSONValue:
    """Return the converted value of a keyword.

    Raises:
        UnusableError: it is invalid, or has invisible characters.
    """
    return _READERS[key](plain(value))


def plain(value: JSONValue) -> JSONValue:
    """Return a JSON value. Integers of more than 64 bits become floats, as most parsers read them.

    Raises:
        UnusableError: a number is too large, or a text has invisible characters.
    """
    if is_object(value):
        return {_visible(key): plain(inner) for key, inner in value.items()}
    if is_list(value):
        return [plain(inner) for inner in value]
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        try:
            return float(value)
        except OverflowError:
            raise UnusableError from None
    return _visible(value) if isinstance(value, str) else value


def _visible(text: str) -> str:
    if has_hidden(text):
        raise UnusableError
    return text


# ---------------------------------------------------------------- keyword by keyword


def _anything(value: JSONValue) -> JSONValue:
    return value


def _of(holds: Callable[[Any], bool]) -> Callable[[JSONValue], JSONValue]:
    def read(value: JSONValue) -> JSONValue:
        if not holds(value):
            raise UnusableError
        return value

    return read


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_pattern(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(compile_schema({"pattern": value}))
    except (DefinitionError, CallError):
        # An invalid regular expression, or one that takes too long to compile.
        return False


def _type(value: JSONValue) -> JSONValue:
    names = [name for name in (value if is_list(value) else [value]) if isinstance(name, str)]
    known = list(dict.fromkeys(name for name in names if name in _TYPES))
    # An unknown type (`file`, `any`) may mean anything.
    if not known or len(set(names)) > len(known):
        raise UnusableError
    return known if is_list(value) else known[0]


def _names(value: JSONValue) -> JSONValue:
    if not is_list(value) or not (names := list(dict.fromkeys(name for name in value if isinstance(name, str)))):
        raise UnusableError
    return names


def _names_by_name(value: JSONValue) -> JSONValue:
    if not is_object(value):
        raise UnusableError
    return {key: _names(inner) for key, inner in value.items()}


_text = _of(lambda value: isinstance(value, str))
_number = _of(_is_number)
# `exclusiveMinimum: true` is OpenAPI 3.0.
_number_or_flag = _of(lambda value: _is_number(value) or isinstance(value, bool))
_count = _of(_is_count)
_flag = _of(lambda value: isinstance(value, bool))
_filled_list = _of(lambda value: is_list(value) and len(value) > 0)

_READERS: Final[Mapping[str, Callable[[JSONValue], JSONValue]]] = {
    "type": _type, "enum": _filled_list, "const": _anything, "default": _anything, "format": _text,
    "minimum": _number, "maximum": _number, "exclusiveMinimum": _number_or_flag, "exclusiveMaximum": _number_or_flag,
    "multipleOf": _of(lambda value: _is_number(value) and value > 0),
    "minLength": _count, "maxLength": _count, "pattern": _of(_is_pattern),
    "minItems": _count, "maxItems": _count, "uniqueItems": _flag, "minContains": _count, "maxContains": _count,
    "minProperties": _count, "maxProperties": _count, "required": _names, "dependentRequired": _names_by_name,
    "examples": _filled_list, "deprecated": _flag, "contentEncoding": _text, "contentMediaType": _text,
}  # fmt: skip
TAKEN_OVER: Final = frozenset(_READERS)
