"""MCP clients: the place and format of each client's server list, from its public documentation."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pegboard.cli import jsonc
from pegboard.cli.command_error import CommandError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class McpClient(NamedTuple):
    """One client: its title, its file (in the home folder unless `is_of_folder`), and the file's format."""

    title: str
    file: str
    section: str
    fields: Mapping[str, str] = {}
    is_of_folder: bool = False
    on_mac: str = ""
    on_windows: str = ""

    @property
    def is_toml(self) -> bool:
        return self.file.endswith(".toml")

    def path(self, folder: Path) -> Path:
        """Return the file of the current user, or of a project folder."""
        if self.is_of_folder:
            return folder / self.file
        if sys.platform == "darwin" and self.on_mac:
            return Path.home() / self.on_mac
        if sys.platform == "win32" and self.on_windows:
            return Path(os.environ.get("APPDATA", Path.home() / "AppData" / "Roaming")) / self.on_windows
        return Path.home() / self.file

    def entry(self, command: Sequence[str]) -> JSON:
        """Return the command of the server, in the client's format."""
        return {**self.fields, "command": command[0], "args": list(command[1:])}

    def with_server(self, text: str, name: str, command: Sequence[str]) -> str:
        """Return the client's configuration with the server; everything else is unchanged."""
        entry = self.entry(command)
        if self.is_toml:
            others = _without_table(text, self.section, name)
            # Exactly one empty line before the table; removing the table removes it.
            gap = "" if not others else "\n" if others.endswith("\n") else "\n\n"
            return f"{others}{gap}{_table(self.section, name, entry)}"
        return jsonc.with_member(text, self.section, name, entry)

    def without_server(self, text: str, name: str) -> str:
        """Return the client's configuration without the server."""
        if self.is_toml:
            return _without_table(text, self.section, name)
        return jsonc.without_member(text, self.section, name)

    def read(self, text: str) -> JSON:
        """Return the contents of the configuration.

        Raises:
            CommandError: it cannot be read.
        """
        try:
            parsed: JSONValue = tomllib.loads(text) if self.is_toml else jsonc.read(text) if text.strip() else {}
        except ValueError as error:
            raise CommandError(f"{self.title}'s configuration cannot be read: {error}.", kind="unreadable") from None
        if not is_object(parsed):
            raise CommandError(f"{self.title}'s configuration is not an object.", kind="unreadable")
        return parsed


CLIENTS: Mapping[str, McpClient] = {
    "claude-code": McpClient("Claude Code", ".mcp.json", "mcpServers", {"type": "stdio"}, is_of_folder=True),
    "claude-desktop": McpClient(
        "Claude Desktop", ".config/Claude/claude_desktop_config.json", "mcpServers",
        on_mac="Library/Application Support/Claude/claude_desktop_config.json",
        on_windows="Claude/claude_desktop_config.json",
    ),
    "cursor": McpClient("Cursor", ".cursor/mcp.json", "mcpServers"),
    "vscode": McpClient("VS Code", ".vscode/mcp.json", "servers", {"type": "stdio"}, is_of_folder=True),
    "codex": McpClient("Codex", ".codex/config.toml", "mcp_servers"),
    "gemini": McpClient("Gemini CLI", ".gemini/settings.json", "mcpServers"),
    "windsurf": McpClient("Windsurf", ".codeium/windsurf/mcp_config.json", "mcpServers"),
    "zed": McpClient("Zed", ".config/zed/settings.json", "context_servers", on_windows="Zed/settings.json"),
}  # fmt: skip


def _table(section: str, name: str, entry: JSON) -> str:
    # Strings and lists of strings have the same syntax in JSON and TOML.
    # TOML does not accept surrogate pairs, which JSON uses for such characters.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    return "\n".join([f"[{section}.{_key(name)}]", *lines]) + "\n"


def _without_table(text: str, section: str, name: str) -> str:
    """Return the text without a table, its subtables, and one empty line before; comments before the next stay."""
    lines_kept: list[str] = []
    pending: list[str] = []
    is_inside = False
    for line in text.splitlines(keepends=True):
        header = _header(line)
        if header:
            was_inside, is_inside = is_inside, header[:2] == (section, name)
            if is_inside and not was_inside and lines_kept and not lines_kept[-1].strip():
                lines_kept.pop()
            if not is_inside:
                lines_kept += pending
            pending = []
        if not is_inside:
            lines_kept.append(line)
        elif line.strip() and not line.lstrip().startswith("#"):
            pending = []
        else:
            pending.append(line)
    return "".join(lines_kept + (pending if any(line.strip() for line in pending) else []))


def _header(line: str) -> tuple[str, ...]:
    """Return the keys of a line that begins a table, in any quotes; empty for other lines."""
    if not line.lstrip().startswith("["):
        return ()
    try:
        inner: JSONValue = tomllib.loads(line.strip())
    except ValueError:
        return ()
    keys: list[str] = []
    while inner:
        if is_object(inner):
            [(key, inner)] = inner.items()
            keys.append(key)
        else:
            inner = inner[0] if is_list(inner) else None
    return tuple(keys)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)
