"""Reaper child: the program that waits for the end of a Pegboard, and ends what that one has launched and not ended.

Started by its path with the number of a pipe and the folder of a record. It imports no package of ours as a whole.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import ModuleType


def main() -> None:
    """Wait until nobody holds the other end of the pipe, then end what the record names."""
    pipe, folder = int(sys.argv[1]), Path(sys.argv[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # What ends the program that we wait for is often sent to all around it.
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    # Packages of the same names without their `__init__`, which would import all of them.
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

    while os.read(pipe, 1024):
        pass
    if folder.is_dir():
        end_recorded(folder)


if __name__ == "__main__":
    main()
