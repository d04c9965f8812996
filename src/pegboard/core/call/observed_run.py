"""Observed run: gives the audit a record of an agent's run that no call of a tool surrounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pegboard.core.call.finished_call import FinishedRun, StartedCall
from pegboard.core.call.record import ExecutorState
from pegboard.model.agent import RUN_PREFIX
from pegboard.model.context import ToolContext
from pegboard.model.error import ErrorKind
from pegboard.model.json_types import JSONValue


class ObservedRun:
    """The record of one run: its start when this is made, its end with `end`. Does nothing without an audit.

    Its record has the request id of the context, which the calls of the agent's tools have too.
    """

    def __init__(self, executor: ExecutorState, ctx: ToolContext, agent: str, run_id: str) -> None:
        ports, request = executor.ports, ctx.request
        self._audit, self._clock, self._agent = ports.audit, ports.clock, agent
        self._began = ports.clock()
        self._started = StartedCall(
            call_id=run_id, request_id=request.id, parent_call_id=request.parent_call, name=f"{RUN_PREFIX}{agent}",
            caller=ctx.caller, profile=None if request.spending is None else request.spending.profile,
            door=request.door, client=getattr(request.client, "client_name", ""), at=ports.wall_clock(),
            redactor=executor.redactor(ctx),
        )  # fmt: skip
        if self._audit is not None:
            self._audit.begin_run(self._started)

    def end(
        self, kind: ErrorKind | Literal["ok"], *, arguments: JSONValue, costs: Mapping[str, int], output: JSONValue
    ) -> None:
        """Record the end. `costs` are in millionths of each unit."""
        if self._audit is not None:
            duration_s = self._clock() - self._began
            self._audit.end_run(FinishedRun(self._started, self._agent, arguments, kind, costs, duration_s, output))
