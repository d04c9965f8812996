"""Lists: the tools, resources and prompts of one caller, as ready bytes and as pages, for both eras."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.digests import digest
from pegboard.core.ports import LeadsElsewhere
from pegboard.core.selections import SharedTools
from pegboard.core.snapshot import Snapshot
from pegboard.core.view import View
from pegboard.model.error import CallError
from pegboard.model.hops import HOPS_KEY
from pegboard.model.json_types import JSON
from pegboard.model.skill import MAIN_FILE, Skill
from pegboard.model.tool import ToolEntry
from pegboard.providers import EXPORTERS
from pegboard.providers.exporter import PROVIDER_LISTS, Exporter
from pegboard.providers.mcp import mcp_tool, mcp_tool_before_2026
from pegboard.resources import PromptSpec, ResourceSpec
from pegboard.resources.skills import skills_of
from pegboard.server.gateway import Gateway
from pegboard.server.mcp.asking.client_channel import declares_ui
from pegboard.server.mcp.handlers.list_ttl import list_ttl_ms, starting
from pegboard.server.mcp.handlers.source_outcomes import outcomes
from pegboard.server.mcp.limits import LIST_TTL_MS
from pegboard.server.mcp.protocol.capabilities import SERVER_KEY, server_info
from pegboard.server.mcp.protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError, json_bytes
from pegboard.server.principal import Principal
from pegboard.server.sealing import Sealing, UnknownCursorError

MCP_PAGE_RESOURCES = 1_000  # resources of one page
MCP_PAGE_TOOLS = 2_000  # tools of one page


def _drawn_by(draw: Callable[[ToolEntry], JSON], kept_as: str) -> Exporter:
    return Exporter("mcp", lambda entry, name, schema: draw(entry), kept_as=kept_as)


def _plain(draw: Callable[[ToolEntry], JSON]) -> Callable[[ToolEntry], JSON]:
    """Return the formatter for clients without user interfaces, which leaves the interface out of `_meta`."""

    def plain(entry: ToolEntry) -> JSON:
        drawn = draw(entry)
        meta = {
            key: value for key, value in drawn.pop("_meta", {}).items() if key != "ui" and not key.startswith("ui/")
        }
        return {**drawn, "_meta": meta} if meta else drawn

    return plain


_mcp_tool_plain, _mcp_tool_before_2026_plain = _plain(mcp_tool), _plain(mcp_tool_before_2026)
_USUAL = EXPORTERS["mcp"]
_PLAIN = _drawn_by(_mcp_tool_plain, "mcp without interfaces")
_BEFORE_2026 = _drawn_by(mcp_tool_before_2026, "mcp before 2026")
_BEFORE_2026_PLAIN = _drawn_by(_mcp_tool_before_2026_plain, "mcp before 2026 without interfaces")


class ToolList(NamedTuple):
    """The inputs of a tool list.

    The view, the snapshot that it was prepared for, how long the list may be cached, and the sources with problems.
    """

    view: View
    snapshot: Snapshot
    ttl_ms: int
    meta: JSON


class Lists:
    """The lists of a catalog, for one principal at a time.

    Lists that fit on a page are sent whole; longer ones have pages, whose cursors need the server's `sealing`.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self._resources = gateway, gateway.resources
        self._registry = gateway.registry
        tail = {"ttlMs": LIST_TTL_MS, "cacheScope": "private", "resultType": "complete"}
        self._server = server_info(gateway)
        self._usual_tail = _tail({**tail, "_meta": {SERVER_KEY: self._server}})

    # -- tools

    def fit_a_page(self) -> bool:
        """Tell whether every possible tool list fits on one page."""
        snapshot = self._registry.snapshot()
        return len(snapshot.entries) <= MCP_PAGE_TOOLS and not snapshot.bundles

    async def _tools(self, principal: Principal) -> ToolList:
        gateway, has_sources = self._gateway, bool(self._registry.sources)
        view = gateway.view(principal)
        awaited = starting(gateway.catalog, view.ctx.caller) if has_sources else ()
        snapshot = await view.prepared_snapshot()
        if not has_sources:
            return ToolList(view, snapshot, LIST_TTL_MS, {})
        return ToolList(view, snapshot, list_ttl_ms(awaited, view), outcomes(gateway.catalog, view, snapshot))

    async def tools_as_bytes(self, principal: Principal, capabilities: JSON) -> tuple[bytes, ...]:
        """Return the complete result of a 2026-07-28 tools/list, in parts to be joined."""
        view, snapshot, ttl_ms, meta = await self._tools(principal)
        tail = self._usual_tail
        if meta or ttl_ms != LIST_TTL_MS:
            usual = {"ttlMs": ttl_ms, "cacheScope": "private", "resultType": "complete"}
            tail = _tail({**usual, "_meta": {**meta, SERVER_KEY: self._server}})
        exporter = _PLAIN if _is_plain(snapshot, capabilities) else _USUAL
        listed = exporter.to_bytes(view, within=snapshot)
        return b'{"tools":', *_with_apps(listed, _for_apps(view, snapshot, capabilities), mcp_tool), tail

    async def tools_as_bytes_before_2026(self, principal: Principal, capabilities: JSON) -> tuple[bytes, ...]:
        """Return the complete result of an earlier revision's tools/list, the same for all of them, in parts."""
        view, snapshot, _, meta = await self._tools(principal)
        tail = _tail({"_meta": meta}) if meta else b"}"
        exporter = _BEFORE_2026_PLAIN if _is_plain(snapshot, capabilities) else _BEFORE_2026
        listed = exporter.to_bytes(view, within=snapshot)
        return b'{"tools":', *_with_apps(listed, _for_apps(view, snapshot, capabilities), mcp_tool_before_2026), tail

    async def tools_page(
        self,
        principal: Principal,
        sealing: Sealing,
        cursor: str | None,
        *,
        capabilities: JSON,
        is_earlier: bool,
        hops: object = None,
    ) -> JSON:
        """Return one page of tools for either era; for a gateway, without the tools that lead back to it.

        Raises:
            RpcError: the cursor does not belong to this list.
        """
        asking = frozenset(self._gateway.asking(hops))
        view, snapshot, ttl_ms, meta = await self._tools(principal)
        tools = view.tools(within=snapshot)
        if for_apps := _for_apps(view, snapshot, capabilities):
            tools = (*tools, *for_apps)
        if hops is not None:
            tools = self._without_ways_back(tools, asking)
        generation = _generation(snapshot, tools)
        if _is_plain(snapshot, capabilities):
            draw = _mcp_tool_before_2026_plain if is_earlier else _mcp_tool_plain
        else:
            draw = mcp_tool_before_2026 if is_earlier else mcp_tool
        first, end, more = page_of(sealing, "tools", principal, generation, MCP_PAGE_TOOLS, len(tools), cursor)
        if hops is not None:
            ways = {entry.wire_name: self._registry.way_of(entry) for entry in tools[first:end]}
            meta = {**meta, **self._behind("tools", ways)}
        page: JSON = {"tools": [draw(entry) for entry in tools[first:end]], "ttlMs": ttl_ms, "cacheScope": "private"}
        return {**page, **({"_meta": meta} if meta else {}), **more}

    def _without_ways_back(self, tools: tuple[ToolEntry, ...], asking: frozenset[str]) -> tuple[ToolEntry, ...]:
        """Return the tools that do not lead back to the asking servers; the same object if none is left out."""
        leading = {name for name, source in self._registry.sources.items() if isinstance(source, LeadsElsewhere)}
        # Few of ten thousand tools lead to other servers, and this runs for each page.
        back = {
            entry.wire_name
            for entry in tools
            if entry.source in leading and not asking.isdisjoint(self._registry.way_of(entry))
        }
        return tuple([entry for entry in tools if entry.wire_name not in back]) if back else tools

    # -- resources and prompts

    async def resources_page(
        self, principal: Principal, sealing: Sealing, cursor: str | None, *, kind: str, hops: object = None
    ) -> JSON:
        """Return one page of `resources`, `resourceTemplates` or `prompts`.

        Raises:
            RpcError: the cursor does not belong to this list.
        """
        asking = frozenset(self._gateway.asking(hops))
        awaited = starting(self._gateway.catalog)
        view = self._gateway.resource_view(principal)
        snapshot = await view.prepared_snapshot()
        space = "prompt" if kind == "prompts" else "resource"
        ttl_ms = list_ttl_ms(awaited, view, space=space)
        own = list(self._items(view, snapshot, kind))
        if kind == "resources":
            own += [each async for each in self._members(view, snapshot)]
        offered = [(self._registry.way_of(entry), named, item) for entry, named, item in own]
        offered = [each for each in offered if asking.isdisjoint(each[0])]
        if kind == "resources":
            offered += [((), skill.uri, _skill(skill)) for skill in await self.skills(principal)]
        if kind != "prompts":
            # A client reads one resource per URI: the first one its caller may read, as in `find_resource`.
            first_of: dict[str, tuple[tuple[str, ...], str, JSON]] = {}
            for each in offered:
                first_of.setdefault(each[1], each)
            offered = list(first_of.values())
        items = [item for _, _, item in offered]
        first, end, more = page_of(sealing, kind, principal, digest(items), MCP_PAGE_RESOURCES, len(items), cursor)
        page: JSON = {kind: items[first:end], "ttlMs": ttl_ms, "cacheScope": "private", **more}
        if hops is not None:
            page["_meta"] = self._behind(kind, {named: way for way, named, _ in offered[first:end]})
        return page

    async def skills(self, principal: Principal) -> list[Skill]:
        """Return the caller's skills: those in namespaces where it has a tool."""
        declared = self._registry.declarations.skills
        if not declared:
            return []
        catalog = self._gateway.catalog
        view = catalog.view(self._gateway.context(principal), profile=principal.profile)
        return skills_of(declared, await view.atools())

    def _behind(self, kind: str, ways: Mapping[str, tuple[str, ...]]) -> JSON:
        """Return, for a gateway, the servers behind the items of a list."""
        far = {named: list(way) for named, way in ways.items() if way}
        return {HOPS_KEY: {"server": self._registry.server_id, kind: far}}

    async def _members(self, view: View, snapshot: Snapshot) -> AsyncIterator[tuple[ToolEntry, str, JSON]]:
        """Yield the resources that templates list for this caller."""
        for entry, spec in self._resources.resources(view, within=snapshot):
            if spec.members is not None:
                try:
                    members = await spec.members(view.ctx)
                except CallError as error:
                    raise RpcError(INTERNAL_ERROR, error.error.message, {"kind": error.error.kind}) from None
                for member in members:
                    yield entry, member.uri, _resource(member, "uri")

    def _items(self, view: View, snapshot: Snapshot, kind: str) -> Iterator[tuple[ToolEntry, str, JSON]]:
        """Return each item of a list with its entry and its name or URI."""
        if kind == "prompts":
            yield from (
                (entry, spec.name, _prompt(spec)) for entry, spec in self._resources.prompts(view, within=snapshot)
            )
            return
        are_templates = kind == "resourceTemplates"
        uri_key = "uriTemplate" if are_templates else "uri"
        for entry, spec in self._resources.resources(view, within=snapshot):
            if bool(spec.variables) is are_templates:
                yield entry, spec.uri, _resource(spec, uri_key)


