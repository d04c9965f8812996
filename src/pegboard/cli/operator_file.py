"""Operator file: read and atomically write a file that other programs may change meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pegboard.cli.command_error import CommandError
from pegboard.model.bounds import MIB
from pegboard.storage.whole_file import write_whole

FOREIGN_FILE_BYTES = 32 * MIB  # bytes of another program's configuration, or of a catalog of servers
OPERATOR_FILE_WAIT_S = 5.0  # seconds to wait for another Pegboard that writes the same file; no write takes longer

_PAUSE_S = 0.02


def read_operator_file(path: Path) -> str:
    """Return the text of a file; empty if there is none.

    Raises:
        CommandError: it cannot be read, is not text, or is too large.
    """
    try:
        if path.exists() and not path.is_file():
            raise CommandError(f"{str(path)!r} is not an ordinary file.", kind="unreadable")
        with path.open("rb") as file:  # raw: the operator's own file, named on the command line
            content = file.read(FOREIGN_FILE_BYTES + 1)
        if len(content) > FOREIGN_FILE_BYTES:
            text = f"{str(path)!r} has more than {FOREIGN_FILE_BYTES:,} bytes, which no file of its kind has."
            raise CommandError(text, kind="unreadable")
        return content.decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeError) as error:
        raise CommandError(f"{str(path)!r} cannot be read: {error}.", kind="unreadable") from error


def write_operator_file(path: Path, text: str, *, expected: str | None = None) -> None:
    """Write a file completely or not at all. With `expected` it is written only if that is still its text.

    Raises:
        CommandError: it cannot be written, is write-protected, or has changed.
    """
    # A link stays a link: people keep their settings elsewhere.
    path = path.resolve()
    lock = path.with_name(f".{path.name}.pegboard.tmp")

    def check() -> None:
        # As late as possible: a running client does not wait for us.
        if expected is not None and read_operator_file(path) != expected:
            text = f"{str(path)!r} has changed meanwhile; nothing was written. Try again."
            raise CommandError(text, kind="changed")

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        # The file is replaced, which the folder's owner always may; but a protected file is meant to stay.
        if not mode & 0o222 or (path.exists() and not os.access(path, os.W_OK)):
            text = f"{str(path)!r} is write-protected; nothing was written. Make it writable if it is meant."
            raise CommandError(text, kind="not_written")
        _begin(lock)
        try:
            write_whole(path, text.encode(), mode=mode, before_it_counts=check)
        finally:
            lock.unlink(missing_ok=True)
    except OSError as error:
        raise CommandError(f"{str(path)!r} cannot be written: {error.strerror}.", kind="not_written") from error


def change_operator_file(path: Path, change: Callable[[str], str]) -> tuple[str, str]:
    """Write the result of `change`, applied again if another program wrote meanwhile. Return both texts.

    Raises:
        CommandError: see `write_text`, or others keep writing it.
    """
    until = time.monotonic() + OPERATOR_FILE_WAIT_S
    while True:
        before = read_operator_file(path)
        after = change(before)
        try:
            if after != before:
                write_operator_file(path, after, expected=before)
        except CommandError as error:
            if error.kind != "changed" or time.monotonic() > until:
                raise
        else:
            return before, after


def _begin(lock: Path) -> None:
    """Create an empty lock file: only the process that created it may write the locked file.

    Raises:
        OSError: it cannot be created, or another process holds it for too long.
    """
    until = time.monotonic() + 2 * OPERATOR_FILE_WAIT_S
    while True:
        try:
            return lock.touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            if time.monotonic() > until:
                raise
        with suppress(FileNotFoundError):
            # Its creator has ended: no write takes that long.
            if time.time() - lock.lstat().st_mtime > OPERATOR_FILE_WAIT_S:
                lock.unlink()
        time.sleep(_PAUSE_S)
