"""Leases of tasks in a database that outlast every pause of a busy machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.timing import PATIENCE_S


@pytest.fixture(scope="session", autouse=True)
def _leases_outlast_the_pauses_of_the_machine() -> Iterator[None]:
    """A worker that stands still for 3 s loses its lease, and its tasks run again: tests count their runs.

    Tests of what happens then set a lease of their own. Workers that end are noticed at once in any case.
    """
    with pytest.MonkeyPatch.context() as patched:
        for module in ("dbos_engine", "worker_lease"):
            patched.setattr(f"pegboard.tasks.{module}.TASK_LEASE_S", PATIENCE_S)
        yield
