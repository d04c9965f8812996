"""ListChanges: notify clients of either era when lists or resources in their profile have changed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from pegboard.core.cancellation import cancel_and_wait
from pegboard.core.digests import digest
from pegboard.core.judge import Selection
from pegboard.model.context import ToolContext
from pegboard.model.json_types import JSON
from pegboard.model.policy import OPEN_POLICY
from pegboard.model.record import replace
from pegboard.server.bus import Bus
from pegboard.server.connection_follower import ConnectionFollower
from pegboard.server.gateway import Gateway
from pegboard.server.limits import CHANGES_SETTLE_S
from pegboard.server.mcp.asking.notifications import MessageOutlet
from pegboard.server.mcp.handlers.task_notifications import TaskNotifications
from pegboard.server.mcp.protocol.jsonrpc import INTERNAL_ERROR, RpcError
from pegboard.server.mcp.protocol.requests import RESERVED, McpRequest
from pegboard.server.mcp.sessions.sessions import Sessions
from pegboard.server.principal import Principal

if TYPE_CHECKING:
    from pegboard.connections.connection_records import Person as ConnectedPerson

MCP_LISTENING_STREAMS = 1_024  # of one profile
MCP_LISTENING_STREAMS_OF_ONE = 100  # caller

_NOBODY = ToolContext()
_SUBSCRIPTION_KEY = RESERVED + "subscriptionId"
_LISTS = ("tools", "prompts", "resources")


Person = tuple[str | None, str | None]
"""The user and space of a client."""


class _Shown(NamedTuple):
    """The visible contents of a profile: all that clients are notified about, and a digest, equal in all workers."""

    signature: object
    content: str


class Listener:
    """One listen stream: its subscriptions, and the notifications still to be sent.

    A pending change is sent once, however often it occurs, so a slow reader does not use more memory.
    """

    def __init__(self, wanted: JSON, person: Person) -> None:
        self._wanted, self.person = wanted, person
        self._untold: dict[str, JSON] = {}
        self._is_over = False
        self._woken = asyncio.Event()

    def changed(self, what: str) -> None:
        """Queue a change of the list of `tools`, `prompts` or `resources`."""
        if f"{what}ListChanged" in self._wanted:
            self._note(f"notifications/{what}/list_changed", {})

    def updated(self, uri: str) -> None:
        """Queue a change of a resource."""
        if uri in self._wanted.get("resourceSubscriptions", ()):
            self._note("notifications/resources/updated", {"uri": uri})

    def close(self) -> None:
        """End the stream with its result, after the pending notifications."""
        self._is_over = True
        self._woken.set()

    def _note(self, method: str, params: JSON) -> None:
        self._untold[f"{method} {params.get('uri', '')}"] = {"method": method, "params": params}
        self._woken.set()

    async def tell(self, outlet: MessageOutlet, meta: JSON) -> None:
        """Send pending notifications until the stream is closed."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            untold, self._untold = self._untold, {}
            for one in untold.values():
                await outlet.notify(one["method"], {**one["params"], "_meta": meta})
            if self._is_over and not self._untold:
                return


