"""completion: print the script for a shell to complete commands, options, and names of tools and profiles."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from pegboard.cli.options import SharedOptions, Shell


def completion_command(
    shell: Annotated[Shell, Parameter(help="The shell.")],
    /,
    *,
    options: SharedOptions,
) -> None:
    """Print a completion script for a shell.

    Names of tools and profiles are read from the configuration and the lock at each use; nothing is started.
    """
    script = options.completion_script(shell)
    if options.json:
        options.terminal.json({"shell": shell, "script": script})
        return
    options.terminal.say(script.rstrip("\n"))
