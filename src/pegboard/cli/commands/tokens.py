"""tokens: what the list of each profile costs in a prompt, in each exposure."""

from __future__ import annotations

from pegboard.cli.options import SharedOptions
from pegboard.cli.project import opened
from pegboard.cli.terminal import Column
from pegboard.discovery.list_costs import EXPOSURES, list_costs
from pegboard.discovery.token_count import tokenizer
from pegboard.model.json_types import JSON

_COLUMNS = (
    Column(head="Profile", style="bold"),
    Column(head="Tools"),
    Column(head="Shown as"),
    *(Column(head=name) for name in EXPOSURES),
)


async def tokens_command(*, options: SharedOptions) -> None:
    """Show how many tokens the tool list costs, for each profile and exposure.

    Counts the list over MCP. A real tokenizer is used where one is installed with its vocabulary,
    else bytes / 4.3; the last line says which. `auto` decides by bytes / 4.3, whatever is installed.
    """
    counting = tokenizer()
    async with opened(options, lists_only=True, only_reads=True) as (project, view):
        profiles = project.catalog.registry.profiles
        names = [options.chosen_profile] if options.chosen_profile else list(profiles)
        views = [project.catalog.view(view.ctx, profile=name) for name in names] or [view]
        rows: list[JSON] = [await list_costs(project.catalog.discovery, row_view, counting) for row_view in views]
    if options.json:
        options.terminal.json({"counted_by": counting.name, "profiles": rows})
        return
    options.terminal.table(_COLUMNS, [_cells(row) for row in rows])
    options.terminal.say("")
    options.terminal.say(f"Tokens of the list over MCP, counted by {counting.name}.")


def _cells(row: JSON) -> list[str]:
    shown = row["shown_as"] if row["exposure"] == row["shown_as"] else f"{row['exposure']}: {row['shown_as']}"
    costs = [f"{row['tokens'][exposure]:,}" for exposure in EXPOSURES]
    return [row["profile"] or "(all groups)", str(row["tools"]), shown, *costs]
