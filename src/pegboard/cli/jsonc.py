"""jsonc: JSON with comments and trailing commas; single members are changed, and all other text is kept."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from pegboard.model.json_types import JSON, JSONValue

_SPACE = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_WORD = re.compile(r"[^\s,\]}/\"]+")


class JsoncError(ValueError):
    """A text is not JSON, not even with comments; the message has the line."""


class _Member(NamedTuple):
    key: str
    start: int
    value_start: int
    end: int


class _Object(NamedTuple):
    """An object: its braces, its members, and the place after a trailing comma."""

    start: int
    end: int
    members: list[_Member]
    has_last_comma: bool


def read(text: str) -> JSONValue:
    """Parse a text.

    Raises:
        JsoncError: it is invalid.
    """
    pieces: list[str] = []
    start = _after_space(text, 0)
    end = _value(text, start, pieces)
    if _after_space(text, end) != len(text):
        raise _fault(text, end)
    try:
        return json.loads("".join(pieces))
    except ValueError:
        raise _fault(text, start) from None


def with_member(text: str, section: str, name: str, value: JSON) -> str:
    """Return the text with `{section: {name: value}}` in it; a member with that name is replaced.

    Raises:
        JsoncError: it is invalid, or is not an object there.
    """
    if _after_space(text, 0) == len(text):
        return text + json.dumps({section: {name: value}}, indent=2, ensure_ascii=False) + "\n"
    root = _object(text, _after_space(text, 0))
    holder = _member(root, section)
    if holder is None:
        return _added(text, root, section, {name: value})
    inner = _object(text, holder.value_start)
    present = _member(inner, name)
    if present is None:
        return _added(text, inner, name, value)
    indent = _indent(text, present.start)
    return text[: present.value_start] + _written(value, indent) + text[present.end :]


def without_member(text: str, section: str, name: str) -> str:
    """Return the text without that member, and without the section if it becomes empty.

    Raises:
        JsoncError: it is invalid, or is not an object there.
    """
    if _after_space(text, 0) == len(text):
        return text
    root = _object(text, _after_space(text, 0))
    holder = _member(root, section)
    if holder is None:
        return text
    inner = _object(text, holder.value_start)
    if _member(inner, name) is None:
        return text
    is_alone = len(inner.members) == 1 and not _comments(text[inner.start + 1 : inner.end], inner.members, inner.start)
    return _removed(text, root, section) if is_alone else _removed(text, inner, name)


def _comments(between: str, members: list[_Member], start: int) -> bool:
    """Tell whether an object contains a comment."""
    for member in reversed(members):
        between = between[: member.start - start - 1] + between[member.end - start - 1 :]
    return "/" in between


def _added(text: str, holder: _Object, key: str, value: JSONValue) -> str:
    if not holder.members:
        outer = _indent(text, holder.start)
        rest = text[holder.start + 1 :]
        end = "" if _SPACE.match(rest) and "\n" in rest[: holder.end - holder.start - 1] else f"\n{outer}"
        return f"{text[: holder.start + 1]}\n{outer}  {_pair(key, value, outer + '  ')}{end}{rest}"
    last = holder.members[-1]
    indent = _indent(text, last.start)
    pair = _pair(key, value, indent)
    if holder.has_last_comma:
        place = text.index(",", _after_space(text, last.end)) + 1
        return f"{text[:place]}\n{indent}{pair},{text[place:]}"
    return f"{text[: last.end]},\n{indent}{pair}{text[last.end :]}"


def _removed(text: str, holder: _Object, key: str) -> str:
    place = next(place for place, member in enumerate(holder.members) if member.key == key)
    member = holder.members[place]
    start, end = member.start, member.end
    comma = _after_space(text, end)
    if text[comma] == ",":
        end = comma + 1
    # The line that it began on is removed as well, if nothing else is on it.
    line = text.rfind("\n", 0, start)
    if line >= holder.start and not text[line + 1 : start].strip():
        start = line
    else:
        while text[end : end + 1] == " ":
            end += 1
    remaining = text[:start] + text[end:]
    if text[comma] != "," and place > 0:
        before = _after_space(text, holder.members[place - 1].end)
        remaining = remaining[:before] + remaining[before + 1 :]
    return remaining


def _pair(key: str, value: JSONValue, indent: str) -> str:
    return f"{json.dumps(key, ensure_ascii=False)}: {_written(value, indent)}"


def _written(value: JSONValue, indent: str) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"\n{indent}")


def _indent(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip())]


def _member(holder: _Object, key: str) -> _Member | None:
    # Of duplicate keys the last counts, as for other readers.
    return next((member for member in reversed(holder.members) if member.key == key), None)


def _object(text: str, start: int) -> _Object:
    if text[start : start + 1] != "{":
        raise _fault(text, start, "an object is needed here")
    members: list[_Member] = []
    place, has_last_comma = _after_space(text, start + 1), False
    while text[place : place + 1] != "}":
        key = _STRING.match(text, place)
        if key is None:
            raise _fault(text, place)
        colon = _after_space(text, key.end())
        if text[colon : colon + 1] != ":":
            raise _fault(text, colon)
        value_start = _after_space(text, colon + 1)
        end = _value(text, value_start, [])
        members.append(_Member(json.loads(key[0]), place, value_start, end))
        place = _after_space(text, end)
        has_last_comma = text[place : place + 1] == ","
        if has_last_comma:
            place = _after_space(text, place + 1)
        elif text[place : place + 1] != "}":
            raise _fault(text, place)
    return _Object(start, place, members, has_last_comma and bool(members))


def _value(text: str, start: int, pieces: list[str]) -> int:
    """Return the end of a value, and append its text without comments and trailing commas."""
    opening = text[start : start + 1]
    if opening not in ("{", "["):
        match = _STRING.match(text, start) or _WORD.match(text, start)
        if match is None:
            raise _fault(text, start)
        pieces.append(match[0])
        return match.end()
    closing = "}" if opening == "{" else "]"
    pieces.append(opening)
    place = _after_space(text, start + 1)
    while text[place : place + 1] != closing:
        if opening == "{":
            key = _STRING.match(text, place)
            colon = _after_space(text, place if key is None else key.end())
            if key is None or text[colon : colon + 1] != ":":
                raise _fault(text, place)
            pieces.append(f"{key[0]}:")
            place = _after_space(text, colon + 1)
        place = _after_space(text, _value(text, place, pieces))
        if text[place : place + 1] == ",":
            place = _after_space(text, place + 1)
            if text[place : place + 1] != closing:
                pieces.append(",")
        elif text[place : place + 1] != closing:
            raise _fault(text, place)
    pieces.append(closing)
    return place + 1


def _after_space(text: str, place: int) -> int:
    match: Any = _SPACE.match(text, place)
    return match.end()


def _fault(text: str, place: int, reason: str = "it is not JSON there") -> JsoncError:
    return JsoncError(f"line {text.count(chr(10), 0, place) + 1}: {reason}")
