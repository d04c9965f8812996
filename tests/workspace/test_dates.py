"""Dates in tables: what is clear becomes ISO 8601, and what is not is told wherever the table is used."""

from __future__ import annotations

from pathlib import Path

from pegboard.workspace.tools.sql_writer import SqlWriter
from tests.workspace.library import Library, files

CSV = (
    "slashes,names,dotted,decided,unclear,mixed\n"
    "2012/01/01,Jan 1 2000,31.12.2019,03/04/2020,03/04/2020,2012/01/01\n"
    '2011/12/31,"Feb 3, 2000",01.02.2019,25/04/2020,05/06/2020,Jan 1 2000\n'
)
JSONL = '{"at": "1 Mar 2020", "due": "01/02/2020"}\n{"at": "28 Feb 2020", "due": null}\n'


async def test_clear_dates_become_iso_and_others_are_told(library: Library, tmp_path: Path) -> None:
    await library.take_in(
        files(tmp_path / "in", {"days.csv": CSV.replace('"Feb 3, 2000"', "Feb 3 2000"), "j.jsonl": JSONL})
    )
    answer = await library.call("query_documents", sql="SELECT * FROM days ORDER BY slashes")
    assert answer["rows"] == [
        ["2011-12-31", "2000-02-03", "2019-02-01", "2020-04-25", "05/06/2020", "Jan 1 2000"],
        ["2012-01-01", "2000-01-01", "2019-12-31", "2020-04-03", "03/04/2020", "2012/01/01"],
    ]
    assert "The dates in days.unclear, days.mixed are text that is not ISO 8601" in answer["note"]
    years = "SELECT strftime('%Y', at) FROM j ORDER BY at"
    answer = await library.call("query_documents", sql=years)
    assert answer["rows"] == [["2020"], ["2020"]]
    assert "j.due" in answer["note"]
    info = await library.call("document_info", source_id=await library.source_id(), path="days.csv")
    assert "The dates in unclear, mixed are" in info["tables"][0]["note"]


async def test_a_model_that_writes_sql_is_told() -> None:
    prompts: list[str] = []

    class Writer:
        async def complete(self, prompt: str, *, max_words: int) -> str:
            prompts.append(prompt)
            return "SELECT 1"

    async def run(sql: str) -> dict[str, object]:
        return {"sql": sql}

    table = {"table": "days", "columns": ["unclear"], "first_rows": [["03/04/2020"]], "row_count": 1}
    await SqlWriter(model=Writer(), tables=[table], question="When?").answer(run)
    assert "The dates in unclear are text that is not ISO 8601" in prompts[0]
