"""Lifelines: files that the workers of one machine hold as long as they live, so that a death is seen at once."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from pegboard.platforms import platform


class Lifelines:
    """A folder with a file for each worker, locked by it; the system lets go of it when the process ends, however.

    What is locked may still be a worker that hangs: of that, the lease tells. What is not is surely dead.

    Args:
        folder: where the files are, for the workers that have the same; `None` where there is no place for them.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if platform.NO_FILES is not None else folder
        self._held: int | None = None

    def hold(self, worker: str) -> None:
        """Say that a worker lives, until `drop` or the end of this process.

        Raises:
            OSError: the folder cannot be written.
        """
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._held = _open(self._folder / worker, os.O_CREAT)
            platform.lock_now(self._held)

    def is_cut(self, worker: str) -> bool:
        """Tell whether a worker is surely dead; one that has no file here, or holds it, may live."""
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
        """Take the file of a dead worker away."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / worker).unlink()

    def after_fork(self) -> None:
        """Let go of the file of the parent, which goes on holding it: this process does not live for it."""
        self.drop()

    def drop(self) -> None:
        """Let go of what this process holds."""
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _open(path: Path, more: int = 0) -> int:
    flags = os.O_RDWR | platform.OPEN_SAFELY | more
    return os.open(path, flags, 0o600)  # noqa: TID251 - a file of ours beside a database of ours
