"""doctor: the state of everything that a config depends on, and what to do where it is not well."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from importlib import metadata as _metadata
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from cyclopts import Parameter
from msgspec import Struct
from msgspec.structs import asdict

from pegboard.catalog import Catalog
from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import Project, load
from pegboard.cli.source_startup import Listed, started
from pegboard.cli.terminal import Column
from pegboard.config.forms.predicate_form import secret_names
from pegboard.config.probes import parts_of
from pegboard.config.stores import stores_of
from pegboard.connections.connection_check import check_connection
from pegboard.core.declarations import PrivateSource
from pegboard.core.ports import ListsForPersons, Probed, Source
from pegboard.core.steady_clock import CLOCK_BACK_S
from pegboard.egress.limits import PROBE_S
from pegboard.egress.process import launch
from pegboard.egress.process_tree import stopped_programs
from pegboard.extras import install_command
from pegboard.model.caller import Caller
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.probe import Part, Probe
from pegboard.model.record import replace
from pegboard.model.source_state import SourceStatus
from pegboard.server.app import bus_transport
from pegboard.telemetry.part_states import probe_all

if TYPE_CHECKING:
    from pegboard.connections.upstream_credentials import UpstreamCredentials

_SOURCE = "Name of a source: check the account that the person in --as has there."
_EXTRA = re.compile(r"([A-Za-z0-9._-]+).*;.*extra *== *[\"']([a-z0-9_-]+)[\"']")
_MEMORY_S = 10.0
_NOT_CHECKED = "not checked"
_COLUMNS = (Column(head="What", style="bold"), Column(head="State"), Column(head="What to do"))
_CURES: dict[SourceStatus, str] = {
    "connecting": "See that it runs, and what its own log says. If it only starts slowly, run this again.",
    "unreachable": "See that the server runs, and that its command or address is right",
    "auth_required": "Give it valid credentials",
    "quarantined": "Restore pegboard.lock from your version control, or delete it and run `pegboard lock`.",
}


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `is_wrong` makes the command end with 1; a hint alone does not."""

    kind: Literal[
        "source",
        "connection",
        "lock",
        "key",
        "memory",
        "store",
        "bus",
        "server",
        "model",
        "host",
        "documents",
        "tools",
        "credentials",
        "config",
        "packages",
    ]
    name: str
    state: str
    detail: str = ""
    to_do: str = ""
    is_wrong: bool = False


async def doctor_command(
    source: Annotated[str | None, Parameter(help=_SOURCE)] = None,
    /,
    *,
    options: SharedOptions,
) -> Exit:
    """Show the state of all sources, stores, servers, models and keys.

    Connects to all of them at the same time, and tells what to do. Ends with 1 when something that is configured does
    not work. The last sentence counts what was not checked.

    With the name of a source and --as user=NAME, walks the way of this person's account there: the metadata of the
    service, its issuer, our client, the token and the list of tools. Says which step fails and why.
    """
    project = load(options, only_reads=True)
    if source is not None:
        return await _walk(project, source, options)
    with redirect_stdout(sys.stderr):
        try:
            sources = project.catalog.registry.sources
            parts = list(parts_of(project.config, project.catalog, bus=_bus(project)))
            faults, probes, memory = await asyncio.gather(
                started(project.catalog, list(sources), options.terminal, afresh=True, at_most_s=_answer_s),
                probe_all(_after_its_source(part, sources) for part in parts),
                _memory(),
            )
            # Without its description, the server of an API is not known, and the source has a row already.
            parts = [part for part in parts if not part.source or sources[part.source].state().status == "ok"]
            findings = [
                *(_source(source, faults.get(source.name, "")) for source in sources.values()),
                *_stopped_programs(sources.values()),
                *_omitted_findings(project),
                *_lock(project),
                *_keys(project),
                memory,
                _clock(project),
                *(_part(part, probes[part.kind, part.name]) for part in parts),
                *_unchecked(project, parts),
                *_oddities(project),
                *_packages(),
            ]
            ctx = project.context(options.identity)
        finally:
            await project.catalog.close(grace_s=0.0)
    rows: list[JSON] = project.clean([asdict(finding) for finding in findings], ctx)
    wrong = sum(row["is_wrong"] for row in rows)
    unchecked = [f"{row['kind']} {row['name']}" for row in rows if row["state"] == _NOT_CHECKED]
    if options.json:
        options.terminal.json({"ok": not wrong, "not_checked": len(unchecked), "findings": rows})
    else:
        options.terminal.table(_COLUMNS, [_cells(row) for row in rows])
        options.terminal.say("")
        options.terminal.say(_summary(wrong, unchecked))
    return Exit.REFUSED if wrong else Exit.DONE