def _is_plain(snapshot: Snapshot, capabilities: JSON) -> bool:
    """Tell whether interfaces are left out: some tools have one, and the client does not show them."""
    has_interfaces: bool | None = snapshot.cache.get("has interfaces")
    if has_interfaces is None:
        has_interfaces = any(snapshot.column("may have an interface", _may_have_interface))
        snapshot.cache["has interfaces"] = has_interfaces
    return has_interfaces and not declares_ui(capabilities)


def _may_have_interface(entry: ToolEntry) -> bool:
    # A definition made by a builder may have an interface.
    return entry.builder is not None or "ui" in entry.spec.meta


def _for_apps(view: View, snapshot: Snapshot, capabilities: JSON) -> tuple[ToolEntry, ...]:
    """Return the tools that the interfaces of this client may call, marked in `_meta.ui`."""
    return view.app_tools(within=snapshot) if snapshot.for_apps and declares_ui(capabilities) else ()


def _generation(snapshot: Snapshot, tools: tuple[ToolEntry, ...]) -> str:
    """Return an identifier of a list; for lists shared by many callers it is computed once, not per page."""
    if type(tools) is not SharedTools:
        return digest([(entry.wire_name, entry.fingerprint) for entry in tools])
    known: BoundedCache[int, tuple[SharedTools, str]] = snapshot.cache.setdefault(
        "generations", BoundedCache(max_entries=PROVIDER_LISTS)
    )
    kept = known.get(id(tools))
    if kept is None:
        made = digest([(entry.wire_name, entry.fingerprint) for entry in tools])
        # The value refers to the list, so that its id cannot be reused for another list.
        kept = known.remember(id(tools), (tools, made))
    return kept[1]


