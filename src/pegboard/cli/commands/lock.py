"""lock: pin the tool definitions of MCP servers, show changes, and accept them."""

from __future__ import annotations

import difflib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from pathlib import Path
from sys import stderr
from typing import Annotated, Any

from cyclopts import Parameter
from msgspec import Struct, field

from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import load
from pegboard.cli.recorded_change import note_change
from pegboard.cli.source_startup import started
from pegboard.cli.terminal import json_text
from pegboard.config.config import Config
from pegboard.core.names import fold, nearest
from pegboard.model.caller import Caller
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.sources.mcp import review as _reviewing
from pegboard.sources.mcp.lock_file import LockFile
from pegboard.sources.mcp.personal_source import PersonalMcpSource
from pegboard.sources.mcp.supervised_source import McpSource

_SHOWN = "Tools, as server.tool, or whole servers. Without names, everything that changed."
_ACCEPTED = "Tools, as server.tool, or whole servers."
_NO_SERVER = "The config has no MCP server whose tools are pinned. `pegboard add` declares one."


class Server(Struct, frozen=True, kw_only=True):
    """One server, connected or not, with its part of the lock. `note` says why nothing was compared."""

    source: McpSource
    offered: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    differences: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    fault: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        return self.source.name

    def id_of(self, tool: str) -> str:
        return self.source.qualified(tool)


async def write_command(*, options: SharedOptions) -> Exit:
    """Pin the tools of new servers, and remove servers that are gone.

    A server with `auth: {mode: user}` lists its tools over the account of a person: `--as user=ann`.

    Ends with 1 when tools wait for a review, or a server cannot be reached.
    """
    async with _reached(options, ()) as (config, lock, servers):
        return _write(options, config, lock, servers)


async def diff_command(*names: Annotated[str, Parameter(help=_SHOWN)], options: SharedOptions) -> Exit:
    """Show what changed since the tools were pinned.

    Ends with 1 when tools wait for a review, or a server cannot be reached.
    """
    async with _reached(options, names) as (_, lock, servers):
        return _diff(options, lock, servers, names)


async def accept_command(*names: Annotated[str, Parameter(help=_ACCEPTED)], options: SharedOptions) -> Exit:
    """Accept the current definitions of tools.

    Ends with 1 when a server cannot be reached.
    """
    if not names:
        raise CommandError("Name what to accept: `pegboard lock accept server.tool`, or a server for all of its tools.")
    async with _reached(options, names) as (config, lock, servers):
        return _accept(options, config, lock, servers, names)


@asynccontextmanager
async def _reached(options: Options, names: Sequence[str]) -> AsyncGenerator[tuple[Config, LockFile, list[Server]]]:
    """Start the pinned servers, or those in `names`; yield them with the config and the lock as stored in the file."""
    project = load(options)
    catalog = project.catalog
    known = [source for source in catalog.registry.sources.values() if isinstance(source, McpSource)]
    sources = [source for source in known if source.settings.trust != "any"]
    if not sources:
        raise CommandError(_NO_SERVER, kind="no_server", code=Exit.REFUSED)
    path: Path = sources[0].file.path or Path()
    lock: LockFile = LockFile(path)
    if lock.fault:
        raise CommandError(f"{lock.fault}.", kind="lock_invalid", code=Exit.REFUSED)
    wanted = {server for name in names for server in [_server_of(name, [source.name for source in sources])]}
    chosen = [source for source in sources if not names or source.name in wanted]
    with redirect_stdout(stderr):
        try:
            await started(catalog, [source.name for source in chosen], options.terminal, afresh=True)
            for source in chosen:
                if isinstance(source, PersonalMcpSource) and options.identity.user is not None:
                    await _list_as_person(source, options)
            yield project.config, lock, [_seen(source, lock) for source in chosen]
        finally:
            await catalog.close(grace_s=0.0)


