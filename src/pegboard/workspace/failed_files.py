"""Failed files: the files of a live source that could not be read, and when each is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

FAILED_RETRY_S = 300.0  # seconds until a file that could not be read is tried again; doubled with each failure
FAILED_RETRY_MAX_S = 86_400.0  # the longest time until a file is tried again, in seconds
FAILED_FILES = 10_000  # files that are remembered as failed; further ones are tried in each run


class Failure(NamedTuple):
    """The last failure of a file: its version then, the reason, and whether no parser reads such files.

    `times` is how often that version has failed, `again_s` the time of the next attempt.
    """

    etag: str
    reason: str
    is_not_read: bool
    times: int
    again_s: float


class FailedFiles:
    """Remembers failed files from run to run, so that a live source does not fetch them again and again.

    A file with a new version at its source is tried at once. What is remembered ends with the process.

    Args:
        clock: a monotonic clock in seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, Failure] = {}

    def waiting(self, path: str, etag: str) -> Failure | None:
        """Return the last failure of a file if it is too early to try it again."""
        failure = self._failures.get(path)
        is_waiting = failure is not None and failure.etag == etag and self._clock() < failure.again_s
        return failure if is_waiting else None

    def put(self, path: str, etag: str, reason: str, *, is_not_read: bool = False) -> None:
        """Remember a failure."""
        before = self._failures.pop(path, None)
        if len(self._failures) >= FAILED_FILES:
            return
        times = before.times + 1 if before is not None and before.etag == etag else 1
        pause_s = min(FAILED_RETRY_S * 2 ** min(times - 1, 10), FAILED_RETRY_MAX_S)
        self._failures[path] = Failure(etag, reason, is_not_read, times, self._clock() + pause_s)

    def remove(self, path: str) -> None:
        """Forget a file, which was read."""
        self._failures.pop(path, None)
