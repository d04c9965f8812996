"""cli: the command `pegboard`: parses the words, uses the catalog, and prints."""

import gc
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run `pegboard` with these words, by default those of the process. Return the exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # Closed before we started. Writing to it must not fail, in this process or in those that it starts.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))  # noqa: TID251 - it is not a file
    # pydantic-ai prints a banner at its first run, on a terminal or for a coding agent.
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    # Imported modules are never garbage, so collections while they load only cost time; see `build_app`.
    is_collecting, owns_process = gc.isenabled(), argv is None
    gc.disable()
    try:
        from pegboard.cli.command_line import run  # noqa: PLC0415 - under the handler of Ctrl-C that `pegboard_command` set

        return run(list(sys.argv[1:] if argv is None else argv), owns_process=owns_process)
    finally:
        if owns_process:
            gc.unfreeze()
        if is_collecting:
            gc.enable()
