"""Operator file: read and write whole a file that the operator named, which others may have changed meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

from pegboard.cli.command_error import CommandError
from pegboard.model.bounds import FOREIGN_FILE_BYTES


def read_operator_file(path: Path) -> str:
    """Return the text of a file; empty where there is none.

    Raises:
        CommandError: it cannot be read, is no text, or is larger than any file of its kind.
    """
    try:
        if path.exists() and not path.is_file():
            raise CommandError(f"{str(path)!r} is no ordinary file.", kind="unreadable")
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
    """Write a file whole or not at all. With `expected` it is left alone if that is no longer its text.

    Raises:
        CommandError: it cannot be written, is write-protected, or has changed.
    """
    # A link, as people keep their settings elsewhere, stays one.
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        # Another file takes its place, which the folder's owner may always do; what is protected is meant to stay.
        if not mode & 0o222 or (path.exists() and not os.access(path, os.W_OK)):
            text = f"{str(path)!r} is write-protected; nothing was written. Make it writable if it is meant."
            raise CommandError(text, kind="not_written")
        temporary.touch(mode=0o600, exist_ok=False)
        try:
            temporary.write_bytes(text.encode())  # raw: the operator's own file, named on the command line
            temporary.chmod(mode)
            # As late as can be: who writes it besides us, such as a client that runs, holds no lock.
            if expected is not None and read_operator_file(path) != expected:
                text = f"{str(path)!r} has changed meanwhile; nothing was written. Try again."
                raise CommandError(text, kind="changed")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise CommandError(f"{str(path)!r} cannot be written: {error.strerror}.", kind="not_written") from error
