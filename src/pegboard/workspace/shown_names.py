"""Shown names: tells which names of spaces, sources and files can be displayed on one line."""

from __future__ import annotations

import unicodedata
from typing import Final

from pegboard.sources.foreign_text import without_visible_formats

# Invisible, but part of how names are written: Persian and Indic words, emoji, Hebrew next to Latin.
_JOINING: Final = frozenset("\u00ad\u200c\u200d\u200e\u200f")


def can_be_shown(name: str) -> bool:
    """Tell whether a name has only visible characters and spaces.

    Line breaks, terminal control characters and characters that reorder or hide text are excluded.
    """
    return name.isprintable() or all(
        each.isprintable() or each in _JOINING or unicodedata.category(each) == "Zs"
        for each in without_visible_formats(name)
    )
