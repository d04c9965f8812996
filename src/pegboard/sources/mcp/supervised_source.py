"""Supervised source: one MCP server as a source of tools, reconnected while the catalog runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from pegboard.core.after_fork import leave_to_parent, renew_after_fork
from pegboard.core.cancellation import cancel_and_wait
from pegboard.core.ports import HoldsSecrets, SendsForAccount
from pegboard.egress.limits import PROBE_S
from pegboard.lazy import LazyModule
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.resource import PromptSpec, ResourceSpec
from pegboard.model.result import ToolResult
from pegboard.model.secret import Secret
from pegboard.model.source_state import HeldDefinition, SourceState
from pegboard.model.tool import ToolEntry, ToolSpec
from pegboard.sources.composable import Composable
from pegboard.sources.mcp.backoff import Backoff, RefreshThrottle
from pegboard.sources.mcp.definitions import Rejected, UnfitError, checked_definition, declared_spec, offered_titles
from pegboard.sources.mcp.evidence import Evidence
from pegboard.sources.mcp.listing import Listing
from pegboard.sources.mcp.lock_file import LockFile
from pegboard.sources.mcp.resource_links import AddressOf, ResourceLinks
from pegboard.sources.mcp.review import Reviewed, differences, listed_of, review, trust_of
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.turns import Turns
from pegboard.sources.mcp.upstream_resources import ResourceRequest, UpstreamResources, resource_entries
from pegboard.sources.mcp.upstream_tool import upstream_tool
from pegboard.sources.tool_names import own_names

if TYPE_CHECKING:
    from pegboard.sources.mcp import connection as mcp_connection
    from pegboard.sources.mcp.connection import Connection
else:
    mcp_connection = LazyModule("pegboard.sources.mcp.connection")

MCP_CONNECT_S = 15.0  # seconds for connecting and the first lists, if a call's time limit is shorter
MCP_CALL_WAITS_S = 0.9  # seconds that a call waits for a reconnection
MCP_PING_S = 2.0  # seconds between two pings of a program that has nothing to do
# Over HTTP a ping is a new connection, often with a TLS handshake, so it is sent less often. With the time limit below
# and the interval of alerts, a silent server is still reported within 10 seconds.
MCP_HTTP_PING_S = 3.5
MCP_PROGRAM_START_S = 8.0  # how long a program usually needs to start and list its tools, in seconds
MCP_REFRESH_S = (30.0, 300.0, 3_600.0)  # seconds between listings of a server that does not announce changes; growing

log = logging.getLogger("pegboard")
_AWAY = frozenset({"upstream_unavailable", "upstream_auth", "upstream_lost", "timeout"})


class _Declared(NamedTuple):
    """The declaration made from one definition and name, with its settings."""

    definition: JSON
    name: str
    settings: ServerSettings
    entry: ToolEntry


class McpSource(Composable):
    """The tools of one MCP server, over a single supervised connection. Implements the port `Source`.

    `rejected` and `partial` tell which tools of the last listing were left out, and why.

    Args:
        settings: the server.
        lock: the definitions that were accepted.
        clock: a monotonic clock in seconds.
        is_watched: whether it is asked every few seconds, while nobody calls it, if it still answers.
    """

    settings: ServerSettings
    lock: LockFile

    def __init__(
        self, settings: ServerSettings, *, lock: LockFile | None = None, clock: Callable[[], float] = time.monotonic,
        is_watched: bool = True,
    ) -> None:  # fmt: skip
        self.settings, self._is_watched = settings, is_watched
        self.lock = lock or LockFile()
        self.listing: Listing | None = None
        self.reviewed = Reviewed()
        self.rejected: tuple[Rejected, ...] = ()
        self._entries: tuple[ToolEntry, ...] = ()
        self._resources: tuple[UpstreamResources, tuple[ToolEntry, ...]] = (UpstreamResources(), ())
        self._links = ResourceLinks(
            settings.name, key=self._key, offers=self._offers, reads=lambda: self._resources[0].reads
        )
        self.has_listed_resources = False
        """Whether the server has listed its resources and prompts."""
        self._has_asked_resources = asyncio.Event()
        self._names: dict[str, str] = {}
        self._declared: dict[str, _Declared] = {}
        self._server_id: Callable[[], str] = str
        self._link_key: Callable[[], bytes] = bytes
        self._ways: Mapping[str, tuple[str, ...]] = {}
        self._on_change: list[Callable[[], None]] = []
        self._clock, self._backoff, self._throttle = clock, Backoff(clock), RefreshThrottle(clock)
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._fault: CallError | None = None
        self._lost_at: float | None = None
        self._wake, self._noticed, self._settled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._must_refresh = self._is_listed = self._was_forked = False
        renew_after_fork(self)
        self._grace_timer: asyncio.TimerHandle | None = None
        if trust_of(settings, self.lock) == "pinned" and not self.lock.fault:
            # Pinned tools are known before the first connection.
            self._adopt(Listing(tools=dict(self.lock.pins(settings.name))))
            self.listing = None

    # ---- the port

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def file(self) -> LockFile:
        """The lock file, whether or not it decides."""
        return self.lock

    @property
    def patience_s(self) -> float:
        """The time limit of an attempt to connect and list."""
        return max(self.settings.timeout_s, MCP_CONNECT_S)

    @property
    def answer_s(self) -> float:
        """The time that a working server usually needs to list its tools; a program must start first."""
        return MCP_PROGRAM_START_S if self.settings.transport == "stdio" else PROBE_S

    @property
    def is_pinned(self) -> bool:
        """Whether the lock determines the list, so that listing needs no server."""
        return trust_of(self.settings, self.lock) == "pinned" and not self.lock.fault and bool(self._entries)

    @property
    def partial(self) -> str:
        """The limit that cut the last list short, in words; empty if there was none."""
        return "" if self.listing is None else self.listing.partial

    def entries(self) -> Sequence[ToolEntry]:
        """Return the last good listing; a lazy server has none before its first use."""
        if self._task is not None and self.settings.start == "lazy" and self.listing is None and not self._entries:
            self._wake.set()
        return self._entries

    def resource_entries(self) -> Sequence[ToolEntry]:
        """Return the resources, prompts and completions of the last good lists."""
        return self._resources[1]

    def groups(self) -> frozenset[str]:
        return self.settings.all_groups

    def secrets(self) -> Iterator[Secret]:
        """Yield the server's credentials, which are redacted from all its texts."""
        return self.settings.secrets()

    def is_starting(self) -> bool:
        """Tell whether the first lists are still expected: requested, and the server is not known to be down."""
        is_known = self._is_listed or (self.settings.start == "lazy" and bool(self._entries))
        fault = self._last_fault
        is_away = self._backoff.is_open or (fault is not None and fault.error.kind == "upstream_auth")
        return self._task is not None and not is_known and not is_away

    def serve_as(self, server_id: Callable[[], str], link_key: Callable[[], bytes]) -> None:
        self._server_id, self._link_key = server_id, link_key

    def way_of(self, entry: ToolEntry) -> tuple[str, ...]:
        """Return the ids of the servers behind an entry, the nearest first."""
        if entry.offer is None:
            return self._ways.get(entry.qualified_id, ())
        return entry.offer.way if isinstance(entry.offer, ResourceSpec | PromptSpec) else ()

    def _key(self) -> bytes:
        return self._link_key()

    def _own_id(self) -> str:
        # Looked up on each request, since a reload may move the source to another catalog.
        return self._server_id()

    def subscribe(self, on_change: Callable[[], None]) -> None:
        if on_change not in self._on_change:
            self._on_change.append(on_change)

    def state(self) -> SourceState:
        """Return the server's state; `is_up` stays true for `grace_s` after it was lost."""
        hidden = frozenset(self.qualified(name) for name in self.reviewed.hidden)
        changed = frozenset(self.qualified(name) for name in self.reviewed.changed)
        flagged = frozenset(self.qualified(name) for name in self.reviewed.flagged)
        if self.lock.fault and self.settings.trust != "any":
            return SourceState(status="quarantined", is_up=True, reason=self.lock.fault, quarantined=hidden)
        if self._connection is not None and not self._connection.is_lost:
            silence = self._connection.silence
            return SourceState(
                status="ok" if silence is None else "unreachable",
                quarantined=hidden, changed=changed, flagged=flagged,
                reason=self.partial if silence is None else silence.error.message,
            )  # fmt: skip
        fault = self._last_fault
        status = "connecting" if fault is None else "unreachable"
        if fault is not None and fault.error.kind == "upstream_auth":
            status = "auth_required"
        in_grace = self._lost_at is None or self._clock() - self._lost_at < self.settings.grace_s
        reason = "" if fault is None else fault.error.message
        is_up = in_grace and bool(self._entries)
        refused = self._unavailable() if fault is not None or self._lost_at is not None else None
        return SourceState(
            status=status, is_up=is_up, reason=reason, quarantined=hidden, changed=changed, flagged=flagged,
            fault=refused and refused.error,
        )  # fmt: skip

    @property
    def _last_fault(self) -> CallError | None:
        """The fault of the last attempt, or of a connection that is being closed because of it."""
        return self._fault or (self._connection.fault if self._connection is not None else None)

    async def start(self) -> None:
        """Start supervising the server. Returns at once, whatever the server does."""
        if self._task is None:
            self._settled, self._has_asked_resources = asyncio.Event(), asyncio.Event()
            self._task = asyncio.create_task(self._supervise(), name=f"mcp-{self.name}")

    async def stop(self) -> None:
        """Close the connection and end the server's processes."""
        task, self._task = self._task, None
        if task is not None:
            await cancel_and_wait(task)
        if self._grace_timer is not None:
            self._grace_timer.cancel()

    def after_fork(self) -> None:
        """Leave the connection and the server's processes to the parent; `start` creates new ones."""
        leave_to_parent(self._connection, self._task, self._grace_timer, self._wake, self._noticed, self._settled)
        self._was_forked = self._was_forked or self._task is not None
        self._connection = self._task = self._grace_timer = None
        self._wake, self._noticed, self._settled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._backoff, self._throttle = Backoff(self._clock), RefreshThrottle(self._clock)

    async def first_listed(self) -> None:
        """Wait until the first attempt to connect has ended; a lazy server connects when it is first used."""
        if self.settings.start == "eager" and self._fault is None:
            await self.settled()

    async def settled(self) -> None:
        """Wait until the current or next connection attempt has ended."""
        await self._settled.wait()

    async def listed(self, *, afresh: bool = False) -> None:
        """Wait until the server's tools are known, or the reason why not. A lock may list a lazy server's tools.

        With `afresh` the server is asked, whatever the lock says.
        """
        if self.entries() and self.settings.start == "lazy" and not afresh:
            return
        if self.settings.start == "lazy":
            self._wake.set()
        if self._fault is None:
            await self.settled()

    async def refresh(self) -> None:
        """Request all lists of the server again, and wait for the result.

        Unnecessary for a server that announces its changes. A refused list keeps the last good one.

        Raises:
            CallError: `upstream_unavailable` or `upstream_auth`: the server is down, or did not answer in time.
        """
        connection = await self._connected()
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                await self._refresh(connection)
        except TimeoutError:
            raise self._no_answer(connection.evidence) from None
        if connection.is_lost:
            raise self._unavailable()
        await self._refresh_resources(connection)

    # ---- supervision

    async def _supervise(self) -> None:
        if self.settings.start == "lazy":
            await self._wake.wait()
        while True:
            self._wake.clear()
            self._backoff.started()
            started_at = self._clock()
            fault = await self._run_connection()
            # The SDK's task groups lose a cancellation if another failure coincides with it.
            if self._task is not asyncio.current_task():
                return
            self._on_disconnected(fault, lived_s=self._clock() - started_at)
            await self._wait_for_next_attempt()

    async def _wait_for_next_attempt(self) -> None:
        """Wait until the next attempt is due, until a call triggers one, or until an absent HTTP server is there."""
        knocking = asyncio.create_task(self._knock(), name=f"mcp-knock-{self.name}")
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._backoff.wait_s):
                    await self._wake.wait()
        finally:
            await cancel_and_wait(knocking)

    async def _knock(self) -> None:
        """Trigger an attempt once a server that accepted no connections accepts them again.

        A server that accepts connections, but no session, waits for its next attempt: it may be the reason why the
        attempts are far apart.
        """
        if self.settings.transport == "stdio" or not self._is_watched or self._backoff.wait_s < MCP_HTTP_PING_S:
            return
        was_away = False
        with suppress(CallError):  # a refused destination stays refused
            while not await mcp_connection.accepts_connections(self.settings):
                was_away = True
                await asyncio.sleep(MCP_HTTP_PING_S)
            if was_away:
                self._backoff.returned()
                self._wake.set()

    async def _run_connection(self) -> CallError:
        """Connect, list, and stay until the connection is lost; return the reason."""
        connection: Connection | None = None
        evidence = Evidence(self.settings)
        # Imported before the clock starts, since the SDK's import time is not the server's fault.
        open_connection = mcp_connection.open_connection
        try:
            async with asyncio.timeout(self.patience_s) as limit:
                async with open_connection(
                    self.settings,
                    evidence,
                    server_id=self._own_id,
                    on_changed=self._request_refresh,
                    on_lost=self._noticed.set,
                ) as connection:
                    assert connection is not None
                    await self._refresh(connection)
                    limit.reschedule(None)
                    self._on_connected(connection)
                    await self._refresh_resources(connection)
                    self._is_listed = True
                    watching = asyncio.create_task(self._watch(connection), name=f"mcp-watch-{self.name}")
                    try:
                        await self._relist_until_lost(connection)
                    finally:
                        watching.cancel()
                    # Closing first would tell a call that its outcome is unknown, although its answer has arrived.
                    await connection.failures.delivered()
        except asyncio.CancelledError:
            raise
        except TimeoutError:
            return self._no_answer(evidence)
        except BaseException as error:
            fault = mcp_connection.first_call_error(error) or (connection.fault if connection else None)
            if fault is None:
                log.debug("The connection to MCP server %r failed.", self.name, exc_info=error)
                text = f"The connection to the MCP server {self.name!r} failed with {type(_innermost(error)).__name__}."
                fault = CallError("upstream_unavailable", text)
            return fault
        finally:
            self._connection = None
            if words := evidence.words_for_log():
                log.warning("MCP server %r: %s", self.name, words.strip())
        return connection.unavailable()

    async def _watch(self, connection: Connection) -> None:
        """Ping the server while it has nothing to do, and record while it stays silent, as a stopped program does."""
        has_answered_ping, ignores_pings = False, not self._is_watched
        is_program = self.settings.transport == "stdio"
        pause_s = MCP_PING_S if is_program else MCP_HTTP_PING_S
        looked_at = time.monotonic()
        while not (connection.is_lost or ignores_pings):
            heard_at = max(looked_at, connection.answered_at)
            await asyncio.sleep(max(0.0, heard_at + pause_s - time.monotonic()))
            if connection.answered_at > heard_at:
                # A program that answers lists, but never a ping, would be silent again and again.
                is_silent = connection.silence is not None
                ignores_pings = is_silent and is_program and not has_answered_ping
                self._note_answer(connection)
                continue
            if not connection.is_in_use:
                has_answered_ping = await self._ping(connection) or has_answered_ping
            looked_at = time.monotonic()

    async def _ping(self, connection: Connection) -> bool:
        """Ping the server; record and return whether it answered."""
        try:
            await connection.ping()
        except TimeoutError:
            self._note_silence(connection, f"it is connected, but did not answer within {PROBE_S:g} s")
            return False
        except (OSError, CallError) as error:
            self._note_silence(connection, str(error))
            return False
        self._note_answer(connection)
        return True

    def _note_silence(self, connection: Connection, reason: str) -> None:
        if connection.silence is None and not connection.is_lost:
            text = f"The MCP server {self.name!r} does not answer: {reason.rstrip('.')}."
            connection.silence = CallError("upstream_unavailable", text)
            log.warning("MCP server %r: %s", self.name, connection.silence)
            # The connection ends if the list is not answered either.
            self._request_refresh()

    def _note_answer(self, connection: Connection) -> None:
        if connection.silence is not None:
            connection.silence = None
            log.warning("MCP server %r works again.", self.name)

    async def _relist_until_lost(self, connection: Connection) -> None:
        """List again whenever there is a reason, until the connection is lost."""
        least, usual, most = MCP_REFRESH_S
        while not connection.is_lost:
            ttl_s = self.listing.ttl_s if self.listing else None
            await self._pause(connection, min(max(ttl_s, least), most) if ttl_s else usual, or_refresh=True)
            if self._must_refresh:
                # A server that announces changes without end must not block us.
                await self._pause(connection, self._throttle.wait_s())
            if connection.is_lost:
                return
            self._must_refresh = False
            try:
                async with asyncio.timeout(self.settings.timeout_s):
                    await self._refresh(connection)
            except TimeoutError:
                # A server with running calls may be too busy to list; one without calls, or without any answers, is
                # gone.
                if not connection.may_be_busy:
                    connection.lose(self._no_answer(connection.evidence))
            if not connection.is_lost:
                await self._refresh_resources(connection)

    async def _pause(self, connection: Connection, seconds: float, *, or_refresh: bool = False) -> None:
        """Wait that long, or until the connection is lost; with `or_refresh` also until there is a reason to list."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not (connection.is_lost or (or_refresh and self._must_refresh)):
                    self._noticed.clear()
                    await self._noticed.wait()

    def _no_answer(self, evidence: Evidence) -> CallError:
        if evidence.has_odd_answer and not evidence.has_session:
            return CallError("upstream_unavailable", evidence.not_mcp(""))
        text = f"The MCP server {self.name!r} did not answer in time.{evidence.words_for(None)}"
        return CallError("upstream_unavailable", text)

    async def _refresh_resources(self, connection: Connection) -> None:
        """List resources, prompts and completions again; if that takes too long, the last good lists stay."""
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                resources = await connection.list_resources()
                is_first, self.has_listed_resources = not self.has_listed_resources, True
                if is_first or resources != self._resources[0]:
                    self._resources = (resources, resource_entries(resources, self.settings, self.request))
                    self._notify()
        except (TimeoutError, CallError):
            pass
        finally:
            self._has_asked_resources.set()

    async def _refresh(self, connection: Connection) -> None:
        """List again. A refused list keeps the last good one."""
        try:
            listing = await connection.list()
        except CallError as error:
            if self.listing is None:
                raise
            if error.error.kind in _AWAY:
                connection.lose(error)
                return
            log.warning("MCP server %r: %s Its last list stays.", self.name, error)
            return
        await self._declare(listing)
        self._adopt(listing)

    async def _declare(self, listing: Listing) -> None:
        """Validate the new parts of a listing, yielding to other work; `_adopt` then only assembles it."""
        listed = listed_of(listing.tools, self.settings, self.lock)
        names = self._own_names(listed)
        turns = Turns()
        for raw_name, definition in listed.items():
            await turns.next()
            with suppress(UnfitError):
                self._entry(raw_name, definition, names[raw_name])

    def _request_refresh(self) -> None:
        self._must_refresh = True
        self._noticed.set()

    def _on_connected(self, connection: Connection) -> None:
        if self._lost_at is not None and self._clock() - self._lost_at < self.settings.grace_s:
            # After its grace period it is hidden, and its return is logged as that of any source.
            log.warning("MCP server %r works again.", self.name)
        self._connection, self._fault, self._lost_at = connection, None, None
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        self._settle()
        self._notify()

    def _on_disconnected(self, fault: CallError, *, lived_s: float) -> None:
        is_new = self._fault is None or self._fault.error.message != fault.error.message
        self._fault = fault
        self._backoff.failed(lived_s=lived_s)
        # An outage is logged once, not on every attempt.
        level = logging.WARNING if is_new else logging.DEBUG
        # The message of a missing connection has a link that is for its person.
        shown = "its person must connect an account." if fault.error.kind == "connection_required" else fault
        log.log(level, "MCP server %r: %s Next attempt in %.1f s.", self.name, shown, self._backoff.wait_s)
        if self._lost_at is None:
            self._lost_at = self._clock()
            loop = asyncio.get_running_loop()
            self._grace_timer = loop.call_later(self.settings.grace_s + 0.01, self._notify)
        self._settle()

    def _settle(self) -> None:
        # Callers waiting for this attempt continue; later ones wait for the next.
        self._settled.set()
        self._settled = asyncio.Event()
        if self._connection is not None:
            self._settled.set()

    def _notify(self) -> None:
        for notify in tuple(self._on_change):
            notify()

    # ---- listing

    def _adopt(self, listing: Listing) -> None:
        """Make a listing the current one, after comparing it with the accepted tools."""
        before, rejected_before = (self._entries, self.reviewed), frozenset(self.rejected)
        self.listing = listing
        self.reviewed = review(listing.tools, self.settings, self.lock)
        if self.reviewed.accepted:
            try:
                self.lock.accept(self.name, self.reviewed.accepted)
            except OSError as error:
                log.warning("The lock of MCP server %r cannot be written: %s.", self.name, error)
        self._names = self._own_names(self.reviewed.listed)
        self._declared = {name: declared for name, declared in self._declared.items() if name in self._names}
        self._ways = {self.qualified(raw_name): way for raw_name, way in listing.ways.items()}
        rejected = list(listing.rejected)
        entries: list[ToolEntry] = []
        for raw_name, definition in self.reviewed.listed.items():
            try:
                entries.append(self._entry(raw_name, definition, self._names[raw_name]))
            except UnfitError as error:
                rejected.append(Rejected(raw_name, str(error)))
        self.rejected = tuple(rejected)
        before_by_id = {entry.qualified_id: entry for entry in self._entries}
        # Known tools keep their place, so that a prompt does not change when a server reorders its list.
        places = {name: place for place, name in enumerate(before_by_id)}
        entries.sort(key=lambda entry: places.get(entry.qualified_id, len(places)))
        # Unchanged entries stay the same object, so that derived data is reused.
        self._entries = tuple(
            old
            if (old := before_by_id.get(entry.qualified_id)) is not None
            and (old.spec, old.reaches) == (entry.spec, entry.reaches)
            else entry
            for entry in entries
        )
        for name, reason in self.rejected:
            # Logged once, not on every listing.
            level = logging.DEBUG if (name, reason) in rejected_before else logging.WARNING
            log.log(level, "MCP server %r: tool %r was left out: %s.", self.name, name, reason)
        if before != (self._entries, self.reviewed):
            self._notify()

    def _own_names(self, listed: Mapping[str, JSON]) -> dict[str, str]:
        """Return our names of the tools, by original name."""
        # Accepted tools keep their names when new ones appear.
        known = () if trust_of(self.settings, self.lock) == "any" else tuple(self.lock.pins(self.name))
        return own_names(listed, rename=self.settings.rename, namespace=self.name, known=known)

    def _entry(self, raw_name: str, definition: JSON, name: str) -> ToolEntry:
        """Return a tool under our name; the previous entry if its definition is unchanged.

        Raises:
            UnfitError: its definition is invalid.
        """
        known = self._declared.get(raw_name)
        if (
            known is not None
            and known.settings is self.settings
            and (known.name, known.definition) == (name, definition)
        ):
            return known.entry
        checked = checked_definition(definition, bounds=self.settings.bounds)
        spec = declared_spec(checked, name, self.settings)

        async def handle(ctx: CallContext, args: JSON, /) -> ToolResult:
            return await self._call(raw_name, spec, ctx, args)

        entry = upstream_tool(
            spec, handle, source=self.name, reaches=self.settings.reaches(raw_name), offered=offered_titles(checked)
        )
        self._declared[raw_name] = _Declared(definition, name, self.settings, entry)
        return entry

    def qualified(self, raw_name: str) -> str:
        """Return our id of a tool of the server."""
        return f"{self.name}.{self._names.get(raw_name, raw_name)}"

    def offered(self) -> Mapping[str, JSON]:
        """Return the server's current tools by original name, which `pegboard lock diff` compares with the lock."""
        return {} if self.listing is None else self.listing.tools

    def accept(self, raw_name: str) -> None:
        """Pin one tool as the server offers it now; it is listed and callable at once.

        Raises:
            KeyError: the server offers no such tool.
            OSError: the lock cannot be written.
        """
        self.lock.accept(self.name, {raw_name: self.offered()[raw_name]})
        if self.listing is not None:
            self._adopt(replace(self.listing))

    def held(self) -> Sequence[HeldDefinition]:
        """Return the tools that differ from the lock, as `pegboard lock diff` does; none before the first listing."""
        if self.settings.trust == "any" or self.lock.fault or self.listing is None:
            return ()
        pins, offered = self.lock.pins(self.name), self.offered()
        return [
            HeldDefinition(id=self.qualified(name), changes=changes, accepted=pins.get(name), offered=offered.get(name))
            for name, changes in differences(offered, self.name, self.lock).items()
        ]

    def accept_held(self, definition: HeldDefinition) -> None:
        """Pin a tool as it is offered now, or forget one that is gone.

        Raises:
            CallError: `needs_review`: its definition or the lock file has changed since.
            OSError: the lock cannot be written.
        """
        if definition not in self.held():
            raise CallError("needs_review", f"{definition.id!r} has changed again since it was shown. Read it again.")
        if not self.lock.is_current():
            raise CallError(
                "needs_review",
                "Another program has changed pegboard.lock. Restart, or serve with --reload, to read it.",
            )
        shown = definition.offered or definition.accepted
        assert shown is not None
        raw_name = str(shown["name"])
        if definition.offered is not None:
            self.accept(raw_name)
            return
        self.lock.forget(self.name, raw_name)
        if self.listing is not None:
            self._adopt(replace(self.listing))

    # ---- reload of the config

    def fits(self, other: object) -> bool:
        """Tell whether another source's settings can use this connection."""
        return isinstance(other, McpSource) and self.settings.connection == other.settings.connection

    def renew(self, other: McpSource) -> None:
        """Take over the settings and the lock of another source; the connection and its calls continue."""
        is_new = self.settings != other.settings or self.lock.pins(self.name) != other.lock.pins(self.name)
        self.settings, self.lock = other.settings, other.lock
        if self._connection is not None:
            self._connection.settings = other.settings
        if is_new and self.listing is not None:
            # Tools that the old settings left out are requested again.
            self._adopt(
                replace(self.listing, tools={n: d for n, d in self.listing.tools.items() if self.settings.takes(n)})
            )
            self._resources = (self._resources[0], resource_entries(self._resources[0], self.settings, self.request))
            self._request_refresh()

    # ---- calls

    async def _call(self, raw_name: str, spec: ToolSpec, ctx: CallContext, args: JSON) -> ToolResult:
        return await self.call(raw_name, spec, ctx, args, self.addresses(ctx))

    async def call(
        self, raw_name: str, spec: ToolSpec, ctx: CallContext, args: JSON, address_of: AddressOf
    ) -> ToolResult:
        """Run one call of a tool at the server. `address_of` gives our addresses of resources in its answer.

        Raises:
            CallError: as the server or its connection fails.
        """
        is_harmless = spec.annotations.read_only is True or spec.annotations.idempotent is True

        def send(connection: Connection) -> Awaitable[ToolResult]:
            return connection.call(raw_name, args, ctx, address_of)

        try:
            return await self._send(send, is_harmless=is_harmless)
        finally:
            self._note_sent(ctx)

    def _note_sent(self, ctx: CallContext) -> None:
        """Redact the tokens that the server has received from the answer of a call, and record their account."""
        auth = self.settings.auth
        if ctx.call is None or not isinstance(auth, HoldsSecrets):
            return
        for secret in auth.secrets():
            ctx.call.sends(secret)
        if isinstance(auth, SendsForAccount) and (use := auth.last_use()) is not None:
            ctx.call.uses_account(use)

    def addresses(self, ctx: CallContext) -> AddressOf:
        """Return the function that gives our address of each resource in an answer to this caller."""
        return self._links.addresses(ctx)

    @property
    def upstream_resources(self) -> UpstreamResources:
        """The last good lists of resources, prompts and completions."""
        return self._resources[0]

    async def resources_listed(self) -> None:
        """Wait until the server, which is connected, has been asked for its resources and prompts once."""
        await self._has_asked_resources.wait()

    async def request(self, request: ResourceRequest, ctx: CallContext) -> ToolResult:
        """Read a resource, get a prompt or complete an argument at the server.

        Raises:
            CallError: as the server or its connection fails; `not_found` for a link that was not made for this caller.
        """
        if request.mark is not None and not self._links.allow(request.named, request.mark, ctx):
            raise CallError("not_found", "No such resource was named to this caller.")
        address_of = self.addresses(ctx)
        try:
            return await self._send(lambda connection: connection.request(request, ctx, address_of), is_harmless=True)
        finally:
            self._note_sent(ctx)

    def _offers(self) -> list[ResourceSpec]:
        """Return the server's listed resources and templates."""
        offers = (entry.offer for entry in self._resources[1])
        return [offer for offer in offers if isinstance(offer, ResourceSpec) and offer.is_listed]

    async def _send(self, send: Callable[[Connection], Awaitable[ToolResult]], *, is_harmless: bool) -> ToolResult:
        """Send over the connection; if it is lost, send again over the next one, provided that is harmless."""
        connection = await self._connected()
        try:
            return await send(connection)
        except CallError as error:
            if error.error.kind != "upstream_lost":
                raise
            if not is_harmless and error.error.outcome_unknown:
                raise
            lost = error
        try:
            # Over HTTP a single answer may be lost while the connection stays good.
            connection = await self._connected(other_than=connection if connection.is_lost else None)
        except CallError:
            raise lost from None
        return await send(connection)

    async def ready(self) -> None:
        """Wait until the server is connected and its tools are known, as long as a call would.

        Raises:
            CallError: it is not available.
        """
        await self._connected()

    async def _connected(self, *, other_than: Connection | None = None) -> Connection:
        """Return the open connection, after a short wait for one that is being opened.

        Raises:
            CallError: `upstream_unavailable` or `upstream_auth`, with the reason and the time of the next attempt;
                `connection_required`, if the server refused the token of a person.
        """
        if self._connection is not None and self._connection is not other_than and not self._connection.is_lost:
            return self._connection
        if self._task is None:
            why = " in this process, which was forked from the one that it serves" if self._was_forked else ""
            text = f"The MCP server {self.name!r} is not started{why}. Start the catalog: `await catalog.start()`."
            raise CallError("upstream_unavailable", text, retryable=False)
        is_failing = self._backoff.is_open
        if self._backoff.may_try_now():
            self._wake.set()
        if not is_failing:
            # The first attempt may take as long as the call; later calls must get an answer within a second.
            within_s = self.settings.timeout_s if self.listing is None and self._fault is None else MCP_CALL_WAITS_S
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    while self._connection is None or self._connection is other_than or self._connection.is_lost:
                        if self._fault is not None and self._fault.error.kind == "connection_required":
                            # More attempts would end in the same way: the person has to act.
                            raise self._fault
                        await self._next_settlement(other_than)
                    return self._connection
        raise self._unavailable()

    async def _next_settlement(self, other_than: Connection | None) -> None:
        if self._settled.is_set():
            # The old connection is lost, but its end was not processed yet.
            await asyncio.sleep(0.01)
        else:
            await self._settled.wait()

    def _unavailable(self) -> CallError:
        fault, wait_s = self._last_fault, max(round(self._backoff.wait_s, 1), 0.1)
        if fault is not None and fault.error.kind == "connection_required":
            return fault
        reason = fault.error.message if fault else "it is being connected."
        text = f"The MCP server {self.name!r} is not available: {reason} Pegboard will try again within {wait_s} s."
        kind = "upstream_auth" if fault and fault.error.kind == "upstream_auth" else "upstream_unavailable"
        return CallError(kind, text, retry_after_s=wait_s)


def _innermost(error: BaseException) -> BaseException:
    """Return the first error inside nested exception groups."""
    inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    return _innermost(inner[0]) if inner else error
