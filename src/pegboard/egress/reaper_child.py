"""Reaper child: a program that waits for the end of Pegboard, and kills the programs that it left running.

Started by path with the number of a pipe and the folder of a record. It imports single modules of ours, without their
packages.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import ModuleType


def main() -> None:
    """Wait until the other end of the pipe is closed, then end the recorded programs."""
    pipe, folder = int(sys.argv[1]), Path(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Signals that end Pegboard are often sent to its whole group.
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    # Packages with the same names but without their `__init__`, which would import everything.
    here = Path(__file__).resolve().parent
    for name, place in (
        ("pegboard", here.parent),
        ("pegboard.egress", here),
        ("pegboard.model", here.parent / "model"),
    ):
        package = ModuleType(name)
        package.__path__ = [str(place)]
        sys.modules[name] = package
    from pegboard.egress.launch_record import end_recorded  # noqa: PLC0415 - after the packages are there
    from pegboard.egress.own_memory import close_own_memory  # noqa: PLC0415 - as above

    close_own_memory()

    while os.read(pipe, 1024):
        pass
    if folder.is_dir():
        end_recorded(folder)


if __name__ == "__main__":
    main()