async def _walk(project: Project, name: str, options: Options) -> Exit:
    """Walk the way of a person's account at one source, and show each step."""
    catalog, caller = project.catalog, project.context(options.identity).caller
    with redirect_stdout(sys.stderr):
        try:
            if name in catalog.registry.sources:
                await started(catalog, [name], options.terminal)
            account = next((e.account for e in catalog.snapshot().with_accounts if e.connects_to == name), None)
            if account is None:
                raise CommandError(_no_accounts(project, name), kind="no_accounts", code=Exit.REFUSED)
            list_tools = partial(_list, catalog, name, caller)
            credentials = cast("UpstreamCredentials", account)
            steps = await check_connection(credentials, caller, catalog.connections, list_tools)
            rows: list[JSON] = project.clean([step._asdict() for step in steps], project.context(options.identity))
        finally:
            await catalog.close(grace_s=0.0)
    is_whole = all(row["ok"] for row in rows)
    if options.json:
        options.terminal.json({"ok": is_whole, "source": name, "user": caller.user_id, "steps": rows})
    else:
        cells = [[row["name"], f"{'ok' if row['ok'] else 'fails'}: {row['detail']}", row["to_do"]] for row in rows]
        options.terminal.table(_COLUMNS, cells)
        options.terminal.say("")
        end = "works" if is_whole else f"does not work: the step {rows[-1]['name']!r} fails"
        options.terminal.say(f"The account of {caller.user_id!r} at {name!r} {end}.")
    return Exit.DONE if is_whole else Exit.REFUSED


async def _list(catalog: Catalog, name: str, caller: Caller) -> str:
    """List the tools of a source over the account of a caller, and count them.

    Raises:
        CallError: the service refuses, or cannot be reached.
    """
    source = catalog.registry.sources.get(name)
    if isinstance(source, ListsForPersons):
        await source.list_for(caller)
        return f"{_counted(len(source.entries()) - 1)} known"
    count = sum(entry.connects_to == name for entry in catalog.snapshot().with_accounts)
    return f"{_counted(count)}, the same for everybody; none was called"


def _no_accounts(project: Project, name: str) -> str:
    """Return the reason why a source has no tools that use a person's account."""
    sources = sorted({entry.connects_to for entry in project.catalog.snapshot().with_accounts})
    if name not in sources and name not in project.catalog.registry.sources:
        return f"No source {name!r} uses accounts of people; there are: {', '.join(sources) or 'none'}."
    return f"{name!r} uses no account of the person who calls, or its tools are not known. See `pegboard doctor`."


def _summary(wrong: int, unchecked: Sequence[str]) -> str:
    """Return the last sentence: how many rows need somebody, and which were not checked."""
    needs = f"{wrong} of these {'needs' if wrong == 1 else 'need'} you" if wrong else "All that was checked works"
    if not unchecked:
        return f"{needs}; nothing was left unchecked."
    return f"{needs}; {len(unchecked)} {'was' if len(unchecked) == 1 else 'were'} not checked: {', '.join(unchecked)}."


def _cells(row: JSON) -> list[str]:
    state = f"{row['state']}: {row['detail']}" if row["detail"] else row["state"]
    return [f"{row['kind']} {row['name']}", state, row["to_do"]]


# ---- sources and what pins them


def _answer_s(source: Source) -> float:
    """Return how many seconds a source has to list its tools."""
    return float(getattr(source, "answer_s", PROBE_S))


def _after_its_source(part: Part, sources: Mapping[str, Source]) -> Part:
    """Return a part whose check begins when its source is up, since the address is known only then."""
    if not part.source:
        return part
    source = sources[part.source]

    async def check() -> None:
        if isinstance(source, Listed):
            # If it fails, its own row says so.
            await asyncio.gather(source.listed(), return_exceptions=True)
        await part.check()

    return replace(part, check=check)


