"""show: all that one tool declares."""

from __future__ import annotations

from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import SharedOptions, ToolName
from pegboard.cli.project import opened
from pegboard.cli.terminal import json_text
from pegboard.discovery.tool_page import whole
from pegboard.model.json_types import JSON, JSONValue


async def show_command(name: ToolName, /, *, options: SharedOptions) -> None:
    """Show the full declaration of one tool.

    Hidden tools are shown too, with the code that hides them.
    """
    async with opened(options, tool=name, lists_only=True, only_reads=True) as (project, view):
        decision = await view.awhy(name)
        # The tool that a builder makes for this caller, if there is one; else the declared tool.
        entry = await view.afind(name) or view.snapshot.find(name)
        if entry is None:
            raise CommandError(project.clean(decision.reason, view.ctx), kind="not_found", code=Exit.REFUSED)
        shown: JSON = project.clean(whole(entry, decision), view.ctx)
    if options.json:
        options.terminal.json(shown)
    else:
        options.terminal.pairs(
            (key.replace("_", " "), _text(value)) for key, value in shown.items() if _says(key, shown)
        )


def _says(key: str, shown: JSON) -> bool:
    """Tell whether a line would say more than what goes without saying."""
    if key in ("visible", "input_schema"):
        return True
    if key in ("code", "reason") and shown["visible"]:
        return False
    return shown[key] not in (None, "", [], {}, False, "never", "forbidden")


def _text(value: JSONValue) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):  # pyright: ignore[reportUnknownVariableType] - JSON
        return ", ".join(value)  # pyright: ignore[reportUnknownArgumentType] - strings, as just asked
    return json_text(value) if isinstance(value, dict | list) else str(value)
