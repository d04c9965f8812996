"""list: list the tools that a caller may use, and optionally those hidden from it."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import left_out, opened
from pegboard.cli.terminal import Column
from pegboard.core.judge import VISIBLE
from pegboard.core.view import View
from pegboard.discovery.tool_page import row
from pegboard.model.json_types import JSON

_VISIBLE = (
    Column(head="Tool", style="bold"),
    Column(head="Namespace"),
    Column(head="Groups"),
    Column(head="Description"),
    Column(head="Hints", style="dim"),
)
_HIDDEN = (Column(head="Hidden", style="bold"), Column(head="Code", style="yellow"), Column(head="Reason"))
_LEFT_OUT = (Column(head="Left out", style="bold"), Column(head="Source"), Column(head="Reason"))
_ALL = "Show hidden tools too, with the code and the reason, and tools that sources left out."


async def list_command(
    *,
    hidden_too: Annotated[bool, Parameter(name=["--all", "-a"], help=_ALL)] = False,
    options: SharedOptions,
) -> None:
    """List the tools that a caller may use."""
    async with opened(options, lists_only=not hidden_too, only_reads=True) as (project, view):
        await view.prepare()
        tools: list[JSON] = project.clean(await _rows(view, hidden_too=hidden_too), view.ctx)
        rejected: list[JSON] = project.clean(_rejected_tools(view) if hidden_too else [], view.ctx)
        problems: list[str] = project.clean(left_out(project.config), view.ctx)
        profiles = sorted(project.catalog.registry.profiles)
    if options.json:
        answer = {
            "profile": options.chosen_profile,
            "user": options.identity.user,
            "tools": tools,
            "problems": problems,
        }
        options.terminal.json({**answer, "left_out": rejected} if hidden_too else answer)
    else:
        _print(options, tools, profiles, rejected, hidden_too=hidden_too)


async def _rows(view: View, *, hidden_too: bool) -> list[JSON]:
    """Return a row for each tool, in the order of the snapshot; tools built by bundles come last."""
    shown = {entry.qualified_id: entry for entry in view.tools()}
    rows: list[JSON] = []
    for entry in view.snapshot.entries:
        if entry.qualified_id in shown:
            visible = shown.pop(entry.qualified_id)
            rows.append(row(visible, VISIBLE, connect=view.connects_first(visible)))
        elif hidden_too:
            decision = await view.awhy(entry.wire_name)
            if not decision.visible:
                rows.append(row(entry, decision))
    return rows + [row(entry, VISIBLE) for entry in shown.values()]


def _rejected_tools(view: View) -> list[JSON]:
    """Return the tools of servers and APIs that were rejected, each with the reason."""
    sources = view.snapshot.declared.sources
    return [
        {"name": name, "source": source, "reason": reason}
        for source in sorted(sources)
        for name, reason in getattr(sources[source], "rejected", ())
    ]


def _print(options: Options, tools: list[JSON], profiles: list[str], rejected: list[JSON], *, hidden_too: bool) -> None:
    terminal = options.terminal
    visible = [tool for tool in tools if tool["visible"]]
    hidden = [tool for tool in tools if not tool["visible"]]
    if visible:
        terminal.table(_VISIBLE, [_cells(tool) for tool in visible])
        terminal.say("")
    if hidden:
        terminal.table(_HIDDEN, [[tool["name"], tool["code"], tool["reason"]] for tool in hidden])
        terminal.say("")
    if rejected:
        terminal.table(_LEFT_OUT, [[each["name"], each["source"], each["reason"]] for each in rejected])
        terminal.say("")
    summary = f"{len(visible)} tool{'' if len(visible) == 1 else 's'} {options.seen_by}"
    if hidden_too:
        summary += f", {len(hidden)} hidden" + (f", {len(rejected)} left out" if rejected else "")
    elif not visible:
        summary += "; --all shows the hidden ones and why"
    terminal.say(summary + ".")
    if unconnected := {tool["connect"]: tool["name"] for tool in visible if tool["connect"] is not None}:
        first = next(iter(unconnected.values()))
        terminal.say(f"Not connected: {', '.join(sorted(unconnected))}. `pegboard why {first}` says what to do.")
    if profiles and options.chosen_profile is None:
        terminal.say(f"To list the tools of one profile, add --profile NAME: {', '.join(profiles)}")


def _cells(tool: JSON) -> list[str]:
    return [tool["name"], tool["namespace"], ", ".join(tool["groups"]), tool["description"], ", ".join(tool["hints"])]
