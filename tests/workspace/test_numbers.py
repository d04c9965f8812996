"""Numbers in tables: decimal commas are numbers where it is clear, and what is not clear is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pegboard.workspace.numbers import number_columns
from pegboard.workspace.tools.sql_writer import SqlWriter
from tests.workspace.library import Library, files

GERMAN = "Stadt;Umsatz;Menge;Quote;Nummer\nKöln;1.234,56;1.234;12,5;007\nBonn;-78,90;2.000;;008\n"
UNCLEAR = "city;sales;mixed\nRome;1.234;1,5\nOslo;5.678;2.5\n"


async def test_decimal_commas_of_semicolon_files_are_numbers(library: Library, tmp_path: Path) -> None:
    await library.take_in(files(tmp_path / "in", {"zahlen.csv": GERMAN.encode("cp1252")}))
    answer = await library.call("query_documents", sql="SELECT * FROM zahlen ORDER BY Umsatz")
    assert answer["rows"] == [["Bonn", -78.9, 2000, None, "008"], ["Köln", 1234.56, 1234, 12.5, "007"]]
    assert "note" not in answer
    assert (await library.call("query_documents", sql="SELECT round(sum(Umsatz), 2) FROM zahlen"))["rows"] == [
        [1155.66]
    ]


async def test_ambiguous_numbers_stay_text_and_are_told(library: Library, tmp_path: Path) -> None:
    await library.take_in(files(tmp_path / "in", {"a.csv": UNCLEAR}))
    answer = await library.call("query_documents", sql="SELECT * FROM a ORDER BY city")
    assert answer["rows"] == [["Oslo", "5.678", "2.5"], ["Rome", "1.234", "1,5"]]
    assert "The numbers in a.sales, a.mixed are text" in answer["note"]
    info = await library.call("document_info", source_id=await library.source_id(), path="a.csv")
    assert "The numbers in sales, mixed are text" in info["tables"][0]["note"]


async def test_a_model_that_writes_sql_is_told() -> None:
    prompts: list[str] = []

    class Writer:
        async def complete(self, prompt: str, *, max_words: int) -> str:
            prompts.append(prompt)
            return "SELECT 1"

    async def run(sql: str) -> dict[str, object]:
        return {"sql": sql}

    table = {"table": "a", "columns": ["sales", "day"], "first_rows": [["1.234", "03/04/2020"]], "row_count": 1}
    await SqlWriter(model=Writer(), tables=[table], question="How much?").answer(run)
    assert "The numbers in sales are text" in prompts[0]
    assert "The dates in day are text" in prompts[0]


@pytest.mark.parametrize(
    ("delimiter", "columns", "numbers"),
    [
        # A column decides for itself.
        (";", [["1.234", "1.234,5"]], [[1234.0, 1234.5]]),
        (";", [["1.234.567", "2.000"]], [[1234567, 2000]]),
        (";", [["0,123", "1,234"]], [[0.123, 1.234]]),
        (";", [["12.5", "1.234"]], [[12.5, 1.234]]),
        (",", [["1,234.50", "7"]], [[1234.5, 7.0]]),
        (",", [["1.234,50", "7"]], [[1234.5, 7.0]]),
        (",", [["1'234.50"], ["1\u202f234,5"]], [[1234.5], [1234.5]]),
        (",", [["1 234", "5"]], [[1234, 5]]),
        # Other columns decide, if they agree.
        (";", [["1.234"], ["12,5"]], [[1234], [12.5]]),
        (";", [["1.234"], ["12.5"]], [[1.234], [12.5]]),
        (";", [["1.234"], ["12,5"], ["12.5"]], [None, [12.5], [12.5]]),
        ("\t", [["1,234"], ["0.5"]], [[1234], [0.5]]),
        # Nothing decides.
        (";", [["1.234"], ["1,234"]], [None, None]),
        (",", [["1.234"], ["1,234"]], [[1.234], None]),
        # As programs write them, and texts that a number would change.
        (";", [["1", " 2 ", ""], ["1e3", "2"]], [[1, 2, None], [1000.0, 2.0]]),
        (";", [["007"], ["+1"], ["1,5 EUR"], ["1,5", "n/a"], ["1.23.456"], ["12.34,5"]], [None] * 6),
        (";", [["1,"], [",5"], [""]], [None] * 3),
        (";", [["9" * 19], ["1.234.567.890.123.456.789,0"]], [None, None]),
    ],
)  # fmt: skip
def test_numbers_are_read_as_they_are_meant_or_not_at_all(
    delimiter: str, columns: list[list[str]], numbers: list[Any]
) -> None:
    found = number_columns(columns, delimiter=delimiter)
    assert found == numbers
    assert [[type(each) for each in cells or ()] for cells in found] == [
        [type(each) for each in cells or ()] for cells in numbers
    ]
