"""Argument keys: find the property that a misspelled key means."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LEAST_CHARS = 4  # characters of the shortest name that is guessed; shorter ones are too similar


def meant(key: str, known: Iterable[str]) -> str | None:
    """Return the one name that `key` means; `None` if there is none or more than one.

    Case and separators are ignored (`userId` is `user_id`). Otherwise one letter may be extra, missing or swapped, in a
    longer name with the right first letter and digits. Replaced letters are not corrected: `latitude` and `altitude`
    are both words.
    """
    names = list(known)
    plain = _plain(key)
    same = [name for name in names if _plain(name) == plain]
    if same or not plain:
        return same[0] if len(same) == 1 else None
    near = [name for name in names if _is_slip(plain, _plain(name))]
    return near[0] if len(near) == 1 else None


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()


def _is_slip(word: str, other: str) -> bool:
    if max(len(word), len(other)) < _LEAST_CHARS or word[0] != other[0] or _digits(word) != _digits(other):
        return False
    if len(word) == len(other):
        wrong = [i for i in range(len(word)) if word[i] != other[i]]
        return len(wrong) == 2 and wrong[1] == wrong[0] + 1 and word[wrong[0]] == other[wrong[1]]
    shorter, longer = sorted((word, other), key=len)
    return len(longer) - len(shorter) == 1 and any(longer[:i] + longer[i + 1 :] == shorter for i in range(len(longer)))


def _digits(text: str) -> list[str]:
    return [letter for letter in text if letter.isdigit()]
