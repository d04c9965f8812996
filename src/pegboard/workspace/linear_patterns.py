"""Linear patterns: regular expressions with guaranteed linear time (RE2)."""

from __future__ import annotations

from typing import Any, Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs] - it has none

from pegboard.model.bounds import MIB
from pegboard.model.error import CallError

GREP_MEMORY_BYTES = 8 * MIB  # bytes of one compiled pattern


class LinearPattern(Protocol):
    """The part of google-re2's compiled patterns that we use; it has no types."""

    def search(self, text: bytes) -> Any: ...

    def fullmatch(self, text: str) -> Any: ...


def linear(pattern: str, *, ignore_case: bool) -> LinearPattern:
    """Return a compiled pattern; `.` matches every character of a line.

    Raises:
        CallError: invalid_arguments, if RE2 does not support the pattern.
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
    """Return a pattern that matches this text literally."""
    escaped: str = cast("Any", re2).escape(text)
    return escaped
