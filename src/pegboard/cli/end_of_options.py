"""End of options: where the command begins that `pegboard add` is given, whose options are its own."""

from __future__ import annotations

from collections.abc import Sequence

# Those of `add` and of every command that take no value.
FLAGS = frozenset({"--yes", "--print", "--offline", "--trust-annotations", "--json", "--help", "-h"})
_SCHEMES, _SUFFIXES = ("http://", "https://"), (".json", ".yaml", ".yml")


def with_end_of_options(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with `--` before what `add` is given: `npx -y PACKAGE` has its own options."""
    place = _first_plain(words, 0)
    if words[place : place + 1] != ["add"]:
        return list(words)
    start = _first_plain(words, place + 1)
    if "--" in words[:start] or start >= len(words) or words[start].lower().startswith(_SCHEMES):
        return list(words)
    is_document = words[start].lower().endswith(_SUFFIXES)
    return list(words) if is_document else [*words[:start], "--", *words[start:]]


def _first_plain(words: Sequence[str], place: int) -> int:
    """Return where the first word stands that is neither an option nor the value of one."""
    while place < len(words) and words[place].startswith("-"):
        place += 1 if words[place] in FLAGS or words[place] == "--" or "=" in words[place] else 2
    return place
