"""stdio: serve one client, the program that started this one, on standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from pegboard.catalog import Catalog
from pegboard.core.json_reader import envelope_of, fault_of, parse_json
from pegboard.core.limits import SHUTDOWN_GRACE_S
from pegboard.lazy import LazyModule
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.platforms import platform
from pegboard.server.gateway import Gateway, gateway_of
from pegboard.server.limits import CHANGES_SETTLE_S
from pegboard.server.mcp.earlier_path import EarlierPath
from pegboard.server.mcp.fast_path import VERSION_KEY, FastPath, Plan
from pegboard.server.mcp.handlers.lists import Lists
from pegboard.server.mcp.handshake import Handshake
from pegboard.server.mcp.protocol.jsonrpc import NO_ID, as_object, error_message, is_unanswerable, json_bytes
from pegboard.server.mcp.sessions.session_ids import Client
from pegboard.server.mcp.sessions.sessions import Sessions
from pegboard.server.principal import Identity, Principal, choose_profile
from pegboard.server.process_exit import leave, leave_if_held
from pegboard.server.stdio_streams import LineStreams, LineTooLongError, standard_streams
from pegboard.telemetry.call_log import log_calls

if TYPE_CHECKING:
    from pegboard.server.mcp import sdk_pipe
    from pegboard.server.mcp.sdk_pipe import Pipe
else:
    sdk_pipe = LazyModule("pegboard.server.mcp.sdk_pipe")

STDIO_END_GRACE_S = 0.5  # for answers after the end of input (`printf … | pegboard serve --stdio`)

log = logging.getLogger("pegboard.serve")
_GREETED = 2
"""Messages of an earlier session before it is open: initialize and initialized."""


def run_stdio(
    catalog: Catalog,
    config: object = None,
    *,
    profile: str | None = None,
    identity: Mapping[str, str] | object = None,
    grace_s: float = SHUTDOWN_GRACE_S,
) -> None:
    """Serve the catalog on standard input and output until the input ends, or SIGINT or SIGTERM.

    What tools print goes to standard error.

    Args:
        catalog: the tools.
        config: makes the context of each request; see `http_app`.
        profile: the profile to serve; by default `default`, or the first declared.
        identity: whom this process serves: `user`, `space`, `roles`, `session`.
        grace_s: how long running calls may go on after a signal.

    Raises:
        DefinitionError: no such profile, or an unknown word in the identity.
    """
    chosen = choose_profile(catalog.registry.profiles, profile)
    who = Identity.of(identity)
    principal = Principal(identity=who, profile=chosen, session=who.session or "stdio")
    asyncio.run(serve_stdio(catalog, gateway_of(catalog, config), principal, grace_s=grace_s))
    leave_if_held()


async def serve_stdio(
    catalog: Catalog, gateway: Gateway, principal: Principal, *, grace_s: float = SHUTDOWN_GRACE_S
) -> None:
    """Serve on the process's own standard input and output, on the running loop; without them nobody is there."""
    if cast("object", sys.stdin) is None or cast("object", sys.stdout) is None:
        return
    async with standard_streams(catalog.registry.bounds.message_line_bytes) as streams:
        await catalog.start()
        if catalog.guards.tasks is not None:
            catalog.tasks.wake_soon()
        line = StdioConnection(gateway, principal, streams)
        end_logging = log_calls(catalog.guards)
        try:
            with _signals(line.stop):
                await line.run(grace_s=grace_s)
        finally:
            await catalog.close(grace_s=0.0)
            end_logging()


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Any:
    """End the input at the first signal, the process at the second."""
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
    """One connection: plain requests are answered here, the rest by the SDK, which is loaded when it is needed."""

    def __init__(self, gateway: Gateway, principal: Principal, streams: LineStreams) -> None:
        self._gateway, self._principal, self._streams = gateway, principal, streams
        bounds = gateway.registry.bounds
        self._bounds = replace(bounds, request_body_bytes=bounds.message_line_bytes, json_depth=bounds.json_depth + 4)
        lists = Lists(gateway)
        self._handshake, self._earlier = Handshake(gateway), EarlierPath(gateway, lists)
        self._sessions = Sessions()
        self._session = self._sessions.open(principal, Client("", {}))
        self._session.tell = self._tell
        self._fast_path = FastPath(gateway, lists, seal=self._seal, discovers=True)
        self._missed: list[bytes] = []
        self._is_telling = False
        self._pipe: Pipe | None = None
        self._calls: dict[bytes, asyncio.Task[None]] = {}
        self._is_modern: bool | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Take no more messages."""
        self._is_stopped = True
        self._streams.stop()

    async def run(self, *, grace_s: float) -> None:
        """Serve until the input ends; then wait a moment for answers that are due, or `grace_s` if stopped."""
        ends = [self._gateway.catalog.subscribe(self._changed), self._gateway.resources.subscribe(self._changed)]
        self._loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    line = await self._streams.line()
                except LineTooLongError:
                    await self._refuse(-32600, "The message is too long.")
                    continue
                if not line:
                    break
                await self._take(line)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s if self._is_stopped else STDIO_END_GRACE_S):
                    await self._answers_due()
        finally:
            for end in ends:
                end()
            await self._end()

    def _changed(self) -> None:
        """Note a change of the catalog, in whatever thread; once the SDK is loaded, it tells of changes."""
        if self._pipe is None and len(self._missed) == _GREETED and not self._is_telling:
            self._is_telling = True
            self._loop.call_soon_threadsafe(self._loop.call_later, CHANGES_SETTLE_S, self._tell_changed)

    def _tell_changed(self) -> None:
        self._is_telling = False
        if self._pipe is None:
            try:
                for notification in self._handshake.changed():
                    self._streams.write(notification + b"\n")
            except OSError as error:
                self._lose_client(error)

    async def _answers_due(self) -> None:
        while self._calls:
            await asyncio.wait(self._calls.values(), return_when=asyncio.FIRST_COMPLETED)
        while self._pipe is not None and self._pipe.due:
            self._pipe.answered.clear()
            await self._pipe.answered.wait()

    async def _end(self) -> None:
        for task in self._calls.values():
            task.cancel()
        await asyncio.gather(*self._calls.values(), return_exceptions=True)
        if self._pipe is not None:
            await self._pipe.close()

    async def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = parse_json(line, bounds=self._bounds)
        except CallError as error:
            envelope = envelope_of(line)
            request_id = None if envelope is None or envelope.is_answer else envelope.id
            await self._refuse(-32700, f"Parse error: {fault_of(error)}.", request_id)
            return
        request = as_object(message)
        if request is not None and "method" in request and self._is_open(request.get("id")):
            await self._refuse(-32600, f"A request with the id {request['id']!r:.100} is already open.", request["id"])
            return
        if self._is_modern is not False:
            plan = self._fast_path.plan(message, self._principal)
            if plan is not None:
                self._is_modern = True
                self._begin(plan)
                return
        if request is not None and is_unanswerable(request):
            await self._refuse(-32600, NO_ID)
            return
        if self._is_cancelled(message) or (request is not None and await self._is_of_session(request, line)):
            return
        pipe = await self._loaded()
        if self._is_modern is None and request is not None and "id" in request:
            self._is_modern = _has_envelope(request)
        if not await pipe.feed(line):
            await self._refuse(-32600, "Not a JSON-RPC message.")

    def _is_open(self, request_id: object) -> bool:
        """Tell whether a request of this id waits for its answer: two answers could not be told from each other."""
        if type(request_id) not in (int, str):
            return False
        return json_bytes(request_id) in self._calls or (self._pipe is not None and request_id in self._pipe.due)

    def _begin(self, plan: Plan) -> None:
        task = self._calls[plan.request_id] = asyncio.create_task(self._answer(plan))
        task.add_done_callback(lambda _done: self._calls.pop(plan.request_id, None))

    async def _answer(self, plan: Plan) -> None:
        if plan.outlet is not None:
            plan.outlet.write = self._write_line
        answer = await plan.work
        await self._write(answer.message(plan.request_id) + b"\n")

    async def _is_of_session(self, request: JSON, line: bytes) -> bool:
        """Handle a plain message of an earlier revision."""
        if self._is_modern is True:
            return False
        if self._is_modern is None:
            answer = self._handshake.initialize(request)
            if answer is None:
                return False
            self._is_modern = False
            self._session.capabilities = request["params"]["capabilities"]
            self._missed.append(line)
            await self._write_line(answer.message(json_bytes(request["id"])))
            return True
        if request.get("method") == "notifications/initialized" and self._pipe is None and len(self._missed) == 1:
            self._session.is_open = True
            self._missed.append(line)
            return True
        if "method" not in request:
            return self._session.questions.take(request)
        # One whom the SDK has greeted is the SDK's: what it can do is known there alone.
        plan = self._earlier.plan(request, self._principal, self._session) if self._missed else None
        if plan is not None:
            self._begin(plan)
        return plan is not None

    def _is_cancelled(self, message: JSONValue) -> bool:
        """Handle `notifications/cancelled` for a call of ours."""
        notification = as_object(message)
        if notification is None or notification.get("method") != "notifications/cancelled":
            return False
        params = as_object(notification.get("params")) or {}
        task = self._calls.get(json_bytes(params.get("requestId")))
        if task is None:
            return self._pipe is None
        task.cancel()
        return True

    async def _loaded(self) -> Pipe:
        pipe = self._pipe
        if pipe is None:
            pipe = sdk_pipe.Pipe(self._gateway, self._principal, self._sessions, self._session, self._write)
            self._pipe = pipe
            await pipe.start(is_modern=self._is_modern is True, missed=self._missed)
        return pipe

    async def _seal(self, result: JSON, params: Mapping[str, Any], principal: Principal) -> JSON:
        return await (await self._loaded()).seal(result, params, principal)

    async def _tell(self, message: JSON) -> None:
        await self._write_line(json_bytes(message))

    async def _write_line(self, message: bytes) -> None:
        await self._write(message + b"\n")

    async def _write(self, data: bytes) -> None:
        try:
            self._streams.write(data)
            await self._streams.drain()
        except OSError as error:
            self._lose_client(error)

    def _lose_client(self, error: OSError) -> None:
        """End: nobody reads our answers any more, or they have no room left. A client may go when it likes."""
        if not self._is_stopped:
            log.info("Standard output takes no more answers (%s): the server ends.", error)
        self.stop()

    async def _refuse(self, code: int, text: str, request_id: int | str | None = None) -> None:
        await self._write(error_message(code, text, request_id) + b"\n")


def _has_envelope(message: JSON) -> bool:
    meta = as_object((as_object(message.get("params")) or {}).get("_meta")) or {}
    return message.get("method") != "initialize" and VERSION_KEY in meta
