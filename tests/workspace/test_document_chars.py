"""The longest text of a document is a setting, which a refusal names; files of every kind are held to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pegboard.cli import main
from tests.workspace.library import Library, files
from tests.workspace.test_formats import pdf

LINES = "".join(f"line {number} of a log\n" for number in range(1_500))
FILES = {
    "server.log": LINES,
    "orders.csv": "id,what\n" + "".join(f"{number},a row of a table\n" for number in range(1_500)),
    "page.html": f"<h1>Log</h1><pre>{LINES}</pre>",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = files(tmp_path / "in", FILES)
    (folder / "report.pdf").write_bytes(pdf(*["words of a page " * 4] * 500))
    return folder


@pytest.mark.parametrize(("limit", "taken"), [(20_000, False), (200_000, True)])
def test_a_text_longer_than_the_setting_is_refused_by_its_name_and_taken_where_it_is_raised(
    tmp_path: Path, folder: Path, capfd: pytest.CaptureFixture[str], limit: int, taken: bool
) -> None:
    config = tmp_path / "pegboard.yaml"
    config.write_text(f"workspace: {{store: 'sqlite:./d.db'}}\nlimits: {{document_chars: {limit}}}\n")
    code = main(["ingest", "--config", str(config), "--space", "s", str(folder)])
    said = "".join(capfd.readouterr())
    assert said.count(f"at most {limit:,} are taken (`limits.document_chars`)") == (0 if taken else 4), said
    assert ("4 added" in said, code) == (taken, 0 if taken else 1)


async def test_a_place_beyond_the_usual_longest_text_can_be_asked_for(library: Library, tmp_path: Path) -> None:
    await library.take_in(files(tmp_path / "in", {"a.txt": "short"}))
    (item,) = (await library.call("find_by_name", pattern="*"))["items"]
    answer = await library.call("read_document", document_id=item["document_id"], start=20_000_001)
    assert answer["text"] == ""
