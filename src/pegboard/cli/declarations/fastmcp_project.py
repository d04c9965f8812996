"""FastMCP project: convert a server in a Python file, or a `fastmcp.json`, to an entry that runs it."""

from __future__ import annotations

import re
from pathlib import Path

from pegboard.cli.declarations.derived_names import entry_name, free_name, group_stem
from pegboard.cli.declarations.proposal import EntryWriter, Proposal, literal, relative
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

_OBJECT = re.compile(r"(.+\.py)(?::([A-Za-z_]\w*))?")


def python_file(word: str) -> tuple[Path, str] | None:
    """Return the file and object that `file.py:object` names; `None` for other words."""
    match = _OBJECT.fullmatch(word)
    return None if match is None else (Path(match[1]).expanduser(), match[2] or "")


def is_fastmcp_project(document: JSONValue) -> bool:
    """Tell whether a document is a `fastmcp.json`."""
    source = document.get("source") if is_object(document) else None
    return is_object(source) and isinstance(source.get("path"), str)


def fastmcp_proposal(path: Path, name_of_object: str, *, folder: Path, taken: set[str]) -> Proposal:
    """Return the entry for a Python file."""
    target = f"{path.name}:{name_of_object}" if name_of_object else path.name
    writer = EntryWriter(label=entry_name(path.name), file=path.name)
    return writer.proposal(_entry(target, path, folder=folder, taken=taken))


def fastmcp_json_proposal(document: JSON, path: Path, *, folder: Path, taken: set[str]) -> Proposal:
    """Return the entry for a `fastmcp.json`, which fastmcp reads itself when it is started."""
    writer = EntryWriter(label=entry_name(document["source"]["path"]), file=path.name)
    deployment = document.get("deployment")
    for key in deployment if is_object(deployment) else ():
        if key in ("transport", "host", "port", "path"):
            writer.left_out.append(f"deployment.{key}: it is started for Pegboard alone, over stdio")
    environment = document.get("environment")
    packages = environment.get("dependencies") if is_object(environment) else None
    if is_list(packages) and packages:
        writer.left_out.append("environment: fastmcp creates it each time; `fastmcp project prepare` does so once")
    entry = _entry(path.name, path, folder=folder, taken=taken, named=Path(document["source"]["path"]).name)
    return writer.proposal(entry)


def _entry(target: str, path: Path, *, folder: Path, taken: set[str], named: str = "") -> JSON:
    name = free_name(entry_name(named or path.name), taken)
    mcp: JSON = {
        "transport": "stdio",
        "command": "fastmcp",
        "args": ["run", literal(target), "--transport", "stdio"],
        "cwd": literal(relative(path.absolute().parent, folder)),
    }
    return {"name": name, "type": "mcp", "mcp": mcp, "groups": [group_stem(name)]}
