"""serve: open the door for MCP clients."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from cyclopts import Parameter

from pegboard.catalog import Catalog
from pegboard.cli.command_error import CommandError
from pegboard.cli.log_lines import LogForm, LogLevel, log_as, tell
from pegboard.cli.options import SharedOptions, Strict
from pegboard.cli.project import Project, load
from pegboard.config import Config
from pegboard.config.reload import Reloader
from pegboard.model.context import ToolContext
from pegboard.server.app import addresses, run_http
from pegboard.server.host_guard import hosts_of
from pegboard.server.principal import Principal, choose_profile, context_maker
from pegboard.server.stdio import run_stdio

_RELOAD = "Take good changes of the config's files while serving; keep the old on bad ones."
_HOSTS = "Name by which clients reach the server, beside those of this machine; may be given several times."
_LOG_LEVEL = "Log from this level on; info has a line for each request and each call. [default: warning]"
_LOG_FORMAT = "Log lines of text, or of JSON."
_STDIO = "Speak on standard input and output, to the program that started this one."

# uvicorn logs why it cannot have the address, and ends the process with this code.
_UVICORN_STARTUP_FAILURE = 3  # not a limit: uvicorn's exit code
_HOST, _PORT = "127.0.0.1", 8420  # not a limit: where it listens unless told otherwise
_LAST_PORT = 65535  # not a limit: of TCP


def serve_command(
    *,
    stdio: Annotated[bool, Parameter(help=_STDIO)] = False,
    host: Annotated[str | None, Parameter(help="Address to listen on.", show_default=_HOST)] = None,
    port: Annotated[int | None, Parameter(help="Port to listen on.", show_default=str(_PORT))] = None,
    allow_host: Annotated[tuple[str, ...], Parameter(help=_HOSTS, negative_iterable=())] = (),
    reload: Annotated[bool, Parameter(help=_RELOAD)] = False,
    log_level: Annotated[LogLevel | None, Parameter(help=_LOG_LEVEL)] = None,
    log_format: Annotated[LogForm, Parameter(help=_LOG_FORMAT)] = "text",
    strict: Strict = False,
    options: SharedOptions,
) -> Any:
    """Serve the tools over MCP."""
    who = options.identity
    if not stdio and (who.user or who.space or who.roles or who.session):
        raise CommandError("--as names the caller of --stdio; over HTTP every caller is asked who it is.")
    if stdio:
        _refuse_http_options({"--host": host, "--port": port, "--allow-host": allow_host, "--reload": reload})
    if log_level is not None or log_format != "text":
        log_as(options.terminal, log_format, log_level or "warning")
    host, port = host or _HOST, _PORT if port is None else port
    if not 0 <= port <= _LAST_PORT:
        raise CommandError(f"--port {port} is no port; choose one from 1 to {_LAST_PORT}, or 0 for any that is free.")
    project = load(options, strict=strict)
    for warning in project.config.open_files:
        options.terminal.note(f"warning: {warning.message}")
    profile = options.chosen_profile
    project.check_profile(profile)
    if stdio:
        if sys.stdin.isatty():
            options.terminal.note("Waiting for an MCP client, which starts this command by itself. Ctrl-C ends it.")
        return run_stdio(project.catalog, project.config, profile=profile, identity=who)

    def say(text: str, **fields: object) -> None:
        if log_format == "json":
            tell(options.terminal, text.splitlines()[0], **fields)
        else:
            sys.stderr.write(text)
            sys.stderr.flush()

    def ready(address: str, note: str = "") -> None:
        say(addresses(address, project.catalog, profile=profile, note=note), url=address)

    try:
        if reload:
            return _run_reloading(
                project, host=host, port=port, profile=profile, names=allow_host, ready=ready, say=say
            )
        return run_http(
            project.catalog,
            project.config,
            host=host,
            port=port,
            profile=profile,
            on_ready=ready,
            allowed_hosts=allow_host,
        )
    except OSError as error:
        raise _not_listening(host, port, f": {error.strerror or error}") from error
    except SystemExit as stopped:
        if stopped.code != _UVICORN_STARTUP_FAILURE:
            raise
        raise _not_listening(host, port, "") from None


def _refuse_http_options(options: Mapping[str, object]) -> None:
    """Refuse what would do nothing: a server on standard input listens nowhere, and its client starts it anew."""
    named = [name for name, value in options.items() if value is not None and value is not False and value != ()]
    if named:
        listed = " and ".join(named)
        raise CommandError(
            f"{listed} {'is' if len(named) == 1 else 'are'} for HTTP, and the only client of --stdio is the program "
            f"that starts it. Leave out --stdio, or {listed}."
        )


def _run_reloading(
    project: Project,
    *,
    host: str,
    port: int,
    profile: str | None,
    names: tuple[str, ...],
    ready: Callable[[str, str], None],
    say: Callable[[str], None],
) -> None:
    catalog, tasks = project.catalog, list[asyncio.Task[None]]()
    make_context = context_maker(project.config)

    def on_reload(config: Config) -> None:
        nonlocal make_context
        make_context = context_maker(config)
        say(f"Reloaded {str(config.path)!r}.\n")

    def check(candidate: Catalog) -> None:
        choose_profile(candidate.registry.profiles, profile)
        # A server that others can reach must not become one that asks nobody.
        hosts_of(host, names, is_open=candidate.identity is not None)

    reloader: Reloader = Reloader(
        project.config.path, os.environ, catalog, config=project.config, check=check, on_reload=on_reload
    )

    def context_of(principal: Principal) -> ToolContext:
        return make_context(principal)

    def on_ready(address: str) -> None:
        ready(address, ", and reloading what changes")
        tasks.append(asyncio.get_running_loop().create_task(reloader.run()))

    run_http(
        catalog,
        context_of,
        host=host,
        port=port,
        profile=profile,
        on_ready=on_ready,
        allowed_hosts=names,
        problems=lambda: reloader.problems,
    )


def _not_listening(host: str, port: int, why: str) -> CommandError:
    return CommandError(
        f"{host}:{port} cannot be listened on{why}. Choose another with --host and --port.", kind="address"
    )
