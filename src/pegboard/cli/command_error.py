"""Command error: an error for the person at the keyboard, and the exit codes of commands."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from pegboard.model.error import CallError, PegboardError, Problem
from pegboard.storage.store_error import StoreError


class Exit(IntEnum):
    """Exit codes. `BUG` is used for our own faults only."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    BUG = 70
    INTERRUPTED = 130


class CommandError(PegboardError):
    """A command cannot be run as requested. The message says what happened and what to do next.

    `kind` is a stable word for `--json`; `problems` are the faults of a declaration, one by one.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "usage",
        code: Exit = Exit.USAGE,
        problems: Sequence[Problem] = (),
    ) -> None:
        super().__init__(message)
        self.kind, self.code, self.problems = kind, code, tuple(problems)


def refused(error: CallError) -> CommandError:
    """Convert a refused call to the error of a command.

    Callers never see why a store failed, since the reason may quote the data of others; an operator at a keyboard does.
    """
    text = error.error.message
    if isinstance(error.__cause__, StoreError):
        text = f"{text} Reason: {error.__cause__}."
    return CommandError(text, kind=error.error.kind, code=Exit.REFUSED)
