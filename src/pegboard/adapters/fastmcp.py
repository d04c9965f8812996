"""FastMCP: a server in this process as a source of tools, and a View as a provider of one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from fastmcp import Client, FastMCP
from fastmcp.client.messages import MessageHandler
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_context
from fastmcp.server.providers import Provider
from fastmcp.tools import Tool, ToolResult
from mcp.types import CallToolResult
from pydantic import PrivateAttr

from pegboard.adapters.framework_client import for_one_call
from pegboard.adapters.view_source import ViewFactory, view_of
from pegboard.core.names import legal
from pegboard.core.view import View
from pegboard.model.call_context import CallContext
from pegboard.model.json_types import JSON
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry
from pegboard.providers.mcp import mcp_result, mcp_tool_before_2026
from pegboard.providers.mcp_progress import Progress
from pegboard.sources.composable import Composable
from pegboard.sources.mcp.definitions import UnfitError, checked_definition, declared_spec, offered_titles
from pegboard.sources.mcp.resource_links import of_tools_alone
from pegboard.sources.mcp.results import read_result
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.upstream_tool import upstream_tool

# ---- a FastMCP server as a source


class FastMCPSource(Composable):
    """The tools of a FastMCP server in this process, for `catalog.add_source` or `catalog.mirror(source=…)`.

    `name` is their namespace. They are treated like those of any MCP server: names and schemas are checked, texts
    cleaned. The list is read again when the server reports a change. The catalog calls `start` and `stop`, on one loop.
    """

    def __init__(
        self, server: FastMCP[Any], *, name: str, groups: Sequence[str] = ("core",), trust_annotations: bool = False
    ) -> None:
        # Nothing is launched: the connection is a pair of queues.
        self._settings = ServerSettings(
            name=name,
            transport="stdio",
            command="in-process",
            groups=tuple(groups),
            trust_annotations=trust_annotations,
        )
        self._client: Client[Any] = Client(server, message_handler=_Changes(self._refresh))
        self._entries: tuple[ToolEntry, ...] = ()
        self._state = SourceState(status="connecting", is_up=False)
        self._listeners: list[Callable[[], None]] = []
        self._listing = asyncio.Lock()
        self.rejected: list[tuple[str, str]] = []
        """Tools that were left out, with the reason."""

    @property
    def name(self) -> str:
        """The namespace of its tools."""
        return self._settings.name

    def entries(self) -> Sequence[ToolEntry]:
        return self._entries

    def groups(self) -> frozenset[str]:
        return frozenset(self._settings.groups)

    def state(self) -> SourceState:
        return self._state

    def subscribe(self, on_change: Callable[[], None]) -> None:
        self._listeners.append(on_change)

    async def start(self) -> None:
        await self._client.__aenter__()
        await self._refresh()

    async def stop(self) -> None:
        self._adopt((), SourceState(status="unreachable", is_up=False, reason="it was stopped"))
        await self._client.close()

    async def _refresh(self) -> None:
        async with self._listing:
            listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in await self._tools()]
        self.rejected = []
        known = {entry.qualified_id: entry for entry in self._entries}
        entries: dict[str, ToolEntry] = {}
        for definition in listed:
            try:
                entry = self._entry(checked_definition(definition, bounds=self._settings.bounds))
            except UnfitError as error:
                self.rejected.append((str(definition.get("name")), str(error)))
                continue
            before = known.get(entry.qualified_id)
            entries[entry.qualified_id] = before if before is not None and before.spec == entry.spec else entry
        self._adopt(tuple(entries.values()), SourceState())

    async def _tools(self) -> Sequence[Any]:
        return await self._client.list_tools()

    def _adopt(self, entries: tuple[ToolEntry, ...], state: SourceState) -> None:
        self._entries, self._state = entries, state
        for notify in self._listeners:
            notify()

    def _entry(self, definition: JSON) -> ToolEntry:
        theirs: str = definition["name"]
        spec = declared_spec(definition, legal(theirs), self._settings)

        async def handle(ctx: CallContext, args: JSON, /) -> object:
            async def tell(progress: float, total: float | None, message: str | None) -> None:
                if total:
                    await ctx.progress(progress / total, message or "")

            # The server's own error is a result; exceptions here come from the connection.
            result = await self._client.call_tool_mcp(theirs, args, progress_handler=tell)
            return read_result(result, tool=spec.name, server=self.name, address_of=of_tools_alone(self.name))

        return upstream_tool(spec, handle, source=self.name, reaches=theirs, offered=offered_titles(definition))


class _Changes(MessageHandler):
    """Receives the notifications that the tools of a server changed."""

    def __init__(self, changed: Callable[[], Any]) -> None:
        super().__init__()
        self._changed = changed
        self._listing: set[asyncio.Task[None]] = set()

    async def on_tool_list_changed(self, message: object) -> None:
        # In its own task, since the session must continue to receive the list.
        task = asyncio.get_running_loop().create_task(self._changed())
        self._listing.add(task)
        task.add_done_callback(self._listing.discard)


# ---- a View as a provider


class ViewProvider(Provider):
    """The tools of a View for a FastMCP server: `FastMCP("shop", providers=[ViewProvider(view)])`.

    `source` is a View, or a function that makes one from FastMCP's request context, which identifies the caller. A tool
    that needs approval asks through the client, if it can ask its user; progress is reported to the client.
    """

    def __init__(self, source: View | ViewFactory) -> None:
        super().__init__()
        self._source = source

    async def _list_tools(self) -> Sequence[Tool]:
        view = await self._view()
        return [_view_tool(view, mcp_tool_before_2026(entry)) for entry in view.tools()]

    async def _get_tool(self, name: str, version: Any = None) -> Tool | None:
        view = await self._view()
        entry = await view.afind(name)
        # A name that is hidden from the caller may belong to another provider; the server reports unknown names.
        return None if entry is None or version is not None else _view_tool(view, mcp_tool_before_2026(entry))

    async def get_tasks(self) -> Sequence[Any]:
        """Return nothing: calls of a View are not FastMCP tasks."""
        return ()

    async def _view(self) -> View:
        view = await view_of(self._source, _context())
        return view.renewed()


def _context() -> Any:
    try:
        return get_context()
    except RuntimeError:
        return None


class _ViewTool(Tool):
    """One tool of the View; the call validates its arguments."""

    _view: View = PrivateAttr()

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        view, _ = for_one_call(self._view, ask=_elicited)
        context = _context()
        progress = None if context is None else Progress(context.report_progress)
        result = await view.call(self.name, arguments, callbacks=progress)
        shown = CallToolResult.model_validate(mcp_result(result, wrap_structured=True))
        return ToolResult(
            content=shown.content,
            structured_content=shown.structured_content,
            meta=shown.meta,
            is_error=shown.is_error or False,
        )


async def _elicited(question: str) -> bool | None:
    """Ask the user of the client; `None` if nobody can be asked."""
    context = _context()
    capabilities = None if context is None else context.session.client_capabilities
    if context is None or capabilities is None or capabilities.elicitation is None:
        return None
    try:
        answer = await context.elicit(question, response_type=bool)
    except ToolError:
        # This request has no channel to the client: revision 2026-07-28, or a background task.
        return None
    if answer.action == "cancel":
        return None
    return answer.action == "accept" and answer.data is True


def _view_tool(view: View, shown: JSON) -> Tool:
    fields = {"annotations": shown.get("annotations"), "title": shown.get("title"), "meta": shown.get("_meta")}
    tool = _ViewTool(
        name=shown["name"],
        description=shown.get("description"),
        parameters=shown["inputSchema"],
        output_schema=shown.get("outputSchema"),
        **{key: value for key, value in fields.items() if value is not None},
    )
    tool._view = view  # pyright: ignore[reportPrivateUsage] - an attribute of our own class
    return tool
