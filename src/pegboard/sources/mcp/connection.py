"""Connection: one connection to an MCP server, and the calls over it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from importlib.metadata import version
from typing import Any

import httpx2  # noqa: TID251 - what the SDK raises; ours goes out through egress.transport
import mcp_types as types
from mcp.client.session import ClientSession, IncomingMessage
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import MODERN_PROTOCOL_VERSIONS, is_version_at_least
from pydantic import TypeAdapter, ValidationError

from pegboard.egress.destinations import only_host_of
from pegboard.egress.limits import PROBE_S
from pegboard.egress.reachability import check_reachable
from pegboard.model.call_context import CallContext, UpstreamOutcome
from pegboard.model.error import CallError, ToolError
from pegboard.model.hops import HOPS_KEY, check_may_leave
from pegboard.model.json_types import JSON, is_list, is_object
from pegboard.model.record import replace
from pegboard.model.result import ToolResult
from pegboard.sources.foreign_text import cleaned
from pegboard.sources.mcp.answer_filter import TOO_MANY_VALUES, UNREADABLE
from pegboard.sources.mcp.definitions import UnfitError, checked_definition
from pegboard.sources.mcp.elicitation import ElicitationRelay
from pegboard.sources.mcp.evidence import MCP_MESSAGE_BYTES, Evidence
from pegboard.sources.mcp.foreign_metadata import with_readable_notes
from pegboard.sources.mcp.http_transport import (
    FAILED,
    OddAnswerError,
    Streams,
    TransportFailures,
    open_http,
    open_sse,
)
from pegboard.sources.mcp.listing import Listing, gather
from pegboard.sources.mcp.resource_links import AddressOf
from pegboard.sources.mcp.resource_wire import gather_resources, wire_request
from pegboard.sources.mcp.results import read_result
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.servers_behind import ServersBehind
from pegboard.sources.mcp.stdio_transport import MCP_PROGRESS_S, StdioTraffic, open_stdio
from pegboard.sources.mcp.turns import Turns
from pegboard.sources.mcp.upstream_resources import ResourceRequest, UpstreamResources

MCP_INPUT_ROUNDS = 10  # rounds of questions in one call
MCP_MUTE_CALLS = 5  # consecutive calls without any answer until the server counts as unreachable instead of busy
# Seconds for a connection and its TLS handshake: TCP repeats a lost packet after 1 and 3 seconds, and next after 7.
MCP_HTTP_PROBE_S = 4.0
MCP_LISTEN_AGAIN_S = 5.0  # seconds before a subscription that ended is renewed

_CLIENT = types.Implementation(name="pegboard", version=version("pegboard"))
_ANSWER: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_LIST_CHANGED = (
    types.ToolListChangedNotification,
    types.PromptListChangedNotification,
    types.ResourceListChangedNotification,
)
_PASSES_SERVERS = ("/list", "/call", "/read", "/get", "/complete")
# The servers that the call being sent has passed, this one last.
_path: ContextVar[tuple[str, ...]] = ContextVar("pegboard_path", default=())
_CLOSED = "Connection closed"
_OVER = (_CLOSED, "SSE stream")


class LenientDispatcher(JSONRPCDispatcher[Any]):
    """Sends the SDK's requests, and passes on only answers that the SDK can parse.

    Keeps the raw tools of a list.
    """

    def __init__(self, streams: Streams, *, settings: ServerSettings, on_end: Callable[[], None]) -> None:
        read, write = streams
        super().__init__(read, write)
        self._settings, self._on_end = settings, on_end
        self.page: JSON = {}
        self.server_id: Callable[[], str] = str
        self.answers, self.answered_at = 0, 0.0

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **related: Any
    ) -> dict[str, Any]:
        if method.endswith(_PASSES_SERVERS):
            params = self._with_path(params or {})
        raw = await super().send_raw_request(method, params, opts, **related)
        self.answers, self.answered_at = self.answers + 1, time.monotonic()
        if method != "tools/list":
            return with_readable_notes(raw)
        self.page = raw
        # A server's notes about its list may be long, and the SDK does not use them.
        shown = {key: value for key, value in raw.items() if not (key == "_meta" and is_object(value))}
        tools = raw.get("tools")
        return {**shown, "tools": await self._needed(tools) if is_list(tools) else []}

    def _with_path(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the params of a request with its path of servers; lists are requested by us."""
        own_id = self.server_id()
        path = _path.get() or ((own_id,) if own_id else ())
        return {**params, "_meta": {**(params.get("_meta") or {}), HOPS_KEY: list(path)}} if path else params

    async def _needed(self, tools: Sequence[object]) -> list[JSON]:
        """Return the parts of the tools that the SDK needs over HTTP: the headers for their calls.

        The SDK scans the list twice without a break. For a long list, this yields to other work in between.
        """
        needed: list[JSON] = []
        if self._settings.transport == "stdio":
            return needed
        turns = Turns()
        for tool in tools[: self._settings.bounds.upstream_tools]:
            await turns.next()
            with suppress(UnfitError):
                definition = checked_definition(tool, bounds=self._settings.bounds)
                needed.append({"name": definition["name"], "inputSchema": _schema_of_headers(definition)})
        return needed

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        **started: Any,
    ) -> None:
        try:
            await super().run(on_request, on_notify, on_notify_intercept, **started)
        finally:
            self._on_end()