class ListChanges:
    """The open listen streams of each profile, and the content each profile last notified its clients about.

    Args:
        gateway: the catalog's answers.
        sessions: the sessions of earlier revisions, which are notified too.
        profiles: the profiles to watch; by default all of them and the catalog without a profile.
        bus: the other workers, whose clients are notified too: they may have listed their tools here.
    """

    def __init__(
        self,
        gateway: Gateway,
        sessions: Sessions,
        *,
        profiles: Sequence[str | None] | None = None,
        bus: Bus | None = None,
    ) -> None:
        self._gateway, self._sessions, self._only = gateway, sessions, profiles
        self._catalog, self._resources = gateway.catalog, gateway.resources
        self._tasks = TaskNotifications(gateway)
        self._listeners: dict[str | None, set[Listener]] = {}
        self._shown: dict[tuple[str | None, str], _Shown] = {}
        self._listening: Counter[tuple[str, str]] = Counter()
        self._updated: set[str] = set()
        self._bus = bus
        self._elsewhere: set[tuple[str | None, str]] = set()
        self._connected: set[Person] = set()
        self._updated_elsewhere: set[str] = set()
        self._telling: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ends: list[Callable[[], None]] = []

    # -- subscriptions/listen of 2026-07-28

    async def listen(self, request: McpRequest) -> JSON:
        """Handle subscriptions/listen: the stream receives changes of its own profile and its caller's tasks only.

        Named resources that the caller may not read are left out, like those that do not exist.
        """
        principal, outlet = request.principal, request.outlet
        assert outlet is not None
        self.start()
        whose = (principal.owner, principal.address)
        listeners = self._listeners.setdefault(principal.profile, set())
        if self._listening[whose] >= MCP_LISTENING_STREAMS_OF_ONE:
            raise RpcError(INTERNAL_ERROR, f"A caller may listen {MCP_LISTENING_STREAMS_OF_ONE} times.")
        if len(listeners) >= MCP_LISTENING_STREAMS:
            raise RpcError(INTERNAL_ERROR, "Subscription limit reached")
        self._listening[whose] += 1
        try:
            heard = await self._tasks.permitted(request)
            wanted = await self._permitted(principal, request.params["notifications"])
            # Subscribe before acknowledging, so that no change is lost in between.
            identity = principal.identity
            listener = Listener(wanted, (identity.user, identity.space))
            listeners.add(listener)
            forget = self._gateway.watch(principal, listener.close)
            try:
                return await self._serve(request, listener, wanted, heard, outlet)
            finally:
                forget()
                listeners.discard(listener)
        finally:
            self._listening[whose] -= 1
            if not self._listening[whose]:
                del self._listening[whose]

    async def _serve(
        self, request: McpRequest, listener: Listener, wanted: JSON, heard: Sequence[str], outlet: MessageOutlet
    ) -> JSON:
        meta: JSON = {_SUBSCRIPTION_KEY: request.request_id}
        honored = {**wanted, "taskIds": list(heard)} if heard else wanted
        await outlet.notify("notifications/subscriptions/acknowledged", {"notifications": honored, "_meta": meta})
        telling = asyncio.create_task(self._tasks.tell(request.principal, heard, outlet, meta))
        try:
            await listener.tell(outlet, meta)
        finally:
            await cancel_and_wait(telling)
        return {"_meta": meta}

    async def _permitted(self, principal: Principal, wanted: JSON) -> JSON:
        """Return the lists and resources a stream subscribes to."""
        honored: JSON = {f"{what}ListChanged": True for what in _LISTS if wanted.get(f"{what}ListChanged") is True}
        uris: Any = wanted.get("resourceSubscriptions")
        if uris:
            view = self._gateway.resource_view(principal)
            found = [uri for uri in uris if await self._resources.find_resource(uri, view)]
            if found:
                honored["resourceSubscriptions"] = found
        return honored

    # -- changes

    def start(self) -> None:
        """Start watching the catalog on the running loop; repeated calls do nothing."""
        if self._loop is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._shown = self._signatures()
        if self._bus is not None:
            self._bus.on("lists.changed", self._on_changed_elsewhere)
        self._ends = [
            ConnectionFollower(self._catalog, self._on_connection).close,
            self._catalog.subscribe(self._changed),
            self._resources.subscribe(self._changed, touched=self._touched),
        ]

    def stop(self) -> None:
        """Stop watching and end the open streams with their result."""
        for end in self._ends:
            end()
        self._ends = []
        if self._telling is not None:
            self._telling.cancel()
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.close()

    def _changed(self) -> None:
        """Record a change; the catalog may be changed from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._settle)

    def _on_connection(self, person: ConnectedPerson, _source: str, _is_connected: bool) -> None:
        """Tell the clients of a person, and nobody else, that their lists have changed with their account."""
        self._connected.add((person.user_id, person.space_id))
        self._changed()

    def _touched(self, uri: str) -> None:
        self._updated.add(uri)
        self._changed()

    def _on_changed_elsewhere(self, _worker: str, said: JSON) -> None:
        """Receive another worker's content; if this worker shows the same, its clients already know it."""
        if not self._ends:
            return
        for profile, what, content in said["lists"]:
            mine = self._shown.get((profile, what))
            if mine is not None and mine.content != content:
                self._elsewhere.add((profile, what))
        self._updated_elsewhere.update(said["updated"])
        self._settle()

    def _settle(self) -> None:
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        await asyncio.sleep(CHANGES_SETTLE_S)
        now = self._signatures()
        connected, self._connected = self._connected, set()
        before, self._shown = self._shown, now
        elsewhere, self._elsewhere = self._elsewhere, set()
        updated, self._updated = self._updated, set()
        updated_elsewhere, self._updated_elsewhere = self._updated_elsewhere, set()
        changed = {key for key, signature in now.items() if before.get(key) != signature}
        self._tell_workers(changed, updated)
        for profile, what in now:
            if (profile, what) in changed | elsewhere:
                for listener in self._listeners.get(profile, ()):
                    listener.changed(what)
                await self._sessions.tell(profile, what)
        for user, space in connected:
            await self._tell_person(user, space)
        for uri in sorted(updated | updated_elsewhere):
            await self._tell_updated(uri)

    async def _tell_person(self, user: str | None, space: str | None) -> None:
        assert user is not None  # only users have accounts
        for what in _LISTS:
            for listeners in self._listeners.values():
                for listener in listeners:
                    if listener.person == (user, space):
                        listener.changed(what)
            await self._sessions.tell_person(user, space, what)

    def _tell_workers(self, changed: set[tuple[str | None, str]], updated: set[str]) -> None:
        if self._bus is not None and (changed or updated):
            lists = [[*key, shown.content] for key, shown in self._shown.items() if key in changed]
            self._bus.tell_soon("lists.changed", {"lists": lists, "updated": sorted(updated)})

    async def _tell_updated(self, uri: str) -> None:
        """Notify the clients whose profile shows a resource."""
        keys = {key for key, *_ in self._resources.resources_of(uri)}
        for profile in self._profiles() if keys else ():
            if any(name in keys for name, *_ in self._shown_resources(profile)):
                for listener in self._listeners.get(profile, ()):
                    listener.updated(uri)
                await self._sessions.tell_updated(profile, uri)

    # -- the content of each profile, as far as it does not depend on the caller

    def _profiles(self) -> Sequence[str | None]:
        declared = self._catalog.registry.profiles
        watched = (*declared, None) if self._only is None else self._only
        return [profile for profile in watched if profile is None or profile in declared]

    def _signatures(self) -> dict[tuple[str | None, str], _Shown]:
        registry = self._catalog.registry
        snapshot, states = registry.snapshot(), registry.states()
        shown: dict[tuple[str | None, str], _Shown] = {}
        definitions = snapshot.column("definition", attrgetter("qualified_id", "fingerprint"))
        for profile in self._profiles():
            declared = None if profile is None else registry.profiles[profile]
            selection = Selection() if declared is None else Selection(include=declared.include, policy=declared.policy)
            # Only how and which tools are shown; other settings of a profile are not a reason to notify.
            how = None if declared is None else replace(declared, policy=OPEN_POLICY, rate_limit=None, origin="")
            selected = snapshot.judged(selection, OPEN_POLICY)
            names = {entry.source for entry in selected.conditional} | {
                snapshot.entries[place].source for place in selected.built
            }
            of_sources = {name: states.get(name) for name in names if name is not None}
            tools = [*compress(definitions, selected.entries.chosen)]
            shown[profile, "tools"] = _Shown((how, tools, of_sources), self._content(tools))
            resources = self._shown_resources(profile)
            for what in ("prompts", "resources"):
                of_kind = [one for one in resources if one[0].startswith(what[:-1])]
                shown[profile, what] = _Shown(of_kind, self._content([one[:2] for one in of_kind]))
        return shown

    def _content(self, listed: Sequence[tuple[str, ...]]) -> str:
        return "" if self._bus is None else digest(listed)

    def _shown_resources(self, profile: str | None) -> list[tuple[str, str, object]]:
        view = self._resources.view(_NOBODY, profile=profile)
        selected = view.snapshot.selected(view.selection, OPEN_POLICY)
        return [(entry.qualified_id, entry.fingerprint, self._resources.spec(entry)) for entry in selected]
