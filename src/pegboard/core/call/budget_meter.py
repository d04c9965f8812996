"""Budget meter: the costs that calls of this process have reported and that the store does not have yet."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from threading import Lock

from pegboard.core.after_fork import renew_after_fork
from pegboard.model.budget import MICROS, Charge, Counter

UNPAID_COUNTERS = 10_000  # counters whose costs wait for a store that is away

log = logging.getLogger("pegboard")


class BudgetMeter:
    """Collects costs until the next request to the store, and keeps them while it is away. State of one executor.

    Tools may report costs from threads. What is still here when the process ends is lost, which is logged.
    """

    def __init__(self) -> None:
        self._unpaid: dict[Counter, int] = {}
        self._lock = Lock()
        self.is_waiting = False
        """Whether the store was away when it was last asked to take costs."""
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave the costs to the parent, which pays them; its lock may be held."""
        self._unpaid, self._lock = {}, Lock()

    @property
    def has_unpaid(self) -> bool:
        """Whether there are costs that the store does not have yet."""
        return bool(self._unpaid)

    def owe(self, counters: Iterable[Counter], amount: int) -> None:
        """Add an amount in millionths to each counter, with the next request to the store."""
        with self._lock:
            for counter in counters:
                if counter in self._unpaid or len(self._unpaid) < UNPAID_COUNTERS:
                    self._unpaid[counter] = self._unpaid.get(counter, 0) + amount
                else:
                    log.error(
                        "budget_lost: %g %s of the budget %r are not counted: the store of budgets is away, and costs "
                        "of %d callers wait for it.", amount / MICROS, counter.unit, counter.budget, UNPAID_COUNTERS,
                    )  # fmt: skip

    def take(self) -> list[Charge]:
        """Return all unpaid costs and forget them; `give_back` keeps them after all."""
        with self._lock:
            unpaid, self._unpaid = self._unpaid, {}
        return [Charge(counter, amount) for counter, amount in unpaid.items()]

    def give_back(self, charges: Sequence[Charge]) -> None:
        """Keep costs that the store did not take."""
        self.is_waiting = True
        for charge in charges:
            self.owe((charge.counter,), charge.amount)
