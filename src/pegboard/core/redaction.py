"""Redaction: remove every known secret from outgoing data."""

from __future__ import annotations

import base64
import json
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, cast
from urllib.parse import quote, quote_plus

import orjson

from pegboard.core.literal_search import LiteralSearch, replaced
from pegboard.model.json_types import is_list, is_object
from pegboard.model.secret import Secret

NO_WORD_SECRET_CHARS = 16  # length of a secret; shorter ones may be words that names and addresses of a source contain

REDACTED = "[redacted]"
# A shorter value would blot out ordinary text wherever it happens to occur.
_MIN_CHARS = 4  # the shortest secret that is redacted; shorter ones occur in ordinary text
_SLASHES = 16  # backslashes of four levels of JSON within JSON
_SHORT_ESCAPES = {'"': '"', "/": "/", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_LOOKED_AT_TOGETHER = 64  # entries of one list or object that are searched together if one of them may match
_AS_IT_IS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_JSON_ESCAPES = (
    *((b"\\" + letter.encode(), char.encode()) for letter, char in _SHORT_ESCAPES.items() if letter not in '"/'),
    *((b"\\u%04x" % unit, bytes([unit])) for unit in range(0x20)),
)
_SHORT_JSON_ESCAPES = 5  # short escapes of JSON without digits


def _spellings(value: str) -> Iterable[str]:
    """Yield the forms that `value` may appear in: plain, in JSON, URL-encoded, in hex, in base64 at any offset."""
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    for encoded in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield encoded
        yield re.sub(r"%[0-9A-F]{2}", lambda match: match.group().lower(), encoded)
    raw = value.encode()
    # As bytes read one per character: UTF-8, and UTF-16 in either byte order.
    yield raw.decode("latin-1")
    yield value.encode("utf-16-le", "surrogatepass").decode("latin-1")[:-1]
    yield value.encode("utf-16-be", "surrogatepass").decode("latin-1")[1:]
    yield "".join(map(chr, _units(value)))
    for bytes_ in (raw, value.encode("utf-16-le", "surrogatepass")):
        yield from (bytes_.hex(), bytes_.hex().upper())
        # Only the characters that depend on the secret alone, not on its neighbours.
        for lead in range(3):
            part = slice(-(-lead * 8 // 6), (lead + len(bytes_)) * 8 // 6)
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                yield encode(b"\0" * lead + bytes_).decode()[part]
    if len(value) >= NO_WORD_SECRET_CHARS:
        # A short one may be a word, and be another word backwards.
        yield value[::-1]
        for lead in range(5):
            yield base64.b32encode(b"\0" * lead + raw).decode()[-(-lead * 8 // 5) : (lead + len(raw)) * 8 // 5]
        for separator in ":- ":
            yield from (raw.hex(separator), raw.hex(separator).upper())


def _units(text: str) -> tuple[int, ...]:
    """Return a text in UTF-16 code units, which JSON escapes use."""
    raw = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(raw) // 2}H", raw)


def _hexadecimal(digits: str) -> str:
    return chr(int(digits, 16))


def _decimal(digits: str) -> str:
    return chr(int(digits))


def _has_escapes(text: str) -> bool:
    return "\\" in text or "%" in text or "&" in text


# The beginning of an escape at the end of a text.
_STARTED_ESCAPE = re.compile(
    rf"(?:\\{{1,{_SLASHES}}}(?:u[0-9a-fA-F]{{0,3}}|x[0-9a-fA-F]?)?|%(?:25)*[0-9a-fA-F]?|&(?:amp;)*#?[0-9a-zA-Z]{{0,8}})\Z"
)
_READERS: Mapping[str, Callable[[str], str]] = {
    "json": _hexadecimal,
    "short": _SHORT_ESCAPES.__getitem__,
    "byte": _hexadecimal,
    "url": _hexadecimal,
    "decimal": _decimal,
    "hexadecimal": _hexadecimal,
    "named": _ENTITIES.__getitem__,
}


def _escape_of(units: Sequence[int], every_byte: Iterable[int], short: str) -> str:
    """Return the pattern of an escape of one of these characters; the name of its group tells its kind."""
    named = "|".join(name for name, char in _ENTITIES.items() if ord(char) in units)
    bytes_hex = "|".join(f"{unit:02x}" for unit in units if unit < 0x80)
    codes = rf"u(?i:(?P<json>{'|'.join(f'{unit:04x}' for unit in units)}))"
    codes += rf"|x(?i:(?P<byte>{'|'.join(f'{byte:02x}' for byte in every_byte)}))"
    # Each alternative begins with its own character, used to find matches. The number of backslashes is limited:
    # otherwise a megabyte of them would be scanned from each one.
    parts = [
        rf"\\{{1,{_SLASHES}}}(?:{codes}{f'|(?P<short>[{short}])' if short else ''})",
        rf"%(?:25)*(?i:(?P<url>{bytes_hex}))" if bytes_hex else None,
        rf"&(?:amp;)*#0*(?P<decimal>{'|'.join(map(str, units))});",
        rf"&(?:amp;)*#[xX]0*(?i:(?P<hexadecimal>{'|'.join(f'{unit:x}' for unit in units)}));",
        rf"&(?:amp;)*(?P<named>{named});" if named else None,
    ]
    return "|".join(part for part in parts if part)


def _places(written: Sequence[str], read: Sequence[str]) -> Callable[[int], int]:
    """Return the function from a place in a text that was read to the place in the text as it was written."""
    written_at, read_at = [0, *accumulate(map(len, written))], [0, *accumulate(map(len, read))]

    def written_place(place: int) -> int:
        near = bisect_right(read_at, place) - 1
        return written_at[near] + place - read_at[near]

    return written_place


class _Escapes:
    r"""Finds secrets with any characters escaped.

    Writers differ: PHP writes `\/`, .NET `\u002B`, JavaScript `%2B`, and each level of JSON within JSON adds
    backslashes.
    """

    def __init__(self, values: Collection[str], search: LiteralSearch) -> None:
        units = sorted({unit for value in values for unit in _units(value)})
        short = "".join(letter for letter, char in _SHORT_ESCAPES.items() if ord(char) in units)
        every_byte = sorted({*chain.from_iterable(value.encode("utf-8", "surrogatepass") for value in values)})
        escape = _escape_of(units, every_byte, short)
        self._escape = re.compile(escape)
        # The beginning of every escape, however often it was escaped again; a quick search rules out most texts.
        self._mark = re.compile(rf"\\[ux{short}]|%[0-9a-fA-F]|&[#a-z]")
        # The pattern of the escapes without its groups.
        self._parts = re.compile(f"({re.sub(r'[(][?]P<[a-z]+>', '(?:', escape)})")
        # A secret may itself look as if it contained escapes.
        as_read = {form for value in values if len(form := "".join(self._read(value)[1])) >= _MIN_CHARS}
        self._search = search if as_read <= {*search.texts} else LiteralSearch({*search.texts, *as_read})

    def may_be_in(self, text: str) -> bool:
        """Tell whether secrets may be in `text` after unescaping; a no is certain."""
        parts, read = self._read(text)
        return len(parts) > 1 and self._search.may_be_in("".join(read))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the spans of secrets in `text` after unescaping."""
        parts, read = self._read(text)
        if len(parts) == 1 or not self._search.may_be_in(whole := "".join(read)):
            return []
        written = _places(parts, read)
        return [(written(begin), written(end)) for begin, end in self._search.spans(whole)]

    def unfinished(self, text: str) -> int:
        """Return the place of a secret that may continue after `text`; the length of `text` if there is none."""
        started = _STARTED_ESCAPE.search(text)
        complete = text if started is None else text[: started.start()]
        parts, read = self._read(complete)
        return _places(parts, read)(self._search.unfinished("".join(read)))

    def _read(self, text: str) -> tuple[list[str], list[str]]:
        """Return a text split at its escapes, and the meaning of each part."""
        if self._mark.search(text) is None or len(parts := self._parts.split(text)) == 1:
            return [text], [text]
        # A text may consist of escapes, but has few different ones.
        said = {escape: self._unescaped(escape) for escape in {*parts[1::2]}}
        read = parts.copy()
        read[1::2] = map(said.__getitem__, parts[1::2])
        return parts, read

    def _unescaped(self, escape: str) -> str:
        match = self._escape.fullmatch(escape)
        assert match is not None
        kind, digits = next((kind, digits) for kind, digits in match.groupdict().items() if digits is not None)
        return _READERS[kind](digits)


class Redactor:
    """Replaces every known secret, in every spelling, by `[redacted]`."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        self._values = {value for secret in secrets if len(value := secret.reveal()) >= _MIN_CHARS}
        forms = {form for value in self._values for form in _spellings(value)}
        self._search = LiteralSearch(forms) if forms else None
        self.forms = () if self._search is None else self._search.texts
        """Every spelling to search for, the longest first."""

    @cached_property
    def telling(self) -> Redactor:
        """A redactor for the long secrets only: config variables may be words that names contain, e.g. `production`."""
        return Redactor(Secret(value) for value in self._values if len(value) >= NO_WORD_SECRET_CHARS)

    def finds(self, text: str) -> bool:
        """Tell whether any secret is in `text`, which may be JSON."""
        search = self._search
        return search is not None and (search.is_in(text) or (_has_escapes(text) and bool(self._escapes.spans(text))))

    def may_find(self, text: str) -> bool:
        """Quickly tell whether any secret may be in `text`; a no is certain."""
        search = self._search
        return search is not None and (search.may_be_in(text) or (_has_escapes(text) and self._escapes.may_be_in(text)))

    def text(self, text: str) -> str:
        """Return `text` without secrets."""
        search = self._search
        if search is None:
            return text
        if search.may_be_in(text):
            text = search.replaced(text, REDACTED)
        return replaced(text, self._escapes.spans(text), REDACTED) if _has_escapes(text) else text

    def unfinished(self, text: str) -> int:
        """Return the place of a secret that may continue after `text`; the length of `text` if there is none."""
        if self._search is None:
            return len(text)
        literal = self._search.unfinished(text)
        return min(literal, self._escapes.unfinished(text)) if _has_escapes(text) else literal

    def texts(self, texts: Sequence[str]) -> list[str]:
        """Return texts that are read one after the other without secrets, also those that continue in the next."""
        clean = [self.text(text) for text in texts]
        whole = "".join(clean)
        search = self._search
        if search is None or not self.may_find(whole):
            return clean
        # What is left in the whole crosses a boundary.
        spans = [*search.spans(whole), *(self._escapes.spans(whole) if _has_escapes(whole) else ())]
        begin = 0
        for number, text in enumerate(clean):
            end = begin + len(text)
            own = [(max(start, begin) - begin, min(stop, end) - begin) for start, stop in sorted(spans)]
            clean[number] = replaced(text, _merged(span for span in own if span[0] < span[1]), REDACTED)
            begin = end
        return clean

    @cached_property
    def _escapes(self) -> _Escapes:
        # Created on demand: it costs ten times the rest, for each caller with their own secrets.
        assert self._search is not None
        return _Escapes(self._values, self._search)

    def value(self, value: Any) -> Any:
        """Return a JSON value with the secrets removed from its strings and keys; unchanged parts are shared."""
        return value if self._search is None else without(value, clean=self.text, may_find=self.may_find)


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ordered spans without overlaps."""
    merged: list[tuple[int, int]] = []
    for begin, end in spans:
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def without(value: Any, *, clean: Callable[[str], str], may_find: Callable[[str], bool]) -> Any:
    """Return a JSON value with each string cleaned, including keys; unchanged parts are shared.

    All strings are searched together; single ones only if `may_find` reports a possible match. `may_find` must report
    every text that `clean` would change, whatever surrounds it.
    """
    if isinstance(value, str):
        return clean(value)
    if (
        not (is_object(value) or is_list(value) or isinstance(value, tuple))
        or not value
        or ((texts := _texts_of(value)) is not None and not may_find(texts))
    ):
        return cast("Any", value)
    if isinstance(value, tuple):
        # May be a list subclass: tools can put one into an event.
        members: list[Any] = [*cast("tuple[Any, ...]", value)]
        return tuple(without(members, clean=clean, may_find=may_find))
    if isinstance(value, dict):
        items = [*value.items()]
        if len(items) <= _LOOKED_AT_TOGETHER:
            return {_clean_key(key, clean): without(item, clean=clean, may_find=may_find) for key, item in items}
        cleaned: dict[Any, Any] = {}
        for at in range(0, len(items), _LOOKED_AT_TOGETHER):
            cleaned |= without(dict(items[at : at + _LOOKED_AT_TOGETHER]), clean=clean, may_find=may_find)
        return cleaned
    if len(value) <= _LOOKED_AT_TOGETHER:
        return [without(item, clean=clean, may_find=may_find) for item in value]
    places = range(0, len(value), _LOOKED_AT_TOGETHER)
    pieces = (without(value[at : at + _LOOKED_AT_TOGETHER], clean=clean, may_find=may_find) for at in places)
    return [*chain.from_iterable(pieces)]


def _clean_key(key: Any, clean: Callable[[str], str]) -> Any:
    return clean(key) if isinstance(key, str) else key


def _texts_of(value: Any) -> str | None:
    """Return a text that contains each string of a JSON value; `None` if it cannot be written quickly.

    The characters between strings belong to no escape, so no match can span two strings.
    """
    try:
        raw = orjson.dumps(value, None, _AS_IT_IS)
    except TypeError:
        return None
    if b"\\" not in raw:
        return raw.decode()
    # Two bytes that never occur in UTF-8 stand for escaped quotes and backslashes.
    raw = raw.replace(b"\\\\", b"\xff").replace(b'\\"', b"\xfe").replace(b'"', b"\x02").replace(b"\xfe", b'"')
    for escape, char in _JSON_ESCAPES[: None if b"\\u" in raw else _SHORT_JSON_ESCAPES]:
        raw = raw.replace(escape, char)
    return raw.replace(b"\xff", b"\\").decode()
