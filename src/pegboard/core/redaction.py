"""Redaction: remove every known secret from what goes out."""

from __future__ import annotations

import base64
import json
import re
import struct
from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property
from typing import Any
from urllib.parse import quote, quote_plus

from pegboard.model.bounds import NO_WORD_SECRET_CHARS
from pegboard.model.json_types import is_list, is_object
from pegboard.model.secret import Secret

REDACTED = "[redacted]"
# A shorter value would blot out ordinary text wherever it happens to occur.
_MIN_CHARS = 4  # not a limit: a shorter one is an ordinary word
_SLASHES = 15  # not a limit: of four levels of JSON within JSON
_ESCAPE_MARKS = ("\\", "%", "&")
_SHORT_ESCAPES = {'"': '"', "/": "/", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


def _spellings(value: str) -> Iterable[str]:
    """Yield the forms in which `value` may leave: as it is, in JSON, URL-encoded, in base64 at any offset."""
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    for encoded in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield encoded
        yield re.sub(r"%[0-9A-F]{2}", lambda match: match.group().lower(), encoded)
    raw = value.encode()
    # As bytes that are read a character for a byte: in UTF-8, and in UTF-16 of either order.
    yield raw.decode("latin-1")
    yield value.encode("utf-16-le", "surrogatepass").decode("latin-1")[:-1]
    yield value.encode("utf-16-be", "surrogatepass").decode("latin-1")[1:]
    yield "".join(map(chr, _units(value)))
    for lead in range(3):
        # Only the characters that depend on nothing but the secret; its neighbours decide the rest.
        start, end = (0, 2, 3)[lead], ((lead + len(raw)) * 8) // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * lead + raw).decode()[start:end]


def _units(text: str) -> tuple[int, ...]:
    """Return a text in the units of UTF-16, which is how JSON escapes count."""
    raw = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(raw) // 2}H", raw)


def _any_of(forms: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(forms, key=_longest_first))))


def _longest_first(form: str) -> tuple[int, str]:
    return -len(form), form


def _hexadecimal(digits: str) -> str:
    return chr(int(digits, 16))


def _decimal(digits: str) -> str:
    return chr(int(digits))


class _Escapes:
    r"""Finds secrets of which any characters are escapes; which ones is up to whoever wrote the text.

    PHP writes `\/`, .NET `\u002B`, JavaScript `%2B`, and each level of JSON within JSON adds backslashes.
    """

    def __init__(self, values: Iterable[str], forms: Iterable[str]) -> None:
        units = sorted({unit for value in values for unit in _units(value)})
        bytes_hex = "|".join(f"{unit:02x}" for unit in units if unit < 0x80)
        chars = {chr(unit) for unit in units}
        short = "".join(letter for letter, char in _SHORT_ESCAPES.items() if char in chars)
        named = "|".join(name for name, char in _ENTITIES.items() if char in chars)
        # Each begins with a character of its own, by which the places are found. Backslashes are counted: a megabyte of
        # them is looked at from each.
        slashes = rf"\\{{0,{_SLASHES}}}"
        parts = [
            rf"\\{slashes}u(?i:({'|'.join(f'{unit:04x}' for unit in units)}))",
            rf"\\{slashes}([{short}])" if short else None,
            rf"%(?:25)*(?i:({bytes_hex}))" if bytes_hex else None,
            rf"&(?:amp;)*#0*({'|'.join(map(str, units))});",
            rf"&(?:amp;)*#[xX]0*(?i:({'|'.join(f'{unit:x}' for unit in units)}));",
            rf"&(?:amp;)*({named});" if named else None,
        ]
        readers = (
            _hexadecimal,
            _SHORT_ESCAPES.__getitem__,
            _hexadecimal,
            _decimal,
            _hexadecimal,
            _ENTITIES.__getitem__,
        )
        self._readers = [reader for part, reader in zip(parts, readers, strict=True) if part]
        self._escape = re.compile("|".join(part for part in parts if part))
        # A secret may look as if it had escapes itself.
        as_read = (self.read(value)[0] for value in values)
        self._pattern = _any_of({*forms, *(form for form in as_read if len(form) >= _MIN_CHARS)})

    def read(self, text: str) -> tuple[str, list[int], list[int]]:
        """Return what a text says, and from which places in it on which places of the written one stand."""
        parts: list[str] = []
        read_at, written_at, length, at = [0], [0], 0, 0
        for match in self._escape.finditer(text):
            index = match.lastindex or 0
            start, end = match.span()
            parts += (text[at:start], self._readers[index - 1](match[index]))
            length += start - at + 1
            read_at += (length - 1, length)
            written_at += (start, end)
            at = end
        return "".join([*parts, text[at:]]), read_at, written_at

    def hits(self, text: str) -> list[tuple[int, int]]:
        """Return where secrets stand in `text` once its escapes are read."""
        read, read_at, written_at = self.read(text)
        if len(read_at) == 1:
            return []

        def written(place: int) -> int:
            near = bisect_right(read_at, place) - 1
            return written_at[near] + place - read_at[near]

        return [(written(match.start()), written(match.end())) for match in self._pattern.finditer(read)]


class Redactor:
    """Replaces every known secret, in every spelling, by `[redacted]`."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        self._values = {value for secret in secrets if len(value := secret.reveal()) >= _MIN_CHARS}
        forms = {form for value in self._values for form in _spellings(value)}
        self.forms = tuple(sorted(forms, key=_longest_first))
        """Every spelling that is looked for, the longest first."""
        self._pattern = _any_of(forms) if forms else None

    @cached_property
    def telling(self) -> Redactor:
        """What knows the long ones alone: a variable of a config may be a word like `production`, which names have."""
        return Redactor(Secret(value) for value in self._values if len(value) >= NO_WORD_SECRET_CHARS)

    def finds(self, text: str) -> bool:
        """Tell whether any secret stands in `text`, which may be JSON."""
        return self._pattern is not None and (self._pattern.search(text) is not None or bool(self._hits(text)))

    def text(self, text: str) -> str:
        """Return `text` without secrets."""
        if self._pattern is None:
            return text
        text = self._pattern.sub(REDACTED, text)
        hits = self._hits(text)
        if not hits:
            return text
        ends = (0, *(end for _, end in hits))
        kept = (text[end:start] for end, start in zip(ends, (*(start for start, _ in hits), len(text)), strict=True))
        return REDACTED.join(kept)

    def _hits(self, text: str) -> list[tuple[int, int]]:
        """Return where secrets stand of which characters are escapes."""
        return self._escapes.hits(text) if any(mark in text for mark in _ESCAPE_MARKS) else []

    @cached_property
    def _escapes(self) -> _Escapes:
        # Made when a text has such marks: ten times what the rest costs, for each caller with secrets of their own.
        return _Escapes(self._values, self.forms)

    def value(self, value: Any) -> Any:
        """Return a JSON value without secrets in its strings and keys; unchanged parts are shared."""
        if isinstance(value, str):
            return self.text(value)
        if is_object(value):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if is_list(value):
            return [self.value(item) for item in value]
        return value