def _schema_of_headers(definition: JSON) -> JSON:
    """Return the schema of a tool's arguments if it declares headers, and otherwise a trivial one."""
    schema: JSON = definition["inputSchema"]
    is_plain = find_invalid_x_mcp_header(schema) is None and not x_mcp_header_map(schema)
    return {"type": "object"} if is_plain else schema


class Connection:
    """An open connection. `lost` is set when it can no longer be used; `fault` is the reason."""

    def __init__(
        self,
        settings: ServerSettings,
        evidence: Evidence,
        *,
        server_id: Callable[[], str] = str,
        on_changed: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        self.settings, self.evidence, self._server_id = settings, evidence, server_id
        self._ways = ServersBehind()
        self.fault: CallError | None = None
        self.silence: CallError | None = None
        """Why the server counts as unreachable although the connection is open; `None` while it answers."""
        self.is_lost = False
        self.traffic = StdioTraffic(bounds=settings.bounds)
        self.failures = TransportFailures(self.lose, on_changed, evidence)
        self.elicitations = ElicitationRelay(settings.bounds)
        self.session: ClientSession
        self._dispatcher: LenientDispatcher
        self._on_changed, self._on_lost = on_changed, on_lost
        self._in_flight: set[asyncio.Task[Any]] = set()
        # The number of calls given up since the server's last answer, and the number of that answer.
        self._abandoned, self._last_answer = 0, 0

    def lose(self, fault: CallError | None = None) -> None:
        """Mark the connection as lost."""
        self.fault = self.fault or fault
        if not self.is_lost:
            self.is_lost = True
            self._on_lost()

    def unavailable(self) -> CallError:
        """Return the reason for the loss, for callers who did not wait for an answer."""
        if self.fault is not None:
            return self.fault
        reason = (self.traffic.fault or "it ended the connection").rstrip(".")
        words = self.evidence.words_for(None)
        return CallError("upstream_unavailable", f"The MCP server {self.settings.name!r} is gone: {reason}.{words}")

    @property
    def may_be_busy(self) -> bool:
        """Whether a working server could be busy with calls in flight; false after many without an answer."""
        is_mute = self._last_answer == self._dispatcher.answers and self._abandoned >= MCP_MUTE_CALLS
        return bool(self._in_flight) and not is_mute

    @property
    def answered_at(self) -> float:
        """When the server has last sent an answer, by the monotonic clock."""
        return self._dispatcher.answered_at

    @property
    def is_in_use(self) -> bool:
        """Whether calls wait for the server, which may be too busy for a ping, and none was given up without answer."""
        has_given_up = self._last_answer == self._dispatcher.answers and self._abandoned > 0
        return bool(self._in_flight) and not has_given_up

    async def ping(self) -> None:
        """Wait until the server shows that it runs: over stdio by any answer, over HTTP as its host reacts.

        A host far away is not sent a request: that could wake a service that sleeps while it is not used.

        Raises:
            CallError, OSError: the host cannot be reached, or stays silent.
            TimeoutError: the program does not answer.
        """
        if self.settings.transport != "stdio":
            await _check_host(self.settings)
            return
        version = self.session.protocol_version or ""
        async with asyncio.timeout(PROBE_S):
            # An error is an answer.
            with suppress(MCPError):
                if version in MODERN_PROTOCOL_VERSIONS:
                    await self.session.send_discover(version)
                else:
                    await self.session.send_ping()

    async def connect(self, stack: AsyncExitStack, opened: AbstractAsyncContextManager[Streams]) -> None:
        """Open the transport and negotiate a protocol version."""
        try:
            streams = await stack.enter_async_context(opened)
        except (ExceptionGroup, httpx2.HTTPError, RuntimeError, ValueError) as error:
            # The SDK's task groups wrap exceptions.
            fault = first_call_error(error)
            raise fault or self._not_mcp("it opened no stream of events that names where to write") from None
        self._dispatcher = LenientDispatcher(streams, settings=self.settings, on_end=self.lose)
        self._dispatcher.server_id = self._server_id
        self.session = ClientSession(
            dispatcher=self._dispatcher,
            client_info=_CLIENT,
            message_handler=self._on_message,
            elicitation_callback=self.elicitations.answer_elicitation,
        )
        await stack.enter_async_context(self.session)
        await self._agree()
        self.evidence.has_session = True
        self._check_version()
        if self.session.protocol_version in MODERN_PROTOCOL_VERSIONS and any(self._announced_changes()):
            task = asyncio.create_task(self._listen(), name=f"mcp-listen-{self.settings.name}")
            stack.callback(task.cancel)

    async def _agree(self) -> None:
        try:
            await self.session.discover()
        except MCPError as error:
            with suppress(OddAnswerError):
                self._raise_transport_failure(error)
            # Any other answer may come from a server of an earlier revision.
            await self._initialize()
        except (ValidationError, RuntimeError):
            await self._initialize()

    def _check_version(self) -> None:
        """Refuse a server whose revision is older than the operator's minimum. Revisions are named by dates."""
        wanted, agreed = self.settings.min_protocol_version, self.session.protocol_version or ""
        if wanted is not None and not is_version_at_least(agreed, wanted):
            text = (
                f"The MCP server {self.settings.name!r} speaks {agreed!r}, and min_protocol_version is {wanted!r}. "
                "Update the server, or ask for less."
            )
            raise CallError("protocol_error", text)

    async def _initialize(self) -> None:
        self.evidence.forget_answer()
        try:
            await self.session.initialize()
        except MCPError as error:
            self._raise_transport_failure(error)
            if error.code == types.UNSUPPORTED_PROTOCOL_VERSION and await self._is_discovered():
                return
            if self.evidence.has_odd_answer:
                raise self._not_mcp() from None
            if _is_said_here(error, UNREADABLE):
                raise self._not_mcp("its stream of events has no message of the protocol") from None
            raise self._upstream_error(error, "did not open a session") from None

    async def _is_discovered(self) -> bool:
        """Repeat the discovery of a current server that started too slowly to answer the first time."""
        try:
            await self.session.discover()
        except (MCPError, ValidationError, RuntimeError):
            return False
        return True

    def _not_mcp(self, otherwise: str = "") -> OddAnswerError:
        return OddAnswerError("protocol_error", self.evidence.not_mcp(otherwise))

    def _announced_changes(self) -> tuple[bool, bool, bool]:
        """Return whether the server announces changes of tools, prompts and resources."""
        offered = self.session.server_capabilities
        if offered is None:
            return False, False, False
        return _announces(offered.tools), _announces(offered.prompts), _announces(offered.resources)

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, _LIST_CHANGED):
            self._on_changed()

    async def _listen(self) -> None:
        """Receive notifications of changes for the lifetime of the connection."""
        tools, prompts, resources = self._announced_changes()
        while not self.is_lost:
            try:
                async with listen(
                    self.session,
                    tools_list_changed=tools,
                    prompts_list_changed=prompts,
                    resources_list_changed=resources,
                ) as changes:
                    async for _ in changes:
                        self._on_changed()
            except MCPError as error:
                if error.code in (types.METHOD_NOT_FOUND, types.INVALID_PARAMS):
                    return
            except SubscriptionLost:
                pass
            await asyncio.sleep(MCP_LISTEN_AGAIN_S)
            # Changes during the gap are found by listing, which also shows whether the server is alive.
            self._on_changed()

    # ---- lists

    async def list(self) -> Listing:
        """Return all tools of the server; see `gather`.

        Raises:
            CallError: the server cannot be asked, or its list is refused.
        """
        self._ways = ServersBehind(self._server_id())
        listing = await gather(self._page, self.settings, fault_of=self._fault_of)
        ways = {name: self._ways.of(name) for name in listing.tools if self._ways.server_id}
        return replace(listing, ways=ways)

    def _fault_of(self, definition: JSON) -> str | None:
        return self._ways.fault_of(definition["name"]) or self._header_fault(definition)

    def _header_fault(self, definition: JSON) -> str | None:
        """Return the fault in the headers that a tool declares; over HTTP such a tool is left out."""
        if self.settings.transport == "stdio" or self.session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return None
        reason = find_invalid_x_mcp_header(definition["inputSchema"])
        return None if reason is None else f"its inputSchema has an invalid x-mcp-header: {cleaned(reason)}"

    async def _page(self, cursor: str | None) -> JSON:
        try:
            await self.session.list_tools(
                params=None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
            )
        except MCPError as error:
            self._raise_transport_failure(error)
            if error.code == types.METHOD_NOT_FOUND:
                return {"tools": []}
            if _is_said_here(error, TOO_MANY_VALUES):
                raise CallError("result_too_large", self.settings.too_many_values) from None
            raise self._upstream_error(error, "did not list its tools") from None
        except ValidationError:
            text = f"The MCP server {self.settings.name!r} sent a list of tools that breaks the protocol."
            raise CallError("protocol_error", text) from None
        self._ways.take(self._dispatcher.page.get("_meta"))
        return self._dispatcher.page

    async def list_resources(self) -> UpstreamResources:
        """Return the server's resources, prompts and completions, as far as they can be read."""
        return await gather_resources(self.session, self.settings, own_id=self._server_id())

    # ---- calls

    async def call(self, name: str, args: JSON, ctx: CallContext, address_of: AddressOf) -> ToolResult:
        """Run one call at the server. If the caller stops waiting, the server is told to stop too.

        Raises:
            CallError: `upstream_lost`, `upstream_error`, and errors of the transport.
        """

        def request(**answers: Any) -> types.CallToolRequest:
            return types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=args, **answers))

        def read(answer: Any) -> ToolResult:
            return read_result(answer, tool=ctx.tool, server=self.settings.name, address_of=address_of)

        return await self._send(request, _ANSWER, read, ctx)

    async def request(self, request: ResourceRequest, ctx: CallContext, address_of: AddressOf) -> ToolResult:
        """Read a resource, render a prompt or complete an argument at the server.

        Raises:
            CallError: as for a call.
        """
        return await self._send(*wire_request(request, ctx.tool, self.settings.name, address_of), ctx)

    async def _send(
        self,
        request: Callable[..., Any],
        answers: TypeAdapter[Any],
        read: Callable[[Any], ToolResult],
        ctx: CallContext,
    ) -> ToolResult:
        """Send a request, and record for the audit what each layer of the server answered."""
        try:
            result = await self._answer_to(request, answers, read, ctx)
        except CallError as error:
            if ctx.call is not None:
                ctx.call.ends_upstream(_outcome_of(error.error))
            raise
        if ctx.call is not None:
            ctx.call.ends_upstream(UpstreamOutcome("ok", "ok", "is_error" if result.is_error else "ok"))
        return result

    async def _answer_to(
        self,
        request: Callable[..., Any],
        answers: TypeAdapter[Any],
        read: Callable[[Any], ToolResult],
        ctx: CallContext,
    ) -> ToolResult:
        # A separate task, which can still notify the server after its caller is gone.
        self.evidence.on_call(ctx.caller)
        task = asyncio.create_task(self._exchange(request, answers, ctx))
        before = self._dispatcher.answers
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        try:
            return read(await asyncio.shield(task))
        except asyncio.CancelledError:
            if task.cancelled() and self.is_lost:
                raise self._lost_in_call(ctx) from None
            task.cancel()
            if self._dispatcher.answers == before:
                self._abandoned = self._abandoned + 1 if self._last_answer == before else 1
                self._last_answer = before
                # Nothing arrived while the caller waited; a listing shows whether the server still answers.
                self._on_changed()
            raise
        except MCPError as error:
            self._raise_transport_failure(error)
            if error.code == types.CONNECTION_CLOSED and (self.is_lost or error.message.startswith(_OVER)):
                if error.message == _CLOSED:
                    self.lose()
                # One broken stream says little about the server; a listing says more.
                self._on_changed()
                raise self._lost_in_call(ctx) from None
            if _is_said_here(error, UNREADABLE):
                raise self._unreadable_answer(ctx) from None
            if _is_said_here(error, TOO_MANY_VALUES):
                text = f"{ctx.tool!r} ran. {self.settings.too_many_values}"
                raise CallError("result_too_large", text, outcome_unknown=True) from None
            raise self._upstream_error(error, f"refused the call of {ctx.tool!r}") from None
        except ValueError:  # pydantic's errors are ValueErrors, as is the error for too deep JSON
            raise self._unreadable_answer(ctx) from None

    async def _exchange(self, request: Callable[..., Any], answers: TypeAdapter[Any], ctx: CallContext) -> Any:
        check_may_leave(ctx.request.hops)
        _path.set(ctx.request.hops)
        answers_so_far: dict[str, Any] = {}
        progress = _Progress(ctx)
        with self.elicitations.during(ctx):
            for _ in range(MCP_INPUT_ROUNDS):
                answer = await self.session.send_request(request(**answers_so_far), answers, progress_callback=progress)
                if not isinstance(answer, types.InputRequiredResult):
                    return answer
                responses = await self.elicitations.answer_required(answer, ctx)
                answers_so_far = {"input_responses": responses, "request_state": answer.request_state}
        raise CallError("protocol_error", f"{self.settings.name!r} asked more than {MCP_INPUT_ROUNDS} times for input.")

    def _raise_transport_failure(self, error: MCPError) -> None:
        """Raise the transport's failure, if that caused the error."""
        if error.code == FAILED and is_object(error.data):
            failure = self.failures.recall(error.data.get("failure"))
            if failure is not None:
                raise failure from None

    def _unreadable_answer(self, ctx: CallContext) -> CallError:
        text = f"{ctx.tool!r} ran, but the answer of {self.settings.name!r} breaks the protocol."
        return CallError("protocol_error", text, outcome_unknown=True)

    def _lost_in_call(self, ctx: CallContext) -> CallError:
        reason = self.traffic.fault or (self.fault.error.message if self.fault else "the connection ended")
        text = f"The MCP server {self.settings.name!r} was lost during the call ({reason.rstrip('.')})."
        words = self.evidence.words_for(ctx.caller)
        return CallError("upstream_lost", f"{text} It may have taken effect: check first.{words}", outcome_unknown=True)

    def _upstream_error(self, error: MCPError, what: str) -> CallError:
        if error.code == types.CONNECTION_CLOSED and error.message == _CLOSED:
            return self.unavailable()
        # The message also appears in the source's state, which `why` shows.
        words = self.settings.without_secrets(error.message, max_bytes=MCP_MESSAGE_BYTES)
        text = f"The MCP server {self.settings.name!r} {what}. Its own words, which are data: {words}"
        return CallError("upstream_error", text, details={"code": error.code})


