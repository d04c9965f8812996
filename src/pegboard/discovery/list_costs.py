"""List costs: the tokens of a view's tool list in each exposure."""

from __future__ import annotations

from pegboard.core.view import View
from pegboard.discovery.exposure import Discovery, ExposedView, Mode, exposed_as
from pegboard.discovery.token_count import Tokenizer
from pegboard.model.json_types import JSON
from pegboard.model.profile import Profile
from pegboard.model.record import replace

EXPOSURES: tuple[Mode, ...] = ("direct", "two_tool", "search")


async def list_costs(
    discovery: Discovery, view: View, counting: Tokenizer, *, exposures: tuple[Mode, ...] = EXPOSURES
) -> JSON:
    """Return the tokens of the list of a view in each exposure, with the exposure in use and what it saves.

    That in use and `direct` are always counted.
    """
    profile = view.profile or Profile(name="", exposure="direct")
    await view.prepare()
    in_force = exposed_as(view, profile, discovery)
    mode: Mode = in_force.mode if isinstance(in_force, ExposedView) else "direct"
    costs: JSON = {}
    for exposure in dict.fromkeys(("direct", *exposures, mode)):
        shown = exposed_as(view, replace(profile, exposure=exposure), discovery)
        costs[exposure] = counting.count(shown.export_bytes("mcp").decode())
    return {
        "profile": profile.name or None,
        "tools": len(view.tools()),
        "exposure": profile.exposure,
        "shown_as": mode,
        "tokens": costs,
        "saved": costs["direct"] - costs[mode],
    }
