"""Literal search: find any of many texts in a long one, in a time that hardly grows with how many they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from pegboard.lazy import LazyModule

if TYPE_CHECKING:
    import jsonschema_rs
else:
    jsonschema_rs = LazyModule("jsonschema_rs")

_NEEDLE_CHARS = 24  # so many characters of a text, from its middle, seldom stand anywhere else
_HEAD_CHARS = 128  # by which a place is found where one of the texts begins, or may begin
_PIECE_CHARS = 8_192  # of a long text, looked through closely where one of the texts may be in it
_ESCAPED = str.maketrans({char: f"\\{char}" for char in "\\.+*?()|[]{}^$"})


def longest_first(text: str) -> tuple[int, str]:
    """Sort by this key where of several texts that begin at one place the longest counts."""
    return -len(text), text


class LiteralSearch:
    """Finds the texts that it is made of: from left to right, at each place the longest, none in another.

    Python's `re` tries one alternative after the other at each place, which takes seconds for a megabyte and the
    spellings of a hundred secrets. The engine that judges schemas compiles its patterns to an automaton: it says in a
    millisecond that there is nothing, and `re` looks only where there may be something.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(sorted(texts, key=longest_first))
        """The longest first."""

    def may_be_in(self, text: str) -> bool:
        """Tell whether one of the texts may stand in `text`: a no is certain."""
        try:
            return self._engine(text)
        except ValueError:
            # Halves of characters, and classes that are based on `str`, are nothing to the engine.
            return True

    def is_in(self, text: str) -> bool:
        """Tell whether one of the texts stands in `text`."""
        return self.may_be_in(text) and next(self._spans(text), None) is not None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return where the texts stand: the begin and the end of each."""
        return [*self._spans(text)]

    def replaced(self, text: str, by: str) -> str:
        """Return `text` with `by` in the place of each."""
        if len(text) <= _PIECE_CHARS and self._are_short:
            return self._beginning.sub(lambda _: by, text)
        return replaced(text, self.spans(text), by)

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        at, reach = 0, len(self.texts[0]) - 1
        for start in range(0, len(text), _PIECE_CHARS):
            end = start + _PIECE_CHARS
            # All that begins in this piece ends within reach of it.
            if at >= end or not self.may_be_in(text[start : end + reach]):
                continue
            for span in self._spans_within(text, max(at, start), end + reach):
                if span[0] >= end:
                    break
                yield span
                at = span[1]

    def _spans_within(self, text: str, at: int, end: int) -> Iterator[tuple[int, int]]:
        if self._are_short:
            yield from [match.span() for match in self._beginning.finditer(text, at, end)]
            return
        while (match := self._beginning.search(text, at, end)) is not None:
            begin = match.start()
            one = next((one for one in self._by_key[self._key_of(text, begin)] if text.startswith(one, begin)), "")
            at = begin + (len(one) or 1)
            if one:
                yield begin, at

    @cached_property
    def _engine(self) -> Callable[[str], bool]:
        # What has a half of a character is in no text that the engine takes.
        needles = {_needle(text) for text in self.texts if text.isascii() or _is_encodable(text)}
        pattern = "|".join(sorted(needle.translate(_ESCAPED) for needle in needles))
        options = jsonschema_rs.RegexOptions()
        return jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=options).is_valid

    @cached_property
    def _are_short(self) -> bool:
        """Whether what begins like one of the texts is one of them."""
        return len(self.texts[0]) <= _HEAD_CHARS

    @cached_property
    def _beginning(self) -> re.Pattern[str]:
        # By first characters, as `re` tries alternatives one by one.
        groups: dict[str, list[str]] = {}
        for text in self.texts:
            groups.setdefault(text[0], []).append(re.escape(text[1:_HEAD_CHARS]))
        return re.compile("|".join(f"{re.escape(first)}(?:{'|'.join(rests)})" for first, rests in groups.items()))

    @cached_property
    def _by_key(self) -> dict[str, list[str]]:
        by_key: dict[str, list[str]] = {}
        for text in self.texts:
            by_key.setdefault(self._key_of(text, 0), []).append(text)
        return by_key

    def _key_of(self, text: str, begin: int) -> str:
        return text[begin : begin + min(_HEAD_CHARS, len(self.texts[-1]))]


def _needle(text: str) -> str:
    first = max(0, (len(text) - _NEEDLE_CHARS) // 2)
    return text[first : first + _NEEDLE_CHARS]


def _is_encodable(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def replaced(text: str, spans: list[tuple[int, int]], by: str) -> str:
    """Return a text with another one in the place of each of the spans, which are in order."""
    kept: list[str] = []
    at = 0
    for begin, end in spans:
        kept.append(text[at:begin])
        at = end
    return by.join([*kept, text[at:]]) if spans else text
