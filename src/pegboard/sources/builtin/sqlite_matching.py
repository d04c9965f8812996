"""SQLite matching: limits the text of full-text searches, so that parsing it ends.

FTS5 takes quadratic time in the number of words of a search text, and does not check the clock meanwhile: 300 KB of
words kept a CPU busy for a minute. SQLite's compiled program shows where the text comes from. A literal or a parameter
is accepted up to a length; a computed text is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pegboard.model.error import CallError
from pegboard.model.json_types import JSONValue

SQLITE_MATCH_CHARS = 10_000  # characters of one text that FTS5 searches for, since FTS5 takes quadratic time

# The letters in FTS5's index string for searches by MATCH, LIKE or GLOB.
_SEARCHING: Final = frozenset("MLG")
# They write a value into register P2; any other step may write the register that its P3 names.
_CONSTANT: Final = frozenset({"String8", "Variable", "Integer", "Int64", "Real", "Null"})
_COPYING: Final = frozenset({"Copy", "SCopy", "IntCopy", "Move"})
Step = tuple[int, str, int, int, int, Any]
"""One step of a program: its address, opcode, three numbers and a value, as EXPLAIN lists them."""


def check_matching(program: Sequence[Step], params: Sequence[JSONValue]) -> None:
    """Refuse a program that searches for a computed or too long text.

    Raises:
        CallError: invalid_arguments.
    """
    for place, step in enumerate(program):
        if step[1] == "VFilter" and _SEARCHING & set(str(step[5] or "")):
            for register in _arguments(program[:place], step[4]):
                _check_text(_writer(program, place, register), params)


def _arguments(before: Sequence[Step], register: int) -> range:
    """Return the registers of the search arguments; the register after the first has their number."""
    count = next((step[2] for step in reversed(before) if step[1] == "Integer" and step[3] == register + 1), 0)
    return range(register + 2, register + 2 + count)


def _writer(program: Sequence[Step], place: int, register: int) -> Step | None:
    """Return the step that writes a register before a given step; constants may be written at the program's end."""
    # The first such step, searching backwards from the place and around.
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
