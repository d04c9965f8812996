"""Audit writer: a bounded queue of records, and the one thread that writes them in batches."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pegboard.audit.audit_row import AuditRow
from pegboard.audit.call_backpressure import CallBackpressure
from pegboard.audit.call_rows import CallRows
from pegboard.audit.hash_chain import HeadSigner, Unsealed
from pegboard.audit.limits import AUDIT_BATCH_ROWS
from pegboard.core.after_fork import leave_to_parent, renew_after_fork
from pegboard.model.error import DefinitionError
from pegboard.storage.store_error import StoreError

if TYPE_CHECKING:
    from pegboard.audit.audit_store import AuditStore

AUDIT_QUEUE = 20_000  # records that wait for the store; further ones are counted as a gap
AUDIT_CROWDED = 10_000  # new calls wait while there are so many records; the rest is for the calls that run
RECORDS_OF_CALL = 2  # its start and its end
AUDIT_SLOW_LOG_S = 60.0  # seconds between two log lines about a slow store
AUDIT_LINGER_S = 0.05  # seconds that a batch waits for more; calls that end within it have a single row
AUDIT_RETRY_S = 1.0  # seconds between two attempts to write to a store that does not work
AUDIT_CLOSE_S = 5.0  # seconds that closing waits for the last batch
AUDIT_PRUNE_S = 86_400.0  # seconds between two deletions of old rows

log = logging.getLogger("pegboard")


class AuditWriter:
    """Writes queued records to a store, in order. Made with a config; its thread starts with the first record.

    While records come faster than the store takes them, calls wait to begin (`backpressure`). While the store does not
    work the queue fills up, `is_up` is false, and each record that does not fit is counted. When the store works again
    the queue is written, and then a `gap` row with the count. `close` writes what is left; a later record starts the
    thread again. A forked child begins with an empty queue.

    Args:
        store: the store.
        rows: makes rows of records.
        signer: signs heads.
        keep_s: seconds until rows are deleted.
        wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        store: AuditStore,
        rows: CallRows,
        signer: HeadSigner,
        *,
        keep_s: float,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.store, self.signer = store, signer
        self._rows, self._keep_s, self._wall_clock = rows, keep_s, wall_clock
        self.backpressure = CallBackpressure()
        self._wake = threading.Event()
        self._forget_process_state()
        renew_after_fork(self)

    def _forget_process_state(self) -> None:
        self.queue = deque[object]()
        self.backpressure.forget()
        self._next_slow_log = 0.0
        self.is_idle = True
        """Whether the thread sleeps until it is woken; then `wake` must follow a new record."""
        self._wake = threading.Event()
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._works: bool | None = None
        self._fault = ""
        self._lost, self._lost_from = 0, 0.0
        self._next_prune = 0.0
        self._unclosed = False

    def after_fork(self) -> None:
        """Start empty in a child: the parent writes its own records."""
        leave_to_parent(self.queue, self._wake, self._thread)
        self._forget_process_state()
        self._rows.forget()
        self.store.after_fork()

    @property
    def is_up(self) -> bool:
        """Whether a record put now will be stored. The first use of a store that was not tried yet tries it."""
        if self._works is None:
            try:
                self.store.probe()
                self._works = True
            except (StoreError, DefinitionError, OSError, ImportError) as error:
                self._report(error)
        return self._works is True and len(self.queue) < AUDIT_QUEUE

    def fault(self) -> str:
        """Return why records are not stored now, and how many were lost; empty if all are."""
        if self.is_up and not self._lost:
            return ""
        lost = f"; {self._lost} records were lost" if self._lost else ""
        return f"{self._fault or 'too many records wait for the store'}{lost}"

    def put(self, record: object) -> None:
        """Queue a record for the thread. Called on the path of every call, so it does no more than it must."""
        queue = self.queue
        if len(queue) >= AUDIT_CROWDED and not self._has_room():
            return
        queue.append(record)
        if self.is_idle:
            self.wake()

    def _has_room(self) -> bool:
        """Make calls wait from now on, and return whether the queue takes one more record; count it if not."""
        if self.backpressure.turn_on() and (now := time.monotonic()) >= self._next_slow_log:
            self._next_slow_log = now + AUDIT_SLOW_LOG_S
            log.warning("Calls wait for the audit: its store is slower than they are. Use a faster disk or server.")
        if len(self.queue) < AUDIT_QUEUE:
            return True
        self.lose()
        return False

    def now(self) -> float:
        """Return the time of a row, in seconds since 1970."""
        return self._wall_clock()

    def lose(self) -> None:
        """Count a record that cannot be stored."""
        if not self._lost:
            self._lost_from = self._wall_clock()
        self._lost += 1

    def wake(self) -> None:
        """Wake the thread, and start it if there is none."""
        self.is_idle = False
        self._wake.set()
        if self._thread is None:
            with self._start_lock:
                if self._thread is None:
                    self._is_closing = False
                    # The end of the thread before it has stopped it.
                    self.backpressure.let_go(0)
                    self._thread = threading.Thread(target=self._run, name="pegboard-audit", daemon=True)
                    self._thread.start()
                    atexit.register(self.close)

    def close(self) -> None:
        """Write the remaining rows and a signed head; wait at most `AUDIT_CLOSE_S` seconds."""
        thread = self._thread
        if thread is None:
            return
        self._is_closing = True
        self._wake.set()
        self.backpressure.stop()
        thread.join(AUDIT_CLOSE_S)
        if thread.is_alive():
            log.error("The audit did not write its last rows within %g s.", AUDIT_CLOSE_S)
        self._thread, self.is_idle = None, True
        atexit.unregister(self.close)
        self.store.close()

    # ---- the thread

    def _run(self) -> None:
        batch: list[Unsealed] = []
        while True:
            if not self._is_closing:
                self._linger(has_batch=bool(batch))
            is_last = self._is_closing
            if not batch:
                batch = self._next_batch(is_last=is_last)
            if (batch or (is_last and self._unclosed)) and not self._write(batch, closes=is_last and not self.queue):
                if is_last:
                    return
                continue
            batch = []
            if is_last and not self.queue:
                return

    def _linger(self, *, has_batch: bool) -> None:
        """Wait until there is something to write, and a moment longer for more of it."""
        if has_batch:
            self._wait(AUDIT_RETRY_S)
            return
        if len(self.queue) >= AUDIT_BATCH_ROWS:
            return
        if not self.queue and not self._rows.has_waiting and not self._lost:
            self._wake.clear()
            self.is_idle = True
            # A record that was put before `is_idle` was set wakes nobody.
            if not self.queue and not self._is_closing:
                self._wake.wait()
            self.is_idle = False
        self._wait(AUDIT_LINGER_S)

    def _wait(self, seconds: float) -> None:
        """Wait, or until the writer is closed."""
        ends = time.monotonic() + seconds
        while not self._is_closing and (left := ends - time.monotonic()) > 0:
            self._wake.clear()
            if self._is_closing:
                return
            self._wake.wait(left)

    def _next_batch(self, *, is_last: bool) -> list[Unsealed]:
        queue, records = self.queue, list[object]()
        while queue and len(records) < AUDIT_BATCH_ROWS:
            records.append(queue.popleft())
        batch = self._rows.rows_of(records, is_last=is_last)
        if self._lost and not queue:
            lost, self._lost = self._lost, 0
            detail = {"lost": lost, "from": self._lost_from, "to": self._wall_clock()}
            batch.append(self._rows.unsealed(AuditRow(event="gap", at=self._wall_clock(), detail=detail)))
        return batch

    def _write(self, batch: Iterable[Unsealed], *, closes: bool) -> bool:
        rows = [*batch]
        try:
            now = self._wall_clock()
            self.store.append(rows, self.signer, closes=closes, now=now)
            if now >= self._next_prune:
                self._next_prune = now + AUDIT_PRUNE_S
                self.store.prune(now - self._keep_s, self.signer, now=now)
        except (StoreError, DefinitionError, OSError, ImportError) as error:
            self._report(error)
            return False
        if self._works is False:
            log.warning("The audit is stored again.")
        self._works, self._fault, self._unclosed = True, "", not closes
        self.backpressure.let_go((AUDIT_CROWDED - len(self.queue)) // RECORDS_OF_CALL)
        return True

    def _report(self, error: Exception) -> None:
        self._fault = str(error).removesuffix(".")
        self.backpressure.stop()
        if self._works is not False:
            self._works = False
            log.error("The audit cannot be stored, and waits in memory: %s.", self._fault)
