"""End of options: find the command that `pegboard add` is given, since its options belong to it."""

from __future__ import annotations

from collections.abc import Sequence

# Options without a value, of `add` and of every command.
FLAGS = frozenset({"--yes", "--print", "--offline", "--trust-annotations", "--json", "--help", "-h"})
_SCHEMES, _SUFFIXES = ("http://", "https://"), (".json", ".yaml", ".yml")


def with_end_of_options(words: Sequence[str]) -> list[str]:
    """Insert `--` before the command for `add`: the options of `npx -y PACKAGE` are its own."""
    place = _first_plain(words, 0)
    if words[place : place + 1] != ["add"]:
        return list(words)
    start = _first_plain(words, place + 1)
    if "--" in words[:start] or start >= len(words) or words[start].lower().startswith(_SCHEMES):
        return list(words)
    is_document = words[start].lower().endswith(_SUFFIXES)
    return list(words) if is_document else [*words[:start], "--", *words[start:]]


def _first_plain(words: Sequence[str], place: int) -> int:
    """Return the place of the first word that is neither an option nor the value of one."""
    while place < len(words) and words[place].startswith("-"):
        place += 1 if words[place] in FLAGS or words[place] == "--" or "=" in words[place] else 2
    return place
