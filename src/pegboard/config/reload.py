"""Reload: watch the files of a config, and apply a valid change to the running catalog in one step."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pegboard.catalog import Catalog
from pegboard.config.build import load_catalog, parts_of
from pegboard.config.config import LOCK_NAME, Config
from pegboard.config.identity import console_rules_of
from pegboard.config.load import read
from pegboard.config.python_modules import brought_files
from pegboard.config.registered_later import keep_registered
from pegboard.config.yaml.config_files import find_files
from pegboard.core.ports import Source, StatefulHandler
from pegboard.core.redaction import Redactor
from pegboard.model.error import DefinitionError, PegboardError, Problem
from pegboard.model.json_types import JSONValue
from pegboard.model.record import replace
from pegboard.runtime import close_stores
from pegboard.telemetry.reload_log import log_refusal, problems_of

RELOAD_INTERVAL_S = 0.25  # seconds between two checks of the files
RELOAD_RETIRE_S = 60.0  # seconds for calls of a source that a reload removed

log = logging.getLogger("pegboard")
# Identifies the contents of a file without reading it; `None` if the file is missing.
Mark = tuple[int, int, int, int] | None


@runtime_checkable
class Continues(Source, Protocol):
    """A source that can continue after a reload of the config."""

    def fits(self, other: object) -> bool:
        """Tell whether the new source would behave in the same way."""
        ...

    def renew(self, other: Any) -> None:
        """Take over the settings of the new source, and keep the connection."""
        ...


class Reloader:
    """Keeps a running catalog equal to its files.

    A valid change is applied between two steps of the event loop: a list is entirely old or entirely new, and running
    calls finish with the handlers that they began with. An invalid change has no effect; `problems` lists its faults
    until the next valid one. State of the process is kept: subscribers and observers, rate-limit counts in memory,
    secrets to redact, and registrations made while it ran.

    Args:
        path: the config file.
        env: the environment variables that it may name.
        catalog: the running catalog, whose declarations are replaced.
        config: the config that it was built from.
        check: called with each new catalog; raises `DefinitionError` to refuse the change.
        on_reload: called with the new config after each swap.
        on_refused: called with the problems of a refused change.
        plan: called with the config in use before each swap; returns what is awaited in the background after it.
        logs_refusals: whether a refused change is logged here; False if another worker logs it.
        interval_s: how often files are checked. A change is applied once two checks agree, so that nobody is still
            writing.
        sleep: waits between checks.
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
        plan: Callable[[Config], Callable[[Config], Coroutine[Any, Any, None]]] | None = None,
        logs_refusals: bool = True,
        interval_s: float = RELOAD_INTERVAL_S,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.config = config
        self.problems: tuple[Problem, ...] = ()
        self._path, self._env, self._catalog = path, env, catalog
        self._check, self._on_reload, self._on_refused, self._plan = check, on_reload, on_refused, plan
        self._logs_refusals, self._interval_s, self._sleep = logs_refusals, interval_s, sleep
        self._watched = config
        # The declarations of the files; all others in the catalog were registered while it ran.
        self._of_files = catalog.registry.declarations
        self._lock = self._locks()
        self._known = self._marks()
        self._retiring: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Check the files until cancelled."""
        last = self._known
        while True:
            await self._sleep(self._interval_s)
            now = self._marks()
            if now != self._known and now == last:
                await self.reload()
                now = self._known
            last = now

    def mark(self) -> str:
        """Return a digest of the files now; empty if nothing changed since they were last read."""
        now = self._marks()
        return "" if now == self._known else hashlib.sha256(repr(sorted(now.items())).encode()).hexdigest()

    def note_lock(self) -> None:
        """Count the lock as read: this process has just written it, and uses its contents."""
        self._known = {**self._known, **{path: _mark(path) for path in self._lock}}

    async def load(self) -> tuple[Catalog, Config]:
        """Load the files as they are now, without using them.

        Raises:
            DefinitionError: they would be refused.
        """
        try:
            # In a thread: imports may take long, and current callers must not wait for them.
            loaded, config = await asyncio.to_thread(load_catalog, self._path, env=self._env, strict=self.config.strict)
            self._check(loaded)
        except PegboardError as error:
            raise DefinitionError(problems_of(error)) from error
        except Exception as error:
            # Boundary: whatever fails in a load, the config in use still serves.
            problem = Problem(where=str(self._path), message=f"{type(error).__name__}: {error}")
            raise DefinitionError([problem]) from error
        return loaded, config

    async def reload(self, *, by: str = "") -> bool:
        """Load the files now; return whether they were applied. `by` is the person who wants it, for the audit."""
        before = self._marks()
        try:
            loaded, config = await self.load()
        except DefinitionError as error:
            self._refuse(error.problems, before)
            return False
        # Its sources may send requests before the swap, and must use our server id.
        loaded.registry.server_id = self._catalog.registry.server_id
        loaded.registry.link_key = self._catalog.registry.link_key
        continuing = self._continued_sources(loaded)
        for name, source in loaded.registry.sources.items():
            if name not in continuing:
                await source.start()
        tell = None if self._plan is None else self._plan(self.config)
        self._swap(loaded, config, continuing, by)
        if tell is not None:
            self._in_background(tell(self.config))
        self._remember(config, before)
        return True

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _continued_sources(self, loaded: Catalog) -> dict[str, Continues]:
        """Return the current sources that continue, since the new config reaches them in the same way."""
        return {
            name: source
            for name, source in self._catalog.registry.sources.items()
            if isinstance(source, Continues) and source.fits(loaded.registry.sources.get(name))
        }

    def _swap(self, loaded: Catalog, config: Config, continuing: Mapping[str, Continues], by: str) -> None:
        """Replace everything without yielding to the event loop."""
        catalog = self._catalog
        retired = tuple(source for name, source in catalog.registry.sources.items() if name not in continuing)
        stores = (catalog.executor.ports.limits, catalog.executor.ports.budgets)
        for name, source in continuing.items():
            source.renew(loaded.registry.sources[name])
        # Conditions of the new catalog must ask the source that continues, not its replacement.
        loaded.registry.lend_sources({**loaded.registry.sources, **continuing})
        executor = catalog.executor
        if _uri(config) != _uri(self.config):
            store = None if config.limit_store is None else loaded.executor.ports.limits
            executor.swap(executor.ports.with_limits(store))
        if _budget_store(config) != _budget_store(self.config):
            executor.swap(
                executor.ports.with_budgets(None if _budget_store(config) is None else loaded.executor.ports.budgets)
            )
        if (_store_of_answers(config), config.consent_page) != (
            _store_of_answers(self.config),
            self.config.consent_page,
        ):
            # Continuation tokens depend on the store of used answers.
            log.warning("consents.store or consents.url has changed; it takes effect at the next start.")
            kept_as = {"consent_store": self.config.consent_store, "consent_page": self.config.consent_page}
            config = replace(config, **kept_as)
        if console_rules_of(config) != console_rules_of(self.config):
            log.warning("console has changed; it takes effect at the next start.")
            config = replace(config, console=self.config.console)
        if _tasks(config) != _tasks(self.config):
            log.warning("tasks has changed; it takes effect at the next start.")
            config = replace(config, tasks=self.config.tasks)
        if _embedder(config) != _embedder(self.config):
            catalog.discovery.finder.use_embedder(loaded.discovery.finder.embedder)
        if _audit(config) != _audit(self.config):
            log.warning("audit has changed; it takes effect at the next start.")
            config = replace(config, audit=self.config.audit)
        if _server(config) != _server(self.config):
            log.warning("server has changed; it takes effect at the next start.")
            config = replace(config, server=self.config.server)
        if _learn(config) != _learn(self.config):
            log.warning("discovery.learn has changed; it takes effect at the next start.")
            config = replace(config, learn=self.config.learn)
        if _examples(config) != _examples(self.config):
            catalog.discovery.finder.use_requests(loaded.discovery.finder.requests)
        self.config, self.problems = config, ()
        self._on_reload(config)
        of_files = loaded.registry.declarations
        keep_registered(loaded.registry, catalog.registry.declarations, self._of_files)
        self._of_files = of_files
        _carry_state_over(loaded, catalog)
        # Running calls may still hold the old secrets.
        seen = (*catalog.secrets, *(secret for secret in loaded.secrets if secret not in catalog.secrets))
        # Stores that are kept until the next start are those of the kept config.
        parts = partial(parts_of, config)
        # All that they keep is in their store.
        former, catalog.connections = catalog.connections, loaded.connections
        if former is not None:
            self._in_background(former.close())
        catalog.registry.swap(replace(loaded.registry.declarations, secrets=seen, parts=parts))
        executor.adopt_bounds()
        log.info("config_reloaded: %s", self._path)
        if self._logs_refusals:
            note_config(catalog, config, by=by)
        replaced = [
            former
            for former, store in zip(stores, (executor.ports.limits, executor.ports.budgets), strict=True)
            if former is not store
        ]
        if retired or replaced:
            self._in_background(self._retire(retired, replaced, set(executor.in_flight)))

    async def _retire(self, sources: Sequence[Source], stores: Sequence[object], calls: set[str]) -> None:
        """Stop removed sources and close replaced stores once the calls that may use them have ended."""
        try:
            for _ in range(int(RELOAD_RETIRE_S / self._interval_s)):
                if calls.isdisjoint(self._catalog.executor.in_flight):
                    break
                await self._sleep(self._interval_s)
        finally:
            # Also when the process ends before that.
            for source in sources:
                await source.stop()
            # Last: a store that is away may fail to close, which must not keep a program running.
            await close_stores(stores)

    def _refuse(self, problems: Sequence[Problem], before: Mapping[Path, Mark]) -> None:
        self.problems = tuple(problems)
        if self._logs_refusals:
            log_refusal(self.problems, "The previous config stays in use.")
            note_refusal(self._catalog, self.problems)
        # Files that the invalid config names are watched as well: the fault may be fixed there.
        self._remember(read(self._path, env=self._env)[0], before)
        self._on_refused(self.problems)

    def _locks(self) -> tuple[Path, ...]:
        """Return the lock that existed when the config was read; `pegboard lock accept` then takes effect at once."""
        path = self._path.absolute().parent / LOCK_NAME
        return (path,) if path.exists() else ()

    def _remember(self, config: Config, before: Mapping[Path, Mark]) -> None:
        self._watched = config
        self._lock = self._locks()
        # Taken before the load if possible: a file written during the load is a change.
        self._known = {path: before.get(path, mark) for path, mark in self._marks().items()}

    def _marks(self) -> dict[Path, Mark]:
        """Return the mark of every relevant file: files that were read, files that globs match now, Python modules."""
        config, folder = self._watched, self._path.absolute().parent
        paths = {self._path, *config.files, *self.config.files, *brought_files(), *folder.glob("*.py")}
        # A lock file that appears while Pegboard runs was written by Pegboard.
        paths.update(self._lock)
        for pattern in config.globs:
            try:
                paths.update(find_files(pattern, beside=self._path))
            except ValueError:
                paths.add(self._path.parent / pattern)
        return {path: _mark(path) for path in paths}


def note_config(catalog: Catalog, config: Config, *, by: str = "") -> None:
    """Record in the audit, if there is one, that a config is in use from now on: its files with their hashes."""
    audit = catalog.executor.ports.audit
    if audit is not None:
        files: dict[str, JSONValue] = {path.name: _hash_of(path) for path in config.files[:100]}
        audit.note("config_taken", {"config": config.path.name, "files": files}, by=by)


def note_refusal(catalog: Catalog, problems: Sequence[Problem]) -> None:
    """Record in the audit, if there is one, that a changed config was refused, with its first problems."""
    audit = catalog.executor.ports.audit
    if audit is not None:
        listed: list[JSONValue] = [{"where": one.where, "message": one.message} for one in problems[:20]]
        audit.note("config_refused", Redactor(catalog.secrets).value({"problems": listed}))


def _hash_of(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()  # raw: the operator's own file
    except OSError:
        return ""


def _carry_state_over(loaded: Catalog, before: Catalog) -> None:
    """Let handlers with state between calls take over the state of the previous ones with the same name."""
    known = before.snapshot()
    for entry in loaded.snapshot().entries:
        old = known.find(entry.qualified_id)
        if old is not None and isinstance(entry.handler, StatefulHandler):
            entry.handler.carry_on(old.handler)


def _mark(path: Path) -> Mark:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _budget_store(config: Config) -> object:
    return None if config.budgets is None else config.budgets.value.store


def _store_of_answers(config: Config) -> object:
    return None if config.consent_store is None else (config.consent_store.value, config.consent_page)


def _tasks(config: Config) -> object:
    return None if config.tasks is None else (config.tasks.value.place, config.tasks.value.ttl_seconds)


def _embedder(config: Config) -> object:
    return None if config.embedder is None else config.embedder.value


def _audit(config: Config) -> object:
    return None if config.audit is None else config.audit.value


def _server(config: Config) -> object:
    return None if config.server is None else config.server.value


def _learn(config: Config) -> object:
    return None if config.learn is None else config.learn.value


def _examples(config: Config) -> object:
    return None if config.examples is None else config.examples.value.requests


def _uri(config: Config) -> object:
    return None if config.limit_store is None else config.limit_store.value
