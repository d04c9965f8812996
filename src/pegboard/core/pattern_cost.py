"""Pattern cost: what a regular expression of a schema takes to compile, and for each character that it looks at.

An estimate from its text that is rather too high: the engine runs in linear time, but for each character it may have to
follow as many states as the pattern has atoms.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pegboard.model.bounds import PATTERN_ATOMS, PATTERN_STEPS

# One atom, bracket or quantifier at a time; what is none of the others is an atom of one character.
_TOKEN = re.compile(
    r"(?P<open>\((?:\?(?:[:=!>]|<[=!]|P?<\w+>|[a-z]+:))?)|(?P<close>\))|(?P<count>\{(?P<least>\d*)(?P<comma>,)?(?P<most>\d*)\})"
    r"|(?P<many>[*+])|(?P<maybe>\?)|(?P<either>\|)|(?P<edge>[\^$])|\\[pP]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.",
    re.DOTALL,
)
_NOT_LINEAR = re.compile(r"\(\?(?:[=!>]|<[=!])|\\[1-9k]")
# Measured, and rounded up.
_COMPILE_NS, _COMPILE_ATOM_NS = 150_000, 12_000  # not a limit: measured
_FEW_STATES_NS, _STATE_NS, _STEP_NS = 12, 60, 8  # not a limit: measured
_FEW_UNDECIDED = 8  # not a limit: atoms that leave an automaton of so few states that it is built once and kept


class PatternCost(NamedTuple):
    """Nanoseconds: to compile, for each text, and for each of its characters."""

    compile_ns: int
    text_ns: int
    char_ns: int


def pattern_cost(pattern: str) -> PatternCost:
    """Return what a pattern costs at most."""
    atoms, undecided = _count(pattern)
    compile_ns = _COMPILE_NS + atoms * _COMPILE_ATOM_NS
    if _NOT_LINEAR.search(pattern):
        return PatternCost(compile_ns, PATTERN_STEPS * _STEP_NS, PATTERN_STEPS * _STEP_NS)
    if undecided <= _FEW_UNDECIDED:
        return PatternCost(compile_ns, 0, _FEW_STATES_NS)
    return PatternCost(compile_ns, 0, _FEW_STATES_NS + atoms * _STATE_NS)


def _count(pattern: str) -> tuple[int, int]:
    """Return how many atoms a pattern has, with all repetitions written out, and how many are open at a time at most.

    Where a match may begin anywhere, all are. Where it begins at the beginning of the text, there is one way to read it
    up to the first quantifier that leaves a choice; from there on any atom may be meant.
    """
    is_anchored = pattern.startswith("^") and "|" not in pattern
    # Of each open bracket: the atoms before it, and those inside so far; the last atom, which a quantifier repeats.
    outer: list[int] = []
    atoms, last, has_choice, undecided = 0, 0, not is_anchored, 0
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup
        if kind == "open":
            outer.append(atoms)
            atoms = 0
        elif kind == "close":
            inside, atoms = atoms, (outer.pop() if outer else 0)
            atoms, last = atoms + inside, inside
        elif kind == "count":
            least, most = int(token["least"][:9] or 0), int(token["most"][:9] or 0)
            times = max(most, least + 1)
            atoms = min(atoms + last * (times - 1), PATTERN_ATOMS + 1)
            undecided += last * times if has_choice or last > 1 else 0
            has_choice = has_choice or bool(token["comma"])
        elif kind in {"many", "maybe"}:
            # A bracket that repeats may begin anew wherever it ends.
            undecided += last if last > 1 else 0
            has_choice = True
        elif kind == "either":
            has_choice = True
        elif kind != "edge":
            atoms, last = atoms + 1, 1
            undecided += has_choice
    return min(atoms + sum(outer), PATTERN_ATOMS + 1), undecided
