"""Matrix page: every tool against every profile, for operators."""

from __future__ import annotations

from typing import NamedTuple

from starlette.responses import Response

from pegboard.model.decision import Code
from pegboard.server.console.decision_words import legend_of
from pegboard.server.console.frame import frame
from pegboard.server.console.natural_order import natural_key
from pegboard.server.console.page_error import only_operators
from pegboard.server.console.pages import Pages
from pegboard.server.console.table_file import links_of, table_file
from pegboard.server.console.visit import Visit

MATRIX_PROFILES = 40  # columns


class MatrixRow(NamedTuple):
    """A tool and its code in each profile."""

    name: str
    namespace: str
    codes: list[Code]


class MatrixPage:
    """`/console/matrix`."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def show(self, visit: Visit) -> Response:
        only_operators(visit)
        gateway, profiles = visit.gateway, visit.profiles[:MATRIX_PROFILES]
        columns = list[dict[str, Code]]()
        for profile in profiles or (None,):
            view = gateway.catalog.view(gateway.context(visit.looks_as), profile=profile)
            columns.append(await view.acodes())
        entries = sorted(gateway.registry.snapshot().entries, key=lambda entry: natural_key(entry.qualified_id))
        rows = [
            MatrixRow(name, entry.spec.namespace, [codes.get(name, "unknown") for codes in columns])
            for name, entry in ((entry.wire_name, entry) for entry in entries)
        ]
        only_differing = visit.query.get("differ") == "1"
        shown = [row for row in rows if not only_differing or len(set(row.codes)) > 1]
        heads = ("tool", "namespace", *(profiles or ("everybody",)))
        file = table_file(visit, "matrix", heads, lambda: [(row.name, row.namespace, *row.codes) for row in shown])
        if file is not None:
            return file
        values = {
            "files": links_of(visit, "/matrix"),
            "profiles": profiles or ("everybody",), "rows": shown, "all": len(rows), "differ": only_differing,
            "legend": legend_of(code for row in shown for code in row.codes),
            "left_out": len(visit.profiles) - len(profiles),
        }  # fmt: skip
        return self._pages.streamed("matrix.html", {**frame(visit, "matrix"), **values})
