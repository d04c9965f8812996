"""schema: print the JSON Schema of the configuration, for editors."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pegboard.cli.command_error import CommandError
from pegboard.cli.operator_file import read_operator_file, write_operator_file
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import find_config
from pegboard.config import Config, agent_schema, editor_schema, json_schema
from pegboard.config.load import read

SCHEMA_NAME = "pegboard.schema.json"
_NAMED = re.compile(r"^\ufeff?#\s*yaml-language-server\s*:.*\$schema\s*=", re.MULTILINE)


def schema_command(
    *,
    agent: Annotated[bool, Parameter(name="--agent", negative="", help="Print the schema of agent files.")] = False,
    editor: Annotated[
        bool,
        Parameter(
            name="--editor",
            negative="",
            help="Print one draft-07 schema for all files of this config, with the types of its plugins.",
        ),
    ] = False,
    write: Annotated[
        bool,
        Parameter(
            name="--write",
            negative="",
            help="With --editor: write it next to the config, and reference it in the first line of each file.",
        ),
    ] = False,
    options: SharedOptions,
) -> None:
    """Print the JSON Schema of the config, of agent files, or for an editor."""
    if editor and agent:
        raise CommandError("--editor has the files of agents in it already; leave --agent out.")
    if write and not editor:
        raise CommandError("--write goes with --editor.")
    if not editor:
        options.terminal.json(agent_schema() if agent else json_schema())
        return
    config = _config(options, is_needed=write)
    schema = editor_schema() if config is None else editor_schema(config.kinds)
    if config is None or not write:
        options.terminal.json(schema)
        return
    written = _written(config, json.dumps(schema, indent=1, ensure_ascii=False) + "\n")
    if options.json:
        options.terminal.json({"written": [str(path) for path in written]})
    else:
        options.terminal.say(f"Wrote {', '.join(map(str, written))}." if written else "Nothing to change.")


def _config(options: Options, *, is_needed: bool) -> Config | None:
    """Return the config even if it has faults, as it may be half written; `None` if there is none."""
    try:
        path = find_config(options.config, start=Path.cwd())
    except CommandError:
        if is_needed or options.config is not None:
            raise
        return None
    with redirect_stdout(sys.stderr):
        return read(path, env=os.environ)[0]


def _written(config: Config, schema: str) -> list[Path]:
    """Write the schema, and reference it in the files that reference none; return what was changed."""
    place = config.path.parent / SCHEMA_NAME
    changed: list[Path] = []
    if read_operator_file(place) != schema:
        write_operator_file(place, schema)
        changed.append(place)
    for path in config.files:
        text = read_operator_file(path)
        if not _NAMED.search(text):
            write_operator_file(path, _naming(text, _relative(place, path.parent)), expected=text)
            changed.append(path)
    return changed


def _relative(place: Path, folder: Path) -> str:
    way = Path(os.path.relpath(place.absolute(), folder.absolute())).as_posix()
    return way if way.startswith("../") else f"./{way}"


def _naming(text: str, place: str) -> str:
    """Return a file with a reference to the schema in its first line; its line ends are kept."""
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    end = "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"
    return f"{mark}# yaml-language-server: $schema={place}{end}{text.removeprefix(mark)}"
