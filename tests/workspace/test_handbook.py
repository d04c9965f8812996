"""The handbook of the examples: taken in by the command on either store, it answers right over MCP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import forking
from tests.server.processes import serving
from tests.workspace.test_over_mcp import told

HANDBOOK = Path(__file__).parents[2] / "examples" / "handbook"


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    return "sqlite:./documents.db" if request.param == "sqlite" else request.getfixturevalue("databases").empty()


@pytest.fixture(scope="module")
async def client(store: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a server on a store into which the handbook was taken."""
    folder = tmp_path_factory.mktemp("fernhill")
    (folder / "pegboard.yaml").write_text(f"workspace: {{store: '{store}', space: s1}}\n")
    (folder / "examples").symlink_to(HANDBOOK.parent)
    took = forking.run(["pegboard", "ingest", "examples/handbook", "--space", "s1"], cwd=folder)
    assert took.stdout.startswith(b"7 added in the space 's1'.\n"), took
    async with serving(folder) as server, httpx2.AsyncClient(base_url=server.url, trust_env=False) as made:
        yield made


async def test_the_handbook_is_browsed_searched_read_and_queried(client: httpx2.AsyncClient) -> None:
    [source] = (await told(client, "list_sources"))["items"]
    assert (source["name"], source["document_count"], source["status"]) == ("handbook", 7, "ready")
    tree = await told(client, "folder_tree", source_id=source["source_id"], include_documents=True)
    assert tree["text"].split("\n") == [
        "handbook/ (7 documents)", "  finance/ (2 documents)", "    orders.csv", "    rates.xlsx",
        "  people/ (1 document)", "    first-month.docx", "  security/ (1 document)", "    passwords.pdf",
        "  travel/ (1 document)", "    trains.html", "  README.md", "  leave.md",
    ]  # fmt: skip
    for question, name, words in (
        ("How many days of holiday do I have in a year?", "leave.md", "thirty days"),
        ("When may I fly instead of taking the train?", "trains.html", "six hours"),
        ("what is the code of the guest network", "passwords.pdf", "WREN-2041"),
        ("Who leads the safety tour of the lab?", "first-month.docx", "calibration lab"),
        ("hotel in Zurich", "rates.xlsx", "230"),
    ):
        best = (await told(client, "search_documents", query=question))["hits"][0]
        assert (best["name"], words in best["text"]) == (name, True), question
        read = await told(client, "read_document", document_id=best["document_id"])
        assert words in read["text"]
    lines = await told(client, "grep_documents", pattern=r"0555 \d{4}", regex=True)
    assert [(each["name"], lines["files_scanned"]) for each in lines["matches"]] == [("passwords.pdf", 7)]


async def test_the_tables_of_the_handbook_are_grouped_and_joined(client: httpx2.AsyncClient) -> None:
    async def rows(sql: str) -> Any:
        return (await told(client, "query_documents", sql=sql))["rows"]

    by_region = "SELECT region, count(*), round(sum(total), 2) FROM orders GROUP BY region ORDER BY 3 DESC"
    assert await rows(by_region) == [["west", 3, 3806.6], ["north", 4, 3068.2], ["south", 3, 2176.0]]
    by_month = "SELECT strftime('%m', ordered_on) AS m, sum(quantity) FROM orders GROUP BY m HAVING sum(quantity) > 60"
    assert await rows(f"{by_month} ORDER BY m") == [["02", 73], ["03", 99]]
    assert await rows("SELECT team, sum(budget_eur) FROM rates_budget GROUP BY team ORDER BY 2 DESC LIMIT 1") == [
        ["Lab", 39000]
    ]
    [found] = (await told(client, "find_by_name", pattern="first-month"))["items"]
    info = await told(client, "document_info", document_id=found["document_id"])
    assert (info["metadata"]["title"], info["metadata"]["author"]) == ("Your first month", "Ines Faber")
    [table] = [each["table"] for each in info["tables"]]
    assert await rows(f"SELECT owner, count(*) FROM {table} GROUP BY owner ORDER BY 2 DESC, 1 LIMIT 2") == [
        ["Team lead", 2], ["Buddy", 1],
    ]  # fmt: skip
