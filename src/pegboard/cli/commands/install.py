"""install: add a profile to the configuration of an MCP client, or remove it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pegboard.cli.command_error import CommandError
from pegboard.cli.completers import profiles_in
from pegboard.cli.jsonc import JsoncError
from pegboard.cli.mcp_clients import CLIENTS, McpClient
from pegboard.cli.operator_file import change_operator_file, read_operator_file
from pegboard.cli.options import SharedOptions
from pegboard.cli.project import find_config
from pegboard.core.names import fold, nearest
from pegboard.model.json_types import JSON, is_object


def install_command(
    client: Annotated[
        str, Parameter(help="claude-code, claude-desktop, cursor, vscode, codex, gemini, windsurf, zed.")
    ],
    /,
    *,
    name: Annotated[str, Parameter(help="Name of the server in the client.")] = "pegboard",
    file: Annotated[Path | None, Parameter(help="Write to this file instead of the client's own.")] = None,
    remove: Annotated[bool, Parameter(help="Remove the entry.")] = False,
    print_only: Annotated[bool, Parameter(name="--print", help="Print the resulting file; write nothing.")] = False,
    options: SharedOptions,
) -> None:
    """Connect an MCP client to the tools of --profile.

    The client starts `pegboard serve --stdio` by itself. The rest of its file is kept, including comments.
    """
    known = CLIENTS.get(client)
    if known is None:
        raise CommandError(f"There is no client {client!r}.{nearest(client, CLIENTS, label='Clients')}")
    path = (file or known.path(Path())).expanduser()
    change = partial(_changed, known, name=name, command=None if remove else _command(options))
    if print_only:
        options.terminal.say(_as_before(read_operator_file(path), change).rstrip("\n"))
        return
    before, after = change_operator_file(path, lambda text: _as_before(text, change))
    done = "unchanged" if after == before else "removed" if remove else "installed"
    if options.json:
        options.terminal.json({"client": client, "file": str(path), "name": name, "outcome": done})
        return
    words = {
        "removed": f"Took {name!r} out of",
        "installed": f"Entered {name!r} in",
        "unchanged": "Nothing to change in",
    }
    options.terminal.say(f"{words[done]} {path}, which {known.title} reads when it starts.")


def _command(options: SharedOptions) -> list[str]:
    config = find_config(options.config, start=Path.cwd()).resolve()
    command = Path(sys.executable).with_name("pegboard.exe" if sys.platform == "win32" else "pegboard")
    program = [str(command)] if command.is_file() else [sys.executable, "-m", "pegboard_command"]
    known = profiles_in(config)
    chosen = options.chosen_profile
    if chosen is not None and known is not None and fold(chosen) not in map(fold, known):
        raise CommandError(f"Unknown profile {chosen!r}.{nearest(chosen, known, label='Profiles')}")
    profile = [] if options.chosen_profile is None else ["--profile", options.chosen_profile]
    return [*program, "--config", str(config), *profile, "serve", "--stdio"]


def _as_before(text: str, change: Callable[[str], str]) -> str:
    """Return a changed text with the original byte order mark and line ends."""
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    plain = text.removeprefix(mark)
    unix = plain.replace("\r\n", "\n")
    if unix == plain or unix.count("\n") != plain.count("\r\n"):
        return mark + change(plain)
    return mark + change(unix).replace("\n", "\r\n")


def _changed(client: McpClient, before: str, *, name: str, command: list[str] | None) -> str:
    """Return the new text, after checking that only the intended part has changed."""
    parsed = client.read(before)
    present = parsed.get(client.section, {})
    if not is_object(present):
        raise CommandError(f"{client.title}'s configuration has no object in {client.section!r}.", kind="unreadable")
    servers: JSON = {**present}
    try:
        after = client.without_server(before, name) if command is None else client.with_server(before, name, command)
    except JsoncError as error:
        raise CommandError(f"{client.title}'s configuration cannot be changed: {error}.", kind="unreadable") from None
    if command is None:
        servers.pop(name, None)
    else:
        servers[name] = client.entry(command)
    wanted = {**parsed, client.section: servers}
    if {key: value for key, value in client.read(after).items() if value or key != client.section} != {
        key: value for key, value in wanted.items() if value or key != client.section
    }:
        text = "is written in a way that cannot be changed without touching the rest; nothing was written"
        raise CommandError(
            f"{client.title}'s configuration {text}. Add what `--print --file NEW` shows.", kind="unreadable"
        )
    return after
