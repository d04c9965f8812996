"""stdio: serves one client, the parent process, on standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

from pegboard.catalog import Catalog
from pegboard.core.cancellation import cancel_and_wait
from pegboard.core.json_reader import envelope_of, fault_of, parse_json
from pegboard.core.limits import SHUTDOWN_GRACE_S
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.platforms import platform
from pegboard.server.alert_watch import AlertWatch
from pegboard.server.document_watch import DocumentWatch
from pegboard.server.gateway import Gateway, gateway_of
from pegboard.server.mcp.dispatcher import Dispatcher
from pegboard.server.mcp.handlers.list_changes import ListChanges
from pegboard.server.mcp.handlers.lists import Lists
from pegboard.server.mcp.protocol.answers import Answer, Stream, error_answer
from pegboard.server.mcp.protocol.jsonrpc import (
    INVALID_REQUEST,
    NO_ID,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    RpcError,
    as_object,
    error_message,
    is_unanswerable,
    json_bytes,
    kind_of,
)
from pegboard.server.mcp.protocol.requests import MODERN, VERSION_KEY, Era
from pegboard.server.mcp.protocol.revisions import VERSION
from pegboard.server.mcp.ready_bytes import ready_bytes
from pegboard.server.mcp.sessions.session_ids import Client
from pegboard.server.mcp.sessions.sessions import Sessions
from pegboard.server.principal import Identity, Principal, choose_profile
from pegboard.server.process_exit import exit_despite_threads, leave
from pegboard.server.sealing import sealing_with
from pegboard.server.stdio_streams import LineStreams, LineTooLongError, standard_streams
from pegboard.telemetry.call_log import log_calls
from pegboard.telemetry.metric_export import exporting_metrics
from pegboard.telemetry.part_states import PartStates, parts_of
from pegboard.telemetry.tracing import trace_calls

log = logging.getLogger("pegboard.serve")
STDIO_END_GRACE_S = 0.5  # seconds for answers after the end of input (`printf … | pegboard serve --stdio`)
_OTHER_ERA = (
    "this connection serves the handshake protocol era; "
    "requests carrying the 2026-07-28 envelope are not accepted on it"
)
_NO_HANDSHAKE = "connection is serving the 2026-07-28 protocol; the initialize handshake is not accepted"


def run_stdio(
    catalog: Catalog,
    config: object = None,
    *,
    profile: str | None = None,
    identity: Mapping[str, str] | object = None,
    grace_s: float = SHUTDOWN_GRACE_S,
) -> None:
    """Serve the catalog on standard input and output until the input ends, or SIGINT or SIGTERM.

    Output printed by tools goes to standard error.

    Args:
        catalog: the tools.
        config: creates the context of each request; see `http_app`.
        profile: the profile to serve; by default `default`, or the first declared.
        identity: the caller that this process serves: `user`, `space`, `roles`, `session`.
        grace_s: how long running calls may continue after a signal.

    Raises:
        DefinitionError: the profile does not exist, or the identity has an unknown field.
    """
    chosen = choose_profile(catalog.registry.profiles, profile)
    who = Identity.of(identity)
    principal = Principal(identity=who, profile=chosen, session=who.session or "stdio", door="stdio")
    asyncio.run(serve_stdio(catalog, gateway_of(catalog, config), principal, grace_s=grace_s))
    exit_despite_threads()


async def serve_stdio(
    catalog: Catalog, gateway: Gateway, principal: Principal, *, grace_s: float = SHUTDOWN_GRACE_S
) -> None:
    """Serve on the process's own standard input and output, on the running loop; without them this returns at once."""
    if cast("object", sys.stdin) is None or cast("object", sys.stdout) is None:
        return
    async with standard_streams(catalog.registry.bounds.message_line_bytes) as streams:
        await catalog.start(wait_s=0)
        if catalog.executor.ports.tasks is not None:
            catalog.tasks.wake_soon()
        line = StdioConnection(gateway, principal, streams)
        end_logging, end_tracing = log_calls(catalog.executor), trace_calls(catalog.executor)
        watch = AlertWatch(catalog, PartStates(lambda: parts_of(catalog)), tuple)
        try:
            with _signals(line.stop):
                async with (
                    exporting_metrics(catalog.executor, catalog.name),
                    watch.running(),
                    DocumentWatch(catalog.registry).running(),
                ):
                    await line.run(grace_s=grace_s)
        finally:
            await catalog.close(grace_s=0.0)
            end_logging()
            end_tracing()


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Any:
    """End the input at the first signal, and the process at the second."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def on_signal() -> None:
        nonlocal asked
        if asked:
            leave()
        asked = True
        stop()

    with platform.signals_to(on_signal):
        yield


class StdioConnection:
    """One connection. Its first request decides the era: 2026-07-28, or a session of an earlier revision.

    The models of the MCP SDK take longer to load than most sessions last, so the cache of ready bytes answers common
    requests without them.
    """

    def __init__(self, gateway: Gateway, principal: Principal, streams: LineStreams) -> None:
        self._gateway, self._principal, self._streams = gateway, principal, streams
        bounds = gateway.registry.bounds
        self._bounds = replace(bounds, request_body_bytes=bounds.message_line_bytes, json_depth=bounds.json_depth + 4)
        lists, sessions = Lists(gateway), Sessions()
        self._session = sessions.open(principal, Client("", {}, ""))
        self._session.tell = self._tell
        self._earlier = Era(self._session)
        self._changes = ListChanges(gateway, sessions, profiles=(principal.profile,))
        sealing = sealing_with(audience=gateway.catalog.name)
        self._dispatcher = Dispatcher(gateway, lists, sealing, self._changes)
        self._ready = ready_bytes(gateway, lists, self._dispatcher)
        self._calls: dict[bytes, asyncio.Task[None]] = {}
        self._era: Era | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Take no more messages."""
        self._is_stopped = True
        self._streams.stop()

    async def run(self, *, grace_s: float) -> None:
        """Serve until the input ends; then wait a moment for pending answers, or `grace_s` if stopped."""
        try:
            while True:
                try:
                    line = await self._streams.line()
                except LineTooLongError:
                    await self._refuse(INVALID_REQUEST, "The message is too long.")
                    continue
                if not line:
                    break
                await self._take(line)
            self._changes.stop()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s if self._is_stopped else STDIO_END_GRACE_S):
                    while self._calls:
                        await asyncio.wait(self._calls.values(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._changes.stop()
            await cancel_and_wait(*self._calls.values())

    # -- one message

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = parse_json(line, bounds=self._bounds)
        except CallError as error:
            envelope = envelope_of(line)
            request_id = None if envelope is None or envelope.is_answer else envelope.id
            await self._refuse(PARSE_ERROR, f"Parse error: {fault_of(error)}.", request_id)
            return
        read = as_object(message)
        match None if read is None else kind_of(read):
            case "request":
                assert read is not None
                await self._request(read)
            case "notification":
                assert read is not None
                self._notification(read)
            case "response":
                assert read is not None
                self._session.questions.take(read)
            case _:
                is_request = read is not None and is_unanswerable(read)
                await self._refuse(INVALID_REQUEST, NO_ID if is_request else "Not a JSON-RPC message.")

    async def _request(self, request: JSON) -> None:
        request_id = request["id"]
        key = json_bytes(request_id)
        if key in self._calls:
            text = f"A request with the id {request_id!r:.100} is already open."
            await self._refuse(INVALID_REQUEST, text, request_id)
            return
        dispatched = self._dispatched(request)
        if isinstance(dispatched, Answer):
            await self._write_line(dispatched.message(key))
        elif request["method"] == "initialize":
            # The next message may have been sent before this answer, and depends on it.
            await self._answer(dispatched)
        else:
            task = self._calls[key] = asyncio.create_task(self._answer(dispatched))
            task.add_done_callback(lambda _done: self._calls.pop(key, None))

    def _dispatched(self, request: JSON) -> Answer | Stream:
        """Return the work that answers a request, in the era of this connection."""
        is_initialize, ready = request["method"] == "initialize", self._ready
        has_envelope = not is_initialize and _has_envelope(request)
        if self._era is None:
            self._era = MODERN if has_envelope else self._earlier
        if self._era.is_earlier:
            if has_envelope:
                return error_answer(RpcError(INVALID_REQUEST, _OTHER_ERA))
            recognised = ready and ready.recognise_earlier(request, self._principal, self._earlier)
        else:
            if is_initialize:
                return error_answer(_no_handshake(request))
            recognised = ready and ready.recognise(request, self._principal)
        return recognised or self._dispatcher.dispatch(request, self._era, self._principal)

    async def _answer(self, dispatched: Stream) -> None:
        if dispatched.outlet is not None:
            dispatched.outlet.write = self._write_line
        answer = await dispatched.work
        await self._write_line(answer.message(dispatched.request_id))

    def _notification(self, notification: JSON) -> None:
        if notification["method"] == "notifications/cancelled":
            params = as_object(notification.get("params")) or {}
            task = self._calls.get(json_bytes(params.get("requestId")))
            if task is not None:
                task.cancel()
        elif notification["method"] == "notifications/initialized" and self._session.version:
            self._session.is_open = True
            self._changes.start()

    # -- output

    async def _tell(self, message: JSON) -> None:
        await self._write_line(json_bytes(message))

    async def _write_line(self, message: bytes) -> None:
        try:
            self._streams.write(message + b"\n")
            await self._streams.drain()
        except OSError as error:
            self._lose_client(error)

    def _lose_client(self, error: OSError) -> None:
        """End the connection: nobody reads our answers, or the disk is full. A client may leave at any time."""
        if not self._is_stopped:
            log.info("Standard output takes no more answers (%s): the server ends.", error)
        self.stop()

    async def _refuse(self, code: int, text: str, request_id: int | str | None = None) -> None:
        await self._write_line(error_message(code, text, request_id))


def _has_envelope(request: JSON) -> bool:
    meta = as_object((as_object(request.get("params")) or {}).get("_meta")) or {}
    return VERSION_KEY in meta


def _no_handshake(request: JSON) -> RpcError:
    """Return the refusal of an initialize on a 2026-07-28 connection."""
    requested = (as_object(request.get("params")) or {}).get("protocolVersion")
    data: JSON = {"supported": [VERSION]}
    if isinstance(requested, str):
        data["requested"] = requested
    return RpcError(UNSUPPORTED_VERSION, _NO_HANDSHAKE, data)
