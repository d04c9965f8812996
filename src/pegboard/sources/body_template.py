"""Body template: a JSON value with placeholders for arguments, which are inserted as values and never as syntax."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import orjson
from msgspec import Struct

from pegboard.core.json_reader import read_answer
from pegboard.core.json_text import json_bytes
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSONValue, is_list, is_object
from pegboard.model.secret import Secret

_NAME = r"[A-Za-z_][\w-]*"
_PLACE = re.compile(rf"\{{\{{\s*(?P<path>{_NAME}(?:\.{_NAME})*)\s*(?:\|\s*tojson\s*)?\}}\}}")
_STRAY = re.compile(r"\{\{|\}\}|\{%|\{#")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_WHOLE: Final = "data"

Part = Callable[[Mapping[str, JSONValue]], JSONValue]


class BodyTemplate(Struct, frozen=True):
    """A template. `names` are the arguments that it uses; `None` means all.

    A placeholder is `{{ name }}` or `{{ data.name }}`, with `.inner` for a member; `{{ data }}` is all arguments.
    """

    names: frozenset[str | None]
    _fill: Part

    @classmethod
    def read(cls, declared: JSONValue) -> BodyTemplate:
        """Parse a mapping or a list with placeholders in its texts, or a JSON text with placeholders.

        A text that is a single placeholder becomes the argument itself, of any type. Inside the quotes of a JSON text a
        placeholder is always text.

        Raises:
            DefinitionError: a text is not JSON, or a placeholder is more than a name.
        """
        names: set[str | None] = set()
        is_text = isinstance(declared, str)
        fill = _compiled(_from_text(declared) if is_text else declared, names, is_quoted=is_text)
        return cls(frozenset(names), fill)

    def filled(self, args: Mapping[str, JSONValue]) -> JSONValue:
        """Return the value with the arguments inserted.

        Raises:
            CallError: `template_error`, if an argument for a placeholder is missing: the request would mean something
                else.
        """
        return self._fill(args)


class _Bare(str):
    """A placeholder outside of quotes in a JSON text."""

    __slots__ = ()


def _from_text(declared: str) -> JSONValue:
    """Return a JSON text as a value, with its unquoted placeholders as texts of a special class."""
    text = declared.reveal() if isinstance(declared, Secret) else declared
    bare: list[str] = []
    strings = [match.span() for match in _STRING.finditer(text)]

    def mark(match: re.Match[str]) -> str:
        if any(start < match.start() < end for start, end in strings):
            return match.group()
        bare.append(match.group())
        # A key that the JSON text cannot contain, because it is derived from the text.
        return orjson.dumps({_key(text): len(bare) - 1}).decode()

    try:
        value = read_answer(_PLACE.sub(mark, text).encode())
    except ValueError:
        raise DefinitionError(
            "expected `args`, a mapping, or JSON text in which {{ name }} is replaced by an argument"
        ) from None
    return _unmarked(value, _key(text), bare)


def _key(text: str) -> str:
    return f"\ue000{len(text)}\ue001{text}"


def _unmarked(value: JSONValue, key: str, bare: list[str]) -> JSONValue:
    if is_object(value):
        if key in value:
            place: int = value[key]
            return _Bare(bare[place])
        return {name: _unmarked(inner, key, bare) for name, inner in value.items()}
    return [_unmarked(inner, key, bare) for inner in value] if is_list(value) else value


def _compiled(value: JSONValue, names: set[str | None], *, is_quoted: bool) -> Part:
    if isinstance(value, str):
        return _text(value, names, is_quoted=is_quoted and not isinstance(value, _Bare))
    if is_object(value):
        for key in value:
            if _PLACE.search(key):
                raise DefinitionError("the keys of a body are fixed: write {{ name }} only in values")
        parts = {key: _compiled(inner, names, is_quoted=is_quoted) for key, inner in value.items()}
        return lambda args: {key: part(args) for key, part in parts.items()}
    if is_list(value):
        items = [_compiled(inner, names, is_quoted=is_quoted) for inner in value]
        return lambda args: [part(args) for part in items]
    return lambda args: value


def _text(value: str, names: set[str | None], *, is_quoted: bool) -> Part:
    plain = value.reveal() if isinstance(value, Secret) else str(value)
    if _STRAY.search(_PLACE.sub("", plain)):
        raise DefinitionError("a body supports only {{ name }} and {{ data.name }}, without filters")
    places = list(_PLACE.finditer(plain))
    paths = [_path(match["path"], names) for match in places]
    if not places:
        return lambda args: plain
    if not is_quoted and places[0].group() == plain.strip():
        return lambda args: _value_at(args, paths[0])
    pieces = _PLACE.sub("\0", plain).split("\0")

    def fill(args: Mapping[str, JSONValue]) -> str:
        texts = [_as_text(_value_at(args, path)) for path in paths]
        return pieces[0] + "".join(text + piece for text, piece in zip(texts, pieces[1:], strict=True))

    return fill


def _path(dotted: str, names: set[str | None]) -> tuple[str, ...]:
    steps = tuple(dotted.split("."))
    if steps[0] == _WHOLE:
        steps = steps[1:]
    names.add(steps[0] if steps else None)
    return steps


def _value_at(args: Mapping[str, JSONValue], path: tuple[str, ...]) -> JSONValue:
    value: JSONValue = dict(args)
    for step in path:
        if not is_object(value) or step not in value:
            text = f"The body has a place for {'.'.join(path)!r}, and the call has no such value, so nothing was sent."
            raise CallError("template_error", f"{text} Give it.")
        value = value[step]
    return value


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json_bytes(value).decode()
