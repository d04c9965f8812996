"""serve: run the server for MCP clients and HTTP callers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from pegboard.cli.command_error import CommandError
from pegboard.cli.log_lines import LogForm, LogLevel, log_as
from pegboard.cli.options import Options, SharedOptions, Strict
from pegboard.cli.project import load
from pegboard.lazy import LazyModule
from pegboard.platforms import platform
from pegboard.server.process_exit import leave_if_loading
from pegboard.server.stdio import run_stdio
from pegboard.telemetry.otel_providers import set_up_exporters

# A client waits for the start of `serve --stdio`, which listens to no socket and reloads nothing.
if TYPE_CHECKING:
    from pegboard.cli import http_serving
else:
    http_serving = LazyModule("pegboard.cli.http_serving")

WORKERS = 64  # maximum workers of one parent

_RELOAD = "Reload when the config's files change; keep the old config if the new one has errors."
_HOSTS = "Additional host name that clients use for the server; may be repeated."
_FORWARDED = "Address or network of a proxy whose X-Forwarded-For and -Proto are trusted; may be repeated."
_ROOT_PATH = "Path where a proxy publishes the server, such as /tools; the proxy removes it."
_UDS = "Listen on a Unix socket, for a proxy on this machine. Its X-Forwarded headers are trusted."
_TLS_CERT = "Certificate chain for HTTPS; PEM."
_TLS_KEY = "Private key, if it is not in the same file; PEM."
_WORKERS = "Number of processes. SIGHUP replaces them one by one, with the current config."
_LOG_LEVEL = "Lowest level to log; info has a line for each request and each call. [default: warning]"
_LOG_FORMAT = "Log as text or as JSON."
_NO_CONSOLE = "Do not serve the web console at /console."
_STDIO = "Speak MCP over standard input and output, with the program that started this one."

_HOST, _PORT = "127.0.0.1", 8420
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
    elif who.user or who.space or who.roles or who.session:
        raise CommandError("--as names the caller of --stdio; over HTTP every caller is asked who it is.")
    if log_level is not None or log_format != "text":
        log_as(options.terminal, log_format, log_level or "warning")
    if stdio:
        return _serve_stdio(options, strict=strict)
    if uds is not None and not (host is None and port is None and tls_cert is None):
        raise CommandError("--uds listens at a file, and not at --host, --port or with --tls-cert. Leave one out.")
    if uds is not None and platform.NO_WORKERS is not None:
        raise CommandError("--uds: there are no such sockets on Windows. Listen at --host and --port.")
    port, count = _PORT if port is None else port, 1 if workers is None else workers
    if not 0 <= port <= _LAST_PORT:
        raise CommandError(
            f"--port {port} is not a port; choose one from 1 to {_LAST_PORT}, or 0 for any that is free."
        )
    if not 1 <= count <= WORKERS:
        raise CommandError(f"--workers {count} is not a number of workers; choose one from 1 to {WORKERS}.")

    front = http_serving.proxy_settings(trusted=forwarded_allow, root_path=root_path, certificate=tls_cert, key=tls_key)
    serving = http_serving.Serving(
        options=options, host=host or _HOST, port=port, file=uds, front=front, names=allow_host, reload=reload,
        strict=strict, log_format=log_format, console=not no_console,
    )  # fmt: skip
    return http_serving.serve(serving, workers=count)


def _serve_stdio(options: Options, *, strict: bool) -> None:
    project = load(options, strict=strict)
    project.note_warnings(options.terminal)
    set_up_exporters(os.environ)
    if sys.stdin.isatty():
        options.terminal.note("Waiting for an MCP client, which starts this command by itself. Ctrl-C ends it.")
    run_stdio(project.catalog, project.config, profile=options.chosen_profile, identity=options.identity)
    leave_if_loading()


def _refuse_http_options(options: Mapping[str, object]) -> None:
    """Refuse options without effect: over standard input the server does not listen, and its client restarts it."""
    named = [name for name, value in options.items() if value is not None and value is not False and value != ()]
    if named:
        listed = " and ".join(named)
        raise CommandError(
            f"{listed} {'is' if len(named) == 1 else 'are'} for HTTP, and the only client of --stdio is the program "
            f"that starts it. Leave out --stdio, or {listed}."
        )
