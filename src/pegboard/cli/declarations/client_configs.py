"""Client configs: convert the servers of an MCP client (`mcpServers`, `servers`, …) to entries of a config."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from pegboard.cli.declarations.clear_secrets import without_secrets
from pegboard.cli.declarations.command_words import concealed_args
from pegboard.cli.declarations.derived_names import free_name, namespace
from pegboard.cli.declarations.documents import FOREIGN_ENTRIES
from pegboard.cli.declarations.proposal import EntryWriter, Proposal, joined, literal, relative
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

SECTIONS = ("mcpServers", "servers", "context_servers", "mcp_servers")
_TRANSPORTS = {
    "stdio": "stdio", "local": "stdio", "sse": "sse", "http": "http", "streamable-http": "http", "remote": "http",
    "streamableHttp": "http", "streamable_http": "http",
}  # fmt: skip
# `${NAME}` and `${NAME:-default}` of Claude Code, `${env:NAME}` and `${input:id}` of VS Code and Cursor, `{env:NAME}`
# of OpenCode.
_REFERENCE = re.compile(r"\$\{(?:(env|input):)?([A-Za-z_][\w.-]*)(:-[^{}$]*)?\}|(?<!\$)\{env:([A-Za-z_]\w*)\}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PLACES = re.compile(r"\$\{(workspaceFolder(?:Basename)?|userHome|pathSeparator|cwd|/|command:[^}]*|config:[^}]*)\}")
# These keys have the same effect here, or none.
_UNDERSTOOD = frozenset({
    "transportType", "environment", "type", "transport", "command", "args", "env", "cwd", "url", "serverUrl",
    "httpUrl", "headers", "http_headers", "requestInit", "disabled", "enabled", "includeTools", "excludeTools",
    "enabled_tools", "disabled_tools", "disabledTools", "bearer_token_env_var", "env_http_headers", "env_vars",
    "name", "description", "gallery", "version", "source",
})  # fmt: skip
_WHAT_TO_DO = {
    "envFile": "export what the file has, and name each under `env:` as ${NAME}",
    "autoApprove": "to allow calls without asking, write `consent: never`, or `tools: {consent: {NAME: never}}`",
    "alwaysAllow": "to allow calls without asking, write `consent: never`, or `tools: {consent: {NAME: never}}`",
    "trust": "to allow calls without asking, write `consent: never`",
    "timeout": "set `timeout:` under `mcp:`, in seconds",
    "tool_timeout_sec": "set `timeout:` under `mcp:`, in seconds",
    "startup_timeout_sec": "a server has at least 15 seconds to start",
    "startup_timeout_ms": "a server has at least 15 seconds to start",
    "oauth": "signing in is done from Python: docs/howto/mcp-servers.md",
    "auth": "signing in is done from Python: docs/howto/mcp-servers.md",
    "headersHelper": "give the header itself, from a variable",
    "sandbox": "programs run as docs/howto/mcp-servers.md says",
}


def is_client_config(document: JSONValue) -> bool:
    """Tell whether a document lists servers in a client's format."""
    return _servers(document) is not None


def _servers(document: JSONValue) -> tuple[str, JSON] | None:
    if not is_object(document):
        return None
    for section in SECTIONS:
        if is_object(document.get(section)):
            return section, document[section]
    for outer in ("mcp", "amp.mcpServers"):
        inner = document.get(outer)
        if is_object(inner):
            servers = _servers(inner)
            if servers is not None:
                return (f"{outer}.{servers[0]}" if servers[0] else outer), servers[1]
    # OpenCode has the servers directly under `mcp`, and files of Claude Code's plugins at the top.
    return ("", document) if document and all(map(_is_server, document.values())) else None


def _is_server(value: JSONValue) -> bool:
    return is_object(value) and any(
        isinstance(value.get(key), str) or is_list(value.get(key)) for key in ("command", "url")
    )


def client_proposal(document: JSONValue, *, file: str, beside: Path, folder: Path, taken: set[str]) -> Proposal:
    """Return an entry for each server; those that cannot be converted are listed in `left_out`.

    Args:
        document: the contents of the client's file.
        file: the name of the file for messages.
        beside: the folder of the file, for `${workspaceFolder}`.
        folder: the folder of the config.
        taken: the names in use; names of the new entries are added.
    """
    declared = _servers(document)
    assert declared is not None
    section, servers = declared
    proposals: list[Proposal] = []
    for place, (name, server) in enumerate(servers.items()):
        at = f"{section}.{name}" if section else str(name)
        if place >= FOREIGN_ENTRIES:
            proposals.append(
                Proposal(left_out=(f"{at} and all after it: at most {FOREIGN_ENTRIES} are taken at once",))
            )
            break
        reader = _ServerReader(at=at, file=file, beside=beside, folder=folder, label=namespace(str(name)))
        mcp = reader.read(server)
        if mcp is None:
            proposals.append(reader.writer.proposal())
            continue
        called = free_name(namespace(str(name)), taken)
        if called != name:
            reader.writer.notes.append(f"{at} is called {called!r} here.")
        entry: JSON = {
            "name": called,
            "type": "mcp",
            "mcp": mcp,
            "groups": [re.sub(r"[^a-z0-9_]", "_", called.lower())],
        }
        proposals.append(reader.writer.proposal(entry))
    if is_object(document):
        known = ("inputs", "$schema", "mcp", "projects", section.partition(".")[0])
        others = [key for key in document if key not in known]
        if others and section in ("servers", "mcpServers") and len(others) <= len(_WHAT_TO_DO):
            named = ", ".join(map(repr, others))
            proposals.append(Proposal(notes=(f"Skipped {named}: these are settings of the client, not servers.",)))
        if _servers_of_projects(document):
            text = "projects: servers of single projects; copy those that you need into a file, and import that file"
            proposals.append(Proposal(left_out=(text,)))
    return joined(proposals)


