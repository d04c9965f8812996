"""Lifelines: files that the workers of one machine lock while they live, so that a death is noticed at once."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from pegboard.platforms import platform


class Lifelines:
    """A folder with a file for each worker, which holds a lock on it; the system releases the lock with the process.

    A worker that holds its lock may still hang: only its lease shows that. One without a lock is certainly dead.

    Args:
        folder: the folder of the files, shared by these workers; `None` if there is no place for them.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if platform.NO_FILES is not None else folder
        self._held: int | None = None

    def hold(self, worker: str) -> None:
        """Hold the lock of a worker until `drop` or the end of this process.

        Raises:
            OSError: the folder cannot be written.
        """
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._held = _open(self._folder / worker, os.O_CREAT)
            platform.lock_now(self._held)

    def is_cut(self, worker: str) -> bool:
        """Tell whether a worker is certainly dead; one without a file here, or with a locked one, may be alive."""
        if self._folder is None:
            return False
        try:
            handle = _open(self._folder / worker)
        except OSError:
            return False
        try:
            platform.lock_now(handle)
        except OSError:
            return False
        finally:
            os.close(handle)
        return True

    def forget(self, worker: str) -> None:
        """Remove the file of a dead worker."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / worker).unlink()

    def after_fork(self) -> None:
        """Release the parent's file in a forked child; the parent still holds it, and the child must not."""
        self.drop()

    def drop(self) -> None:
        """Release the lock of this process."""
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _open(path: Path, more: int = 0) -> int:
    flags = os.O_RDWR | platform.OPEN_SAFELY | more
    return os.open(path, flags, 0o600)  # noqa: TID251 - our own file next to our own database
