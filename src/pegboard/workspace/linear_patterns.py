"""Linear patterns: regular expressions that take time in proportion to the text, whatever they are (RE2)."""

from __future__ import annotations

from typing import Any, Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs] - it has none

from pegboard.model.bounds import MIB
from pegboard.model.error import CallError

GREP_MEMORY_BYTES = 8 * MIB  # of one compiled pattern


class LinearPattern(Protocol):
    """What we use of a compiled pattern of google-re2, which has no types."""

    def search(self, text: bytes) -> Any: ...

    def fullmatch(self, text: str) -> Any: ...


def linear(pattern: str, *, ignore_case: bool) -> LinearPattern:
    """Return a compiled pattern; `.` takes every character of a line.

    Raises:
        CallError: invalid_arguments, when RE2 does not take it.
    """
    untyped: Any = re2
    options = untyped.Options()
    options.case_sensitive = not ignore_case
    options.log_errors = False
    options.max_mem = GREP_MEMORY_BYTES
    try:
        return cast("LinearPattern", untyped.compile(pattern, options=options))
    except untyped.error as error:
        reason = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        text = (
            f"The pattern cannot be used: {reason[:200]}. Write it as RE2 has it: no look-around, no back-references."
        )
        raise CallError("invalid_arguments", text) from None


def literal(text: str) -> str:
    """Return a pattern that means this text."""
    escaped: str = cast("Any", re2).escape(text)
    return escaped
