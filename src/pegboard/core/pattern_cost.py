"""Pattern cost: estimates the size of a regular expression's automaton from its text.

The engine runs in linear time, but for each character it may follow as many states as the pattern has atoms.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MAX_ATOMS = 10_000  # atoms of one pattern with its repetitions written out; counting stops there
_CLASS_ATOMS = 40  # byte ranges of a compiled class of Unicode characters
_FEW_STATES = 8  # an automaton with up to so many open atoms is built once and kept
# One atom, bracket or quantifier. Kept as text: most catalogs have no pattern, and `re` compiles this one slowly.
_PART = (
    r"(?s)(?P<open>\((?:\?(?:[:=!>]|<[=!]|P?<\w+>|[a-z]+:))?)|(?P<close>\))"
    r"|(?P<count>\{(?P<least>\d*)(?P<comma>,)?(?P<most>\d*)\})|(?P<repeat>[*+?])|(?P<either>\|)|(?P<edge>[\^$])"
    r"|\\[pP](?:\{[^}]*\}|[A-Za-z])|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|."
)
_LOOKS_AROUND = re.compile(r"\(\?(?:[=!>]|<[=!])|\\[1-9k]")


class PatternCost(NamedTuple):
    """The atoms of a pattern, how many of them may be open at each character, and whether it needs backtracking."""

    atoms: int
    states: int
    backtracks: bool


def pattern_cost(pattern: str) -> PatternCost:
    """Return upper bounds for a pattern.

    A match that may begin anywhere keeps all atoms open. An anchored one has a single reading up to the first
    quantifier that leaves a choice.
    """
    backtracks = _LOOKS_AROUND.search(pattern) is not None
    classes = re.compile(r"\\[pPwWdD]" if backtracks else r"\\[pP]")
    has_choice = not pattern.startswith("^") or "|" in pattern
    outer: list[int] = []  # atoms before each open bracket
    atoms = last = undecided = 0  # `last` is what a quantifier repeats
    for token in re.finditer(_PART, pattern):
        kind = token.lastgroup
        if kind == "open":
            outer.append(atoms)
            atoms = 0
        elif kind == "close":
            last = atoms
            atoms += outer.pop() if outer else 0
        elif kind == "count":
            least, most = int(token["least"][:9] or 0), int(token["most"][:9] or 0)
            times = max(most, least + 1)
            atoms = min(atoms + last * (times - 1), _MAX_ATOMS)
            undecided += last * times if has_choice or last > 1 else 0
            has_choice = has_choice or bool(token["comma"])
        elif kind == "repeat":
            undecided += last if last > 1 else 0
            has_choice = True
        elif kind == "either":
            has_choice = True
        elif kind != "edge":
            last = 1 + _CLASS_ATOMS * len(classes.findall(token[0]))
            atoms += last
            undecided += has_choice
    atoms = min(atoms + sum(outer), _MAX_ATOMS)
    return PatternCost(atoms, atoms if undecided > _FEW_STATES else 0, backtracks)
