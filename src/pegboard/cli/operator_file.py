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
        CommandError: it cannot be written, or has changed.
    """
    # A link, as people keep their settings elsewhere, stays one.
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        if expected is not None and read_operator_file(path) != expected:
            raise CommandError(f"{str(path)!r} has changed meanwhile; nothing was written. Try again.", kind="changed")
        temporary.touch(mode=0o600, exist_ok=False)
        temporary.write_bytes(text.encode())  # raw: the operator's own file, named on the command line
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        raise CommandError(f"{str(path)!r} cannot be written: {error.strerror}.", kind="not_written") from error
