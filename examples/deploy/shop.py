"""Shop: one tool of our own."""

from pegboard import default_catalog


@default_catalog.tool(groups="core", read_only=True)
def opening_hours() -> str:
    """Return the opening hours of the shop."""
    return "9 to 17"
