"""serve: run the server for MCP clients and HTTP callers."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import secrets
import socket  # noqa: TID251 - listens, and calls nobody
import ssl
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from msgspec import Struct

from pegboard.catalog import Catalog
from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.log_lines import LogForm, LogLevel, log_as, tell
from pegboard.cli.options import Options, SharedOptions, Strict
from pegboard.cli.project import Project, load
from pegboard.config import Config
from pegboard.config.identity import console_rules_of
from pegboard.lazy import LazyModule
from pegboard.model.context import ToolContext
from pegboard.model.error import PegboardError
from pegboard.model.record import replace
from pegboard.model.secret import Secret
from pegboard.platforms import platform
from pegboard.server.host_guard import hosts_of, is_loopback
from pegboard.server.principal import Principal, choose_profile, context_maker
from pegboard.server.process_exit import leave_if_loading
from pegboard.server.proxy_settings import ProxySettings
from pegboard.server.stdio import run_stdio
from pegboard.server.worker_checks import budgets_in_memory, count_for_all, counted_in_memory
from pegboard.server.workers import Worker, Workers
from pegboard.telemetry.otel_providers import set_up_exporters

# Over standard input no HTTP is served and nothing is reloaded, and a client waits for the start.
if TYPE_CHECKING:
    from pegboard.config import reload as config_reload
    from pegboard.config.reload import Reloader
    from pegboard.consent import sqlite_store
    from pegboard.planning import changed_files, reload_plan
    from pegboard.server import app, listener
else:
    config_reload = LazyModule("pegboard.config.reload")
    sqlite_store = LazyModule("pegboard.consent.sqlite_store")
    changed_files = LazyModule("pegboard.planning.changed_files")
    reload_plan = LazyModule("pegboard.planning.reload_plan")
    app = LazyModule("pegboard.server.app")
    listener = LazyModule("pegboard.server.listener")

REPLACED_PLAN_S = 30.0  # for what a replaced worker logs about the new config
WORKERS = 64  # maximum workers of one parent

_RELOAD = "Reload when the config's files change; keep the old config if the new one has errors."
_HOSTS = "Additional host name under which clients reach the server; may be repeated."
_FORWARDED = "Address or network of a proxy whose X-Forwarded-For and -Proto are trusted; may be repeated."
_ROOT_PATH = "Path under which a proxy publishes the server, such as /tools; the proxy removes it."
_UDS = "Listen on a Unix socket, for a proxy on this machine. Its X-Forwarded headers are trusted."
_TLS_CERT = "Certificate chain for HTTPS; PEM."
_TLS_KEY = "Private key, if it is not in the same file; PEM."
_WORKERS = "Number of processes. SIGHUP replaces them one by one, with the current config."
_LOG_LEVEL = "Lowest level to log; info has a line for each request and each call. [default: warning]"
_LOG_FORMAT = "Log as text or as JSON."
_NO_CONSOLE = "Do not serve the web console at /console."
_STDIO = "Speak MCP over standard input and output, with the program that started this one."

_NO_BUS = (
    "note: without `server: {bus: redis://HOST:PORT}` in the config the workers are not connected: questions in "
    "sessions of earlier revisions are refused, and so are /metrics, /v1/events and /v1/calls/ID/cancel."
)
_NO_SPACE = (
    "warning: nobody is asked who they are, so that no caller has a space, and none sees a document. Write identity:, "
    "or workspace: {space: NAME}."
)
_HOST, _PORT = "127.0.0.1", 8420
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_LAST_PORT = 65535


def serve_command(
    *,
    stdio: Annotated[bool, Parameter(help=_STDIO)] = False,
    host: Annotated[str | None, Parameter(help="Address to listen on.", show_default=_HOST)] = None,
    port: Annotated[int | None, Parameter(help="Port to listen on.", show_default=str(_PORT))] = None,
    allow_host: Annotated[tuple[str, ...], Parameter(help=_HOSTS, negative_iterable=())] = (),
    reload: Annotated[bool, Parameter(help=_RELOAD)] = False,
    uds: Annotated[Path | None, Parameter(help=_UDS)] = None,
    forwarded_allow: Annotated[tuple[str, ...], Parameter(help=_FORWARDED, negative_iterable=())] = (),
    root_path: Annotated[str | None, Parameter(help=_ROOT_PATH)] = None,
    tls_cert: Annotated[Path | None, Parameter(help=_TLS_CERT)] = None,
    tls_key: Annotated[Path | None, Parameter(help=_TLS_KEY)] = None,
    workers: Annotated[int | None, Parameter(help=_WORKERS, show_default="1")] = None,
    no_console: Annotated[bool, Parameter(help=_NO_CONSOLE, negative="")] = False,
    log_level: Annotated[LogLevel | None, Parameter(help=_LOG_LEVEL)] = None,
    log_format: Annotated[LogForm, Parameter(help=_LOG_FORMAT)] = "text",
    strict: Strict = False,
    options: SharedOptions,
) -> Any:
    """Serve the tools over MCP and HTTP."""
    who = options.identity
    if not stdio and (who.user or who.space or who.roles or who.session):
        raise CommandError("--as names the caller of --stdio; over HTTP every caller is asked who it is.")
    if stdio:
        _refuse_http_options(
            {
                "--host": host,
                "--port": port,
                "--allow-host": allow_host,
                "--reload": reload,
                "--workers": workers,
                "--uds": uds,
                "--forwarded-allow": forwarded_allow,
                "--root-path": root_path,
                "--tls-cert": tls_cert,
                "--tls-key": tls_key,
                "--no-console": no_console,
            }
        )
    if log_level is not None or log_format != "text":
        log_as(options.terminal, log_format, log_level or "warning")
    if uds is not None and not (host is None and port is None and tls_cert is None):
        raise CommandError("--uds listens at a file, and not at --host, --port or with --tls-cert. Leave one out.")
    if uds is not None and platform.NO_WORKERS is not None:
        raise CommandError("--uds: there are no such sockets on Windows. Listen at --host and --port.")
    front = ProxySettings(trusted=forwarded_allow, root_path=_root_path(root_path), certificate=tls_cert, key=tls_key)
    _check_front(front)
    port, count = _PORT if port is None else port, 1 if workers is None else workers
    if not 0 <= port <= _LAST_PORT:
        raise CommandError(
            f"--port {port} is not a port; choose one from 1 to {_LAST_PORT}, or 0 for any that is free."
        )
    if not 1 <= count <= WORKERS:
        raise CommandError(f"--workers {count} is not a number of workers; choose one from 1 to {WORKERS}.")

    serving = Serving(
        options=options, host=host or _HOST, port=port, file=uds, front=front, names=allow_host, reload=reload,
        strict=strict, stdio=stdio, log_format=log_format, console=not no_console,
    )  # fmt: skip
    return _serve_alone(serving) if count == 1 else _serve_with(serving, count)


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
    stdio: bool
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
            return listener.bound_to(self.host, self.port) if self.file is None else listener.bound_to_file(self.file)
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


def _serve_with(serving: Serving, count: int) -> Any:
    """Start several workers and return their exit code; each worker serves."""
    if platform.NO_WORKERS is not None:
        raise CommandError(f"--workers {count}: {platform.NO_WORKERS}.")
    parent = Workers(count=count, listening=serving.bind(), say=lambda text: serving.say(f"{text}\n"))
    # Loaded before the fork, so that the workers share them.
    assert app.serve_http
    assert changed_files.ChangedFiles
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
        for warning in project.config.open_files:
            options.terminal.note(f"warning: {warning.message}")
        for warning in project.config.warnings:
            options.terminal.note(f"warning: {warning.where}: {warning.path}: {warning.message}")
    profile = options.chosen_profile
    project.check_profile(profile)
    set_up_exporters(os.environ)
    if serving.stdio:
        if sys.stdin.isatty():
            options.terminal.note("Waiting for an MCP client, which starts this command by itself. Ctrl-C ends it.")
        run_stdio(project.catalog, project.config, profile=profile, identity=options.identity)
        leave_if_loading()
        return None
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
            config_reload.note_config(catalog, project.config)
        if worker is not None and worker.number == 0:
            # A successor that is refused has no audit: its config is faulty.
            watching = worker.refusals.watch(partial(config_reload.note_refusal, catalog))
            watches.append(asyncio.get_running_loop().create_task(watching))
        if worker is None or worker.is_first:
            many = "" if worker is None else f", with {worker.count} workers"
            serving.say(app.addresses(address, catalog, profile=profile, note=f"{many}{note}"), url=address)
            if serving.console:
                serving.say(app.console_line(address, login_token))
            if worker is not None and bus is None:
                serving.say(f"{_NO_BUS}\n")
        begin()

    return app.serve_http(
        catalog,
        app.AppOptions(
            config=context_of,
            profile=profile,
            allowed_hosts=hosts_of(serving.bound_host, serving.names, is_open=catalog.identity is not None),
            keys=keys,
            bus=bus,
            problems=problems,
            console=console_rules_of(project.config) if serving.console else False,
            login_token=login_token,
            pending=changed_files.ChangedFiles(reloader, catalog, is_watched=serving.reload, is_alone=worker is None),
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
        shared = sqlite_store.SqliteConsents(worker.answers, takes_questions=False)
        catalog.executor.swap(replace(ports, used_answers=shared, consents=shared))


def _refuse_http_options(options: Mapping[str, object]) -> None:
    """Refuse options without effect: over standard input the server does not listen, and its client restarts it."""
    named = [name for name, value in options.items() if value is not None and value is not False and value != ()]
    if named:
        listed = " and ".join(named)
        raise CommandError(
            f"{listed} {'is' if len(named) == 1 else 'are'} for HTTP, and the only client of --stdio is the program "
            f"that starts it. Leave out --stdio, or {listed}."
        )


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
        before = reload_plan.remember(catalog, config)
        return lambda taken: reload_plan.log_reload(before, catalog, taken, say=serving.say)

    logs = worker is None or worker.number == 0
    reloader: Reloader = config_reload.Reloader(
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
    before = reload_plan.remember(catalog, reloader.config)

    async def tell_changes() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(REPLACED_PLAN_S):
                await reload_plan.log_replacement(before, reloader.load, say=serving.say)

    return tell_changes()


def _first_of(*sources: Callable[[], Sequence[object]]) -> Callable[[], Sequence[object]]:
    """Return a function that gives the problems of the first source that has any."""
    return lambda: next(filter(None, (source() for source in sources)), ())


def _no_problems() -> Sequence[object]:
    return ()


def _nothing() -> None:
    pass


def _root_path(named: str | None) -> str:
    """Return the path under which a proxy serves this server, as a prefix of `/mcp`.

    Raises:
        CommandError: it is not a path.
    """
    path = (named or "").rstrip("/")
    if path and not _PATH.fullmatch(path):
        raise CommandError(f"--root-path {path!r} is not a path. Write it as /tools or /a/b.")
    return path


def _check_front(front: ProxySettings) -> None:
    for address in front.trusted:
        try:
            ipaddress.ip_network(address)
        except ValueError:
            raise CommandError(
                f"--forwarded-allow {address!r} is not an address or network. Write 10.0.0.5, or 10.0.0.0/24 with no "
                "bits set behind the prefix."
            ) from None
    if front.key is not None and front.certificate is None:
        raise CommandError("--tls-key is of no use without --tls-cert.")
    if front.certificate is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(front.certificate, front.key)
        except (OSError, ValueError) as error:
            named = " and ".join(str(path) for path in (front.certificate, front.key) if path is not None)
            raise CommandError(
                f"--tls-cert: {named!r} cannot be used ({error}). Give a certificate and its private key as PEM.",
                kind="tls",
            ) from None
