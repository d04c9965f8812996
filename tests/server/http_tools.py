"""HTTP tools: a catalog whose tools always work, with schemas of every shape that a fuzzer may make use of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

from pegboard import Bounds, Catalog, Field, Profile, Tool, ToolSpec

# A result has no integers over 64 bit.
Number = Annotated[int, Field(ge=-(10**9), le=10**9)]


class Colour(Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    """One thing of an order."""

    name: str
    count: int = 1


class Ship(Tool, register=False, groups="core"):
    """Ship something."""

    to: str = Field(description="Where to.", min_length=1, max_length=20, aliases=("recipient",))
    express: bool = False

    async def perform(self) -> dict[str, object]:
        return {"to": self.to, "express": self.express}


TREE = {
    "type": "object",
    "properties": {"tree": {"$ref": "#/$defs/node"}, "default": {"$ref": "#/$defs/node/properties/label"}},
    "required": ["tree"],
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "label": {"type": "string"},
                "children": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/node"}},
            },
            "additionalProperties": False,
        }
    },
}


async def echo(_ctx: object, args: dict[str, object]) -> dict[str, object]:
    return args


def shop() -> Catalog:
    """Return the catalog; nothing in it limits, asks, waits or fails."""
    # A fuzzer sends invalid calls by the thousand.
    catalog = Catalog("shop", bounds=Bounds(invalid_calls_per_minute=10**9))

    @catalog.tool(groups="core", read_only=True)
    async def add(a: Number, b: Number = 1) -> int:
        """Add two numbers."""
        return a + b

    @catalog.tool(groups="core", title="Order things", description="Order.")
    async def order(items: list[Item], colour: Colour, note: str | None = None) -> dict[str, str]:
        """Order."""
        return {item.name: str(item.count) for item in items}

    @catalog.tool(groups="core")
    async def pick(
        kind: Literal["a", "b"],
        size: Annotated[float, Field(ge=0, le=10)],
        email: Annotated[str, Field(format="email")],
    ) -> str:
        """Pick one."""
        return f"{kind} {size:g} {email}"

    @catalog.tool(groups="core")
    async def now() -> str:
        """Tell the time."""
        return "noon"

    @catalog.tool(groups="admin")
    async def wipe() -> str:
        """Wipe everything."""
        raise AssertionError("nobody here may call this")

    catalog.register(Ship)
    catalog.register(ToolSpec(name="plant", description="Plant a tree.", input_schema=TREE, output_schema=TREE), echo)
    catalog.profile(Profile(name="default", include=("core",)))
    return catalog
