"""Astromesh folder: convert agent files of Astromesh to files next to the config.

Every key is copied; keys that the loader refuses become comments when the proposal is tried.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from pegboard.cli.command_error import CommandError
from pegboard.cli.declarations.clear_secrets import hides_secret
from pegboard.cli.declarations.derived_names import free_name, namespace
from pegboard.cli.declarations.documents import FOREIGN_ENTRIES, read_document
from pegboard.cli.declarations.proposal import EntryWriter, Export, Proposal
from pegboard.config import mapping_text
from pegboard.core.names import legal
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

_VERSION = "astromesh/v1"
_FOLDER = "agents"
_FOLDER_BESIDE_ORIGINALS = "imported-agents"
# `$$`, `${file:…}` and `${` without a variable are plain text there, but have a meaning here.
_TEXT_DOLLAR = re.compile(r"\$(?=\$)|(?<=\$)\$|\$(?=\{(?![A-Za-z_]\w*(?::-[^}]*)?\}))")


class _Agent(Struct, frozen=True):
    """One agent file."""

    file: str
    name: str
    document: JSON


def is_agent(document: JSONValue) -> bool:
    """Return True if a file is an Astromesh agent."""
    return is_object(document) and str(document.get("apiVersion", "")).startswith("astromesh/")


def astromesh_proposal(source: Path, *, folder: Path) -> Proposal:
    """Return the agents of a folder, or of one file, each as a separate file.

    Args:
        source: the folder or file.
        folder: the folder of the config.
    """
    left_out: list[str] = []
    notes: list[str] = []
    exports: list[Export] = []
    target = _FOLDER
    if (folder / _FOLDER).resolve() == (source if source.is_dir() else source.parent).resolve():
        # The originals are not changed.
        target = _FOLDER_BESIDE_ORIGINALS
    agents = list(_agents(source, skip=(folder / target).resolve(), left_out=left_out, notes=notes))
    names = _names(agents, notes)
    files: dict[str, str] = {}
    for agent in agents:
        writer = EntryWriter(label=names[agent.name], file=agent.file, exports=exports)
        written = f"{target}/{names[agent.name]}.agent.yaml"
        if written in files:
            left_out.append(f"{agent.file}: there is another agent {agent.name!r}; rename one")
            continue
        reader = _Reader(writer)
        document: JSON = reader.read(_renamed(agent, names, notes), ())
        files[written] = mapping_text(document)
    globs = (f"{target}/*.agent.yaml",) if files else ()
    return Proposal(globs=globs, files=files, exports=tuple(exports), left_out=tuple(left_out), notes=tuple(notes))


def _agents(source: Path, *, skip: Path, left_out: list[str], notes: list[str]) -> Iterator[_Agent]:
    """Yield the agents; other files are reported."""
    within = source if source.is_dir() else source.parent
    paths = iter([source]) if source.is_file() else iter(_files(source, skip))
    for path in islice(paths, FOREIGN_ENTRIES):
        name = path.relative_to(within).as_posix()
        try:
            document = read_document(path)
        except CommandError as error:
            left_out.append(f"{name}: {str(error).removesuffix('.')}")
            continue
        if not is_object(document) or not is_agent(document):
            notes.append(f"{name} was skipped: it is not a file of Astromesh.")
        elif document.get("kind") != "Agent" or document.get("apiVersion") != _VERSION:
            what = f"{document.get('apiVersion')} {document.get('kind')}"
            left_out.append(f"{name}: {what!r} has no counterpart here; `{_VERSION}` Agent has")
        else:
            metadata = document.get("metadata")
            called = metadata.get("name") if is_object(metadata) else None
            if not called:
                called = re.sub(r"\.(?:agent\.)?ya?ml$", "", path.name)
                notes.append(f"{name} has no `metadata: {{name: …}}`; its file gave the name {called!r}.")
            yield _Agent(name, str(called), document)
    if next(paths, None) is not None:
        left_out.append(f"{within}: at most {FOREIGN_ENTRIES} files are taken at once; import the folders below it")


def _files(folder: Path, skip: Path) -> list[Path]:
    """Return the YAML files, except in hidden folders and packages, and except files imported earlier."""
    return [
        path
        for path in sorted(folder.rglob("*.y*ml"))
        if path.is_file()
        and not any(part.startswith(".") or part == "node_modules" for part in path.relative_to(folder).parts)
        and not path.resolve().is_relative_to(skip)
    ]


def _names(agents: list[_Agent], notes: list[str]) -> dict[str, str]:
    """Return the new name of each agent, by its original name."""
    unchanged = {agent.name for agent in agents if _latin(agent.name) == agent.name}
    taken = {name.casefold() for name in unchanged}
    names = {name: name for name in unchanged}
    for agent in agents:
        if agent.name not in names:
            names[agent.name] = free_name(_latin(agent.name), taken)
            notes.append(f"The agent {agent.name!r} is called {names[agent.name]!r} here.")
    return names


def _latin(name: str) -> str:
    """Return a legal name; letters with accents lose them."""
    letters = (letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    return namespace("".join(letters))


def _renamed(agent: _Agent, names: dict[str, str], notes: list[str]) -> JSON:
    """Return the document of an agent with legal names, wherever it uses them."""
    metadata, spec = agent.document.get("metadata"), agent.document.get("spec")
    renamed: JSON = dict(metadata) if is_object(metadata) else {}
    if isinstance(renamed.get("version"), int | float):
        renamed["version"] = str(renamed["version"])
    document: JSON = {**agent.document, "metadata": {**renamed, "name": names[agent.name]}}
    if not is_object(spec):
        return document
    tools, permissions = spec.get("tools"), spec.get("permissions")
    called: dict[str, str] = {}
    items: list[Any] = []
    for tool in tools if is_list(tools) else ():
        item: Any = dict(tool) if is_object(tool) else tool
        if is_object(tool) and isinstance(name := tool.get("name"), str):
            item["name"] = called[name] = legal(name) or name
            if item["name"] != name:
                notes.append(f"The tool {name!r} of {agent.name!r} is called {item['name']!r} here.")
        if is_object(tool) and isinstance(target := tool.get("agent"), str):
            item["agent"] = names.get(target, target)
        items.append(item)
    if is_list(tools):
        spec = {**spec, "tools": items}
    if is_object(permissions):
        lists: JSON = {
            key: [called.get(str(name), name) for name in value] if is_list(value) else value
            for key, value in permissions.items()
        }
        spec = {**spec, "permissions": lists}
    return {**document, "spec": spec}


class _Reader:
    """Copies a document. Plain-text secrets become variables; references stay unchanged."""

    def __init__(self, writer: EntryWriter) -> None:
        self._writer = writer

    def read(self, value: JSONValue, steps: tuple[str | int, ...]) -> Any:
        if is_object(value):
            return {key: self.read(inner, (*steps, key)) for key, inner in value.items()}
        if is_list(value):
            return [self.read(item, (*steps, place)) for place, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        key = next((step for step in reversed(steps) if isinstance(step, str)), "")
        is_named = not key.endswith("_env") and not key.endswith("tokens")
        if hides_secret(key if is_named else "", value):
            return self._writer.concealed(key, value, at=".".join(map(str, steps)))
        return _TEXT_DOLLAR.sub("$$", value)
