"""Worker refusals: the reasons why a new worker could not start, in files that the workers of one parent share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import orjson

from pegboard.model.error import PegboardError, Problem
from pegboard.telemetry.reload_log import problems_of

REFUSALS_CHECK_S = 0.5  # seconds between two looks for a refusal of a successor


class WorkerRefusals:
    """The reports of workers that could not start, and the latest one that still applies.

    A worker that cannot start writes its own report, and the parent makes that the latest. It stays until a worker
    starts or reloads its config.

    Args:
        folder: the folder of the parent, which only its user may read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._latest = folder, folder / "refusal.json"

    def report(self, error: PegboardError, *, clean: Callable[[str], str]) -> None:
        """Write why this worker cannot start; `clean` removes secrets from a text."""
        problems = [
            {"where": problem.where, "path": problem.path, "message": problem.message} for problem in problems_of(error)
        ]
        cleaned = [{name: clean(text) for name, text in problem.items()} for problem in problems]
        # Without room on the disk the parent still logs that this worker ended.
        with suppress(OSError):
            self._report_of(os.getpid()).write_bytes(orjson.dumps(cleaned))  # raw: in our own folder

    def has_report(self, pid: int) -> bool:
        """Tell whether a worker wrote why it could not start."""
        return self._report_of(pid).exists()

    def take(self, pid: int, *, reason: str) -> Sequence[Problem]:
        """Make the report of a worker that ended the latest refusal and return it; `reason` is used without one."""
        report = self._report_of(pid)
        with suppress(OSError):
            if not report.exists():
                report.write_bytes(orjson.dumps([{"message": reason}]))  # raw: in our own folder
            report.replace(self._latest)
        return self.problems() or [Problem(message=reason)]

    def problems(self) -> Sequence[Problem]:
        """Return the problems of the latest refusal; empty if there is none."""
        try:
            content = self._latest.read_bytes()  # raw: in our own folder
        except FileNotFoundError:
            return []
        return [Problem(**fields) for fields in orjson.loads(content)]

    async def watch(self, on_refused: Callable[[Sequence[Problem]], object]) -> None:
        """Call `on_refused` with the problems of each later refusal, until cancelled."""
        known = self._mark()
        while True:
            await asyncio.sleep(REFUSALS_CHECK_S)
            mark = self._mark()
            if mark is not None and mark != known and (problems := self.problems()):
                on_refused(problems)
            known = mark

    def _mark(self) -> tuple[int, int] | None:
        """Return an id of the latest refusal; `None` if there is none."""
        try:
            found = self._latest.stat()  # raw: in our own folder
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_ino

    def clear(self) -> None:
        """Forget the latest refusal."""
        with suppress(OSError):
            self._latest.unlink(missing_ok=True)

    def _report_of(self, pid: int) -> Path:
        return self._folder / f"refusal-{pid}.json"