def first_call_error(error: BaseException) -> CallError | None:
    """Return the first CallError in an exception or a group of them."""
    if isinstance(error, CallError):
        return error
    inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    return next((fault for each in inner if (fault := first_call_error(each)) is not None), None)


def _outcome_of(error: ToolError) -> UpstreamOutcome:
    """Return the layers that answered: the transport works if the server refused, or broke the protocol."""
    if error.kind == "upstream_error" and "code" in error.details:
        return UpstreamOutcome("ok", str(error.details["code"]))
    if error.kind in ("protocol_error", "result_too_large"):
        return UpstreamOutcome("ok", error.kind)
    return UpstreamOutcome(error.kind)


def _is_said_here(error: MCPError, fault: str) -> bool:
    """Tell whether an error is our replacement for an unreadable message."""
    return error.code == types.PARSE_ERROR and error.message.startswith(fault)


def _announces(part: Any) -> bool:
    return bool(part is not None and part.list_changed)


class _Progress:
    """Forwards progress to the caller, at most ten times a second."""

    def __init__(self, ctx: CallContext) -> None:
        self._ctx, self._passed_at = ctx, -1.0

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        now = time.monotonic()
        is_last = total is not None and progress >= total
        if now - self._passed_at < MCP_PROGRESS_S and not is_last:
            return
        self._passed_at = now
        fraction = progress / total if total else progress
        await self._ctx.progress(min(max(fraction, 0.0), 1.0), cleaned(message or "", max_bytes=MCP_MESSAGE_BYTES))


