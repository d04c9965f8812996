"""Personal source: an MCP server where every person has their own account, connection and list."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pegboard.connections.connection_records import Person, person_of
from pegboard.core.after_fork import leave_to_parent
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.cancellation import cancel_and_wait
from pegboard.lazy import LazyModule
from pegboard.model.call_context import CallContext
from pegboard.model.caller import Caller
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.result import ToolResult
from pegboard.model.secret import Secret
from pegboard.model.source_state import HeldDefinition, SourceState
from pegboard.model.tool import Annotations, ToolEntry, ToolSpec
from pegboard.sources.mcp.listing import Listing
from pegboard.sources.mcp.lock_file import LockFile
from pegboard.sources.mcp.person_sessions import PersonSession, PersonSessions, SessionKey
from pegboard.sources.mcp.personal_resources import PersonalResources
from pegboard.sources.mcp.review import trust_of
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.supervised_source import McpSource
from pegboard.sources.mcp.upstream_resources import ResourceRequest, items_without_secrets, offered_items

if TYPE_CHECKING:
    from pegboard.connections import token_auth
    from pegboard.connections.upstream_credentials import PersonCredentials
else:
    token_auth = LazyModule("pegboard.connections.token_auth")

PERSON_IDLE_S = 300.0  # seconds until an unused session of a person ends
PERSON_LISTS = 10_000  # persons whose list is remembered
CONNECT_TOOL = "connect"
"""The name of the only tool of a source that is not known to a person yet."""

log = logging.getLogger("pegboard")


class PersonList(Struct, frozen=True, kw_only=True):
    """The tools of a person's own list that are pinned as they are, by original name, and the connection it came by."""

    connection_id: str
    names: frozenset[str]


@dataclass(frozen=True, slots=True, repr=False)
class IsListedForCaller:
    """The condition of one tool: the caller's own list has it. Equal conditions are asked once for all their tools."""

    source: PersonalMcpSource
    raw_name: str

    def __call__(self, ctx: ToolContext) -> bool:
        return self.source.lists_for(ctx.caller, self.raw_name)

    def __repr__(self) -> str:
        return f"listed for the caller's account at {self.source.name}"


@dataclass(frozen=True, slots=True, repr=False)
class IsUnknownToCaller:
    """The condition of the tool that connects: nothing else of the source is known to the caller."""

    source: PersonalMcpSource

    async def __call__(self, ctx: ToolContext) -> bool:
        return not await self.source.knows(ctx.caller)

    def __repr__(self) -> str:
        return f"the caller has not connected an account at {self.source.name} yet"