def _with_apps(listed: bytes, for_apps: Sequence[ToolEntry], draw: Callable[[ToolEntry], JSON]) -> tuple[bytes, ...]:
    """Return the tool list as JSON parts to be joined: shared `listed` bytes, and the rest formatted per caller."""
    if not for_apps:
        return (listed,)
    more = b",".join(json_bytes(draw(entry)) for entry in for_apps)
    return listed[:-1], b"," if len(listed) > len(b"[]") else b"", more, b"]"


def _tail(members: JSON) -> bytes:
    """Return the members that follow others in a JSON object."""
    return b"," + orjson.dumps(members)[1:]


def page_of(
    sealing: Sealing, kind: str, principal: Principal, generation: str, size: int, length: int, cursor: str | None
) -> tuple[int, int, JSON]:
    """Return (first, end, cursor member) of one page."""
    try:
        page = sealing.page("mcp", kind, principal.owner, generation, size=size, length=length, cursor=cursor)
    except UnknownCursorError:
        text = "Unknown cursor, or the list has changed: start again without a cursor."
        raise RpcError(INVALID_PARAMS, text) from None
    return page.first, page.end, {} if page.next_cursor is None else {"nextCursor": page.next_cursor}


def _resource(spec: ResourceSpec, uri_key: str) -> JSON:
    shown = {"name": spec.name, "title": spec.title, "description": spec.description, "mimeType": spec.mime_type}
    beside = {"size": spec.size, "annotations": spec.annotations, "icons": list(spec.icons), "_meta": spec.meta}
    return _without_empty({uri_key: spec.uri, **shown, **beside})


def _skill(skill: Skill) -> JSON:
    main = skill.files[MAIN_FILE]
    shown = {"name": skill.name, "description": skill.description, "mimeType": main.mime_type}
    return {"uri": skill.uri, **shown, "size": len(main.content)}


def _prompt(spec: PromptSpec) -> JSON:
    arguments = [
        _without_empty({"name": one.name, "description": one.description, "required": one.is_required})
        for one in spec.arguments
    ]
    shown = {"name": spec.name, "title": spec.title, "description": spec.description, "arguments": arguments}
    return _without_empty({**shown, "icons": list(spec.icons), "_meta": spec.meta})


def _without_empty(shown: JSON) -> JSON:
    return {key: value for key, value in shown.items() if value not in (None, "", [])}
