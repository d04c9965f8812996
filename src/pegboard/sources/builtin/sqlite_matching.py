"""SQLite matching: what a full-text search is asked for, so that reading the question ends.

The time that FTS5 takes for its question grows with the square of the words in it, and it looks at no clock meanwhile:
300 KB of words held a processor for a minute. What SQLite will search for stands in the program that it makes of a
statement: a text of the statement or a param is taken up to a length, and whatever is worked out while it runs is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pegboard.model.error import CallError
from pegboard.model.json_types import JSONValue

SQLITE_MATCH_CHARS = 10_000  # of one text that FTS5 searches for: its time grows with their square

# How FTS5 is told by its index string that a text is searched for: by MATCH, LIKE or GLOB.
_SEARCHING: Final = frozenset("MLG")
# They put a value into the register P2; of the others whatever names a register in P3 may.
_CONSTANT: Final = frozenset({"String8", "Variable", "Integer", "Int64", "Real", "Null"})
_COPYING: Final = frozenset({"Copy", "SCopy", "IntCopy", "Move"})
Step = tuple[int, str, int, int, int, Any]
"""One step of a program: its place, name, three numbers and a value, as EXPLAIN lists them."""


def check_matching(program: Sequence[Step], params: Sequence[JSONValue]) -> None:
    """Refuse a program that searches for what is not known before it runs, or is too long.

    Raises:
        CallError: invalid_arguments.
    """
    for place, step in enumerate(program):
        if step[1] == "VFilter" and _SEARCHING & set(str(step[5] or "")):
            for register in _arguments(program[:place], step[4]):
                _check_text(_writer(program, place, register), params)


def _arguments(before: Sequence[Step], register: int) -> range:
    """Return the registers of what is searched for; their number stands in the one behind the first."""
    count = next((step[2] for step in reversed(before) if step[1] == "Integer" and step[3] == register + 1), 0)
    return range(register + 2, register + 2 + count)


def _writer(program: Sequence[Step], place: int, register: int) -> Step | None:
    """Return what fills a register before a step; constants may be filled in at the end of a program."""
    # Which comes first, from the step backwards and round.
    for step in (*reversed(program[:place]), *reversed(program[place + 1 :])):
        fills_second = step[1] in _CONSTANT or step[1] in _COPYING
        if step[3 if fills_second else 4] == register:
            return step
    return None


def _check_text(step: Step | None, params: Sequence[JSONValue]) -> None:
    if step is None or step[1] not in _CONSTANT:
        text = "What MATCH searches for is worked out by the statement. Write it as a text, or as one param."
        raise CallError("invalid_arguments", text)
    texts = params if step[1] == "Variable" else [step[5]] if step[1] == "String8" else []
    longest = max((len(text) for text in texts if isinstance(text, str)), default=0)
    if longest > SQLITE_MATCH_CHARS:
        text = f"MATCH searches for {longest} characters; at most {SQLITE_MATCH_CHARS} are taken. Search for less."
        raise CallError("invalid_arguments", text)
