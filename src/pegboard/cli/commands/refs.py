"""refs: names of tools in files that do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import SharedOptions
from pegboard.cli.project import Project, opened
from pegboard.discovery.dead_references import KnownNames, Reference, dead_references
from pegboard.discovery.meta_tools.specs import MetaNames
from pegboard.model.bounds import MIB
from pegboard.model.json_types import JSON

REFS_FILE_BYTES = 2 * MIB  # of a file that is searched for names of tools

_SKIPPED = frozenset(("node_modules", "__pycache__", "venv", "dist", "build"))


async def refs_command(
    *paths: Annotated[Path, Parameter(help="Files and folders to search: prompts, code, configs.")],
    options: SharedOptions,
) -> Exit:
    """Find names of unknown tools in prompts, code and configs.

    A name counts when it says its namespace (`fs__read`, `fs.read`) or its server (`mcp__fs__read`,
    `mcp__acme__read` where the catalog is called acme), or is in quotes or backticks and is nearly
    the name of a tool. Former names and tools that have ended count too. Ends with 1 if there is any.
    """
    if not paths:
        raise CommandError("Name the files or folders to look through: pegboard refs prompts/ src/")
    for path in paths:
        if not path.exists():
            raise CommandError(f"{str(path)!r} does not exist.", kind="not_found")
    async with opened(options, lists_only=True, only_reads=True) as (project, view):
        await view.prepare()
        known = _known_names(project)
        files = dict.fromkeys(file for path in paths for file in _files(path))
        references = [(file, dead) for file in files for dead in dead_references(_text(file), known)]
    if options.json:
        options.terminal.json({"files": len(files), "references": [_as_json(file, dead) for file, dead in references]})
    else:
        for file, dead in references:
            options.terminal.say(f"{file}:{dead.line}:{dead.column}: {_in_words(dead)}")
        references_s, files_s = ("" if len(listed) == 1 else "s" for listed in (references, files))
        options.terminal.say(f"{len(references)} dead reference{references_s} in {len(files)} file{files_s}.")
    return Exit.REFUSED if references else Exit.DONE


def _known_names(project: Project) -> KnownNames:
    registry = project.catalog.registry
    meta = {name for profile in registry.profiles.values() for name in MetaNames.renamed(profile.rename)}
    more = {*meta, *registry.mirrors}
    return KnownNames.of(registry.snapshot(), namespaces=registry.sources, more=more, catalog=project.catalog.name)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for inner in sorted(path.iterdir()):
        if inner.name.startswith(".") or inner.name in _SKIPPED or inner.is_symlink():
            continue
        yield from _files(inner) if inner.is_dir() else (inner,)


def _text(path: Path) -> str:
    """Return the text of a file; nothing for one that is too large or no text."""
    try:
        if path.stat().st_size > REFS_FILE_BYTES:
            return ""
        text = path.read_text(encoding="utf-8")  # raw: the operator's file, named on the command line
    except (OSError, UnicodeDecodeError):
        return ""
    return "" if "\0" in text else text


def _in_words(dead: Reference) -> str:
    if dead.note:
        return f"{dead.name!r}: {dead.note}" + (f", write {dead.near!r}" if dead.near else "")
    return f"no tool {dead.name!r}" + (f"; did you mean {dead.near!r}?" if dead.near else "")


def _as_json(file: Path, dead: Reference) -> JSON:
    return {"file": str(file), **dead._asdict()}
