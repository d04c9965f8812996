"""demo: show what Pegboard does, on a running server."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from pegboard.demo import main


def demo_command(
    *,
    once: Annotated[bool, Parameter(help="End after the show instead of serving on.")] = False,
    port: Annotated[int | None, Parameter(help="Port to serve on; by default a free one.")] = None,
) -> Any:
    """Show on a running server what Pegboard does."""
    return main(once=once, port=port)