def _server_of(name: str, known: Sequence[str]) -> str:
    for server in known:
        if fold(name) == fold(server) or fold(name).startswith((fold(f"{server}."), fold(f"{server}__"))):
            return server
    raise CommandError(f"{name!r} names no tool of a pinned server.{nearest(name, known, label='Servers')}")


def _seen(source: McpSource, lock: LockFile) -> Server:
    state = source.state()
    if isinstance(source, PersonalMcpSource) and state.status == "ok":
        return _personal_server_of(source, lock)
    if state.status != "ok":
        return Server(source=source, fault=state.reason or f"it is {state.status}")
    offered = source.offered()
    return Server(source=source, offered=offered, differences=_reviewing.differences(offered, source.name, lock))


async def _list_as_person(source: PersonalMcpSource, options: Options) -> None:
    who = options.identity
    try:
        await source.list_for(Caller(user_id=who.user, space_id=who.space, subject_token=who.subject_token))
    except CallError as error:
        raise CommandError(str(error), kind=error.error.kind, code=Exit.REFUSED) from None


def _personal_server_of(source: PersonalMcpSource, lock: LockFile) -> Server:
    offered = source.offered()
    if not offered:
        note = "lists its tools over a person's account: add --as user=NAME to compare them"
        return Server(source=source, offered=lock.pins(source.name), note=note)
    differences = _reviewing.differences(offered, source.name, lock)
    # A tool that one person's account does not list may be listed by another's.
    present = {tool: changes for tool, changes in differences.items() if tool in offered}
    return Server(source=source, offered=offered, differences=present)


# ---- write


def _write(options: Options, config: Config, lock: LockFile, servers: Sequence[Server]) -> Exit:
    new = [server for server in servers if not server.fault and server.offered and server.name not in lock.servers]
    removed = sorted(lock.servers - {server.name for server in servers})
    for server in new:
        _saved(lock, server.name, server.offered)
    for name in removed:
        lock.drop(name)
    if new or removed:
        pinned: list[JSONValue] = [server.name for server in new]
        note_change(config, options.terminal, "lock_accepted", {"pinned": pinned, "removed": [*removed]})
    waiting = {tool: changes for server in servers if server not in new for tool, changes in _by_id(server).items()}
    rows: list[JSON] = [
        {
            "server": server.name,
            "tools": len(lock.pins(server.name)),
            "new": server in new,
            "fault": server.fault,
            **({"note": server.note} if server.note else {}),
        }
        for server in servers
    ]
    if options.json:
        options.terminal.json(
            {"lock": str(lock.path), "servers": rows, "removed": removed, "waiting": _as_lists(waiting)}
        )
    else:
        for row in rows:
            state = row["fault"] or row.get("note") or ("pinned now" if row["new"] else "pinned before")
            options.terminal.say(f"{row['server']}: {_tools(row['tools'])}, {state}")
        for name in removed:
            options.terminal.say(f"{name}: no longer in the configuration, removed")
        if waiting:
            options.terminal.say(f"{_tools(len(waiting))} to review: `pegboard lock diff` shows the changes.")
    return Exit.REFUSED if waiting or any(server.fault for server in servers) else Exit.DONE


# ---- diff


def _diff(options: Options, lock: LockFile, servers: Sequence[Server], names: Sequence[str]) -> Exit:
    rows: list[JSON] = []
    for server in servers:
        for tool, changes in server.differences.items():
            if names and not any(_means(name, server, tool) for name in names):
                continue
            offered, pinned = server.offered.get(tool), lock.pins(server.name).get(tool)
            rows.append({"tool": server.id_of(tool), "changes": list(changes), "pinned": pinned, "offered": offered})
    faults = {server.name: server.fault for server in servers if server.fault}
    terminal = options.terminal
    if options.json:
        terminal.json({"differences": rows, "unreachable": faults})
        return Exit.REFUSED if rows or faults else Exit.DONE
    for row in rows:
        terminal.styled(f"{row['tool']}: {_words(row['changes'])}", "bold")
        terminal.say(_lines_between(row["pinned"], row["offered"]))
    for name, fault in faults.items():
        terminal.say(f"{name}: cannot be compared: {fault}")
    for server in servers:
        if server.note:
            terminal.say(f"{server.name}: {server.note}")
    if rows:
        terminal.say(f"{_tools(len(rows))} to review. To accept the first: `pegboard lock accept {rows[0]['tool']}`.")
    elif not faults:
        terminal.say("All tools are as they were accepted.")
    return Exit.REFUSED if rows or faults else Exit.DONE


