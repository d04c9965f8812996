"""lint: what makes tools hard to find, to tell apart, or to use with a provider."""

from __future__ import annotations

from datetime import UTC, datetime

from pegboard.cli.command_error import Exit
from pegboard.cli.options import SharedOptions
from pegboard.cli.project import opened
from pegboard.cli.terminal import Column
from pegboard.discovery.lint import as_json, lint
from pegboard.model.json_types import JSON

_COLUMNS = (Column(head="Tool", style="bold"), Column(head="Rule", style="yellow"), Column(head="What to do about it"))


async def lint_command(*, options: SharedOptions) -> Exit:
    """Find what makes tools hard to find, to tell apart, or to use.

    Missing and weak descriptions, parameters without one, tools that compete for the same requests,
    names and schemas that a provider refuses as they are, deep nesting, tools past their end. Ends
    with 1 if there is any.
    """
    async with opened(options, lists_only=True) as (project, view):
        bounds = project.catalog.registry.bounds
        findings = await lint(view, project.catalog.discovery.finder, bounds=bounds, today=datetime.now(UTC).date())
        rows: list[JSON] = project.clean(as_json(findings), view.ctx)
        count = len(view.tools())
    if options.json:
        options.terminal.json({"profile": options.chosen_profile, "tools": count, "findings": rows})
    else:
        if rows:
            options.terminal.table(_COLUMNS, [[one["tool"], one["rule"], one["message"]] for one in rows])
            options.terminal.say("")
        tools = len({one["tool"] for one in rows})
        options.terminal.say(f"{len(rows)} finding{'' if len(rows) == 1 else 's'} in {tools} of {count} tools.")
    return Exit.REFUSED if rows else Exit.DONE
