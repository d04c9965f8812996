"""Proposal: entries for a config, made of what somebody has elsewhere, and all that could not be made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Struct

from pegboard.cli.declarations.clear_secrets import holds_secret, variable_for
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.secret import Secret


class Export(Struct, frozen=True, kw_only=True):
    """A value that stood in clear: the variable that has it from now on, and where it was found."""

    variable: str
    found_at: str
    value: Secret | None = None

    @property
    def line(self) -> str:
        """The line of a shell that sets it, without the value."""
        # What an entry says of a variable is foreign, and must not pass for a line of its own.
        return f"export {self.variable}='…'  # {' '.join(self.found_at.split())}"


class Proposal(Struct, frozen=True, kw_only=True):
    """Items for the lists of a config, by their keys, as they are written there.

    `left_out` says of each thing that is not carried over what it is and what to do, `notes` what is different, such as
    a name. `files` are texts to be written
    beside the config, by their paths relative to it.
    """

    tools: tuple[JSON, ...] = ()
    python: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    files: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    exports: tuple[Export, ...] = ()
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(str(tool["name"]) for tool in self.tools)


def joined(proposals: Iterable[Proposal]) -> Proposal:
    """Return one proposal of several."""
    every = list(proposals)
    return Proposal(
        tools=tuple(tool for each in every for tool in each.tools),
        python=tuple(name for each in every for name in each.python),
        globs=tuple(glob for each in every for glob in each.globs),
        files={path: text for each in every for path, text in each.files.items()},
        exports=tuple(export for each in every for export in each.exports),
        left_out=tuple(text for each in every for text in each.left_out),
        notes=tuple(text for each in every for text in each.notes),
    )


def as_text(value: JSONValue) -> str:
    """Return a value of a variable as a program sees it."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def literal(text: str) -> str:
    """Return a text as a config says it, in which `$` may begin a variable."""
    return text.replace("$", "$$")


@dataclass(kw_only=True, slots=True)
class EntryWriter:
    """Writes one entry. What is a secret goes into a variable, and is remembered in `exports`.

    `label` begins the names of variables that have none of their own; `file` is where the values were found.
    """

    label: str
    file: str
    exports: list[Export] = field(default_factory=list[Export])
    left_out: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])

    def value(self, name: str, text: str, *, at: str, is_secret: bool | None = None) -> str:
        """Return the value of a variable or header as a config says it."""
        if holds_secret(name, text) if is_secret is None else is_secret:
            return self.concealed(name, text, at=at)
        return literal(text)

    def concealed(self, name: str, text: str, *, at: str) -> str:
        """Return `${VARIABLE}` for a value; one that was met before keeps its variable."""
        for export in self.exports:
            if export.value is not None and export.value.reveal() == text:
                return f"${{{export.variable}}}"
        taken = {export.variable for export in self.exports}
        variable = variable_for(name, label=self.label)
        if variable in taken:
            variable = variable_for(f"{self.label}_{name}", label=self.label)
        number = 2
        while variable in taken:
            variable, number = f"{variable.rstrip('0123456789')}{number}", number + 1
        found_at = f"the value of {at}" + (f" in {self.file}" if self.file else "")
        self.exports.append(Export(variable=variable, found_at=found_at, value=Secret(text)))
        return f"${{{variable}}}"

    def wanted(self, variable: str, *, at: str) -> str:
        """Return `${VARIABLE}` for a value that is nowhere yet."""
        if all(export.variable != variable for export in self.exports):
            self.exports.append(Export(variable=variable, found_at=at))
        return f"${{{variable}}}"

    def proposal(self, *tools: JSON) -> Proposal:
        """Return what was written, once it is whole."""
        return Proposal(
            tools=tools, exports=tuple(self.exports), left_out=tuple(self.left_out), notes=tuple(self.notes)
        )


def relative(path: Path, folder: Path) -> str:
    """Return a path as a config in `folder` names it."""
    whole = path.resolve()
    try:
        return whole.relative_to(folder.resolve()).as_posix() or "."
    except ValueError:
        return whole.as_posix()
