"""ListChanges: tell clients of either era that their lists have changed, and nobody else."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import compress
from operator import attrgetter
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from pegboard.core.judge import Selection
from pegboard.model.context import ToolContext
from pegboard.model.policy import OPEN_POLICY
from pegboard.server.gateway import Gateway
from pegboard.server.limits import CHANGES_SETTLE_S
from pegboard.server.mcp.handlers.task_notifications import TaskNotifications
from pegboard.server.mcp.sessions.sessions import Sessions
from pegboard.server.principal import Principal

MCP_LISTENING_STREAMS_OF_ONE = 100  # caller

Ctx = ServerRequestContext[Any, Any]
_NOBODY = ToolContext()
_EVENTS: Mapping[str, Callable[[], ServerEvent]] = {
    "tools": ToolsListChanged,
    "prompts": PromptsListChanged,
    "resources": ResourcesListChanged,
}


class ListChanges:
    """The open listen streams of each profile, and what each profile showed when its clients were last told."""

    def __init__(self, gateway: Gateway, sessions: Sessions, principal_of: Callable[[Ctx], Principal]) -> None:
        self._gateway, self._sessions, self._principal_of = gateway, sessions, principal_of
        self._catalog, self._resources = gateway.catalog, gateway.resources
        self._tasks = TaskNotifications(gateway)
        self._buses: dict[str | None, InMemorySubscriptionBus] = {}
        self._streams: dict[str | None, ListenHandler] = {}
        self._shown: dict[tuple[str | None, str], object] = {}
        self._listening: Counter[tuple[str, str]] = Counter()
        self._updated: set[str] = set()
        self._telling: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ends: list[Callable[[], None]] = []

    async def listen(self, ctx: Ctx, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
        """Handle subscriptions/listen: a stream that hears of its own profile, and of its caller's tasks, only.

        Of the resources that it names, those that its caller may not have are left out like those that do not exist.
        """
        principal = self._principal_of(ctx)
        whose = (principal.owner, principal.address)
        if self._listening[whose] >= MCP_LISTENING_STREAMS_OF_ONE:
            raise MCPError(
                code=types.INTERNAL_ERROR, message=f"A caller may listen {MCP_LISTENING_STREAMS_OF_ONE} times."
            )
        stream = self._streams.get(principal.profile)
        if stream is None:
            bus = self._buses[principal.profile] = InMemorySubscriptionBus()
            stream = self._streams[principal.profile] = ListenHandler(bus)
        self._listening[whose] += 1
        try:
            async with self._tasks.followed(ctx, principal, params) as ctx_of_stream:
                return await stream(ctx_of_stream, await self._permitted(principal, params))
        finally:
            self._listening[whose] -= 1
            if not self._listening[whose]:
                del self._listening[whose]

    async def _permitted(
        self, principal: Principal, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenRequestParams:
        wanted = params.notifications
        if not wanted.resource_subscriptions:
            return params
        view = self._gateway.resource_view(principal)
        uris = [uri for uri in wanted.resource_subscriptions if await self._resources.find_resource(str(uri), view)]
        heard = wanted.model_copy(update={"resource_subscriptions": uris})
        return params.model_copy(update={"notifications": heard})

    def start(self) -> None:
        """Begin to watch the catalog, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._shown = self._signatures()
        self._ends = [
            self._catalog.subscribe(self._changed),
            self._resources.subscribe(self._changed, touched=self._touched),
        ]

    def stop(self) -> None:
        """Stop watching, and end the open streams with their result."""
        for end in self._ends:
            end()
        self._ends = []
        if self._telling is not None:
            self._telling.cancel()
        for stream in self._streams.values():
            stream.close()

    def _changed(self) -> None:
        """Note a change; the catalog may be changed from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._settle)

    def _touched(self, uri: str) -> None:
        self._updated.add(uri)
        self._changed()

    def _settle(self) -> None:
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        await asyncio.sleep(CHANGES_SETTLE_S)
        now = self._signatures()
        before, self._shown = self._shown, now
        for (profile, what), signature in now.items():
            if before.get((profile, what)) != signature:
                await self._tell_of(profile, what)
        updated, self._updated = self._updated, set()
        for uri in sorted(updated):
            await self._tell_updated(uri)

    async def _tell_of(self, profile: str | None, what: str) -> None:
        bus = self._buses.get(profile)
        if bus is not None:
            await bus.publish(_EVENTS[what]())
        await self._sessions.tell(profile, what)

    async def _tell_updated(self, uri: str) -> None:
        """Tell of a resource those whose profile shows it."""
        keys = {key for key, *_ in self._resources.resources_of(uri)}
        for profile in self._profiles() if keys else ():
            if any(name in keys for name, *_ in self._shown_resources(profile)):
                bus = self._buses.get(profile)
                if bus is not None:
                    await bus.publish(ResourceUpdated(uri=uri))
                await self._sessions.tell_updated(profile, uri)

    # -- what each profile shows, as far as that does not depend on the caller

    def _profiles(self) -> list[str | None]:
        return [*self._catalog.registry.profiles, None]

    def _signatures(self) -> dict[tuple[str | None, str], object]:
        registry = self._catalog.registry
        snapshot, states = registry.snapshot(), registry.states()
        shown: dict[tuple[str | None, str], object] = {}
        definitions = snapshot.column("definition", attrgetter("qualified_id", "fingerprint"))
        for profile in self._profiles():
            declared = None if profile is None else registry.profiles[profile]
            selection = Selection() if declared is None else Selection(include=declared.include, policy=declared.policy)
            # How they are shown, and which: what else a profile says is no reason to tell anybody.
            how = None if declared is None else replace(declared, policy=OPEN_POLICY, rate_limit=None, origin="")
            selected = snapshot.judged(selection, OPEN_POLICY)
            names = {entry.source for entry in selected.conditional} | {
                snapshot.entries[place].source for place in selected.built
            }
            of_sources = {name: states.get(name) for name in names if name is not None}
            shown[profile, "tools"] = (how, [*compress(definitions, selected.entries.chosen)], of_sources)
            resources = self._shown_resources(profile)
            for what in ("prompts", "resources"):
                shown[profile, what] = [one for one in resources if one[0].startswith(what[:-1])]
        return shown

    def _shown_resources(self, profile: str | None) -> list[tuple[str, str, object]]:
        view = self._resources.view(_NOBODY, profile=profile)
        selected = view.snapshot.selected(view.selection, OPEN_POLICY)
        return [(entry.qualified_id, entry.fingerprint, self._resources.spec(entry)) for entry in selected]
