"""Command words: convert the command of an MCP server to an entry; `npx -y PACKAGE`, `uvx PACKAGE`, any program."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pegboard.cli.command_error import CommandError
from pegboard.cli.declarations.clear_secrets import without_secrets
from pegboard.cli.declarations.derived_names import entry_name
from pegboard.cli.declarations.proposal import EntryWriter, literal, relative
from pegboard.model.json_types import JSON

# Programs that run a package: their first word that is not an option names the server.
RUNNERS = frozenset(
    {"npx", "uvx", "bunx", "pnpx", "pipx", "bun", "pnpm", "yarn", "uv", "docker", "podman", "deno", "dnx"}
)
# Downloading a package needs the proxy variables; a server only gets variables that its entry names.
FETCHERS = frozenset("npx uvx bunx pnpx pipx uv pnpm yarn bun dnx deno".split())
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
WAY_OUT = (*_PROXIES, "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR")
_STEPS = frozenset({"run", "dlx", "exec", "tool", "x", "-m"})
_WITH_VALUE = frozenset({
    "--from", "--with", "--python", "-p", "--package", "--index", "--env", "-e", "-v", "--volume", "--mount", "--name",
    "--network", "--directory", "--project", "--index-url", "--registry", "-u", "--user", "-w", "--workdir", "--extra",
})  # fmt: skip
_SHELL = re.compile(r"(?:[|&;<>]|&&|\|\||[12]?>&?[12]?|>>|<<)")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def split_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command, which may be one text or several words.

    Raises:
        CommandError: a quote is not closed, or it needs a shell.
    """
    if len(words) == 1 and re.search(r"\s", words[0]):
        try:
            words = shlex.split(words[0])
        except ValueError as error:
            raise CommandError(f"The command {words[0]!r} cannot be read: {error}.") from None
    for word in words:
        if _SHELL.fullmatch(word) or "$(" in word or "`" in word:
            raise CommandError(
                f"{word!r} is for a shell, and none reads the command of a server. Write a script, and add that."
            )
    return list(words)


def leading_variables(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split `NAME=value …` before a command from the command."""
    env: dict[str, str] = {}
    for place, word in enumerate(words):
        match = _ASSIGNMENT.fullmatch(word)
        if match is None:
            return env, list(words[place:])
        env[match[1]] = match[2]
    return env, []


def with_way_out(tool: JSON, present: Collection[str]) -> JSON:
    """Return an entry with the variables that its program needs to download a package, as far as they are set here."""
    mcp: JSON = tool.get("mcp", {})
    if Path(str(mcp.get("command", ""))).name.removesuffix(".cmd").removesuffix(".exe") not in FETCHERS:
        return tool
    env: JSON = mcp.get("env", {})
    # On another machine they may be unset, and are then left out.
    added = {name: f"${{{name}:-}}" for name in WAY_OUT if name in present and name not in env}
    return {**tool, "mcp": {**mcp, "env": {**env, **added}}} if added else tool


def is_command(words: Sequence[str]) -> bool:
    """Tell whether words start a program, judging by the first one."""
    return bool(words) and (Path(words[0]).name.removesuffix(".cmd").removesuffix(".exe") in RUNNERS or len(words) > 1)


def server_entry(
    words: Sequence[str],
    env: Mapping[str, str],
    writer: EntryWriter,
    *,
    at: str,
    cwd: Path | None,
    folder: Path,
    wants_answer: bool = True,
) -> JSON:
    """Return the `mcp:` part of an entry.

    Args:
        words: the program and its arguments.
        env: its environment, in plain text.
        writer: collects the variables for secrets.
        at: the origin of the words, for messages.
        cwd: the current working directory of the program; `None` if unknown.
        folder: the folder of the config.
        wants_answer: add `-y` to `npx`, which would otherwise ask before it installs; nobody could answer.
    """
    command, *args = words
    if Path(command).name in ("npx", "npx.cmd") and wants_answer and not {"-y", "--yes"} & set(args):
        args = ["-y", *args]
    entry: JSON = {"transport": "stdio", "command": literal(command), "args": concealed_args(args, writer, at=at)}
    if not args:
        del entry["args"]
    if env:
        entry["env"] = {name: writer.value(name, value, at=f"{at}.env.{name}") for name, value in env.items()}
    if cwd is not None and (cwd.resolve() != folder.resolve() or _names_files([command, *args], cwd)):
        entry["cwd"] = literal(relative(cwd, folder))
    return entry


def concealed_args(args: Sequence[str], writer: EntryWriter, *, at: str) -> list[str]:
    """Return the arguments of a program with secrets replaced by variables."""
    written: list[str] = []
    before = ""
    for place, word in enumerate(args):
        option = before.lstrip("-") if before.startswith("-") and "=" not in before else ""

        def conceal(name: str, value: str, place: int = place) -> str:
            return writer.concealed(name, value, at=f"{at}[{place}]")

        # `docker run -e NAME=value` sets a variable.
        written.append(without_secrets(word, conceal, literal, name=option))
        before = word
    return written


def _names_files(words: Sequence[str], cwd: Path) -> bool:
    """Tell whether a word names a file in the program's current working directory."""
    for word in words:
        for part in (word, word.partition("=")[2]):
            if part and not part.startswith(("-", "/", "~", "@")):
                try:
                    if (cwd / part).exists():
                        return True
                except (OSError, ValueError):
                    continue
    return False


def name_of_command(words: Sequence[str]) -> str:
    """Return a name for a server, derived from its command."""
    rest = list(words)
    is_module = False
    while rest:
        word = rest.pop(0)
        name = Path(word).name.removesuffix(".cmd").removesuffix(".exe")
        if is_module or not (
            name in RUNNERS or word in _STEPS or word.startswith("-") or re.match(r"(node|python)[\d.]*$", name)
        ):
            return entry_name(word)
        if word == "-m":
            is_module = True
        elif word in _WITH_VALUE and rest:
            value = rest.pop(0)
            if word in ("--from", "--package", "-p") and not rest:
                return entry_name(value)
    return "server"
