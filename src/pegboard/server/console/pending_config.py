"""Pending config: lets the console compare and apply changed files of the config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from pegboard.model.error import Problem
from pegboard.model.json_types import JSON


class ConfigChange(Struct, frozen=True, kw_only=True):
    """The changes that the files make.

    `mark` identifies their contents. `plan` is the record of `pegboard plan`, `None` if the files would be refused;
    then `problems` says why.
    """

    mark: str
    plan: JSON | None = None
    problems: Sequence[Problem] = ()


class PendingConfig(Protocol):
    """The files of the config in use. They may have changed since they were read."""

    @property
    def is_watched(self) -> bool:
        """Whether changes are applied without a person, as with `--reload`."""
        ...

    @property
    def may_take(self) -> bool:
        """Whether the files can be taken here: no other worker serves, and they are not watched."""
        ...

    def mark(self) -> str:
        """Return a digest of the files; empty if these are the files in use."""
        ...

    def note_lock(self) -> None:
        """Count the lock, which this process has just written, as one of the files in use."""
        ...

    def problems(self) -> Sequence[object]:
        """Return why the last change was refused; empty if it was not."""
        ...

    async def compare(self) -> ConfigChange:
        """Load the files, which runs the Python modules next to them, and compare them with the config in use."""
        ...

    async def take(self, mark: str, *, by: str) -> bool:
        """Use the files from now on if they still have this mark; return whether they are used."""
        ...
