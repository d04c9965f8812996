"""Health: what a server tells those who run it: /healthz, /readyz and /metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pegboard.core.ports import CanBeAway
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
from pegboard.telemetry.part_states import PartStates
from pegboard.telemetry.prometheus_text import MEDIA_TYPE, prometheus_text

OPERATOR = "operator"
_STORES = frozenset({"store", "bus"})
METRICS_WAIT_S = 3.0  # for the other workers, before a worker tells what it has counted itself


class Health:
    """The paths for operators.

    Args:
        gateway: answers for the catalog.
        host_guard: whose Host and Origin come in.
        authenticator: tells who they are.
        event_hub: knows the open event streams.
        is_serving: tells whether calls are taken.
        problems: gives what is wrong with a config whose change was refused.
        others: the other workers, whose calls are counted together with those of this one.
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
            self._bus.on("metrics", lambda _who, _said: self._counted())
            self._bus.on("metrics.known", self._learn)

    def _learn(self, _who: str, said: JSON) -> None:
        self._counts.learn(said["known"])

    def _counted(self) -> JSON:
        worker = self._worker()
        self._counts.note(worker, self._call_metrics.said())
        return {
            "worker": worker,
            "known": self._counts.known(),
            "in_flight": len(self._gateway.catalog.executor.in_flight),
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
        """The three paths."""
        paths = {"/healthz": self._health, "/readyz": self._readiness, "/metrics": self._metrics}
        return [Route(path, endpoint=answer) for path, answer in paths.items()]

    def begin(self) -> Callable[[], None]:
        """Count the calls of the catalog from now on; returns the function that ends it."""
        return self._gateway.catalog.executor.record(self._call_metrics)

    async def leave(self) -> None:
        """Tell the other workers what was counted here, before this one ends."""
        with suppress(ConnectionError):
            await self._tell_counts()

    async def _tell_counts(self) -> None:
        if self._bus is not None:
            await self._bus.tell("metrics.known", {"known": self._counted()["known"]})

    async def _health(self, request: Request) -> Response:
        """Tell that the process answers; and of a config that was refused, where it is wrong to those who may know."""
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
        probes = await self._part_states.probes(only_required=True)
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
        counted += theirs.said
        probes = await self._part_states.probes()
        registry = self._gateway.registry
        states, usual = registry.states(), SourceState()
        text = prometheus_text(
            # A sum that lacks a worker would look like calls that never were.
            self._counts.sum([one["worker"] for one in counted]) if theirs.are_all else self._call_metrics,
            worker="" if theirs.are_all else self._worker(),
            workers_heard=len(counted),
            in_flight=sum(one["in_flight"] for one in counted),
            streams=sum(one["streams"] for one in counted),
            sources={name: states.get(name, usual) for name in registry.sources},
            # A store counts as down if one worker cannot reach it.
            stores={
                name: all(one.get("stores", {}).get(name, True) for one in counted)
                for name in {name for one in counted for name in one.get("stores", {})}
            }
            | {name: probe.ok for (kind, name), probe in probes.items() if kind in _STORES},
            servers={name: probe.ok for (kind, name), probe in probes.items() if kind not in _STORES},
            is_refused=any(one["is_refused"] for one in counted),
            # Which worker answers is chance: what it has used would rise and fall.
            has_process=not self._has_others,
        )
        return Response(text, media_type=MEDIA_TYPE, headers={"cache-control": "no-store"})

    async def _others_counted(self) -> Answers:
        """Ask the other workers for their counters; without a bus, or while it is away, none of them answers."""
        if self._bus is None:
            return Answers([], are_all=not self._has_others)
        theirs = Answers([], are_all=False)
        # A silent bus lets one message after the other run into its time limit.
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(METRICS_WAIT_S):
                theirs = await self._bus.ask("metrics", {})
                for one in theirs.said:
                    self._counts.learn(one["known"])
                # Before anybody outside: whoever is asked next must not count less, whichever worker ends meanwhile.
                await self._tell_counts()
                return theirs
        return Answers(theirs.said, are_all=False)

    async def _refusal(self, request: Request) -> Refusal | None:
        """Return why a caller is told nothing: only operators are, and whoever is on this machine unnamed."""
        refusal = self._host_guard.refusal(request.scope["headers"])
        if refusal is not None:
            return refusal
        is_local = self._authenticator.is_local(request.scope)
        caller = await self._authenticator.identify(request.scope)
        if isinstance(caller, Refusal):
            return caller
        who = caller.identity
        if who.credential == ANONYMOUS and is_local:
            return None
        # The host may know more of a caller than their credential says.
        roles = {*who.roles, *self._gateway.context_for(Principal(identity=who, profile=None)).roles}
        return None if OPERATOR in roles else Refusal(status=404, text="Not found")
