"""Alert watch: looks every few seconds at what is wrong with a served catalog, and sends what changed."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import platform
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.catalog import Catalog
from pegboard.core.call.budget_levels import budget_levels
from pegboard.core.cancellation import cancel_and_wait
from pegboard.core.json_text import json_bytes
from pegboard.core.redaction import Redactor
from pegboard.lazy import LazyModule
from pegboard.model.alert import AlertKind, AlertRule, Alerts, AlertState
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.probe import Probe
from pegboard.model.record import replace
from pegboard.model.secret import Secret
from pegboard.telemetry.alert_book import AlertBook, AlertChange, StateKey
from pegboard.telemetry.alert_states import (
    OF_SOURCES,
    is_undecided,
    states_of_audit,
    states_of_budgets,
    states_of_config,
    states_of_parts,
    states_of_questions,
    states_of_sources,
    states_of_tasks,
)
from pegboard.telemetry.alert_turn import AlertTurn
from pegboard.telemetry.budget_refusals import BudgetRefusals
from pegboard.telemetry.part_states import PartKey, PartStates

ALERT_CHECK_S = 2.0  # seconds between two looks at what is wrong
ALERT_PROBE_S = 10.0  # seconds between two probes of all parts, for the log, if there are no alerts
ALERT_AGAIN_S = 60.0  # seconds until an alert is sent again that its receiver did not accept
ALERT_TEXT_CHARS = 1_000  # characters of the text of an alert
ALERT_TASKS_S = 30.0  # seconds between two looks at all tasks
ALERT_BUDGETS_S = 5.0  # seconds between two looks at budgets
ALERT_BUDGETS = 1_000  # the fullest budgets that are reported
ALERT_QUESTIONS_S = 5.0  # seconds between two looks at open questions
_STORE_S = 5.0  # time limit of the store of tasks or questions, in seconds

if TYPE_CHECKING:
    from pegboard.consent import sql_records
    from pegboard.tasks import tasks as server_tasks
    from pegboard.telemetry import alert_delivery
else:
    sql_records = LazyModule("pegboard.consent.sql_records")
    server_tasks = LazyModule("pegboard.tasks.tasks")
    alert_delivery = LazyModule("pegboard.telemetry.alert_delivery")

_StatesNow = Callable[[], Awaitable[Iterable[AlertState]]]

log = logging.getLogger("pegboard")


class AlertWatch:
    """Sends the alerts of a catalog while it is served. One worker of a machine has the turn; the others wait for it.

    No call waits for it: it has its own asyncio task, and one for each receiver that is being sent to.

    Args:
        catalog: the catalog, whose declarations say what to send where.
        part_states: probes stores, servers and models.
        problems: returns the problems of a config whose change was refused.
        interval_s: seconds between two looks.
    """

    def __init__(
        self,
        catalog: Catalog,
        part_states: PartStates,
        problems: Callable[[], Sequence[object]],
        *,
        interval_s: float = ALERT_CHECK_S,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog, self._part_states, self._problems = catalog, part_states, problems
        self._interval_s, self._sleep, self._clock = interval_s, sleep, clock
        self._budgets, self._book = BudgetRefusals(clock=clock), AlertBook(clock=clock)
        self._end_observing: Callable[[], None] = _nothing
        self._turn: AlertTurn | None = None
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}
        # Not at once: the first answer does not wait for the modules that probes need.
        self._next_probe = clock() + interval_s
        self._redacted: tuple[tuple[Secret, ...], Redactor] = (), Redactor(())
        self._slow: dict[AlertKind, tuple[float, tuple[AlertState, ...] | None]] = {}

    @property
    def _alerts(self) -> Alerts:
        return self._catalog.registry.declarations.alerts

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Look and send within the block. Alerts that are under way at its end are sent by the next server."""
        looking = asyncio.create_task(self._look_on())
        try:
            yield
        finally:
            self._end_observing()
            await cancel_and_wait(looking, *self._sending.values())
            if self._turn is not None:
                self._turn.leave()

    async def _look_on(self) -> None:
        while True:
            if self._alerts.rules or self._clock() >= self._next_probe:
                self._next_probe = self._clock() + ALERT_PROBE_S
                try:
                    await (self.look() if self._alerts.rules else self._part_states.probes())
                except Exception:  # boundary: a fault here must not end all later alerts
                    log.exception("The states to alert about could not be determined.")
            await self._sleep(self._interval_s)

    async def look(self) -> None:
        """Look once, and begin to send what receivers do not know yet."""
        alerts = self._alerts
        if self._turn is None:
            self._turn = AlertTurn(Path(alerts.folder))
        if self._turn.take():
            await self._continue_book(self._turn)
        if not self._turn.is_ours:
            return
        wanted = frozenset[AlertKind]().union(*(rule.on for rule in alerts.rules))
        if "budget" in wanted and self._end_observing is _nothing:
            self._end_observing = self._catalog.executor.record(self._budgets)
        states, undecided = await self._states(wanted)
        receivers = {_receiver_of(rule): rule for rule in alerts.rules}
        self._book.keep_only(receivers)
        now = time.time()
        for name, rule in receivers.items():
            if name in self._sending or self._clock() < self._not_before.get(name, 0.0):
                continue
            changes = self._book.changes(name, rule, states, undecided, now=now)
            if changes:
                task = asyncio.create_task(self._send(name, rule, changes))
                self._sending[name] = task
                task.add_done_callback(lambda _, name=name: self._sending.pop(name, None))

    async def _continue_book(self, turn: AlertTurn) -> None:
        """Continue the book of the previous worker, without secrets that an earlier version stored in it."""
        stored = turn.sent()
        clean = self._redactor().text(stored.decode("utf-8", "replace")).encode()
        self._book.load(clean)
        if clean != stored:
            await asyncio.to_thread(turn.remember, self._book.content())

    async def settled(self) -> None:
        """Wait until what is being sent has arrived or failed."""
        await asyncio.gather(*self._sending.values(), return_exceptions=True)

    # ---- what is wrong

    async def _states(self, wanted: frozenset[AlertKind]) -> tuple[Mapping[StateKey, AlertState], set[StateKey]]:
        registry, undecided = self._catalog.registry, set[StateKey]()
        alert_states: list[AlertState] = [*states_of_config(self._problems()), *self._budgets.states()]
        states = {name: source.state() for name, source in registry.sources.items()}
        alert_states += states_of_sources(states)
        undecided.update((kind, name) for name, state in states.items() if is_undecided(state) for kind in OF_SOURCES)
        slow: tuple[tuple[AlertKind, float, _StatesNow], ...] = (
            ("task_stuck", ALERT_TASKS_S, self._stuck_tasks),
            ("consent_waiting", ALERT_QUESTIONS_S, self._waiting_questions),
            ("budget", ALERT_BUDGETS_S, self._used_budgets),
        )
        slow = tuple(each for each in slow if each[0] in wanted)
        # All at the same time: each of these waits for its own store, and that may be the one that hangs.
        probes, audit_fault, found = await asyncio.gather(
            self._probes(wanted),
            self._audit_fault(wanted),
            asyncio.gather(*(self._slowly(*each) for each in slow)),
        )
        audit_probe = probes.get(("store", "audit"))
        if not audit_fault and audit_probe is not None and not audit_probe.ok:
            # Without calls, nothing is stored, and only the probe can fail.
            audit_fault = f"its store does not work: {audit_probe.detail}"
        alert_states += [*states_of_parts(probes), *states_of_audit(audit_fault)]
        for (kind, _, _), known in zip(slow, found, strict=True):
            if known is None:
                # The store does not answer, which is another alert.
                undecided.update((kind, each) for each in self._book.subjects(kind))
            else:
                alert_states += known
        # A foreign server may repeat a secret in the text of its error. Removed before the book stores it on the disk.
        redactor = self._redactor()
        known_states = [_without_secrets(state, redactor) for state in alert_states]
        unknown: set[StateKey] = {(kind, redactor.text(subject)) for kind, subject in undecided}
        return {(state.kind, state.subject): state for state in known_states}, unknown

    def _redactor(self) -> Redactor:
        """Return the redactor of the current secrets. Making one takes long, so it is kept until they change."""
        secrets = (*self._secrets(),)
        if secrets != self._redacted[0]:
            self._redacted = secrets, Redactor(secrets)
        return self._redacted[1]

    def _secrets(self) -> Iterator[Secret]:
        yield from self._catalog.registry.declarations.secrets
        for rule in self._alerts.rules:
            yield from (secret for secret in (rule.secret, rule.url) if secret is not None)

    async def _probes(self, wanted: frozenset[AlertKind]) -> Mapping[PartKey, Probe]:
        return await self._part_states.probes() if wanted & {"down", "store_down", "audit_broken"} else {}

    async def _audit_fault(self, wanted: frozenset[AlertKind]) -> str:
        audit = self._catalog.executor.ports.audit
        return "" if audit is None or "audit_broken" not in wanted else await asyncio.to_thread(audit.fault)

    async def _slowly(
        self, kind: AlertKind, interval_s: float, states_now: _StatesNow
    ) -> tuple[AlertState, ...] | None:
        """Return the states of a kind that a database knows, asked seldom; `None` if it does not answer."""
        due, known = self._slow.get(kind, (0.0, ()))
        if self._clock() >= due:
            try:
                async with asyncio.timeout(_STORE_S):
                    known = tuple(await states_now())
            except (OSError, TimeoutError, CallError):
                known = None
            self._slow[kind] = (self._clock() + interval_s, known)
        return known

    async def _stuck_tasks(self) -> Iterable[AlertState]:
        ports = self._catalog.executor.ports
        if ports.tasks is None:
            return ()
        tasks = self._catalog.tasks
        if tasks.is_durable and not tasks.may_have_some():
            # Looking must not create the store.
            return ()
        records = await tasks.list(server_tasks.OPERATOR)
        return [*states_of_tasks(records, now=ports.wall_clock())]

    async def _used_budgets(self) -> Iterable[AlertState]:
        levels = await budget_levels(self._catalog.executor)
        return [*states_of_budgets(levels[:ALERT_BUDGETS])]

    async def _waiting_questions(self) -> Iterable[AlertState]:
        consents = self._catalog.executor.ports.consents
        if not consents.takes_questions or not isinstance(consents, sql_records.SqlConsents):
            return ()
        return [*states_of_questions(await consents.listed())]

    # ---- sending

    async def _send(self, receiver: str, rule: AlertRule, changes: Sequence[AlertChange]) -> None:
        assert self._turn is not None
        for change in changes:
            message_id = os.urandom(16).hex()
            body = json_bytes(self._message(receiver, change, message_id))
            try:
                await alert_delivery.deliver(rule, message_id, body, folder=self._alerts.folder, sleep=self._sleep)
            except alert_delivery.AlertError as error:
                self._not_before[receiver] = self._clock() + ALERT_AGAIN_S
                kind, subject = change.alert.kind, change.alert.subject
                log.error("alert_failed: %s of %r was not taken; it is sent again in %g s if it is still true: %s",
                          kind, subject, ALERT_AGAIN_S, error,
                          extra={"fields": {"event": "alert_failed", "alert": kind, "subject": subject}})  # fmt: skip
                return
            self._book.note_sent(receiver, change)
            await asyncio.to_thread(self._turn.remember, self._book.content())

    def _message(self, receiver: str, change: AlertChange, message_id: str) -> JSON:
        alert = change.alert
        over = "No longer true: " if change.status == "over" else ""
        return {
            "type": "pegboard.alert",
            "id": message_id,
            "alert": alert.kind,
            "status": change.status,
            "subject": alert.subject[:ALERT_TEXT_CHARS],
            "text": f"{over}{alert.text}"[:ALERT_TEXT_CHARS],
            "names": [name[:ALERT_TEXT_CHARS] for name in alert.names],
            "since": _iso(alert.since),
            "at": _iso(time.time()),
            "catalog": self._catalog.registry.declarations.name,
            "host": platform.node(),
            "left_out": self._book.left_out(receiver),
        }


def _without_secrets(state: AlertState, redactor: Redactor) -> AlertState:
    names = tuple(redactor.text(name) for name in state.names)
    return replace(state, subject=redactor.text(state.subject), text=redactor.text(state.text), names=names)


def _receiver_of(rule: AlertRule) -> str:
    """Return a name for a receiver, the same in each process; it does not reveal the address."""
    where = rule.command if rule.url is None else (rule.url.reveal(),)
    return hashlib.sha256("\0".join((*sorted(rule.on), *where)).encode("utf-8", "replace")).hexdigest()[:16]


def _nothing() -> None:
    pass


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