def _source(source: Source, fault: str) -> Finding:
    if fault:
        to_do = "The source failed internally. If its message does not help, ask the author of its plugin."
        return Finding(kind="source", name=source.name, state="unreachable", detail=fault, to_do=to_do, is_wrong=True)
    state = source.state()
    if state.status != "ok":
        cure = _CURES[state.status]
        where = getattr(getattr(source, "settings", None), "origin", "")
        status, detail = state.status, state.reason
        if status == "connecting":
            status, detail = "unreachable", f"it did not answer within {_answer_s(source):g} s"
        to_do = cure if cure.endswith(".") else f"{cure} ({where})." if where else f"{cure}."
        return Finding(kind="source", name=source.name, state=status, detail=detail, to_do=to_do, is_wrong=True)
    waiting, count = state.quarantined | state.changed, len(source.entries())
    offered = f"{_counted(count - len(state.quarantined))}"
    if waiting:
        names = ", ".join(sorted(waiting))
        to_do = f"Look at them with `pegboard lock diff {source.name}`, take them with `pegboard lock accept`."
        detail = f"{offered}; held back for review: {names}"
        return Finding(kind="source", name=source.name, state="quarantined", detail=detail, to_do=to_do, is_wrong=True)
    rejected = [f"{name} was left out: {reason}" for name, reason in getattr(source, "rejected", ())]
    detail = "; ".join([offered, *([state.reason] if state.reason else []), *rejected])
    return Finding(kind="source", name=source.name, state="ok", detail=detail)


def _stopped_programs(sources: Iterable[Source]) -> Iterator[Finding]:
    """Yield the programs of MCP servers that a signal has stopped, and that a running server has started.

    Doctor starts its own programs. Those of the server have the same id in their environment. A command line would
    not tell them from the programs of others.
    """
    names = {
        settings.program_id: source.name
        for source in sources
        if (settings := _settings_of(source)) is not None and getattr(settings, "program_id", "")
    }
    for pid, program_id in stopped_programs() if names else ():
        if program_id in names:
            yield Finding(
                kind="source", name=names[program_id], state="stopped", is_wrong=True,
                detail=f"process {pid} of its program was stopped by a signal, so it does not answer",
                to_do=f"Continue it with `kill -CONT {pid}`, or end it with `kill -KILL {pid}`: "
                "the server then starts it again.",
            )  # fmt: skip


def _settings_of(source: Source) -> Any:
    inner = source.source if isinstance(source, PrivateSource) else source
    return getattr(inner, "settings", None)


def _omitted_findings(project: Project) -> Iterator[Finding]:
    for problem in project.config.left_out:
        name = f"{problem.where}: {problem.path}" if problem.path else problem.where
        yield Finding(kind="config", name=name, state="left out", detail=problem.message, is_wrong=True)


def _lock(project: Project) -> Iterator[Finding]:
    locks = {id(lock): lock for source in project.catalog.registry.sources.values() if (lock := _lock_of(source))}
    for lock in locks.values():
        name = lock.path.name if lock.path else "in memory"
        if lock.fault:
            continue  # Each of its servers tells.
        if lock.existed:
            yield Finding(kind="lock", name=name, state="ok", detail=f"{_counted(lock.count)} pinned")
        else:
            to_do = "Run `pegboard lock` and keep the file under version control: changed tools wait for you then."
            yield Finding(kind="lock", name=name, state="missing", to_do=to_do)


def _lock_of(source: Source) -> Any:
    settings: Any = getattr(source, "settings", None)
    return None if getattr(settings, "trust", "any") == "any" else getattr(source, "lock", None)


# ---- the rest of the config


def _keys(project: Project) -> Iterator[Finding]:
    config = project.config
    asked = {name: where for where, form in config.predicates.items() for name in secret_names(form.value)}
    for name in sorted({*config.secrets, *asked}):
        if os.environ.get(name):
            yield Finding(kind="key", name=name, state="set")
        else:
            to_do = f"Set it where Pegboard runs, if what the predicate {asked.get(name)!r} opens is wanted."
            yield Finding(kind="key", name=name, state="not set", to_do=to_do)
    for name, where in sorted(config.defaulted.items()):
        if name not in config.secrets and name not in asked:
            to_do = f"Set it where Pegboard runs, if the default is not what is wanted ({where})."
            yield Finding(kind="key", name=name, state="not set", detail="its default holds", to_do=to_do)


