"""Proposal: entries for a config, converted from other programs' files, and the parts that cannot be converted."""

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
    """A plain-text secret: the variable that replaces it, and its origin."""

    variable: str
    found_at: str
    value: Secret | None = None

    @property
    def line(self) -> str:
        """The shell command that sets the variable, without the value."""
        # The description is foreign text, and must not look like a separate command.
        return f"export {self.variable}='…'  # {' '.join(self.found_at.split())}"


class Proposal(Struct, frozen=True, kw_only=True):
    """Items for the lists of a config, by key, in the form of the file.

    `left_out` lists each part that is not converted, and what to do about it; `notes` list changes, such as a new name.
    `files` are texts to be written next to the config, by their relative paths. `sections` are written only if the
    config does not have them.
    """

    tools: tuple[JSON, ...] = ()
    python: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    files: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    sections: Mapping[str, JSON] = msgspec.field(default_factory=dict[str, JSON])
    exports: tuple[Export, ...] = ()
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(str(tool["name"]) for tool in self.tools)


def joined(proposals: Iterable[Proposal]) -> Proposal:
    """Return several proposals as one."""
    every = list(proposals)
    return Proposal(
        tools=tuple(tool for each in every for tool in each.tools),
        python=tuple(name for each in every for name in each.python),
        globs=tuple(glob for each in every for glob in each.globs),
        files={path: text for each in every for path, text in each.files.items()},
        sections={name: value for each in every for name, value in each.sections.items()},
        exports=tuple(export for each in every for export in each.exports),
        left_out=tuple(text for each in every for text in each.left_out),
        notes=tuple(text for each in every for text in each.notes),
    )


def as_text(value: JSONValue) -> str:
    """Return the value that a program gets for a variable."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def literal(text: str) -> str:
    """Return a text for a config, with `$` escaped."""
    return text.replace("$", "$$")


@dataclass(kw_only=True, slots=True)
class EntryWriter:
    """Writes one entry. Secrets become variables, which are collected in `exports`.

    `label` is the prefix of generated variable names; `file` is the origin of the values.
    """

    label: str
    file: str
    exports: list[Export] = field(default_factory=list[Export])
    left_out: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])

    def value(self, name: str, text: str, *, at: str, is_secret: bool | None = None) -> str:
        """Return the value of a variable or header for the config."""
        if holds_secret(name, text) if is_secret is None else is_secret:
            return self.concealed(name, text, at=at)
        return literal(text)

    def concealed(self, name: str, text: str, *, at: str) -> str:
        """Return `${VARIABLE}` for a value; equal values share a variable."""
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

    def variable(self, variable: str, *, at: str) -> str:
        """Return `${VARIABLE}` for a value that does not exist yet."""
        if all(export.variable != variable for export in self.exports):
            self.exports.append(Export(variable=variable, found_at=at))
        return f"${{{variable}}}"

    def proposal(self, *tools: JSON) -> Proposal:
        """Return the finished proposal."""
        return Proposal(
            tools=tools, exports=tuple(self.exports), left_out=tuple(self.left_out), notes=tuple(self.notes)
        )


def relative(path: Path, folder: Path) -> str:
    """Return a path relative to the config's `folder`."""
    whole = path.resolve()
    try:
        return whole.relative_to(folder.resolve()).as_posix() or "."
    except ValueError:
        return whole.as_posix()