async def accepts_connections(settings: ServerSettings) -> bool:
    """Tell whether the host of an HTTP server accepts connections and reacts.

    Raises:
        CallError: the destination is refused.
    """
    try:
        await _check_host(settings)
    except OSError:
        return False
    except CallError as error:
        # The name of a container is known once it runs.
        if error.error.kind == "blocked_destination":
            raise
        return False
    return True


async def _check_host(settings: ServerSettings) -> None:
    """Check that the host of an HTTP server reacts; see `check_reachable`."""
    await check_reachable(settings.url, only_host_of(settings.url), timeout_s=MCP_HTTP_PROBE_S)


@asynccontextmanager
async def open_connection(
    settings: ServerSettings,
    evidence: Evidence,
    *,
    server_id: Callable[[], str] = str,
    on_changed: Callable[[], None],
    on_lost: Callable[[], None],
) -> AsyncGenerator[Connection]:
    """Connect to a server, over SSE if it supports nothing newer over HTTP; closed with the block.

    `evidence` collects the signs of a failure, even if the time runs out before there is a connection.

    Raises:
        CallError: the server is unreachable, or supports no common protocol.
    """
    async with AsyncExitStack() as stack:
        connection = Connection(settings, evidence, server_id=server_id, on_changed=on_changed, on_lost=on_lost)
        if settings.transport == "stdio":
            await connection.connect(stack, open_stdio(settings, connection.traffic, evidence))
        elif settings.transport == "sse":
            await connection.connect(stack, open_sse(settings, connection.failures))
        else:
            try:
                async with AsyncExitStack() as attempt:
                    await connection.connect(attempt, open_http(settings, connection.failures))
                    stack.push_async_exit(attempt.pop_all())
            except (CallError, ExceptionGroup) as error:  # the SDK's task groups wrap exceptions
                if connection.failures.last_status not in (400, 404, 405):
                    raise
                connection = Connection(settings, evidence, server_id=server_id, on_changed=on_changed, on_lost=on_lost)
                try:
                    await connection.connect(stack, open_sse(settings, connection.failures))
                except OddAnswerError:
                    # Neither works; the response to the newer protocol says more.
                    raise first_call_error(error) or error from None
        yield connection