async def _memory() -> Finding:
    """Tell whether a program that we start can read our environment, by starting one that tries."""
    name = "environment and memory"
    words = ["-I", "-S", "-c", "import sys; open(sys.argv[1], 'rb').read(1)", f"/proc/{os.getpid()}/environ"]
    try:
        async with await launch(sys.executable, words) as child:
            code = await child.ended(within_s=_MEMORY_S)
    except CallError as error:
        return Finding(kind="memory", name=name, state=_NOT_CHECKED, detail=str(error))
    if code is None or sys.platform != "linux":
        detail = "only Linux can close them" if sys.platform != "linux" else f"the probe did not end in {_MEMORY_S:g} s"
        return Finding(kind="memory", name=name, state=_NOT_CHECKED, detail=detail)
    if code:
        return Finding(kind="memory", name=name, state="closed", detail="programs that Pegboard starts cannot read it")
    return Finding(
        kind="memory",
        name=name,
        state="open",
        detail="programs that Pegboard starts can read its keys",
        to_do="Run Pegboard as a user other than root, or without CAP_SYS_PTRACE, CAP_PERFMON and CAP_SYS_ADMIN.",
    )


def _clock(project: Project) -> Finding:
    """Tell whether a file of the config or of a store was written in the future."""
    now = time.time()
    files = [project.config.path, *(store.uri.path for store in stores_of(project.config))]
    newest = max((file.stat().st_mtime for file in files if file is not None and file.exists()), default=now)
    if newest <= now + CLOCK_BACK_S:
        return Finding(kind="host", name="clock", state="ok")
    return Finding(
        kind="host", name="clock", state="behind", is_wrong=True,
        detail=f"files of this config were written {newest - now:.0f} s in the future",
        to_do="Set the clock of this machine, then restart `pegboard serve` if it was ahead.",
    )  # fmt: skip


def _bus(project: Project) -> Probed | None:
    server = project.config.server
    if server is None or server.value.bus is None:
        return None
    return bus_transport(server.value.bus, name=project.config.name)


def _part(part: Part, probe: Probe) -> Finding:
    if probe.ok:
        return Finding(kind=part.kind, name=part.name, state="ok", detail=f"answered in {probe.seconds * 1000:.0f} ms")
    place = f" ({part.where})" if part.where else ""
    to_do = part.to_do or f"See that it runs, and that its address is right{place}."
    return Finding(kind=part.kind, name=part.name, state="unreachable", detail=probe.detail, to_do=to_do, is_wrong=True)


def _unchecked(project: Project, parts: Sequence[Part]) -> Iterator[Finding]:
    """Yield the dependencies of the config that no probe covers."""
    own = sum(not entry.source for entry in project.catalog.snapshot().entries)
    if own:
        text = f"{_counted(own)}, none of which was called"
        yield Finding(kind="tools", name="in Python, built in or of a service", state=_NOT_CHECKED, detail=text)
    asked = sum(part.kind in ("server", "model") for part in parts)
    if asked:
        text = f"{asked} of them got a connection, and no request"
        yield Finding(kind="credentials", name="of servers and models", state=_NOT_CHECKED, detail=text)


def _oddities(project: Project) -> Iterator[Finding]:
    for problem in project.warnings():
        yield Finding(kind="config", name=problem.where, state="odd", detail=problem.message)


def _packages() -> Iterator[Finding]:
    extras: dict[str, list[str]] = {}
    for requirement in _metadata.requires("pegboard") or []:
        match = _EXTRA.match(requirement)
        if match is not None:
            extras.setdefault(match[2], []).append(match[1])
    for extra, packages in sorted(extras.items()):
        missing = [package for package in packages if not _is_installed(package)]
        if missing:
            to_do = f"If wanted: {install_command(extra)}"
            yield Finding(kind="packages", name=extra, state="not installed", detail=", ".join(missing), to_do=to_do)
        else:
            yield Finding(kind="packages", name=extra, state="installed")


def _is_installed(package: str) -> bool:
    try:
        return bool(_metadata.version(package))
    except ModuleNotFoundError:
        return False


def _counted(tools: int) -> str:
    return f"{tools} tool{'' if tools == 1 else 's'}"
