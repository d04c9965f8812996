"""The installed command. It is outside the package, so that Ctrl-C ends quietly even during the package's import."""

import gc
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType

_INTERRUPTED = 130


def main() -> int:
    """Run `pegboard` with the words of the process. Return the exit code, 130 whenever Ctrl-C ends it."""
    _put_working_directory_last()
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler:
        # Ignored, as for a job in the background: so it stays.
        from pegboard.cli import main as run  # noqa: PLC0415 - see below

        return run()
    # As `pegboard.cli` has it, which is imported yet.
    gc.disable()
    # An exception could be lost in an import, or be caught there as something else.
    signal.signal(signal.SIGINT, _leave)
    try:
        from pegboard.cli import main as run  # noqa: PLC0415 - imports are most of the time until a command runs

        import_module("pegboard.cli.command_line")
        signal.signal(signal.SIGINT, usual)
        return run()
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        gc.enable()
        # The interpreter has yet to wait for threads and to tidy up; the answer has been written.
        signal.signal(signal.SIGINT, _leave)


def _put_working_directory_last() -> None:
    """Let no file in the working directory replace an installed module, where PYTHONPATH or `-m` put it first."""
    with suppress(OSError):
        here = Path.cwd()
        sys.path.sort(key=lambda entry: here == here / entry)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)
