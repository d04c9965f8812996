"""Processes: start this interpreter on some code, with a byte-code cache of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.measure import Cost, spawned


@dataclass(frozen=True, kw_only=True)
class Starter:
    """Starts processes that share one environment and folder."""

    environment: dict[str, str]
    folder: Path

    def cost(self, *arguments: str, times: int = 1) -> Cost:
        """Return the cost of `python *arguments`, from its start to its end."""

        def start() -> subprocess.Popen[str]:
            command = [sys.executable, *arguments]
            return subprocess.Popen(
                command, env=self.environment, cwd=self.folder, text=True, stdout=subprocess.DEVNULL
            )

        return spawned(start, times)

    def told(self, *arguments: str) -> str:
        """Return what `python *arguments` prints."""
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, env=self.environment, cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout


@contextmanager
def starter(*, compiled: bool = True) -> Iterator[Starter]:
    """Lend a starter in an empty folder. With `compiled=False` nothing it starts keeps byte code."""
    ours = ("PYTHON", "PEGBOARD")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    with TemporaryDirectory(prefix="pegboard-bench-") as folder:
        # A cache of its own treats all packages alike, whatever was compiled at their installation.
        environment["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "byte-code")
        if not compiled:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        yield Starter(environment=environment, folder=Path(folder))
