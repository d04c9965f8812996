"""Pattern cost: what a regular expression of a schema takes to compile, and for each character that it looks at.

An estimate from its text that is rather too high: the engine runs in linear time, but for each character it may have to
follow as many states as the pattern has atoms.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pegboard.core.limits import PATTERN_STEPS

PATTERN_ATOMS = 4_000  # of one regular expression with its repetitions written out; there counting stops

# One atom, bracket or quantifier at a time; what is none of the others is an atom of one character. This and `_CLASS`
# take the longest of all our patterns to compile, and most catalogs need neither: `re` compiles them when first used.
_ATOM = (
    r"(?s)(?P<open>\((?:\?(?:[:=!>]|<[=!]|P?<\w+>|[a-z]+:))?)|(?P<close>\))|(?P<count>\{(?P<least>\d*)(?P<comma>,)?(?P<most>\d*)\})"
    r"|(?P<many>[*+])|(?P<maybe>\?)|(?P<either>\|)|(?P<edge>[\^$])|\\[pP](?:\{[^}]*\}|[A-Za-z])|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|."
)
# Classes of characters: those of Unicode are compiled to hundreds of ranges of bytes.
_CLASS = r"\\(?:[pP](?:\{\^?(?P<name>[^}]*)\}|[A-Za-z])|(?P<letter>[wWdD]))"
_NOT_LINEAR = re.compile(r"\(\?(?:[=!>]|<[=!])|\\[1-9k]")
_SMALL_CLASSES = frozenset({
    "ASCII", "Any", "Arabic", "Cyrillic", "Greek", "Han", "Hangul", "Hebrew", "Hiragana", "Katakana", "Latin", "Nd",
    "Thai", "Zs",
})  # fmt: skip
# Measured, and rounded up: what a class is more than one atom.
_CLASS_ATOMS, _SMALL_CLASS_ATOMS = 40, 4
_LETTER_ATOMS = {"w": 40, "W": 40, "d": 6, "D": 6}  # only where the engine that looks around reads them
# Measured, and rounded up.
_COMPILE_NS, _COMPILE_ATOM_NS = 150_000, 12_000
_FEW_STATES_NS, _STATE_NS, _STEP_NS = 12, 60, 8
_FEW_UNDECIDED = 8  # atoms that leave an automaton of so few states that it is built once and kept


class PatternCost(NamedTuple):
    """Nanoseconds: to compile, for each text, and for each of its characters."""

    compile_ns: int
    text_ns: int
    char_ns: int


def pattern_cost(pattern: str) -> PatternCost:
    """Return what a pattern costs at most."""
    is_linear = _NOT_LINEAR.search(pattern) is None
    atoms, undecided, in_classes = _count(pattern, is_linear=is_linear)
    compile_ns = _COMPILE_NS + (atoms + in_classes) * _COMPILE_ATOM_NS
    if not is_linear:
        return PatternCost(compile_ns, PATTERN_STEPS * _STEP_NS, PATTERN_STEPS * _STEP_NS)
    if undecided <= _FEW_UNDECIDED:
        return PatternCost(compile_ns, 0, _FEW_STATES_NS)
    return PatternCost(compile_ns, 0, _FEW_STATES_NS + atoms * _STATE_NS)


def _count(pattern: str, *, is_linear: bool) -> tuple[int, int, int]:
    """Return how many atoms a pattern has, with all repetitions written out, and how many are open at a time at most.

    Where a match may begin anywhere, all are. Where it begins at the beginning of the text, there is one way to read it
    up to the first quantifier that leaves a choice; from there on any atom may be meant. The third number is what the
    atoms that are classes of characters have on top.
    """
    is_anchored = pattern.startswith("^") and "|" not in pattern
    # Of each open bracket: what stands before it, and what is inside so far; what is last, which a quantifier repeats.
    outer: list[tuple[int, int]] = []
    atoms, last, has_choice, undecided = 0, 0, not is_anchored, 0
    extra = last_extra = 0
    for token in re.finditer(_ATOM, pattern):
        kind = token.lastgroup
        if kind == "open":
            outer.append((atoms, extra))
            atoms = extra = 0
        elif kind == "close":
            last, last_extra = atoms, extra
            before, extra_before = outer.pop() if outer else (0, 0)
            atoms, extra = atoms + before, extra + extra_before
        elif kind == "count":
            least, most = int(token["least"][:9] or 0), int(token["most"][:9] or 0)
            times = max(most, least + 1)
            atoms = min(atoms + last * (times - 1), PATTERN_ATOMS + 1)
            extra = min(extra + last_extra * (times - 1), PATTERN_ATOMS + 1)
            undecided += last * times if has_choice or last > 1 else 0
            has_choice = has_choice or bool(token["comma"])
        elif kind in {"many", "maybe"}:
            # A bracket that repeats may begin anew wherever it ends.
            undecided += last if last > 1 else 0
            has_choice = True
        elif kind == "either":
            has_choice = True
        elif kind != "edge":
            last, last_extra = 1, _in_classes(token[0], is_linear=is_linear)
            atoms, extra = atoms + 1, extra + last_extra
            undecided += has_choice
    in_all, extra_in_all = (sum(column) for column in zip((atoms, extra), *outer, strict=True))
    return min(in_all, PATTERN_ATOMS + 1), undecided, min(extra_in_all, PATTERN_ATOMS + 1)


def _in_classes(atom: str, *, is_linear: bool) -> int:
    """Return how many atoms more than one an atom counts for its classes of characters."""
    extra = 0
    for found in re.finditer(_CLASS, atom):
        if found["letter"]:
            extra += 0 if is_linear else _LETTER_ATOMS[found["letter"]]
        else:
            is_small = (found["name"] or "").rpartition("=")[2] in _SMALL_CLASSES
            extra += _SMALL_CLASS_ATOMS if is_small else _CLASS_ATOMS
    return extra
