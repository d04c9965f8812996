"""What redaction means: text by text, with `re` alone, as it was done before whole values were looked at together."""

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from pegboard.core.redaction import REDACTED

SHORT_ESCAPES = {'"': '"', "/": "/", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


def units_of(text: str) -> tuple[int, ...]:
    raw = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(raw) // 2}H", raw)


def any_of(forms: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(forms, key=lambda form: (-len(form), form)))))


def hexadecimal(digits: str) -> str:
    return chr(int(digits, 16))


def decimal(digits: str) -> str:
    return chr(int(digits))


class Escapes:
    r"""Finds secrets of which any characters are escapes; which ones is up to whoever wrote the text.

    PHP writes `\/`, .NET `\u002B`, JavaScript `%2B`, and each level of JSON within JSON adds backslashes.
    """

    def __init__(self, values: Iterable[str], forms: Iterable[str]) -> None:
        units = sorted({unit for value in values for unit in units_of(value)})
        bytes_hex = "|".join(f"{unit:02x}" for unit in units if unit < 0x80)
        bytes_ = sorted({byte for value in values for byte in value.encode("utf-8", "surrogatepass")})
        chars = {chr(unit) for unit in units}
        short = "".join(letter for letter, char in SHORT_ESCAPES.items() if char in chars)
        named = "|".join(name for name, char in ENTITIES.items() if char in chars)
        # Each begins with a character of its own, by which the places are found. Backslashes are counted: a megabyte of
        # them is looked at from each.
        slashes = rf"\\{{0,{15}}}"
        parts = [
            rf"\\{slashes}u(?i:({'|'.join(f'{unit:04x}' for unit in units)}))",
            rf"\\{slashes}x(?i:({'|'.join(f'{byte:02x}' for byte in bytes_)}))",
            rf"\\{slashes}([{short}])" if short else None,
            rf"%(?:25)*(?i:({bytes_hex}))" if bytes_hex else None,
            rf"&(?:amp;)*#0*({'|'.join(map(str, units))});",
            rf"&(?:amp;)*#[xX]0*(?i:({'|'.join(f'{unit:x}' for unit in units)}));",
            rf"&(?:amp;)*({named});" if named else None,
        ]
        readers = (
            hexadecimal,
            hexadecimal,
            SHORT_ESCAPES.__getitem__,
            hexadecimal,
            decimal,
            hexadecimal,
            ENTITIES.__getitem__,
        )
        self._readers = [reader for part, reader in zip(parts, readers, strict=True) if part]
        self._escape = re.compile("|".join(part for part in parts if part))
        # A secret may look as if it had escapes itself.
        as_read = (self.read(value)[0] for value in values)
        self._pattern = any_of({*forms, *(form for form in as_read if len(form) >= 4)})

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


class TextByText:
    """Takes secrets of these spellings out of values; of `keys` the beginnings, too."""

    def __init__(self, values: Iterable[str], forms: Iterable[str], *, keys: Iterable[str] = ()) -> None:
        values = [value for value in values if len(value) >= 4]
        self._pattern, self._escapes = (any_of(forms), Escapes(values, forms)) if values else (None, None)
        self._keys = sorted({key for key in keys if len(key) > 8 and not re.search(r"\s|://|^/", key)})

    def text(self, text: str) -> str:
        if self._pattern is not None and self._escapes is not None:
            text = self._pattern.sub(REDACTED, text)
            hits = self._escapes.hits(text)
            ends = (0, *(end for _, end in hits))
            starts = (*(start for start, _ in hits), len(text))
            text = REDACTED.join(text[end:start] for end, start in zip(ends, starts, strict=True))
        for key in self._keys:
            start = text.find(key[:8])
            while start >= 0:
                same = [*takewhile(lambda pair: pair[0] == pair[1], zip(text[start:], key, strict=False))]
                text = text[:start] + REDACTED + text[start + len(same) :]
                start = text.find(key[:8], start + len(REDACTED))
        return text

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.value(key): self.value(item) for key, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, list) else value
