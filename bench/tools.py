"""Tools: a thousand of them, 1.4 KB each as MCP writes them, for the benches of lists and of `why`."""

from __future__ import annotations

import orjson

from pegboard import Catalog, Policy, Profile, ToolContext, ToolSpec

COUNT = 1_000
GROUPS = ("search", "files", "mail", "crm", "admin")
WORDS = "Find, read or change one record of the system this tool belongs to; say what you look for in plain words. "


def spec(number: int) -> ToolSpec:
    """Return one tool; every tenth hangs on a predicate."""
    fields = {
        f"field_{place}": {"type": "string", "maxLength": 200, "description": f"Part {place} of it. " + WORDS}
        for place in range(6)
    }
    return ToolSpec(
        name=f"tool_{number}",
        description=f"Tool number {number}. " + WORDS * 2,
        groups=(GROUPS[number % len(GROUPS)],),
        available="is_configured" if number % 10 == 0 else None,
        input_schema={"type": "object", "properties": fields, "required": ["field_0", "field_1"]},
    )


def definitions() -> list[dict]:
    """Return the tools as MCP lists them."""
    drawn = [spec(number).definition() for number in range(COUNT)]
    assert 1_300 < len(orjson.dumps(drawn)) / COUNT < 1_500
    return drawn


def catalog() -> Catalog:
    """Return a catalog of the tools with a profile `all` that has all groups, a policy and a predicate."""

    async def answer(ctx: object, args: object) -> str:
        return "done"

    made = Catalog()
    made.predicate(name="is_configured")(lambda ctx: ctx.user_id is not None)
    for number in range(COUNT):
        made.register(spec(number), answer)
    made.profile(
        Profile(name="all", include=GROUPS, exposure="direct", policy=Policy(allow=("tool_*",), deny=("tool_1999",)))
    )
    return made


def caller() -> ToolContext:
    """Return somebody who asks for the first time."""
    return ToolContext(user_id="ann")
