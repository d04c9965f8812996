"""Whole file: writes an operator's file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def write_whole(
    path: Path, content: bytes, *, mode: int = 0o600, before_it_counts: Callable[[], None] | None = None
) -> None:
    """Write a file under a name that nobody can guess, then put it in the place of `path`.

    A predictable name in a folder where others may write could be a link of theirs, through which we would write.
    `before_it_counts` runs last; if it raises, `path` stays as it is.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:64]}-", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:  # raw: the operator's own file
            file.write(content)
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
        if before_it_counts is not None:
            before_it_counts()
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
