"""Config files: read the files of a config, and find those that it names."""

from __future__ import annotations

import re
from pathlib import Path

from pegboard.config.yaml.tree import Mark
from pegboard.model.bounds import CONFIG_FILE_BYTES
from pegboard.model.error import Problem

_VARIABLE = re.compile(r"\$\{(\w+)")


def read_text(path: Path, *, max_bytes: int = CONFIG_FILE_BYTES) -> str | Problem:
    """Return the text of a file, or why there is none."""

    def refused(message: str) -> Problem:
        return Problem(where=str(path), message=message)

    try:
        if path.is_dir():
            return refused("is a folder; name the file in it, such as pegboard.yaml")
        if not path.exists():
            return refused("does not exist; `pegboard init` writes one to start from")
        if not path.is_file():
            return refused("is no ordinary file")
        with path.open("rb") as file:  # raw: the operator's own file, named by the operator; it may be a link
            content = file.read(max_bytes + 1)
    except OSError as error:
        return refused(f"cannot be read: {error.strerror}")
    if len(content) > max_bytes:
        return refused(f"is larger than {max_bytes:,} bytes; split it, and name the parts under `files:`")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        mark = Mark(str(path), before.count(b"\n") + 1, len(before) - before.rfind(b"\n"))
        return Problem(where=str(mark), message="is no UTF-8 text; save the file as UTF-8")


def find_files(pattern: str, *, beside: Path) -> list[Path]:
    """Return the files that a glob relative to the folder of `beside` names, by name; a plain name must exist.

    Raises:
        ValueError: why the glob cannot be used.
    """
    if Path(pattern).is_absolute():
        raise ValueError(f"{pattern!r} is absolute; name files relative to {beside.name}")
    if not any(mark in pattern for mark in "*?["):
        path = beside.parent / pattern
        if not path.exists():
            raise ValueError(f"there is no file {str(path)!r}")
        return [path]
    try:
        return [path for path in sorted(beside.parent.glob(pattern)) if not path.is_dir()]
    except (ValueError, NotImplementedError, OSError) as error:
        raise ValueError(f"{pattern!r} is no glob: {error}") from None


def named_variables(path: Path) -> frozenset[str]:
    """Return every `${VARIABLE}` that a config, or another file of YAML beside it or one folder down, names."""
    files = {path, *path.parent.glob("*.y*ml"), *path.parent.glob("*/*.y*ml")}
    texts = [content for file in files if isinstance(content := read_text(file), str)]
    return frozenset(name for text in texts for name in _VARIABLE.findall(text))