def _lines_between(pinned: JSON | None, offered: JSON | None) -> str:
    """Return the changes, line by line; invisible characters are escaped."""
    old, new = ("" if definition is None else json_text(_sorted(definition)) for definition in (pinned, offered))
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=1, lineterm="")
    return "\n".join(f"  {line}" for line in lines if not line.startswith(("---", "+++", "@@")))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - JSON
    return value


# ---- accept


def _accept(options: Options, config: Config, lock: LockFile, servers: Sequence[Server], names: Sequence[str]) -> Exit:
    faults = {server.name: server.fault for server in servers if server.fault}
    if faults:
        reasons = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
        raise CommandError(f"Nothing was accepted: {reasons}", kind="unreachable", code=Exit.REFUSED)
    _check_names(servers, lock, names)
    accepted: list[str] = []
    forgotten: list[str] = []
    for server in servers:
        chosen = [tool for tool in server.differences if any(_means(name, server, tool) for name in names)]
        if chosen:
            _saved(lock, server.name, {tool: server.offered[tool] for tool in chosen if tool in server.offered})
        for tool in chosen:
            if tool not in server.offered:
                lock.forget(server.name, tool)
            (accepted if tool in server.offered else forgotten).append(server.id_of(tool))
    if accepted or forgotten:
        note_change(config, options.terminal, "lock_accepted", {"accepted": [*accepted], "forgotten": [*forgotten]})
    if options.json:
        options.terminal.json({"accepted": accepted, "forgotten": forgotten})
        return Exit.DONE
    for word, tools in (("accepted", accepted), ("gone, forgotten", forgotten)):
        for tool in tools:
            options.terminal.say(f"{tool}: {word}")
    if not accepted and not forgotten:
        options.terminal.say("Nothing to accept: this is as it was accepted before.")
    return Exit.DONE


def _check_names(servers: Sequence[Server], lock: LockFile, names: Sequence[str]) -> None:
    known = [(server, tool) for server in servers for tool in {**lock.pins(server.name), **server.offered}]
    for name in names:
        if not any(fold(name) == fold(server.name) for server in servers) and not any(
            _means(name, server, tool) for server, tool in known
        ):
            near = nearest(name, [server.id_of(tool) for server, tool in known], label="Tools")
            raise CommandError(f"Nothing was accepted: there is no tool {name!r}.{near}", kind="not_found")


# ---- output


def _means(name: str, server: Server, tool: str) -> bool:
    """Tell whether a name on the command line means this tool: a server, id, wire name or the server's own name."""
    ours = server.id_of(tool)
    known = (server.name, ours, ours.replace(".", "__", 1), f"{server.name}.{tool}")
    return fold(name) in map(fold, known)


def _saved(lock: LockFile, server: str, definitions: Mapping[str, JSON]) -> None:
    try:
        lock.accept(server, definitions)
    except OSError as error:
        raise CommandError(f"{str(lock.path)!r} cannot be written: {error.strerror}.", kind="not_written") from error


def _by_id(server: Server) -> dict[str, tuple[str, ...]]:
    return {server.id_of(tool): changes for tool, changes in server.differences.items()}


def _as_lists(changes: Mapping[str, Sequence[str]]) -> JSON:
    return {tool: list(kinds) for tool, kinds in changes.items()}


def _words(changes: Sequence[str]) -> str:
    return ", ".join(kind.replace("_", " ") for kind in changes)


def _tools(count: int) -> str:
    return f"{count} tool{'' if count == 1 else 's'}"
