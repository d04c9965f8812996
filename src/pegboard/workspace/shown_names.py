"""Shown names: which names of spaces, sources and files can be shown on one line, in any script."""

from __future__ import annotations

import unicodedata
from typing import Final

# No signs of their own, and part of how names are written: Persian and Indic words, emoji, Hebrew beside Latin.
_JOINING: Final = frozenset("\u00ad\u200c\u200d\u200e\u200f")


def can_be_shown(name: str) -> bool:
    """Tell whether a name is of characters that can be seen, and of spaces: no line break, nothing that steers a
    terminal, turns the order of letters round or hides text in it.
    """
    return name.isprintable() or all(
        each.isprintable() or each in _JOINING or unicodedata.category(each) == "Zs" for each in name
    )
