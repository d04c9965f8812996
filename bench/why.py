"""Why: tell one caller why one tool of a thousand is there or not, against deciding all of them.

Nobody else has `why`: who wants to know filters the whole list. A new caller asks each time.
"""

from __future__ import annotations

from bench import tools
from bench.measure import THOROUGH, Effort, Row, compared, looped


def run(effort: Effort = THOROUGH) -> list[Row]:
    """Measure both questions."""
    catalog = tools.catalog()
    names = catalog.view(tools.caller(), profile="all").names()

    def one() -> None:
        assert catalog.view(tools.caller(), profile="all").why("tool_500").visible

    def every() -> None:
        view = catalog.view(tools.caller(), profile="all")
        assert all(view.why(name).visible for name in names)

    def listed() -> None:
        assert len(catalog.view(tools.caller(), profile="all").tools()) == tools.COUNT

    return compared(
        {
            "deciding 1,000 tools": looped(every, effort.times(5)),
            "pegboard view.why(name)": looped(one, effort.times(2_000)),
            "pegboard view.tools(), what a snapshot keeps": looped(listed, effort.times(200)),
        },
        effort,
        floor="deciding 1,000 tools",
        held={"pegboard view.why(name)": (0.01, None)},
    )
