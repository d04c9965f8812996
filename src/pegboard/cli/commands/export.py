"""export: the tools of a caller, as a model provider wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from cyclopts import Parameter

from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import opened
from pegboard.cli.terminal import Column, json_text

TargetName = Literal[
    "openai", "openai_strict", "openai_responses", "anthropic", "anthropic_strict", "gemini", "mcp"
]  # fmt: skip
_OUTPUT = "Write to this file, and overwrite it."
_REPORT = "Print the rules that the form cannot express, instead of the tools."
_LOSSES = (Column(head="tool", style="bold"), Column(head="where"), Column(head="effect"), Column(head="what"))


async def export_command(
    target: Annotated[TargetName, Parameter(help="The provider's form.")],
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"], help=_OUTPUT)] = None,
    report: Annotated[bool, Parameter(help=_REPORT, negative=())] = False,
    options: SharedOptions,
) -> Exit:
    """Print the tools as function schemas of a model provider.

    The answer is a JSON array, with --json or without. Schemas are rewritten where the provider
    would refuse them; `--report` tells what that costs: `widened`, the model may say what the tool
    then refuses; `narrowed`, it cannot say something that the tool takes; `reworded`, a hint moved
    into the description. Ends with 1 if tools are missing because a variable of theirs is not set.
    """
    async with opened(options, lists_only=True, only_reads=True) as (project, view):
        await view.prepare()
        exported = view.export_report(target) if report else orjson.loads(view.export_bytes(target))
        exported = project.clean(exported, view.ctx)
    code = Exit.DONE
    if project.config.lacks_tools:
        options.terminal.note("This export is incomplete: tools were left out. Set the variables, and export again.")
        code = Exit.REFUSED
    if output is None:
        if report and not options.json:
            _print_losses(options, target, exported)
        else:
            options.terminal.json(exported)
        return code
    text = json_text(exported) + "\n"
    try:
        output.write_text(text, encoding="utf-8")  # raw: the operator's file, named on the command line
    except OSError as error:
        raise CommandError(f"{str(output)!r} cannot be written: {error.strerror}.", kind="not_written") from error
    column = "loss" if report else "tool"
    plural = "" if len(exported) == 1 else "es" if report else "s"
    options.terminal.note(f"Wrote {len(exported)} {column}{plural} to {output}.")
    return code


def _print_losses(options: Options, target: str, losses: list[Any]) -> None:
    terminal = options.terminal
    if losses:
        rows = [[loss["tool"], loss["path"], loss["effect"], loss["text"]] for loss in losses]
        terminal.table(_LOSSES, rows)
        terminal.say("")
    tools = len({loss["tool"] for loss in losses})
    losing = "1 tool loses something" if tools == 1 else f"{tools} tools lose something"
    terminal.say(f"{losing if losses else 'Nothing is lost'} on the way to {target}.")
