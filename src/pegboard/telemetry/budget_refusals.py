"""Budget refusals: the callers whose calls were refused lately because a request or agent had used up its budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from pegboard.core.call.finished_call import FinishedCall, StartedCall
from pegboard.model.alert import AlertState
from pegboard.telemetry.call_log import name_of

BUDGET_CALLERS = 1_000  # callers whose refusals are remembered; further ones are left out
BUDGET_OVER_S = 600.0  # seconds without a refusal until the alert about a caller is over


class BudgetRefusals:
    """Remembers who ran out of a budget, and when last. A `CallObserver`, from `Executor.record` on.

    Args:
        clock: a monotonic clock in seconds.
    """

    times_stages = False

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[str, tuple[float, str]] = {}

    def started(self, call: StartedCall) -> None:
        """Do nothing: only the end of a call tells."""

    def finished(self, call: FinishedCall) -> None:
        """Remember a call that was refused because a budget is used up."""
        error = call.result.error
        if error is None or error.kind != "budget_exceeded" or "budget" in error.details:
            # Declared budgets are reported by `states_of_budgets`, before and when they are used up.
            return
        caller = name_of(call.started.caller)
        if caller in self._last or len(self._last) < BUDGET_CALLERS:
            self._last[caller] = (self._clock(), call.tool[:128])

    def states(self) -> Iterator[AlertState]:
        """Yield one state for each caller that was refused lately."""
        now = self._clock()
        self._last = {caller: known for caller, known in self._last.items() if now - known[0] < BUDGET_OVER_S}
        for caller, (_, tool) in self._last.items():
            text = f"A budget of {caller} is used up: {tool} was refused"
            yield AlertState(kind="budget", subject=caller, text=text)
