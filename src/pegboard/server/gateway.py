"""Gateway: the catalog as a server uses it: a principal's context and view, and one guarded call in wire form."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress

import orjson
from msgspec import Struct

from pegboard.catalog import Catalog
from pegboard.core.call.resolve import callable_tool
from pegboard.core.registry import Registry
from pegboard.core.view import View
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError
from pegboard.model.hops import path_through
from pegboard.model.json_types import JSON
from pegboard.model.result import TextContent, ToolResult
from pegboard.model.tool import ToolEntry
from pegboard.providers.mcp import mcp_result
from pegboard.providers.mcp_progress import Progress
from pegboard.resources import Resources
from pegboard.server.credential_watch import CredentialWatch
from pegboard.server.event_hub import EventHub
from pegboard.server.mcp.asking.client_channel import ClientChannel
from pegboard.server.mcp.asking.connecting import ask_to_connect, until_used
from pegboard.server.mcp.asking.earlier_channel import EarlierChannel
from pegboard.server.mcp.asking.input_required import InputRequiredChannel
from pegboard.server.mcp.protocol.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, MISSING_CAPABILITY, RpcError
from pegboard.server.mcp.protocol.task_wire import declares_tasks, task, task_before_2026
from pegboard.server.principal import ContextMaker, Principal, context_maker


class Gateway(Struct, frozen=True, kw_only=True):
    """Lists and calls the tools of a catalog for one principal at a time."""

    catalog: Catalog
    registry: Registry
    """The registry of the catalog."""
    context_for: ContextMaker
    resources: Resources
    event_hub: EventHub | None = None
    """Reports calls to listeners; only servers have one."""
    credential_watch: CredentialWatch | None = None
    """Ends streams with their credential; only servers have one."""

    def context(
        self, principal: Principal, channel: ClientChannel | None = None, *, hops: object = None
    ) -> ToolContext:
        """Return a new context for one request. `hops` are the servers it has passed through, unvalidated.

        Raises:
            CallError: `recursion_limit`.
        """
        own = self.registry.server_id
        if channel is not None and channel.hops is not None:
            hops = channel.hops
        ctx = self.context_for(principal, channel, (own,) if hops is None else path_through(hops, own))
        if channel is not None and self.event_hub is not None and self.event_hub.has_listener(principal, ctx):
            ctx, _ = self.event_hub.follow(ctx, principal)
        return ctx

    def watch(self, principal: Principal, end: Callable[[], object]) -> Callable[[], None]:
        """Call `end` if the credential of an open stream ends; returns the function to call when the stream is over."""
        return _unwatched if self.credential_watch is None else self.credential_watch.watch(principal, end)

    # -- lists

    def exposed(self, principal: Principal, ctx: ToolContext) -> View:
        """Return the view of a principal's profile, with a context to call in."""
        return self.catalog.exposed(self.catalog.view(ctx, profile=principal.profile))

    def view(self, principal: Principal) -> View:
        """Return the same view in a new context."""
        return self.exposed(principal, self.context(principal))

    def resource_view(self, principal: Principal, channel: ClientChannel | None = None) -> View:
        """Return the resources, prompts and completions that a principal's profile shows."""
        try:
            ctx = self.context(principal, channel)
        except CallError as error:
            raise RpcError(INVALID_REQUEST, error.error.message, {"kind": error.error.kind}) from None
        return self.resources.view(ctx, profile=principal.profile)

    def asking(self, hops: object) -> tuple[str, ...]:
        """Return the servers that a list request has passed through; `hops` is the unvalidated value in the request.

        Raises:
            RpcError: the request has been here before, or has passed through too many servers.
        """
        if hops is None:
            return ()
        try:
            return path_through(hops, self.registry.server_id)[:-1]
        except CallError as error:
            raise RpcError(INVALID_REQUEST, error.error.message, {"kind": error.error.kind}) from None

    # -- calls

    async def call(
        self, principal: Principal, name: str, arguments: JSON, channel: ClientChannel, *, is_earlier: bool = False
    ) -> JSON:
        """Run one guarded call and return its result in wire form.

        Raises:
            RpcError: the tool is not available to this caller, with the same message for every reason; the client
                lacks a capability that the call needs.
        """
        try:
            ctx = self.context(principal, channel)
        except CallError as error:
            return mcp_result(ToolResult((TextContent(error.error.message),), is_error=True, error=error.error))
        view = self.exposed(principal, ctx)
        result = await self.run(view, name, arguments, channel)
        if not isinstance(result, ToolResult):
            return result
        if (
            result.task_id is not None
            and (created := await self._task_for_client(result.task_id, ctx, channel)) is not None
        ):
            return created
        schema = await _promised(view, name) if is_earlier and result.has_structured else None
        shown = mcp_result(result, output_schema=schema, wrap_structured=is_earlier)
        shown.setdefault("isError", False)
        return shown

    async def _task_for_client(self, task_id: str, ctx: ToolContext, channel: ClientChannel) -> JSON | None:
        """Return the task that a client receives in place of a result; `None` if it does not support tasks."""
        if isinstance(channel, EarlierChannel):
            if not channel.wants_task:
                return None
            return {"task": task_before_2026(await self.catalog.tasks.get(task_id, ctx))}
        if not declares_tasks(channel.capabilities):
            return None
        return {**task(await self.catalog.tasks.get(task_id, ctx)), "resultType": "task"}

    async def run(
        self, view: View, name: str, arguments: JSON, channel: ClientChannel, *, absent: RpcError | None = None
    ) -> ToolResult | JSON:
        """Run one guarded call; return its result, or its pending questions, in wire form.

        Raises:
            RpcError: the name is not available to this caller (`absent`, if given); the client lacks a capability.
        """
        callbacks = Progress(channel.progress) if channel.wants_progress else None
        # A server without tasks runs such a request like any other. Source: MCP 2025-11-25, tasks.
        as_task = channel.wants_task and self.catalog.executor.ports.tasks is not None
        if isinstance(channel, InputRequiredChannel) and (urls := channel.opened_links()):
            await until_used(self.catalog.connections, urls)
        result = await view.call(name, arguments, callbacks=callbacks, as_task=as_task)
        error = result.error
        if error is None:
            return result
        # A person may have been asked during the call, so the current profile decides what is visible.
        if error.kind == "not_found" and await callable_tool(view.renewed(), name) is None:
            raise absent or RpcError(INVALID_PARAMS, error.message)
        if channel.refused_with is not None:
            raise RpcError(channel.refused_with, error.message)
        if error.kind == "connection_required":
            ask_to_connect(channel, error, view.ctx.caller, self.catalog.connections)
        elif error.kind != "consent_required":
            return result
        if channel.missing:
            raise RpcError(MISSING_CAPABILITY, error.message, {"requiredCapabilities": channel.missing})
        if isinstance(channel, InputRequiredChannel) and channel.questions:
            return {"resultType": "input_required", "inputRequests": channel.questions, "requestState": channel.state()}
        return result

    # -- headers that mirror arguments

    def may_mirror(self, name: str) -> bool:
        """Tell whether a tool with this name has arguments mirrored in headers, or may have."""
        snapshot = self.registry.snapshot()
        mirroring: frozenset[str] | None = snapshot.cache.get("mirroring")
        if mirroring is None:
            those = compress(snapshot.entries, snapshot.column("mirrors", _mirrors))
            mirroring = snapshot.cache["mirroring"] = frozenset([entry.qualified_id for entry in those])
        if not mirroring:
            return False
        entry = snapshot.find(name)
        return bool(snapshot.bundles) if entry is None else entry.qualified_id in mirroring

    async def mirrored_schema(self, principal: Principal, name: str) -> JSON | None:
        """Return the input schema of a visible tool, for checking its mirrored headers."""
        view = self.catalog.view(self.context(principal), profile=principal.profile)
        entry = await view.afind(name)
        return None if entry is None else entry.spec.input_schema


def _unwatched() -> None:
    """Do nothing: the default for a stream without a credential, as over stdio."""


async def _promised(view: View, name: str) -> JSON | None:
    """Return the output schema of a tool that has just answered: by its name alone, unless it is built per caller.

    The call was already admitted, and the answer reveals nothing about the schema except whether a value is wrapped.
    """
    entry = view.snapshot.find(name)
    if entry is None or entry.builder is not None:
        entry = await view.afind(name)
    return None if entry is None else entry.spec.output_schema


def gateway_of(catalog: Catalog, config: object) -> Gateway:
    """Return the gateway of a catalog, with its resources and its context type."""
    registry = catalog.registry
    context_for = context_maker(config, context_type=registry.context_type)
    return Gateway(catalog=catalog, registry=registry, context_for=context_for, resources=catalog.resources)


def _mirrors(entry: ToolEntry) -> bool:
    """Tell whether a tool has arguments mirrored in headers, or may have."""
    return entry.builder is not None or b"x-mcp-header" in orjson.dumps(entry.spec.input_schema)
