"""Decision words: the console's wording of the judge's decisions, for all of its pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pegboard.model.decision import Code, Decision

_MEANINGS: Mapping[Code, str] = {
    "internal": "only for other code",
    "group": "the profile includes none of its groups",
    "policy": "a rule denies it",
    "quarantine": "new or changed; not accepted yet",
    "source": "its server is down",
    "connection": "its caller has not connected an account",
    "factory": "the host does not supply what it needs",
    "available": "its condition does not hold",
    "builder": "its builder failed",
}
_LISTS = re.compile(r"\[((?:'[^'\[\]]*'(?:, '[^'\[\]]*')*)?)\]")


class Meaning(NamedTuple):
    """A code that hides tools, its meaning in a few words, and how many tools it hides."""

    code: Code
    meaning: str
    tools: int


class Explanation(NamedTuple):
    """A decision in words: why a tool is hidden or refused, what would change that, and what remains after it."""

    reason: str
    fix: str
    after: str
    refused: str


def worded(code: str) -> str:
    """Return the code of a hidden tool as a label; `available` alone would claim the opposite."""
    return "unavailable" if code == "available" else code


def meaning_of(code: str, *, asks: bool = False) -> str:
    """Return the meaning of a code, in a few words; `asks` says that a visible tool asks a person first."""
    if code == "visible":
        return "may be used; a person is asked before every call" if asks else "may be used"
    return next((meaning for hiding, meaning in _MEANINGS.items() if hiding == code), "no such tool for this caller")


def legend_of(codes: Iterable[Code]) -> list[Meaning]:
    """Return the codes of hidden tools that occur, in the order of the judge's questions."""
    counts = Counter(codes)
    return [Meaning(code, meaning, counts[code]) for code, meaning in _MEANINGS.items() if counts[code]]


def explanation_of(decision: Decision, *, asks: bool = False) -> Explanation:
    """Return the words for a decision, with its lists of names as words; `asks`: the tool asks a person first."""
    after = meaning_of("visible", asks=asks) if decision.next == "visible" else ""
    if decision.next is not None and decision.next != "visible":
        after = f"{worded(decision.next)}: {decision.next_reason}"
    return Explanation(
        in_words(decision.reason), "" if decision.fix is None else in_words(decision.fix.text), in_words(after),
        "" if decision.blocked is None else in_words(decision.blocked.reason),
    )  # fmt: skip


def in_words(text: str) -> str:
    """Return a text with its lists of names as words: `a, b` instead of `['a', 'b']`."""
    return _LISTS.sub(lambda names: names[1].replace("'", "") or "nothing", text)
