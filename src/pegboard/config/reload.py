"""Reload: watch the files of a config, and swap what a good change declares into the running catalog, in one step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pegboard.catalog import Catalog
from pegboard.config.build import load_catalog
from pegboard.config.config import LOCK_NAME, Config
from pegboard.config.load import read
from pegboard.config.python_modules import brought_files
from pegboard.config.registered_later import keep_registered
from pegboard.config.yaml.config_files import find_files
from pegboard.core.ports import Source, StatefulHandler
from pegboard.model.error import DefinitionError, PegboardError, Problem
from pegboard.model.record import replace

RELOAD_INTERVAL_S = 0.25  # between two looks at the files
RELOAD_RETIRE_S = 60.0  # for calls of a source that a reload took away

log = logging.getLogger("pegboard")
# What tells two contents of a file apart without reading it; `None` where there is none.
Mark = tuple[int, int, int, int] | None


@runtime_checkable
class Kept(Source, Protocol):
    """A source that can go on under another reading of the config."""

    def fits(self, other: object) -> bool:
        """Tell whether the other source, of the new reading, would only do the same again."""
        ...

    def renew(self, other: Any) -> None:
        """Take over what the other says, and keep the connection."""
        ...


class Reloader:
    """Keeps a running catalog equal to its files.

    A good change is swapped in between two steps of the loop: a list is of the old config or of the new one, and calls
    in flight finish on the handlers they began with. A bad one changes nothing; `problems` says where it is wrong until
    a good one comes. What lives in the process stays: who subscribes and observes, what has been counted for limits
    in memory, the secrets seen so far, which are still kept out of results, and what was registered while it ran.

    Args:
        path: the config file.
        env: the environment variables that it may name.
        catalog: the running one, whose declarations are replaced.
        config: what it was made of.
        check: called with each new catalog; a `DefinitionError` that it raises refuses the change.
        on_reload: called with the new config after each swap.
        on_refused: called with the problems of a change that was refused.
        interval_s: how often the files are looked at. A change is taken when two looks agree: nobody is still writing.
        sleep: waits between the looks.
    """

    def __init__(
        self,
        path: Path,
        env: Mapping[str, str],
        catalog: Catalog,
        *,
        config: Config,
        check: Callable[[Catalog], object] = lambda _: None,
        on_reload: Callable[[Config], object] = lambda _: None,
        on_refused: Callable[[Sequence[Problem]], object] = lambda _: None,
        interval_s: float = RELOAD_INTERVAL_S,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.config = config
        self.problems: tuple[Problem, ...] = ()
        self._path, self._env, self._catalog = path, env, catalog
        self._check, self._on_reload, self._on_refused = check, on_reload, on_refused
        self._interval_s, self._sleep = interval_s, sleep
        self._watched = config
        # Those that the files declare: what stands beside them in the catalog was registered while it ran.
        self._of_files = catalog.registry.declarations
        self._lock = self._locks()
        self._known = self._marks()
        self._retiring: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Look at the files until cancelled."""
        last = self._known
        while True:
            await self._sleep(self._interval_s)
            now = self._marks()
            if now != self._known and now == last:
                await self.reload()
                now = self._known
            last = now

    async def reload(self) -> bool:
        """Load the files now; tell whether they were taken."""
        before = self._marks()
        try:
            # In a thread: modules may take long to import, and the callers of now must not wait for it.
            made, config = await asyncio.to_thread(load_catalog, self._path, env=self._env, strict=self.config.strict)
            # Its sources ask others before they are ours, and in our name.
            made.registry.server_id = self._catalog.registry.server_id
            made.registry.link_key = self._catalog.registry.link_key
            self._check(made)
        except PegboardError as error:
            problems = error.problems if isinstance(error, DefinitionError) else (Problem(message=str(error)),)
            self._refuse(problems, before)
            return False
        except Exception as error:  # noqa: BLE001 - boundary: whatever a load runs into, the old config goes on serving
            self._refuse([Problem(where=str(self._path), message=f"{type(error).__name__}: {error}")], before)
            return False
        kept = self._kept(made)
        for name, source in made.registry.sources.items():
            if name not in kept:
                await source.start()
        self._swap(made, config, kept)
        self._remember(config, before)
        return True

    def _kept(self, made: Catalog) -> dict[str, Kept]:
        """Return the sources of now that go on: the new config reaches them in the same way."""
        return {
            name: source
            for name, source in self._catalog.registry.sources.items()
            if isinstance(source, Kept) and source.fits(made.registry.sources.get(name))
        }

    def _swap(self, made: Catalog, config: Config, kept: Mapping[str, Kept]) -> None:
        """Replace everything without giving up the loop in between."""
        catalog = self._catalog
        retired = tuple(source for name, source in catalog.registry.sources.items() if name not in kept)
        for name, source in kept.items():
            source.renew(made.registry.sources[name])
        # What the new catalog's own questions ask of a source reaches the one that goes on.
        made.registry.lend_sources({**made.registry.sources, **kept})
        executor = catalog.executor
        if _uri(config) != _uri(self.config):
            store = None if config.limit_store is None else made.executor.ports.limits
            executor.swap(executor.ports.with_limits(store))
        if (_store_of_answers(config), config.consent_page) != (
            _store_of_answers(self.config),
            self.config.consent_page,
        ):
            # States that wait for an answer are bound to how they are used up.
            log.warning("consents.store or consents.url has changed: it counts from the next start on.")
            kept_as = {"consent_store": self.config.consent_store, "consent_page": self.config.consent_page}
            config = replace(config, **kept_as)
        if _tasks(config) != _tasks(self.config):
            log.warning("tasks has changed: it counts from the next start on.")
            config = replace(config, tasks=self.config.tasks)
        if _embedder(config) != _embedder(self.config):
            catalog.discovery.finder.use_embedder(made.discovery.finder.embedder)
        if _learn(config) != _learn(self.config):
            log.warning("discovery.learn has changed: it counts from the next start on.")
            config = replace(config, learn=self.config.learn)
        if _examples(config) != _examples(self.config):
            catalog.discovery.finder.use_requests(made.discovery.finder.requests)
        self.config, self.problems = config, ()
        self._on_reload(config)
        of_files = made.registry.declarations
        keep_registered(made.registry, catalog.registry.declarations, self._of_files)
        self._of_files = of_files
        _carry_on(made, catalog)
        # Calls in flight may still hold the old secrets.
        seen = (*catalog.secrets, *(secret for secret in made.secrets if secret not in catalog.secrets))
        catalog.registry.swap(replace(made.registry.declarations, secrets=seen))
        executor.adopt_bounds()
        log.info("config_reloaded: %s", self._path)
        if retired:
            task = asyncio.get_running_loop().create_task(self._retire(retired, set(executor.in_flight)))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    async def _retire(self, sources: Sequence[Source], calls: set[str]) -> None:
        """Stop sources that are no longer declared when the calls that may use them have ended."""
        try:
            for _ in range(int(RELOAD_RETIRE_S / self._interval_s)):
                if calls.isdisjoint(self._catalog.executor.in_flight):
                    break
                await self._sleep(self._interval_s)
        finally:
            # Also when the process ends before that.
            for source in sources:
                await source.stop()

    def _refuse(self, problems: Sequence[Problem], before: Mapping[Path, Mark]) -> None:
        self.problems = tuple(problems)
        for problem in self.problems:
            log.error("config_reload_refused: %s (the config of before goes on serving)", problem)
        # What the bad files name is watched too: the fault may be mended there.
        self._remember(read(self._path, env=self._env)[0], before)
        self._on_refused(self.problems)

    def _locks(self) -> tuple[Path, ...]:
        """Return the lock that was there when the config was read: what `pegboard lock accept` takes counts at once."""
        path = self._path.absolute().parent / LOCK_NAME
        return (path,) if path.exists() else ()

    def _remember(self, config: Config, before: Mapping[Path, Mark]) -> None:
        self._watched = config
        self._lock = self._locks()
        # Taken before the load where there is one: what was written while it ran is a change.
        self._known = {path: before.get(path, mark) for path, mark in self._marks().items()}

    def _marks(self) -> dict[Path, Mark]:
        """Return every file that matters with its mark: those read, those that globs find now, and Python modules."""
        config, folder = self._watched, self._path.absolute().parent
        paths = {self._path, *config.files, *self.config.files, *brought_files(), *folder.glob("*.py")}
        # One that comes to be while Pegboard runs is of its own making.
        paths.update(self._lock)
        for pattern in config.globs:
            try:
                paths.update(find_files(pattern, beside=self._path))
            except ValueError:
                paths.add(self._path.parent / pattern)
        return {path: _mark(path) for path in paths}


def _carry_on(made: Catalog, before: Catalog) -> None:
    """Let tools that keep something between calls go on with what those of the same name have kept."""
    known = before.snapshot()
    for entry in made.snapshot().entries:
        old = known.find(entry.qualified_id)
        if old is not None and isinstance(entry.handler, StatefulHandler):
            entry.handler.carry_on(old.handler)


def _mark(path: Path) -> Mark:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _store_of_answers(config: Config) -> object:
    return None if config.consent_store is None else (config.consent_store.value, config.consent_page)


def _tasks(config: Config) -> object:
    return None if config.tasks is None else (config.tasks.value.place, config.tasks.value.ttl_seconds)


def _embedder(config: Config) -> object:
    return None if config.embedder is None else config.embedder.value


def _learn(config: Config) -> object:
    return None if config.learn is None else config.learn.value


def _examples(config: Config) -> object:
    return None if config.examples is None else config.examples.value.requests


def _uri(config: Config) -> object:
    return None if config.limit_store is None else config.limit_store.value
