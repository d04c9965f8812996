"""lint: what makes tools hard to find, to tell apart, or to use with a provider."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from cyclopts import Parameter

from pegboard.cli.command_error import Exit
from pegboard.cli.options import SharedOptions
from pegboard.cli.project import opened
from pegboard.cli.terminal import Column
from pegboard.discovery.lint import as_json, lint, without_ignored
from pegboard.model.json_types import JSON
from pegboard.model.lint_rule import LINT_LEVELS

_COLUMNS = (
    Column(head="Tool", style="bold"),
    Column(head="Level"),
    Column(head="Rule", style="yellow"),
    Column(head="What to do about it"),
)
_FAIL_ON = "Exit with 1 if there is a finding of this level or higher."


async def lint_command(
    *,
    fail_on: Annotated[
        Literal["note", "warning", "error", "never"], Parameter(help=_FAIL_ON, show_default=True)
    ] = "warning",
    options: SharedOptions,
) -> Exit:
    """Find problems that make tools hard to find, distinguish or use.

    Missing and weak descriptions, parameters without one, documented parameters that do not exist, tools that compete
    for the same requests, schemas that a provider refuses although an export rewrites them, deep nesting, and tools
    past their end date. `lint: {ignore: […]}` in the config ignores findings, each with a reason.
    """
    async with opened(options, only_reads=True) as (project, view):
        catalog = project.catalog
        results = await lint(
            view, catalog.discovery.finder, bounds=catalog.registry.bounds, today=datetime.now(UTC).date()
        )
        findings, ignored = without_ignored(results, project.config.lint_ignores, view)
        rows: list[JSON] = project.clean(as_json(findings), view.ctx)
        passed: list[JSON] = project.clean([{**finding._asdict(), "reason": why} for finding, why in ignored], view.ctx)
        count = len(view.tools())
    if options.json:
        options.terminal.json({"profile": options.chosen_profile, "tools": count, "findings": rows, "ignored": passed})
    else:
        if rows:
            shown = [[row["tool"], row["level"], row["rule"], row["message"]] for row in rows]
            options.terminal.table(_COLUMNS, shown)
            options.terminal.say("")
        tools = len({row["tool"] for row in rows})
        more = f" {len(passed)} ignored." if passed else ""
        options.terminal.say(f"{len(rows)} finding{'' if len(rows) == 1 else 's'} in {tools} of {count} tools.{more}")
    fails = () if fail_on == "never" else LINT_LEVELS[LINT_LEVELS.index(fail_on) :]
    return Exit.REFUSED if any(row["level"] in fails for row in rows) else Exit.DONE