def _servers_of_projects(document: JSON) -> bool:
    """Tell whether Claude Code's own file has servers for some folders only."""
    projects = document.get("projects")
    return is_object(projects) and any(is_object(each) and each.get("mcpServers") for each in projects.values())


class _ServerReader:
    """Converts one server. Settings that cannot be converted are listed in `writer.left_out`."""

    def __init__(self, *, at: str, file: str, beside: Path, folder: Path, label: str) -> None:
        self.writer = EntryWriter(label=label, file=file)
        self._at, self._beside, self._folder = at, beside, folder
        self._env: JSON = {}

    def read(self, server: JSONValue) -> JSON | None:
        """Return the `mcp:` part of an entry; `None` if there is none."""
        if not is_object(server):
            return self._without("it is not an object")
        if server.get("disabled") is True or server.get("enabled") is False:
            return self._without("it is disabled there; enable it, and import again")
        command, args = server.get("command"), server.get("args", [])
        env: JSONValue = server.get("env", server.get("environment", {}))
        if is_object(command):  # an earlier format of Zed
            args, env, command = command.get("args", []), command.get("env"), command.get("path")
        if is_list(command):
            command, args = (command[0] if command else None), [*command[1:], *(args if is_list(args) else [])]
        if isinstance(args, str):
            args = _words(args)
        # The path of a program may have spaces.
        if isinstance(command, str) and not args and re.match(r"\s*[\w.+-]+\s", command):
            [command, *args] = _words(command)
        url = server.get("httpUrl") or server.get("serverUrl") or server.get("url")
        if command is None and url is None:
            return self._without("it has neither `command` nor `url`")
        if command is not None and not (isinstance(command, str) and command.strip()):
            return self._without("its command is not a string")
        if command is None and not (isinstance(url, str) and re.match(r"https?://|\$\{", url)):
            return self._without("its address is not an http or https address")
        self._note_others(server)
        entry = self._program(command, args, env, server) if command is not None else self._address(str(url), server)
        chosen = self._tools(server)
        return {**entry, "tools": chosen} if chosen else entry

    def _without(self, reason: str) -> None:
        self.writer.left_out.append(f"{self._at}: {reason}")

    def _note_others(self, server: JSON) -> None:
        for key in server:
            if key not in _UNDERSTOOD:
                to_do = _WHAT_TO_DO.get(key, "it is unknown here")
                self.writer.left_out.append(f"{self._at}.{key}: {to_do}")

    def _program(self, command: str, args: JSONValue, env: JSONValue, server: JSON) -> JSON:
        words = [self._word(str(word)) for word in args] if is_list(args) else []
        program = self._word(command)
        values: JSON = self._env
        for name, value in env.items() if is_object(env) else ():
            if not re.fullmatch(r"[A-Za-z_]\w*", str(name)) or is_object(value) or is_list(value):
                self.writer.left_out.append(f"{self._at}.env.{name}: its value is not a string")
            elif value is not None:
                text = (
                    value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
                )
                values[str(name)] = self._value(str(name), text, at=f"{self._at}.env.{name}")
        for name in _texts(server.get("env_vars")):
            values[name] = self.writer.variable(name, at=f"for {self._at}.env_vars")
        entry: JSON = {"transport": "stdio", "command": self._text(program, name="", at="command")}
        if words:
            entry["args"] = self._args(words)
        if values:
            entry["env"] = values
        cwd = server.get("cwd")
        if isinstance(cwd, str) and cwd:
            entry["cwd"] = literal(relative(self._beside / Path(self._word(cwd)).expanduser(), self._folder))
        elif any(self._is_file_here(word) for word in (program, *words)):
            entry["cwd"] = literal(relative(self._beside, self._folder))
        return entry

    def _is_file_here(self, word: str) -> bool:
        if word.startswith(("-", "/", "~", "@")) or not word:
            return False
        try:
            return (self._beside / word).exists()
        except (OSError, ValueError):
            return False

    def _address(self, url: str, server: JSON) -> JSON:
        kind = server.get("type", server.get("transport", server.get("transportType")))
        known = _TRANSPORTS.get(str(kind)) if kind is not None else None
        # In Gemini CLI, `url` means server-sent events and `httpUrl` means HTTP.
        is_sse = known == "sse" or (known is None and url.split("?", maxsplit=1)[0].rstrip("/").endswith("/sse"))
        entry: JSON = {"transport": "sse" if is_sse else "http", "url": self._text(url, name="address", at="url")}
        headers: JSON = {}
        declared: Any = server.get("headers") or server.get("http_headers") or {}
        init = server.get("requestInit")
        if is_object(init) and is_object(init.get("headers")):
            declared = {**declared, **init["headers"]}
        for name, value in declared.items() if is_object(declared) else ():
            if not _HEADER_NAME.fullmatch(str(name)):
                self.writer.left_out.append(f"{self._at}.headers.{name}: this is not the name of a header")
            elif isinstance(value, str):
                headers[str(name)] = self._header(str(name), value)
            else:
                self.writer.left_out.append(f"{self._at}.headers.{name}: its value is not a string")
        variable = server.get("bearer_token_env_var")
        if isinstance(variable, str) and re.fullmatch(r"[A-Za-z_]\w*", variable):
            headers["Authorization"] = f"Bearer {self.writer.variable(variable, at=f'for {self._at}')}"
        named = server.get("env_http_headers")
        for name, from_env in named.items() if is_object(named) else ():
            if isinstance(from_env, str) and re.fullmatch(r"[A-Za-z_]\w*", from_env):
                headers[str(name)] = self.writer.variable(from_env, at=f"for {self._at}")
        return {**entry, "headers": headers} if headers else entry

    def _header(self, name: str, value: str) -> str:
        scheme = re.match(r"(?:Bearer|Basic|Token)\s+", value, re.IGNORECASE)
        lead = scheme[0] if scheme else ""
        return lead + self._value("token" if scheme else name, value[len(lead) :], at=f"{self._at}.headers.{name}")

    def _tools(self, server: JSON) -> JSON:
        only = _texts(server.get("includeTools")) or _texts(server.get("enabled_tools"))
        skip = [name for key in ("excludeTools", "disabled_tools", "disabledTools") for name in _texts(server.get(key))]
        return {**({"only": only} if only else {}), **({"skip": skip} if skip else {})}

    # ---- texts

    def _word(self, text: str) -> str:
        """Return a word with an editor's placeholders filled in."""

        def place(match: re.Match[str]) -> str:
            if match[1] == "workspaceFolder" or match[1] == "cwd":
                return str(self._beside.resolve())
            if match[1] == "workspaceFolderBasename":
                return self._beside.resolve().name
            if match[1] == "userHome":
                return str(Path.home())
            if match[1] in ("pathSeparator", "/"):
                return "/"
            self.writer.left_out.append(f"{self._at}: {match[0]!r} is known to the editor alone; write what it means")
            return match[0]

        return _PLACES.sub(place, text)

    def _value(self, name: str, text: str, *, at: str) -> str:
        text = self._word(text)
        return self._referring(text, at=at) if _REFERENCE.search(text) else self.writer.value(name, text, at=at)

    def _text(self, text: str, *, name: str, at: str) -> str:
        """Return a command or an address with its secrets replaced by variables."""
        text = self._word(text)
        if _REFERENCE.search(text):
            return self._referring(text, at=f"{self._at}.{at}")

        def conceal(key: str, value: str) -> str:
            return self.writer.concealed(key, value, at=f"{self._at}.{at}")

        return without_secrets(text, conceal, literal, name=name)

    def _args(self, words: list[str]) -> list[str]:
        at = f"{self._at}.args"
        # References are not secrets: `--header Authorization:${TOKEN}` needs no variable for `${TOKEN}`.
        plain = concealed_args(["-" if _REFERENCE.search(word) else word for word in words], self.writer, at=at)
        return [
            self._referring(word, at=at) if _REFERENCE.search(word) else written
            for word, written in zip(words, plain, strict=True)
        ]

    def _referring(self, text: str, *, at: str) -> str:
        """Return a text with references to the environment in our syntax; the rest is unchanged."""
        pieces: list[str] = []
        end = 0
        for match in _REFERENCE.finditer(text):
            pieces.append(self._between(text[end : match.start()], at=at))
            variable = re.sub(r"\W", "_", match[2] or match[4])
            if match[1] == "input":
                variable = variable.upper()
            if match[1] is None and variable in self._env:
                # `mcp-remote` and others read `${NAME}` in an argument from the server's own variables.
                pieces.append(self._env[variable])
            elif match[3]:
                pieces.append(f"${{{variable}{match[3]}}}")
            else:
                pieces.append(self.writer.variable(variable, at=f"for {at}"))
            end = match.end()
        return "".join([*pieces, self._between(text[end:], at=at)])

    def _between(self, text: str, *, at: str) -> str:
        def conceal(key: str, value: str) -> str:
            return self.writer.concealed(key, value, at=at)

        return without_secrets(text, conceal, literal, name="") if text.strip() else literal(text)


def _words(text: str) -> list[str]:
    """Return the words of a command; a text without closed quotes is one word."""
    # A backslash is part of a Windows path here.
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.escape, lexer.commenters = True, "", ""
    try:
        return list(lexer)
    except ValueError:
        return [text]


def _texts(value: JSONValue) -> list[str]:
    return [item for item in value if isinstance(item, str) and item] if is_list(value) else []
