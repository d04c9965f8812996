"""Health: the paths for operators, /healthz, /readyz and /metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress

from prometheus_client.metrics_core import Metric
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pegboard.core.call.budget_levels import BudgetLevel, budget_levels
from pegboard.core.ports import CanBeAway
from pegboard.model.document import LiveState
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.source_state import SourceState
from pegboard.server.authenticator import Authenticator
from pegboard.server.bus import ALONE, Answers, Others
from pegboard.server.event_hub import EventHub
from pegboard.server.gateway import Gateway
from pegboard.server.host_guard import HostGuard, Refusal
from pegboard.server.principal import ANONYMOUS, Principal
from pegboard.server.worker_counts import WorkerCounts
from pegboard.telemetry.call_metrics import CallMetrics
from pegboard.telemetry.metric_export import exporting_metrics
from pegboard.telemetry.part_states import PROBE_WAIT_S, PartStates
from pegboard.telemetry.prometheus_text import MEDIA_TYPE, gauges_of, prometheus_text

OPERATOR = "operator"
_STORES, _SERVERS = frozenset({"store", "bus"}), frozenset({"server", "model"})
METRICS_WAIT_S = 3.0  # how long to wait for the other workers before reporting only this one's counters


class Health:
    """The paths for operators.

    Args:
        gateway: the catalog and its contexts.
        host_guard: checks Host and Origin.
        authenticator: identifies the caller.
        event_hub: has the open event streams.
        is_serving: returns whether calls are accepted.
        problems: returns the problems of a refused reload.
        others: the other workers, whose counters are added to ours.
        worker: returns the name of this worker.
        part_states: probes the parts that the catalog depends on.
    """

    def __init__(
        self,
        gateway: Gateway,
        host_guard: HostGuard,
        authenticator: Authenticator,
        event_hub: EventHub,
        *,
        is_serving: Callable[[], bool],
        problems: Callable[[], Sequence[object]] = tuple,
        others: Others = ALONE,
        worker: Callable[[], str] = str,
        part_states: PartStates,
    ) -> None:
        self._gateway, self._host_guard = gateway, host_guard
        self._authenticator, self._event_hub = authenticator, event_hub
        self._is_serving, self._problems = is_serving, problems
        self._call_metrics, self._bus, self._counts = CallMetrics(), others.bus, WorkerCounts()
        self._part_states = part_states
        self._worker, self._has_others = worker, others.are_known or others.bus is not None
        if self._bus is not None:
            self._bus.on("metrics", lambda _worker, _body: self._counted())
            self._bus.on("metrics.known", self._learn)

    def _learn(self, _worker: str, body: JSON) -> None:
        self._counts.learn(body["known"])

    def _counted(self) -> JSON:
        worker = self._worker()
        self._counts.note(worker, self._call_metrics.counters())
        return {"worker": worker, "known": self._counts.known(), **self._state()}

    def _state(self) -> JSON:
        """Return the state of this worker, apart from its counters of calls."""
        executor = self._gateway.catalog.executor
        pressure = executor.ports.backpressure
        return {
            "in_flight": len(executor.in_flight),
            "waiting": 0 if pressure is None else pressure.waiting,
            "streams": self._event_hub.streams,
            "is_refused": bool(self._problems()),
            "stores": self._stores(),
        }

    def _stores(self) -> dict[str, bool]:
        """Return whether each store that other processes share answered this worker last."""
        limits = self._gateway.catalog.executor.ports.limits
        return {"limits": limits.is_up} if isinstance(limits, CanBeAway) else {}

    @property
    def routes(self) -> list[Route]:
        """The routes of the three paths."""
        paths = {"/healthz": self._health, "/readyz": self._readiness, "/metrics": self._metrics}
        return [Route(path, endpoint=answer) for path, answer in paths.items()]

    def begin(self) -> Callable[[], None]:
        """Count the calls of the catalog from now on; returns the function that ends it."""
        return self._gateway.catalog.executor.record(self._call_metrics)

    def exporting(self) -> AbstractAsyncContextManager[None]:
        """Export the metrics of this worker with OpenTelemetry within the block, if the process has set it up."""
        catalog = self._gateway.catalog
        return exporting_metrics(
            catalog.executor, catalog.name, counts=self._call_metrics, gauges=lambda: self._gauges([self._state()])
        )

    async def leave(self) -> None:
        """Send our counters to the other workers before this one ends."""
        with suppress(ConnectionError):
            await self._tell_counts()

    async def _tell_counts(self) -> None:
        if self._bus is not None:
            await self._bus.tell("metrics.known", {"known": self._counted()["known"]})

    async def _health(self, request: Request) -> Response:
        """Return 200, and report a refused reload; its problems only to operators."""
        problems = self._problems()
        if not problems:
            return PlainTextResponse("ok")
        lines = [f"ok, but the last change of the config was refused ({len(problems)} problems); see the log"]
        if await self._refusal(request) is None:
            lines += map(str, problems)
        return PlainTextResponse("\n".join(lines))

    async def _readiness(self, request: Request) -> Response:
        """Return 200 while calls are accepted and every part works without which they would fail."""
        if not self._is_serving() or self._gateway.catalog.executor.closing:
            return PlainTextResponse("not ready", status_code=503)
        probes = await self._part_states.probes(only_required=True, at_most_s=PROBE_WAIT_S)
        away = [f"{kind} {name}: {probe.detail}" for (kind, name), probe in probes.items() if not probe.ok]
        if not away:
            return PlainTextResponse("ready")
        shown = away if await self._refusal(request) is None else []
        return PlainTextResponse("\n".join(["not ready", *shown]), status_code=503)

    async def _metrics(self, request: Request) -> Response:
        refusal = await self._refusal(request)
        if refusal is not None:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in refusal.headers}
            return PlainTextResponse(refusal.text, status_code=refusal.status, headers=headers)
        counted = [self._counted()]
        theirs = await self._others_counted()
        counted += theirs.bodies
        text = prometheus_text(
            # A sum without one of the workers would be too low.
            self._counts.sum([counters["worker"] for counters in counted]) if theirs.are_all else self._call_metrics,
            await self._gauges(counted),
            worker="" if theirs.are_all else self._worker(),
            workers_heard=len(counted),
            # A random worker answers, so figures of its process would jump between requests.
            has_process=not self._has_others,
        )
        return Response(text, media_type=MEDIA_TYPE, headers={"cache-control": "no-store"})

    async def _gauges(self, workers: Sequence[JSON]) -> Sequence[Metric]:
        """Return the current gauges, given the state of each worker."""
        probes = await self._part_states.probes(at_most_s=PROBE_WAIT_S)
        registry = self._gateway.registry
        states, usual = registry.states(), SourceState()
        return gauges_of(
            in_flight=sum(worker["in_flight"] for worker in workers),
            waiting=sum(worker.get("waiting", 0) for worker in workers),
            streams=sum(worker["streams"] for worker in workers),
            sources={name: states.get(name, usual) for name in registry.sources},
            # A store counts as down if one worker cannot reach it.
            stores={
                name: all(worker.get("stores", {}).get(name, True) for worker in workers)
                for name in {name for worker in workers for name in worker.get("stores", {})}
            }
            | {name: probe.ok for (kind, name), probe in probes.items() if kind in _STORES},
            servers={name: probe.ok for (kind, name), probe in probes.items() if kind in _SERVERS},
            hosts={name: probe.ok for (kind, name), probe in probes.items() if kind == "host"},
            budgets=await self._budget_levels(),
            live=await self._live_states(),
            is_refused=any(worker["is_refused"] for worker in workers),
        )

    async def _budget_levels(self) -> Sequence[BudgetLevel]:
        """Return the levels of budgets; nothing while their store is away, which is another metric."""
        with suppress(OSError):
            return await budget_levels(self._gateway.catalog.executor)
        return ()

    async def _live_states(self) -> Sequence[LiveState]:
        sync = self._gateway.registry.declarations.document_sync
        # Without its store, which has its own metric, nothing is known of them.
        with suppress(CallError):
            return () if sync is None else await sync.states()
        return ()

    async def _others_counted(self) -> Answers:
        """Ask the other workers for their counters; without a bus, or while it is down, there are no answers."""
        if self._bus is None:
            return Answers([], are_all=not self._has_others)
        theirs = Answers([], are_all=False)
        # On a bus that hangs, each message would wait for its own time limit.
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(METRICS_WAIT_S):
                theirs = await self._bus.ask("metrics", {})
                for counters in theirs.bodies:
                    self._counts.learn(counters["known"])
                # Before we answer: the next scrape must not show less, even if a worker ends in between.
                await self._tell_counts()
                return theirs
        return Answers(theirs.bodies, are_all=False)

    async def _refusal(self, request: Request) -> Refusal | None:
        """Return a refusal unless the caller is an operator, or anonymous on this machine."""
        refusal = self._host_guard.refusal(request.scope["headers"])
        if refusal is not None:
            return refusal
        is_local = self._authenticator.is_local(request.scope)
        caller = await self._authenticator.identify(request.scope)
        if isinstance(caller, Refusal):
            return caller
        identity = caller.identity
        if identity.credential == ANONYMOUS and is_local:
            return None
        # The host may add roles to those of the credential.
        roles = {*identity.roles, *self._gateway.context_for(Principal(identity=identity, profile=None)).roles}
        return None if OPERATOR in roles else Refusal(status=404, text="Not found")
