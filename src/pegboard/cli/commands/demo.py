"""demo: show Pegboard's features on a running server."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from msgspec import Struct

from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import SharedOptions
from pegboard.cli.terminal import Terminal
from pegboard.demo import AddressError, run_demo

_LAST_PORT = 65535


def demo_command(
    *,
    once: Annotated[bool, Parameter(help="Exit after the demo instead of continuing to serve.")] = False,
    port: Annotated[int | None, Parameter(help="Port to serve on. Default: a free one.")] = None,
    options: SharedOptions,
) -> Exit:
    """Show what Pegboard does, on a running server."""
    if port is not None and not 0 <= port <= _LAST_PORT:
        raise CommandError(
            f"--port {port} is not a port; choose one from 1 to {_LAST_PORT}, or 0 for any that is free."
        )
    try:
        run_demo(_Screen(options.terminal), once=once, port=port)
    except AddressError as error:
        raise CommandError(f"{error} Choose another --port.", kind="address") from error
    return Exit.DONE


class _Screen(Struct, frozen=True):
    """Writes the demo to the terminal, line by line, so that a reader at a pipe sees each line at once."""

    terminal: Terminal

    def say(self, text: str) -> None:
        self.terminal.say(text)
        self.terminal.flush()

    def heading(self, text: str) -> None:
        self.say("")
        self.terminal.styled(text, "bold")
