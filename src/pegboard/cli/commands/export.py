"""export: the tools of a caller, as a model provider wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import orjson
from cyclopts import Parameter

from pegboard.cli.faults import CommandError
from pegboard.cli.options import Given
from pegboard.cli.project import opened
from pegboard.cli.terminal import json_text

TargetName = Literal["openai", "anthropic", "gemini", "mcp"]
_OUTPUT = "Write to this file instead; it is overwritten."


async def export_command(
    target: Annotated[TargetName, Parameter(help="Whose form.")],
    /,
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], help=_OUTPUT)] = None,
    options: Given,
) -> None:
    """Print the tools in the form of a model provider.

    The answer is a JSON array, with --json or without.
    """
    async with opened(options) as (project, view):
        await view.prepare()
        tools = project.clean(orjson.loads(view.export_bytes(target)), view.ctx)
    if output is None:
        options.terminal.json(tools)
        return
    text = json_text(tools) + "\n"
    try:
        output.write_text(text, encoding="utf-8")  # raw: the operator's file, named on the command line
    except OSError as error:
        raise CommandError(f"{str(output)!r} cannot be written: {error.strerror}.", kind="not_written") from error
    options.terminal.note(f"Wrote {len(tools)} tool{'' if len(tools) == 1 else 's'} to {output}.")
