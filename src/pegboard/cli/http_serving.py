"""HTTP serving: listen, answer, reload and replace workers, until the process is asked to end.

Only `pegboard serve` without `--stdio` loads this module: a client waits for the start of `serve --stdio`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import secrets
import socket  # noqa: TID251 - listens, and calls nobody
import ssl
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from pegboard.catalog import Catalog
from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.log_lines import LogForm, tell
from pegboard.cli.options import Options
from pegboard.cli.project import Project, load
from pegboard.config import Config
from pegboard.config.identity import console_rules_of
from pegboard.config.reload import Reloader, note_config, note_refusal
from pegboard.consent.sqlite_store import SqliteConsents
from pegboard.model.context import ToolContext
from pegboard.model.error import PegboardError
from pegboard.model.record import replace
from pegboard.model.secret import Secret
from pegboard.planning.changed_files import ChangedFiles
from pegboard.planning.reload_plan import log_reload, log_replacement, remember
from pegboard.platforms import platform
from pegboard.server.app import AppOptions, addresses, console_line, serve_http
from pegboard.server.host_guard import hosts_of, is_loopback
from pegboard.server.listener import bound_to, bound_to_file
from pegboard.server.principal import Principal, choose_profile, context_maker
from pegboard.server.proxy_settings import ProxySettings
from pegboard.server.worker_checks import budgets_in_memory, count_for_all, counted_in_memory
from pegboard.server.workers import Worker, Workers
from pegboard.telemetry.otel_providers import set_up_exporters

REPLACED_PLAN_S = 30.0  # for what a replaced worker logs about the new config

_NO_BUS = (
    "note: without `server: {bus: redis://HOST:PORT}` in the config the workers are not connected: questions in "
    "sessions of earlier revisions are refused, and so are /metrics, /v1/events and /v1/calls/ID/cancel."
)
_NO_SPACE = (
    "warning: nobody is asked who they are, so that no caller has a space, and none sees a document. Write identity:, "
    "or workspace: {space: NAME}."
)
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")


class Serving(Struct, frozen=True, kw_only=True):
    """The validated options: the address, the proxies, and further allowed host `names`."""

    options: Options
    host: str
    port: int
    file: Path | None
    """A Unix socket to listen on instead of host and port."""
    front: ProxySettings
    names: tuple[str, ...]
    reload: bool
    strict: bool
    log_format: LogForm
    console: bool

    @property
    def bound_host(self) -> str:
        """The host that determines who can reach the server."""
        return self.host if self.file is None else f"unix:{self.file}"

    @property
    def address(self) -> str:
        """The address that it listens on, for people."""
        return f"{self.host}:{self.port}" if self.file is None else self.bound_host

    def bind(self) -> socket.socket:
        """Return the listening socket.

        Raises:
            CommandError: another program uses the address, or it does not belong to this machine.
        """
        try:
            return bound_to(self.host, self.port) if self.file is None else bound_to_file(self.file)
        except OSError as error:
            raise CommandError(
                f"{self.address} cannot be listened on: {error.strerror or error}. Choose another with --host and "
                "--port, or --uds.",
                kind="address",
            ) from error

    def say(self, text: str, **fields: object) -> None:
        """Print a message about the server, in the format of the log."""
        if self.log_format == "json":
            tell(self.options.terminal, text.splitlines()[0], **fields)
        else:
            sys.stderr.write(text)
            sys.stderr.flush()


def proxy_settings(
    *, trusted: Sequence[str], root_path: str | None, certificate: Path | None, key: Path | None
) -> ProxySettings:
    """Return the checked options about proxies and HTTPS.

    Raises:
        CommandError: an address, the path or the certificate cannot be used.
    """
    path = (root_path or "").rstrip("/")
    if path and not _PATH.fullmatch(path):
        raise CommandError(f"--root-path {path!r} is not a path. Write it as /tools or /a/b.")
    for address in trusted:
        try:
            ipaddress.ip_network(address)
        except ValueError:
            raise CommandError(
                f"--forwarded-allow {address!r} is not an address or network. Write 10.0.0.5, or 10.0.0.0/24 with no "
                "bits set behind the prefix."
            ) from None
    if key is not None and certificate is None:
        raise CommandError("--tls-key is of no use without --tls-cert.")
    if certificate is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:
            named = " and ".join(str(file) for file in (certificate, key) if file is not None)
            raise CommandError(
                f"--tls-cert: {named!r} cannot be used ({error}). Give a certificate and its private key as PEM.",
                kind="tls",
            ) from None
    return ProxySettings(trusted=tuple(trusted), root_path=path, certificate=certificate, key=key)


def serve(serving: Serving, workers: int) -> Any:
    """Serve with this number of processes, until the server is asked to end; return the exit code.

    Raises:
        CommandError: an option, or the config, does not allow it.
    """
    return _serve_alone(serving) if workers == 1 else _serve_with(serving, workers)


def _serve_with(serving: Serving, count: int) -> Any:
    """Start several workers and return their exit code; each worker serves."""
    if platform.NO_WORKERS is not None:
        raise CommandError(f"--workers {count}: {platform.NO_WORKERS}.")
    parent = Workers(count=count, listening=serving.bind(), say=lambda text: serving.say(f"{text}\n"))
    worker = parent.run()
    if worker is None:
        return parent.exit_code
    try:
        return _serve_alone(serving, worker)
    except PegboardError as error:
        if worker.is_first:
            raise
        # The parent logs it once, and the running workers report it in /healthz and /metrics.
        worker.refusals.report(error, clean=serving.options.terminal.clean)
        return Exit.USAGE


def _serve_alone(serving: Serving, worker: Worker | None = None) -> Any:
    """Serve in this process; `worker` is set if it is one of several."""
    options = serving.options
    project = load(options, strict=serving.strict)
    if worker is None or worker.is_first:
        project.note_warnings(options.terminal)
    set_up_exporters(os.environ)
    if project.catalog.identity is None and project.config.workspace is not None and project.config.space is None:
        options.terminal.note(_NO_SPACE)
    keys, bus = _shared_secrets(project.config, worker)
    catalog, note, problems = project.catalog, "", _no_problems
    watches: list[asyncio.Task[None]] = []
    if worker is not None:
        _share(catalog, worker)
        problems = worker.refusals.problems
    reloader, context_of, watch = _reloading(project, serving, worker)
    problems, begin = _first_of(lambda: reloader.problems, problems), _nothing
    if serving.reload:
        begin, note = watch, ", and reloading what changes"

    login_token = ""
    is_at_terminal = worker is None and serving.log_format == "text" and is_loopback(serving.bound_host)
    if serving.console and is_at_terminal and catalog.identity is None:
        # Nobody has a key here, and anybody who reads the terminal runs the server.
        login_token = secrets.token_urlsafe(24)

    def ready(address: str) -> None:
        if worker is None or worker.number == 0:
            note_config(catalog, project.config)
        if worker is not None and worker.number == 0:
            # A successor that is refused has no audit: its config is faulty.
            watching = worker.refusals.watch(partial(note_refusal, catalog))
            watches.append(asyncio.get_running_loop().create_task(watching))
        if worker is None or worker.is_first:
            many = "" if worker is None else f", with {worker.count} workers"
            serving.say(addresses(address, catalog, profile=options.chosen_profile, note=f"{many}{note}"), url=address)
            if serving.console:
                serving.say(console_line(address, login_token))
            if worker is not None and bus is None:
                serving.say(f"{_NO_BUS}\n")
        begin()

    return serve_http(
        catalog,
        AppOptions(
            config=context_of,
            profile=options.chosen_profile,
            allowed_hosts=hosts_of(serving.bound_host, serving.names, is_open=catalog.identity is not None),
            keys=keys,
            bus=bus,
            problems=problems,
            console=console_rules_of(project.config) if serving.console else False,
            login_token=login_token,
            pending=ChangedFiles(reloader, catalog, is_watched=serving.reload, is_alone=worker is None),
        ),
        listening=lambda: serving.bind() if worker is None else worker.listening,
        on_ready=ready,
        worker=worker,
        on_replaced=partial(_tell_replacement, reloader, catalog, serving) if worker and worker.number == 0 else None,
        front=serving.front,
    )


def _shared_secrets(config: Config, worker: Worker | None) -> tuple[tuple[bytes, ...], str | Secret | None]:
    """Return the keys that encrypt client state, and the bus of the servers with the same keys."""
    declared = None if config.server is None else config.server.value
    given = () if declared is None else declared.keys
    keys = tuple((key.reveal() if isinstance(key, Secret) else key).encode() for key in given)
    if worker is not None and not keys:
        keys = (worker.key,)
    return keys, declared.bus if declared is not None and keys else None


def _share(catalog: Catalog, worker: Worker) -> None:
    """Set up the state that all workers must share.

    Raises:
        CommandError: the config keeps some state per process; the message has the line to add.
    """
    counted = counted_in_memory(catalog)
    if counted is not None:
        raise CommandError(
            f"{counted} has a rate limit, and each of {worker.count} workers would count for itself. Let them count "
            'together: add `rate_limits: {store: "redis://HOST:PORT"}` to the config, or serve with one worker.',
            kind="not_shared",
        )
    if budgets_in_memory(catalog):
        raise CommandError(
            f"There are budgets, and each of {worker.count} workers would count for itself. Let them count together: "
            'add `store: "sqlite:./pegboard.db"` to `budgets:` in the config, or serve with one worker.',
            kind="not_shared",
        )
    count_for_all(catalog, worker.count)
    if catalog.executor.ports.tasks is not None and not catalog.tasks.is_durable:
        raise CommandError(
            f"Tasks are kept in memory, and each of {worker.count} workers would know its own alone. Keep them for "
            'all: `tasks: {store: "sqlite:./tasks.db"}` in the config, or serve with one worker.',
            kind="not_shared",
        )
    ports = catalog.executor.ports
    if ports.used_answers is None:
        shared = SqliteConsents(worker.answers, takes_questions=False)
        catalog.executor.swap(replace(ports, used_answers=shared, consents=shared))


def _reloading(
    project: Project, serving: Serving, worker: Worker | None
) -> tuple[Reloader, Callable[[Principal], ToolContext], Callable[[], None]]:
    """Return the reloader, a function that makes contexts from the current config, and one that starts watching."""
    catalog, tasks = project.catalog, list[asyncio.Task[None]]()
    make_context = context_maker(project.config)

    def on_reload(config: Config) -> None:
        nonlocal make_context
        make_context = context_maker(config)
        if worker is not None:
            worker.refusals.clear()
        if worker is None or worker.number == 0:
            serving.say(f"Reloaded {str(config.path)!r}.\n")

    def check(candidate: Catalog) -> None:
        choose_profile(candidate.registry.profiles, serving.options.chosen_profile)
        # If others can reach a server, a reload must not turn off its authentication.
        hosts_of(serving.bound_host, serving.names, is_open=candidate.identity is not None)
        if worker is not None:
            _share(candidate, worker)

    def plan(config: Config) -> Callable[[Config], Coroutine[Any, Any, None]]:
        before = remember(catalog, config)
        return lambda taken: log_reload(before, catalog, taken, say=serving.say)

    logs = worker is None or worker.number == 0
    reloader: Reloader = Reloader(
        project.config.path,
        os.environ,
        catalog,
        config=project.config,
        check=check,
        on_reload=on_reload,
        plan=plan if logs else None,
        logs_refusals=logs,
    )

    def context_of(principal: Principal) -> ToolContext:
        return make_context(principal)

    def begin() -> None:
        tasks.append(asyncio.get_running_loop().create_task(reloader.run()))

    return reloader, context_of, begin


def _tell_replacement(reloader: Reloader, catalog: Catalog, serving: Serving) -> Coroutine[Any, Any, None]:
    """Return a function that logs the changes of a config that another worker has loaded."""
    # Taken now: the sources stop while it runs.
    before = remember(catalog, reloader.config)

    async def tell_changes() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(REPLACED_PLAN_S):
                await log_replacement(before, reloader.load, say=serving.say)

    return tell_changes()


def _first_of(*sources: Callable[[], Sequence[object]]) -> Callable[[], Sequence[object]]:
    """Return a function that gives the problems of the first source that has any."""
    return lambda: next(filter(None, (source() for source in sources)), ())


def _no_problems() -> Sequence[object]:
    return ()


def _nothing() -> None:
    pass
