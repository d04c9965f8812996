"""Memory budgets: counts calls and costs of budgets in this process."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from pegboard.core.after_fork import renew_after_fork
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.budget import Charge, Counter


class MemoryBudgetStore:
    """Counts in this process; all counts end with it. Implements the port `LocalBudgetStore`.

    At most `max_counters` counters are remembered. Counters of ended periods are dropped when there is no room.
    """

    def __init__(self, *, max_counters: int = DEFAULT_BOUNDS.ratelimit_keys) -> None:
        self.max_counters = max_counters
        self._amounts: dict[Counter, int] = {}
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Replace the lock that a thread of the parent may hold; counts stay."""
        self._lock = threading.Lock()

    def charge(self, charges: Sequence[Charge]) -> Sequence[int]:
        """Return the amounts before, and add what fits; see `ports.BudgetStore`.

        Raises:
            ConnectionError: there is no room for another counter.
        """
        with self._lock:
            used = [self._amounts.get(charge.counter, 0) for charge in charges]
            fits = all(
                charge.limit is None or before < charge.limit for charge, before in zip(charges, used, strict=True)
            )
            added = [charge for charge in charges if charge.amount and (fits or charge.limit is None)]
            self._make_room([charge.counter for charge in added if charge.counter not in self._amounts])
            for charge in added:
                self._amounts[charge.counter] = self._amounts.get(charge.counter, 0) + charge.amount
            return used

    def counters(self, periods: Sequence[Counter]) -> Sequence[Charge]:
        """Return the amounts of these periods; see `ports.BudgetStore`."""
        wanted = {period._replace(who=()) for period in periods}
        with self._lock:
            known = [*self._amounts.items()]
        return [Charge(counter, amount) for counter, amount in known if counter._replace(who=()) in wanted]

    def _make_room(self, added: Sequence[Counter]) -> None:
        if not added or len(self._amounts) + len(added) <= self.max_counters:
            return
        now = max(counter.begins_s for counter in added)
        self._amounts = {counter: amount for counter, amount in self._amounts.items() if counter.ends_s > now}
        if len(self._amounts) + len(added) > self.max_counters:
            raise ConnectionError(f"this process counts {len(self._amounts)} budgets already")
