"""Literal search: finds many strings in a long text, in a time that hardly depends on their number."""

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

_NEEDLE_CHARS = 24  # characters from the middle of a string that seldom occur elsewhere
_HEAD_CHARS = 128  # characters used to recognise the beginning of a string
_START_CHARS = 3  # characters used to look up a beginning at the end of a text
_PIECE_CHARS = 8_192  # characters of a long text that are examined together once something may be in them
_ESCAPED = str.maketrans({char: f"\\{char}" for char in "\\.+*?()|[]{}^$"})


def longest_first(text: str) -> tuple[int, str]:
    """Return the sort key that puts the longest string first, since it wins if several begin at one place."""
    return -len(text), text


class LiteralSearch:
    """Finds strings from left to right, the longest at each place, without overlaps.

    Python's `re` tries the alternatives one by one at each place, which takes seconds for a megabyte of text and all
    spellings of a hundred secrets. The regex engine of jsonschema-rs compiles its patterns to an automaton. It shows
    within a millisecond that a text has no match; `re` examines only parts that may have one.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(sorted(texts, key=longest_first))
        """The longest first."""

    def may_be_in(self, text: str) -> bool:
        """Tell whether one of the strings may be in `text`; a no is certain."""
        try:
            return self._engine(text)
        except ValueError:
            # The engine does not accept lone surrogates and subclasses of `str`.
            return True

    def is_in(self, text: str) -> bool:
        """Tell whether one of the strings is in `text`."""
        return self.may_be_in(text) and next(self._spans(text), None) is not None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the start and end of each match."""
        return [*self._spans(text)]

    def replaced(self, text: str, by: str) -> str:
        """Return `text` with each match replaced by `by`."""
        if len(text) <= _PIECE_CHARS and self._are_short:
            return self._beginning.sub(lambda _: by, text)
        return replaced(text, self.spans(text), by)

    def unfinished(self, text: str) -> int:
        """Return the first place where the rest of `text` is the beginning of a string; its length if there is none."""
        for start in range(max(len(text) - len(self.texts[0]) + 1, 0), len(text)):
            candidates = self._by_start.get(text[start : start + _START_CHARS])
            if candidates is not None and any(one.startswith(text[start:]) for one in candidates):
                return start
        return len(text)

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        at, reach = 0, len(self.texts[0]) - 1
        for start in range(0, len(text), _PIECE_CHARS):
            end = start + _PIECE_CHARS
            # Every match that begins in this piece ends within `reach` of it.
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
        # A string with a lone surrogate occurs in no text that the engine accepts.
        needles = {_needle(text) for text in self.texts if text.isascii() or _is_encodable(text)}
        pattern = "|".join(sorted(needle.translate(_ESCAPED) for needle in needles))
        options = jsonschema_rs.RegexOptions()
        return jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=options).is_valid

    @cached_property
    def _are_short(self) -> bool:
        """Whether the recognised beginning of a string is the whole string."""
        return len(self.texts[0]) <= _HEAD_CHARS

    @cached_property
    def _beginning(self) -> re.Pattern[str]:
        # Grouped by first characters, because `re` tries alternatives one by one.
        groups: dict[str, list[str]] = {}
        for text in self.texts:
            groups.setdefault(text[0], []).append(re.escape(text[1:_HEAD_CHARS]))
        return re.compile("|".join(f"{re.escape(first)}(?:{'|'.join(rests)})" for first, rests in groups.items()))

    @cached_property
    def _by_start(self) -> dict[str, list[str]]:
        by_start: dict[str, list[str]] = {}
        for text in self.texts:
            for length in range(1, _START_CHARS + 1):
                by_start.setdefault(text[:length], []).append(text)
        return by_start

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
    """Return a text with each of the ordered spans replaced."""
    kept: list[str] = []
    at = 0
    for begin, end in spans:
        kept.append(text[at:begin])
        at = end
    return by.join([*kept, text[at:]]) if spans else text
