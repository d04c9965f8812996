"""doctor: the state of everything that a config depends on, and what to do where it is not well."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib import metadata as _metadata
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from pegboard.cli.command_error import Exit
from pegboard.cli.options import SharedOptions
from pegboard.cli.project import Project, load
from pegboard.cli.source_startup import started
from pegboard.cli.terminal import Column
from pegboard.config.forms.predicate_form import secret_names
from pegboard.core.ports import Source
from pegboard.egress.process import launch
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.rate_limit import RateLimit
from pegboard.model.source_state import SourceStatus

_EXTRA = re.compile(r"([A-Za-z0-9._-]+).*;.*extra *== *[\"']([a-z0-9_-]+)[\"']")
_PROBE_S = 10.0
_COLUMNS = (Column(head="What", style="bold"), Column(head="State"), Column(head="What to do"))
_CURES: dict[SourceStatus, str] = {
    "connecting": "It has not answered in time. See that it runs, and what its own log says.",
    "unreachable": "See that the server runs, and that its command or address is right",
    "auth_required": "Give it valid credentials",
    "quarantined": "Restore pegboard.lock from your version control, or delete it and run `pegboard lock`.",
}


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `is_wrong` makes the command end with 1; a hint alone does not."""

    kind: Literal["source", "lock", "key", "memory", "limits", "config", "packages"]
    name: str
    state: str
    detail: str = ""
    to_do: str = ""
    is_wrong: bool = False


async def doctor_command(*, options: SharedOptions) -> Exit:
    """Tell the state of every source, key and optional package, and what to do.

    Connects to every source. Ends with 1 when something that is configured does not work.
    """
    project = load(options)
    with redirect_stdout(sys.stderr):
        try:
            sources = project.catalog.registry.sources
            faults = await started(project.catalog, list(sources), options.terminal, afresh=True)
            findings = [
                *(_source(source, faults.get(source.name, "")) for source in sources.values()),
                *_lock(project),
                *_keys(project),
                await _memory(),
                *await _limits(project),
                *_oddities(project),
                *_packages(),
            ]
            ctx = project.context(options.identity)
        finally:
            await project.catalog.close(grace_s=0.0)
    rows: list[JSON] = project.clean([asdict(finding) for finding in findings], ctx)
    wrong = sum(row["is_wrong"] for row in rows)
    if options.json:
        options.terminal.json({"ok": not wrong, "findings": rows})
    else:
        options.terminal.table(_COLUMNS, [_cells(row) for row in rows])
        options.terminal.say("")
        options.terminal.say(f"{wrong} of these need you." if wrong else "All that is configured works.")
    return Exit.REFUSED if wrong else Exit.DONE


def _cells(row: JSON) -> list[str]:
    state = f"{row['state']}: {row['detail']}" if row["detail"] else row["state"]
    return [f"{row['kind']} {row['name']}", state, row["to_do"]]


# ---- sources and what pins them


def _source(source: Source, fault: str) -> Finding:
    if fault:
        to_do = "It failed by itself. If what it says does not help, tell whoever made this kind of source."
        return Finding(kind="source", name=source.name, state="unreachable", detail=fault, to_do=to_do, is_wrong=True)
    state = source.state()
    if state.status != "ok":
        cure = _CURES[state.status]
        where = getattr(getattr(source, "settings", None), "origin", "")
        to_do = cure if cure.endswith(".") else f"{cure} ({where})." if where else f"{cure}."
        return Finding(
            kind="source", name=source.name, state=state.status, detail=state.reason, to_do=to_do, is_wrong=True
        )
    held, count = state.quarantined | state.changed, len(source.entries())
    offered = f"{_counted(count - len(state.quarantined))}"
    if held:
        names = ", ".join(sorted(held))
        to_do = f"Look at them with `pegboard lock diff {source.name}`, take them with `pegboard lock accept`."
        detail = f"{offered}; held back for review: {names}"
        return Finding(kind="source", name=source.name, state="quarantined", detail=detail, to_do=to_do, is_wrong=True)
    rejected = [f"{name} was left out: {reason}" for name, reason in getattr(source, "rejected", ())]
    detail = "; ".join([offered, *([state.reason] if state.reason else []), *rejected])
    return Finding(kind="source", name=source.name, state="ok", detail=detail)


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
            code = await child.ended(within_s=_PROBE_S)
    except CallError as error:
        return Finding(kind="memory", name=name, state="not checked", detail=str(error))
    if code is None or sys.platform != "linux":
        detail = "only Linux can close them" if sys.platform != "linux" else f"the probe did not end in {_PROBE_S:g} s"
        return Finding(kind="memory", name=name, state="not checked", detail=detail)
    if code:
        return Finding(kind="memory", name=name, state="closed", detail="programs that Pegboard starts cannot read it")
    return Finding(
        kind="memory",
        name=name,
        state="open",
        detail="programs that Pegboard starts can read its keys",
        to_do="Run Pegboard as a user other than root, or without CAP_SYS_PTRACE, CAP_PERFMON and CAP_SYS_ADMIN.",
    )


async def _limits(project: Project) -> list[Finding]:
    if project.config.limit_store is None:
        return []
    probe = [(("pegboard-doctor",), RateLimit(max_calls=1, window_s=1.0))]
    try:
        answer = project.catalog.executor.ports.limits.wait_s(probe, charge=False)
        if inspect.isawaitable(answer):
            await answer
    except OSError as error:
        to_do = "See that the store runs, and that `rate_limits.store` is right."
        text = f"it does not answer: {error}"
        return [
            Finding(
                kind="limits", name="rate_limits.store", state="unreachable", detail=text, to_do=to_do, is_wrong=True
            )
        ]
    return [Finding(kind="limits", name="rate_limits.store", state="ok")]


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
            to_do = f"If wanted: pip install 'pegboard[{extra}]'"
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
