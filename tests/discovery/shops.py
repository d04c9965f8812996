"""Shops: catalogs of many tools, for the tests of discovery."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random
from typing import Any

from pegboard import CallContext, Catalog, Profile, ToolSpec
from pegboard.model.tool import Annotations

VERBS = ("list", "create", "delete", "update", "search", "export", "archive", "share", "count", "rename")
THINGS = (
    *("invoice", "contact", "calendar", "ticket", "folder", "photo", "playlist", "recipe", "flight", "hotel"),
    *("branch", "commit", "webhook", "sensor", "thermostat", "garden", "poem", "lecture", "vaccine", "warehouse"),
    *("spreadsheet", "slide", "message", "channel", "deployment", "certificate", "domain", "coupon", "payment"),
    *("refund", "shipment", "customer", "supplier", "contract", "podcast", "museum", "bridge", "telescope", "orchard"),
    *("violin", "marathon", "sculpture", "glacier", "lighthouse", "tractor", "beehive", "compass", "lantern", "ferry"),
    "quilt",
)


def shop(
    *, exposure: Any = "search", things: Sequence[str] = THINGS, order: Random | None = None, **profile: Any
) -> Catalog:
    """Return a catalog of ten tools for each thing, and a profile `all` over it. Each tool gives back what it got."""
    catalog = Catalog("shop")
    planned = list(itertools.product(things, VERBS))
    if order is not None:
        order.shuffle(planned)
    for thing, verb in planned:
        catalog.register(spec_of(thing, verb), give_back)
    catalog.profile(Profile(name="all", include=("core",), exposure=exposure, **profile))
    return catalog


def spec_of(thing: str, verb: str) -> ToolSpec:
    return ToolSpec(
        name=f"{verb}_{thing}",
        namespace=f"{thing}s",
        description=f"{verb.capitalize()} a {thing} of the account.",
        input_schema={
            "type": "object",
            "properties": {"name": {"type": "string", "description": f"Name of the {thing}."}},
            "required": ["name"],
            "additionalProperties": False,
        },
        annotations=Annotations(read_only=verb in ("list", "search", "count") or None),
    )


async def give_back(ctx: CallContext, args: dict[str, Any]) -> dict[str, Any]:
    return {"tool": ctx.tool, **args}
