"""Deciding files: files that decide which code runs here and who may call it. No tool may write them."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cached_property
from importlib.machinery import all_suffixes
from itertools import pairwise
from pathlib import Path
from typing import Any

from pegboard.config.config import LOCK_NAME, Config
from pegboard.config.stores import stores_of
from pegboard.storage.file_permissions import SIDE_FILES
from pegboard.storage.store_schema import VERSIONS_TABLE

_PYTHON = (*all_suffixes(), ".pth")

# Each with one of its columns, so that a table of the same name in another schema is not taken for ours.
DECIDING_TABLES = frozenset({
    (VERSIONS_TABLE, "store"),
    ("budget_counters", "begins_s"), ("consents", "args_digest"), ("used_answers", "mark"),
    ("pegboard_agent_turns", "messages"),
    ("pegboard_tasks", "task_id"), ("pegboard_task_questions", "task_id"), ("pegboard_task_workers", "beats_at"),
    ("workflow_status", "workflow_uuid"), ("workflow_input", "workflow_uuid"), ("workflow_output", "workflow_uuid"),
    ("operation_outputs", "workflow_uuid"), ("notifications", "destination_uuid"), ("workflow_events", "workflow_uuid"),
    ("grants", "space_n"), ("spaces", "is_granted"), ("sources", "space_n"), ("documents", "space_n"),
    ("texts", "space_n"), ("chunks", "space_n"), ("postings", "space_n"), ("vectors", "space_n"), ("tables", "space_n"),
    ("table_rows", "space_n"), ("languages", "space_n"), ("spellings", "space_n"),
})  # fmt: skip


class DecidingFiles:
    """Tells whether a file belongs to the config, holds rights or records, or is executed.

    Someone who can write such a file can run any program or make any call, so tools that write files must not.
    Paths are compared case-insensitively, since some file systems do.
    """

    def __init__(self, config: Config) -> None:
        self._config, self._folder = config, config.path.absolute().parent

    def __call__(self, path: Path) -> bool:
        """Tell whether a file is one of them. It need not exist yet; its parent folders must not be links."""
        real = _folded(path.parent.resolve() / path.name)
        return (
            real in self._named
            or self._is_named_otherwise(path)
            or self._is_read_by_glob(real)
            or _is_run(real, self._own_folder)
        )

    @cached_property
    def _own_folder(self) -> Path:
        return _folded(self._folder.resolve())

    @cached_property
    def _named(self) -> frozenset[Path]:
        both = ((path, path.resolve()) for path in self._paths())
        return frozenset(_folded(path) for pair in both for path in pair)

    def _is_named_otherwise(self, path: Path) -> bool:
        """Tell whether a file is one of them under another path: a hard link, or a folder that is mounted twice."""
        identity = _identity(path)
        return identity is not None and any(_identity(each) == identity for each in self._paths())

    def _paths(self) -> Iterator[Path]:
        config, folder = self._config, self._folder
        yield from (folder / file for file in config.files)
        yield folder / config.path.name
        yield folder / LOCK_NAME
        for tool in config.tools:
            server: Any = getattr(tool.value, "mcp", None)
            if server is not None and getattr(server, "transport", None) == "stdio":
                yield from _run_by(server, folder / (server.cwd or ""))
            api: Any = getattr(tool.value, "openapi", None)
            if api is not None:
                yield folder / api.spec
        for database in self._databases():
            yield from (database.with_name(f"{database.name}{end}") for end in SIDE_FILES)

    def _databases(self) -> Iterator[Path]:
        for store in stores_of(self._config):
            if store.uri.path is not None:
                yield store.uri.path

    def _is_read_by_glob(self, real: Path) -> bool:
        for glob in self._config.globs:
            *_, last = glob.split("/")
            fixed = Path(*_up_to_a_sign(glob))
            if fnmatch(real.name, last.lower()) and real.is_relative_to(_folded((self._folder / fixed).resolve())):
                return True
        return any(real.is_relative_to(_folded(skill.value.resolve())) for skill in self._config.skills.values())


def deciding_tables(config: Config) -> frozenset[tuple[str, str]]:
    """Return the PostgreSQL tables of the config's stores, each with one of its columns."""
    uses_postgres = any(store.uri.kind == "postgresql" for store in stores_of(config))
    return DECIDING_TABLES if uses_postgres else frozenset()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _run_by(server: Any, folder: Path) -> Iterator[Path]:
    """Yield the files that a command may name in its working folder, including a module after `-m`."""
    words = [word for word in (server.command or "", *server.args) if word and "\0" not in word]
    yield from (folder / word for word in words)
    for module in (word for option, word in pairwise(words) if option == "-m"):
        parts = module.split(".")
        for depth in range(1, len(parts) + 1):
            package = folder.joinpath(*parts[:depth])
            yield from (package.with_name(f"{package.name}.py"), package / "__init__.py", package / "__main__.py")


def _is_run(real: Path, own_folder: Path) -> bool:
    """Tell whether a file is, or would be, a module that this process imports."""
    if not real.name.endswith(_PYTHON):
        return False
    folder = real.parent.parent if real.parent.name == "__pycache__" else real.parent
    modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return folder == own_folder or any(
        _folded(Path(os.path.realpath(file)).parent) == folder for file in modules if isinstance(file, str)
    )


def _up_to_a_sign(glob: str) -> Iterator[str]:
    for part in glob.split("/")[:-1]:
        if any(sign in part for sign in "*?["):
            return
        yield part


def _folded(path: Path) -> Path:
    return Path(str(path).casefold())