class FirstUse(LockFile):
    """Definitions in memory, as they were first listed. People's accounts may list any tools, so there is a limit.

    Args:
        most: how many tools of one server are accepted; later ones are not shown to anybody.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most, self._is_full = most, False

    def accept(self, server: str, definitions: Mapping[str, JSON]) -> None:
        """Take as many definitions as there is room for."""
        known = self.pins(server)
        new = [name for name in definitions if name not in known]
        room = max(self._most - len(known), 0)
        if len(new) > room and not self._is_full:
            self._is_full = True  # logged once, not on every listing
            log.warning(
                "MCP server %r: people's accounts list more than %d tools; no more are accepted.", server, self._most
            )
        left_out = {*new[room:]}
        super().accept(server, {name: tool for name, tool in definitions.items() if name not in left_out})


class PersonalMcpSource(McpSource):
    """The tools of an MCP server, each call over the connection of the caller's person. Implements the port `Source`.

    One lock holds the definitions of all persons' lists. With a lock file its tools are listed for everybody, except
    those that a person's own list does not have; a tool whose definition differs for one person is held back for that
    person. Without one, definitions are taken at first use and kept in memory, and a person sees a tool only if their
    own list has it with the same definition. Resources and prompts are those of each person's own lists.

    Args:
        settings: the server. Its `trust` is not `any`, because one person's server could then define another's tools.
        credentials: the tokens of the persons.
        sessions: the open sessions; shared by the sources of a process.
        lock: the accepted definitions.
        idle_s: seconds until an unused session ends.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        credentials: PersonCredentials,
        sessions: PersonSessions | None = None,
        lock: LockFile | None = None,
        idle_s: float = PERSON_IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.credentials, self.idle_s = credentials, idle_s
        self.sessions = sessions or PersonSessions(clock=clock)
        self._lists = BoundedCache["Person", PersonList](max_entries=PERSON_LISTS)
        self._resources_of = PersonalResources(settings.name)
        self._just_listed = set["Person"]()
        """Persons whose first list has not been asked for yet."""
        self._first_pins = FirstUse(settings.bounds.upstream_tools)
        self._sweeper: asyncio.Task[None] | None = None
        self._end_subscription: Callable[[], None] | None = None
        self._file = lock or LockFile()
        super().__init__(settings, lock=self._pins_of(settings, self._file), clock=clock)
        self._connect = self._connect_tool()
        self._adopt_pins()

    def _pins_of(self, settings: ServerSettings, file: LockFile) -> LockFile:
        """Return the lock file, or definitions in memory if it does not decide.

        A file that only other servers have filled says nothing about this one.
        """
        is_known = settings.trust == "pinned" or settings.name in file.servers
        is_pinned = is_known and trust_of(settings, file) == "pinned"
        return file if is_pinned or file.fault else self._first_pins

    @property
    def _is_reviewed(self) -> bool:
        """Whether an operator has accepted the definitions, so that everybody may see them."""
        return self.lock is self._file

    # ---- the port

    @property
    def file(self) -> LockFile:
        return self._file

    def entries(self) -> Sequence[ToolEntry]:
        """Return the pinned tools, and the tool that connects, each with its condition."""
        return (*self._entries, self._connect)

    def resource_entries(self) -> Sequence[ToolEntry]:
        """Return the resources, prompts and completions of the persons' lists, each with its condition."""
        return self._resources_of.entries()

    @property
    def is_pinned(self) -> bool:
        return True

    def is_starting(self) -> bool:
        return False

    def secrets(self) -> Iterator[Secret]:
        """Yield the credentials of the client; tokens of persons are redacted from their own calls."""
        yield from self.settings.secrets()
        yield from self.credentials.secrets()

    def state(self) -> SourceState:
        """Return the state of the lock: each person's connection has its own state, which their calls report."""
        hidden_names = [session.server.reviewed.hidden for session in self.sessions.of(self.name)]
        hidden = frozenset(self.qualified(name) for each in hidden_names for name in each)
        if self._file.fault:
            return SourceState(status="quarantined", is_up=True, reason=self._file.fault, quarantined=hidden)
        return SourceState(quarantined=hidden - {entry.qualified_id for entry in self._entries})

    async def start(self) -> None:
        """Start ending idle sessions. Persons' connections are opened by their calls."""
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name=f"mcp-idle-{self.name}")
            self._end_subscription = self.credentials.subscribe(self._on_connection)

    async def stop(self) -> None:
        """Close the connections of all persons."""
        sweeper, self._sweeper = self._sweeper, None
        if self._end_subscription is not None:
            self._end_subscription()
            self._end_subscription = None
        if sweeper is not None:
            await cancel_and_wait(sweeper)
        await self.sessions.end_all(self.name)

    def after_fork(self) -> None:
        super().after_fork()
        leave_to_parent(self._sweeper)
        self._sweeper = None

    async def first_listed(self) -> None:
        """Return at once: nothing is listed before a person connects."""

    async def settled(self) -> None:
        """Return at once, as `first_listed`."""

    async def listed(self, *, afresh: bool = False) -> None:
        """Return at once, as `first_listed`."""
        del afresh

    async def refresh(self) -> None:
        """Let the open sessions list again."""
        for session in self.sessions.of(self.name):
            with suppress(CallError):
                await session.server.refresh()

    def offered(self) -> Mapping[str, JSON]:
        """Return the tools that the open sessions list, by original name."""
        return {
            name: tool for session in self.sessions.of(self.name) for name, tool in session.server.offered().items()
        }

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self.idle_s / 4)
            self.sessions.end_idle(self.name, self.idle_s)

    # ---- what a person sees

    def lists_for(self, caller: Caller, raw_name: str) -> bool:
        """Tell whether a pinned tool is listed for a caller."""
        person = person_of(caller)
        known = None if person is None else self._lists.get(person)
        return self._is_reviewed if known is None else raw_name in known.names

    def is_starting_for(self, caller: Caller) -> bool:
        """Tell whether the tools of a caller's account are still unknown."""
        return not (self._is_reviewed and self._entries) and person_of(caller) not in self._lists

    async def knows(self, caller: Caller) -> bool:
        """Tell whether tools of the server are known to a caller; lists them if the person is connected already.

        Just after the first list they are not: a call of the tool that connects is in progress, or is in that list.
        """
        is_new = self.is_starting_for(caller)
        if is_new:
            await self.list_first(caller)
        person = person_of(caller)
        if person is not None and person in self._just_listed:
            self._just_listed.discard(person)
            return False
        return not is_new

    async def list_first(self, caller: Caller) -> bool:
        """List the tools of a caller's account if it is connected and they are unknown; see `ListsForPersons`."""
        if person_of(caller) is None or self._sweeper is None or not self.is_starting_for(caller):
            return False
        try:
            # A list makes no link to connect; only a call does.
            if await self.credentials.missing(caller) is not None:
                return False
            session = await self._session(caller)
            await self._first_list(session)
        except CallError:
            return False
        self._just_listed.add(session.key.person)
        return True

    async def list_resources_first(self, caller: Caller) -> bool:
        """List the resources of a caller's account if it is connected and they are unknown; see `ListsForPersons`."""
        person = person_of(caller)
        if person is None or self._sweeper is None or self._resources_of.knows(person):
            return False
        try:
            if await self.credentials.missing(caller) is not None:
                return False
            session = await self._session(caller)
            with session.call():
                await session.server.ready()
                await session.server.resources_listed()
        except CallError:
            return False
        self._on_listed(session)
        return self._resources_of.knows(person)

    async def list_for(self, caller: Caller) -> None:
        """List the tools of the account of a caller's person.

        Raises:
            CallError: `connection_required`, or the server cannot be reached.
        """
        await self._first_list(await self._session(caller))

    def _connect_tool(self) -> ToolEntry:
        spec = ToolSpec(
            name=CONNECT_TOOL,
            namespace=self.name,
            description=f"Connect your account at {self.name}. Its tools are listed after that.",
            input_schema={"type": "object", "properties": {}, "additionalProperties": False},
            annotations=Annotations(read_only=True),
            groups=tuple(sorted(self.settings.all_groups)),
            available=IsUnknownToCaller(self),
            timeout_s=self.settings.timeout_s,
            origin=self.settings.origin or f"MCP server {self.name!r}",
        )

        async def handle(ctx: CallContext, args: JSON, /) -> str:
            del args
            session = await self._session(ctx.caller)
            await self._first_list(session)
            return f"Your account at {self.name} is connected. Its tools are listed now: list the tools again."

        return ToolEntry(
            spec=spec, handler=handle, runs="async", source=self.name, is_toolset=True, account=self.credentials
        )

    # ---- the sessions of persons

    async def _session(self, caller: Caller) -> PersonSession:
        """Return the session of the caller's person, opened if need be.

        Raises:
            CallError: `connection_required`, or too many sessions are in use.
        """
        token = await self.credentials.token(caller)
        person = person_of(caller)
        assert person is not None  # `token` has refused callers without a user
        key = SessionKey(self.name, person, token.connection_id)
        session = self.sessions.find(key)
        if session is not None:
            return session
        if self._sweeper is None:
            text = f"The MCP server {self.name!r} is not started. Start the catalog: `await catalog.start()`."
            raise CallError("upstream_unavailable", text, retryable=False)
        owner = self.credentials.owner(caller)
        settings = replace_fields(
            self.settings,
            auth=token_auth.TokenAuth(self.credentials, owner),
            start="eager",
            trust="pinned" if self._is_reviewed else "first_use",
        )
        # Not watched: a thousand persons would make a thousand connections to one host every few seconds.
        server = McpSource(settings, lock=self.lock, clock=self._clock, is_watched=False)
        server.serve_as(self._server_id, self._link_key)
        session = self.sessions.add(key, server, ends_others=not self.credentials.settings.is_exchanged)
        server.subscribe(lambda: self._on_listed(session))
        await server.start()
        return session

    async def _first_list(self, session: PersonSession) -> None:
        """Wait until a session has listed its tools.

        Raises:
            CallError: its server cannot be reached, or refuses the person's token.
        """
        with session.call():
            await session.server.refresh() if session.server.listing is not None else await session.server.ready()
        self._on_listed(session)

    def _on_listed(self, session: PersonSession) -> None:
        """Take over the list of a session: what is new is pinned, and shown to those whose own list has it."""
        server = session.server
        if server.listing is None:
            return
        if not self._is_reviewed:
            self._adopt_pins()
        pins = self.lock.pins(self.name)
        changed = frozenset[str]() if self._is_reviewed else frozenset(server.reviewed.changed)
        names = frozenset(name for name in server.offered() if name in pins and name not in changed)
        known = PersonList(connection_id=session.key.connection_id, names=names)
        is_changed = self._lists.get(session.key.person) != known
        if is_changed:
            self._lists.remember(session.key.person, known)
        if server.has_listed_resources:
            items = offered_items(server.upstream_resources, self.settings, self.request)
            # The server may repeat the person's token, which the settings of this source do not have.
            items = items_without_secrets(self.name, items, server.settings.secrets())
            is_changed |= self._resources_of.remember(session.key.person, items)
        if is_changed:
            self._notify()

    def _adopt_pins(self) -> None:
        pins = {name: tool for name, tool in self.lock.pins(self.name).items() if self.settings.takes(name)}
        self._adopt(Listing(tools=pins))
        self.listing = None

    def _entry(self, raw_name: str, definition: JSON, name: str) -> ToolEntry:
        entry = super()._entry(raw_name, definition, name)
        if isinstance(entry.spec.available, IsListedForCaller):
            return entry
        listed, own = IsListedForCaller(self, raw_name), entry.spec.available
        available: Any = listed if own is None else {"all": [own, listed]}
        spec = replace(entry.spec, available=available)
        entry = replace(entry, spec=spec, account=self.credentials, fingerprint="")
        self._declared[raw_name] = self._declared[raw_name]._replace(entry=entry)
        return entry

    def _on_connection(self, person: Person, source: str, is_connected: bool) -> None:
        """Forget what was kept for a person whose connection changed; calls over an ended one fail at once."""
        if source != self.name:
            return
        # Another account may have been connected, which offers other things.
        self._lists.pop(person, None)
        self._resources_of.forget(person)
        for session in self.sessions.of(self.name, person):
            if not is_connected or session.is_idle():
                self.sessions.end(session)
        self._notify()

    # ---- calls

    async def _call(self, raw_name: str, spec: ToolSpec, ctx: CallContext, args: JSON) -> ToolResult:
        session = await self._session(ctx.caller)
        server = session.server
        with session.call():
            try:
                await server.ready()
                if raw_name in server.reviewed.changed:
                    text = (
                        f"Your account at {self.name!r} offers {ctx.tool!r} with another definition than the accepted "
                        "one. The operator must review it: `pegboard lock diff`."
                    )
                    raise CallError("needs_review", text)
                if raw_name not in server.offered():
                    text = f"Your account at {self.name!r} does not offer {ctx.tool!r}. List the tools again."
                    raise CallError("not_found", text)
                # An answer may name resources, and listed ones have another address.
                await server.resources_listed()
                return await server.call(raw_name, spec, ctx, args, server.addresses(ctx))
            except CallError as error:
                # The person's list stays: the same call is made again after they have connected.
                if error.error.kind == "connection_required":
                    self.sessions.end(session)
                elif self._is_over(session):
                    self.sessions.end(session)
                    self._lists.pop(session.key.person, None)
                raise

    async def request(self, request: ResourceRequest, ctx: CallContext) -> ToolResult:
        """Read a resource, get a prompt or complete an argument, over the account of the caller's person."""
        session = await self._session(ctx.caller)
        with session.call():
            try:
                await session.server.ready()
                return await session.server.request(request, ctx)
            except CallError as error:
                if error.error.kind == "connection_required" or self._is_over(session):
                    self.sessions.end(session)
                raise

    def _is_over(self, session: PersonSession) -> bool:
        """Tell whether a session was ended while it was used."""
        return self.sessions.find(session.key) is not session

    # ---- reload of the config

    def held(self) -> Sequence[HeldDefinition]:
        """Return nothing: each person's account may list other tools, so `pegboard lock diff --as` compares them."""
        return ()

    def fits(self, other: object) -> bool:
        """Tell whether another source's settings can use these sessions."""
        return (
            isinstance(other, PersonalMcpSource)
            and self.settings.connection == other.settings.connection
            and self.credentials.settings == other.credentials.settings
            and (self.settings.trust, self._is_reviewed) == (other.settings.trust, other._is_reviewed)
        )

    def renew(self, other: McpSource) -> None:
        """Take over the settings, the lock and the store of another source; sessions and their calls continue."""
        assert isinstance(other, PersonalMcpSource)
        self.credentials, self.idle_s = other.credentials, other.idle_s
        if self._end_subscription is not None:
            self._end_subscription()
            self._end_subscription = self.credentials.subscribe(self._on_connection)
        self.settings, self._file = other.settings, other._file
        self.lock = self._pins_of(self.settings, self._file)
        self._connect = self._connect_tool()
        self._declared.clear()
        self._adopt_pins()
        self._resources_of.clear()
        for session in self.sessions.of(self.name):
            own = session.server.settings
            renewed = replace_fields(self.settings, auth=own.auth, start=own.start, trust=own.trust)
            session.server.settings = renewed
