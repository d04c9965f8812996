"""tokens: what the list of each profile costs in a prompt, in each exposure."""

from __future__ import annotations

from pegboard.cli.options import SharedOptions
from pegboard.cli.project import Project, opened
from pegboard.cli.terminal import Column
from pegboard.core.view import View
from pegboard.discovery.exposure import ExposedView, exposed_as
from pegboard.discovery.token_count import Tokenizer, tokenizer
from pegboard.model.json_types import JSON
from pegboard.model.profile import Profile
from pegboard.model.record import replace

EXPOSURES = ("direct", "two_tool", "search")
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
        rows: list[JSON] = [await list_costs(project, one, counting) for one in views]
    if options.json:
        options.terminal.json({"counted_by": counting.name, "profiles": rows})
        return
    options.terminal.table(_COLUMNS, [_cells(row) for row in rows])
    options.terminal.say("")
    options.terminal.say(f"Tokens of the list over MCP, counted by {counting.name}.")


async def list_costs(project: Project, view: View, counting: Tokenizer) -> JSON:
    """Return the tokens of the list of a view in each exposure, and the exposure in use."""
    profile = view.profile or Profile(name="", exposure="direct")
    discovery = project.catalog.discovery
    await view.prepare()
    costs: JSON = {}
    for exposure in EXPOSURES:
        shown = exposed_as(view, replace(profile, exposure=exposure), discovery)
        costs[exposure] = counting.count(shown.export_bytes("mcp").decode())
    in_force = exposed_as(view, profile, discovery)
    mode = in_force.mode if isinstance(in_force, ExposedView) else "direct"
    return {
        "profile": profile.name or None,
        "tools": len(view.tools()),
        "exposure": profile.exposure,
        "shown_as": mode,
        "tokens": costs,
    }


def _cells(row: JSON) -> list[str]:
    shown = row["shown_as"] if row["exposure"] == row["shown_as"] else f"{row['exposure']}: {row['shown_as']}"
    costs = [f"{row['tokens'][exposure]:,}" for exposure in EXPOSURES]
    return [row["profile"] or "(all groups)", str(row["tools"]), shown, *costs]
