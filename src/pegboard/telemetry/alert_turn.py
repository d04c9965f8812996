"""Alert turn: lets one worker of a machine send the alerts, and stores the alerts sent so far."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from pegboard.platforms import platform
from pegboard.storage.whole_file import write_whole

_LOCK, _SENT = ".pegboard-alerts.lock", ".pegboard-alerts.json"

log = logging.getLogger("pegboard")


class AlertTurn:
    """A lock in a folder that the workers of one config share. The system releases it with the process.

    If the folder cannot be written, every worker sends its own alerts, and a new process sends them again.

    Args:
        folder: the folder of the config.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: int | None = None
        self._is_alone = False

    @property
    def is_ours(self) -> bool:
        """Whether `take` has succeeded, and `leave` was not called since."""
        return self._held is not None or self._is_alone

    def take(self) -> bool:
        """Take the turn if no other worker has it; return True if it became ours now."""
        if self.is_ours:
            return False
        try:
            handle = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | platform.OPEN_SAFELY, 0o600)  # noqa: TID251 - in the folder of the config
        except OSError as error:
            log.warning("Each worker sends its own alerts, since %r cannot be written: %s", str(self._folder), error)
            self._is_alone = True
            return True
        try:
            platform.lock_now(handle)
        except OSError:
            os.close(handle)
            return False
        self._held = handle
        return True

    def sent(self) -> bytes:
        """Return what the previous worker passed to `remember`; empty if there is nothing."""
        try:
            return (self._folder / _SENT).read_bytes()  # raw: in the folder of the config
        except OSError:
            return b""

    def remember(self, content: bytes) -> None:
        """Store the alerts sent so far, for the next worker."""
        if self._is_alone:
            return
        try:
            write_whole(self._folder / _SENT, content)
        except OSError as error:
            log.warning("The alerts sent so far cannot be stored; after a restart they may be sent again: %s", error)

    def leave(self) -> None:
        """Let another worker have the turn."""
        if self._held is not None:
            os.close(self._held)
            self._held = None
        self._is_alone = False
