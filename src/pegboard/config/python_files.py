"""Python files: the Python files in a config's folder that the config may import."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

PYTHON_FILES = 2_000  # files of one package next to a config whose permissions are checked


def python_files_in(folder: Path) -> Iterator[Path]:
    """Yield the Python files that a config in this folder may name: modules, and packages with their contents."""
    yield from folder.glob("*.py")
    packages = {path.parent for path in folder.glob("*/*.py") if path.parent.name.isidentifier()}
    for package in sorted(packages):
        yield from islice(package.rglob("*.py"), PYTHON_FILES)
