"""Source start-up: start the sources that a command needs, and wait a bounded time for their tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from pegboard.catalog import Catalog
from pegboard.cli.terminal import Terminal
from pegboard.core.cancellation import cancel_and_wait
from pegboard.core.names import fold
from pegboard.core.ports import Source
from pegboard.model.json_types import is_list, is_object

CLI_SOURCE_WAIT_S = 15.0  # seconds for a source without its own time limit; then the command continues without it
CLI_SOURCE_MARGIN_S = 5.0  # seconds beyond a source's own time limit, so that the source can report the error
CLI_SILENT_WAIT_S = 5.0  # seconds to wait before a command says what it waits for


@runtime_checkable
class Listed(Protocol):
    """A source that lists its tools some time after it is started."""

    async def listed(self, *, afresh: bool = False) -> None:
        """Wait until its tools are known, or the error; `afresh` asks the server even if they are known."""
        ...


async def start_needed(
    catalog: Catalog,
    terminal: Terminal,
    *,
    tool: str | None = None,
    profile: str | None = None,
    lists_only: bool = False,
) -> None:
    """Start the sources of `tool`, or those that may have tools for `profile`; then wait for their tools.

    A source that exceeds its time limit is reported on stderr, and the command continues. With `lists_only`, sources
    whose tools are in the lock are not started.
    """
    sources = catalog.registry.sources
    if not sources:
        return
    needed = [name for name in sources if name in needed_sources(catalog, tool=tool, profile=profile)]
    if lists_only and (tool is None or catalog.snapshot().find(tool) is not None):
        needed = [name for name in needed if not getattr(sources[name], "is_pinned", False)]
    await started(catalog, needed, terminal)


async def started(
    catalog: Catalog,
    names: Sequence[str],
    terminal: Terminal,
    *,
    afresh: bool = False,
    at_most_s: Callable[[Source], float] | None = None,
) -> dict[str, str]:
    """Start these sources and wait for their tools, all at the same time; returns the errors of those that failed.

    `at_most_s` returns the seconds to wait for a source, in place of its own time limit. Nothing is printed about a
    source that needs more time.
    """
    sources = catalog.registry.sources
    for name in names:
        lock: Any = getattr(sources[name], "lock", None)
        if lock is not None:
            # Only `serve` and `lock` pin definitions: looking at tools changes no file.
            lock.is_kept = False
    await catalog.start(only=names, wait_s=0)
    if not names:
        return {}
    waiting = [asyncio.create_task(_listed(sources[name], afresh=afresh), name=name) for name in names]
    # Load the modules that connect first, so that this does not count as the sources' time.
    await asyncio.sleep(0)
    waits_s = {name: wait_s_of(sources[name]) for name in names}
    try:
        if at_most_s is not None:
            await asyncio.wait(waiting, timeout=max(at_most_s(sources[name]) for name in names))
            return _faults_of(waiting, terminal)
        _, late = await asyncio.wait(waiting, timeout=CLI_SILENT_WAIT_S)
        for task in sorted(late, key=lambda task: task.get_name()):
            name = task.get_name()
            terminal.note(f"Waiting up to {waits_s[name]:g} s for {name!r} to tell its tools.")
        if late:
            deadline_s = max(waits_s[task.get_name()] for task in late) + CLI_SOURCE_MARGIN_S
            _, late = await asyncio.wait(late, timeout=deadline_s)
    finally:
        await cancel_and_wait(*waiting)
    for name in sorted(task.get_name() for task in late):
        text = f"{name!r} is still connecting after {waits_s[name]:g} s: its tools may be missing here."
        terminal.note(f"{text} `pegboard doctor` tells more.")
    return _faults_of(waiting, terminal)


def _faults_of(waiting: Sequence[asyncio.Task[None]], terminal: Terminal) -> dict[str, str]:
    """Return and print the errors of sources that failed while they were waited for."""
    faults: dict[str, str] = {}
    for task in waiting:
        error = task.exception() if task.done() and not task.cancelled() else None
        if error is not None:
            faults[task.get_name()] = fault = f"{type(error).__name__}: {error}"
            terminal.note(f"{task.get_name()!r} did not tell its tools, and they may be missing here. {fault}")
    return faults


def wait_s_of(source: Source) -> float:
    """Return how long a source may take to list its tools: its own time limit, if it has one."""
    return float(getattr(source, "patience_s", CLI_SOURCE_WAIT_S))


async def _listed(source: Source, *, afresh: bool) -> None:
    if isinstance(source, Listed):
        await source.listed(afresh=afresh)


def needed_sources(catalog: Catalog, *, tool: str | None, profile: str | None) -> frozenset[str]:
    """Return the sources that a request for one tool, or for a profile's tools, depends on."""
    registry = catalog.registry
    everything = frozenset(registry.sources)
    snapshot = catalog.snapshot()
    if tool is None:
        include = None if profile is None else registry.profile(profile).include
        if include is None:
            return everything
        bringing = {name for name, source in registry.sources.items() if source.groups() & set(include)}
        return frozenset(
            bringing | {name for entry in snapshot.entries for name in _sources_in_condition(entry.spec.available)}
        )
    entry = snapshot.find(tool)
    if entry is not None:
        return everything & {entry.source, *_sources_in_condition(entry.spec.available)}
    # Not known yet: the namespace tells the source, otherwise all are needed.
    return frozenset(n for n in everything if fold(tool).startswith((fold(f"{n}__"), fold(f"{n}.")))) or everything


def _sources_in_condition(form: object) -> Iterator[str]:
    """Yield the sources in the availability condition of a tool."""
    if is_list(form) or isinstance(form, tuple):
        for inner in cast("Sequence[object]", form):
            yield from _sources_in_condition(inner)
    elif is_object(form):
        for key, inner in form.items():
            if key == "source":
                yield str(inner)
            else:
                yield from _sources_in_condition(inner)
