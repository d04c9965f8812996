"""A host's own parsers and text recognition: in children with limits, from Python and from a config."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from pegboard import DefinitionError, DocumentParser, Workspace
from pegboard.cli import main
from pegboard.workspace.file_reader import FileReader
from pegboard.workspace.ingest import IngestReport
from pegboard.workspace.parsers import Parsers
from tests.workspace import scribe
from tests.workspace.library import ON_SQLITE_ALONE, Library, files
from tests.workspace.test_formats import pdf

SCAN = ") Tj ET 72 72 200 100 re f BT ("  # a page with a rectangle and no text
CONTACTS = "Bob;12\nCid;7"


def reasons(report: IngestReport) -> dict[str, str]:
    return {bad.path: bad.reason for bad in report.bad}


async def info(library: Library, path: str) -> Any:
    return await library.call("document_info", source_id=await library.source_id(name="docs"), path=path)


@ON_SQLITE_ALONE
async def test_a_parser_of_the_host_reads_its_files_and_document_info_names_it(
    library: Library, tmp_path: Path
) -> None:
    folder = files(tmp_path / "in", {"a.abc": CONTACTS, "b.abc": "locked", "c.abc": "broken", "d.txt": "plain"})
    workspace = Workspace(library.store, parsers={".abc": scribe.read_contacts})
    report = await workspace.ingest(folder, space="s1", source="docs")
    assert reasons(report) == {
        "b.abc": "the contacts are locked with a password",
        "c.abc": "its parser 'tests.workspace.scribe:read_contacts' failed: ValueError",
    }
    told = await info(library, "a.abc")
    assert (told["parser"], told["mime"]) == ("tests.workspace.scribe:read_contacts", "application/octet-stream")
    assert told["metadata"] == {"title": "Contacts", "team": "sales"}
    assert [table["columns"] for table in told["tables"]] == [["person", "number"]]
    assert (await info(library, "d.txt"))["parser"] == "pegboard"
    found = await library.call("search_documents", query="contacts Bob", metadata={"team": "sales"})
    assert [hit["name"] for hit in found["hits"]] == ["a.abc"]
    assert (await workspace.upload(b"Dan;3", space="s1", path="new.abc"))["status"] == "added"


async def test_a_parser_of_the_host_has_the_limits_of_ours_or_its_own() -> None:
    slow = DocumentParser(scribe.read_contacts, timeout_s=0.5)
    parsers = Parsers.of({".abc": scribe.read_contacts, ".slow": slow, ".later": scribe.read_later})
    async with FileReader(parsers=parsers) as reader:
        assert (await reader.read("a.slow", b"slow")).error == "it did not finish within 0.5 s"
        assert "512 MiB of memory" in (await reader.read("a.abc", b"huge")).error
        assert "failed: OSError" in (await reader.read("a.abc", b"writes")).error
        assert (await reader.read("a.abc", CONTACTS.encode())).text.startswith("Contacts of a.abc")
        assert (await reader.read("a.later", b"hello")).text == "a.later says hello"


async def test_a_parser_may_be_named_by_media_type_also_for_files_without_an_ending() -> None:
    async with FileReader(parsers=Parsers.of({"application/pdf": scribe.read_pdf})) as reader:
        content = pdf("a page")
        for name in ("a.pdf", "scan"):
            document = await reader.read(name, content)
            assert (document.text, document.mime) == (f"{len(content)} bytes of {name}", "application/pdf")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (scribe.returns_nothing, "returned a NoneType, not a text or a mapping"),
        (scribe.returns_a_wrong_key, "returned the unknown key 'txet'; known are author, created,"),
        (scribe.returns_uneven_rows, "returned a row of the table 't' with more or fewer cells than columns"),
    ],
)
async def test_a_parser_that_returns_something_else_is_told_what_was_wrong(function: Any, reason: str) -> None:
    async with FileReader(parsers=Parsers.of({".abc": function})) as reader:
        assert reason in (await reader.read("a.abc", b"a")).error


@pytest.mark.parametrize(
    ("parsers", "message"),
    [
        ({"dwg": scribe.read_pdf}, "'dwg' is not a file ending such as '.dwg'"),
        ({".dwg": lambda content, name: ""}, "cannot be imported by another process"),
        ({".dwg": "scribe.read"}, "'scribe.read' is not a function: write `module:function`"),
        ({".dwg": DocumentParser(scribe.read_pdf, timeout_s=0)}, "have to be greater than 0"),
    ],
)
def test_a_parser_that_cannot_work_is_refused(tmp_path: Path, parsers: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Workspace(f"sqlite:{tmp_path}/d.db", parsers=parsers)


@ON_SQLITE_ALONE
async def test_text_recognition_reads_pictures_and_pages_without_text_also_those_ingested_before(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "canary")
    folder = files(tmp_path / "in", {"scan.pdf": pdf("a cover", SCAN), "text.pdf": pdf("words"), "bare.pdf": pdf(SCAN)})
    async with FileReader(parsers=Parsers.of({}, scribe.read_picture)) as reader:
        picture = (await reader.read("scan.pdf", pdf(SCAN))).text
        assert picture == "recognized a scan of 1700 by 2200"
    (folder / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x03\0\0\0\x04")
    (folder / "photo.jpeg").write_bytes(b"\xff\xd8\xff\xe0")
    before = await Workspace(library.store).ingest(folder, space="s1", source="docs")
    assert (before.empty, dict(before.kinds_not_read)) == (["bare.pdf"], {"png": 1, "jpeg": 1})
    workspace = Workspace(library.store, ocr=scribe.read_picture)
    report = await workspace.ingest(folder, space="s1", source="docs")
    assert dict(report.counts) == {"added": 2, "changed": 2, "unchanged": 1}
    assert report.empty == ["photo.jpeg"]
    scan = await info(library, "scan.pdf")
    text = await library.call("read_document", document_id=scan["document_id"])
    assert (scan["ocr"], text["text"]) == ("tests.workspace.scribe:read_picture", f"a cover\n\n{picture}")
    assert (await info(library, "photo.png"))["mime"] == "image/png"
    assert "ocr" not in await info(library, "text.pdf")
    assert dict((await workspace.ingest(folder, space="s1", source="docs")).counts) == {"unchanged": 5}


@ON_SQLITE_ALONE
async def test_a_new_parser_reads_only_its_files_again_and_all_are_on_request(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "in", {"a.abc": CONTACTS, "b.txt": "plain"})
    before = await Workspace(library.store).ingest(folder, space="s1", source="docs")
    assert dict(before.counts) == {"added": 2}
    workspace = Workspace(library.store, parsers={".abc": scribe.read_contacts})
    assert dict((await workspace.ingest(folder, space="s1", source="docs")).counts) == {"changed": 1, "unchanged": 1}
    assert dict((await workspace.ingest(folder, space="s1", source="docs")).counts) == {"unchanged": 2}
    again = await workspace.ingest(folder, space="s1", source="docs", reads_again=True)
    assert dict(again.counts) == {"changed": 2}


def test_a_config_names_parsers_in_modules_next_to_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files(tmp_path, {
        "own_parsers_of_a_config.py": textwrap.dedent("""
            def read(content, name):
                return content.decode().upper()
        """),
        "in/a.abc": "hello",
        "pegboard.yaml": "workspace: {parsers: {.abc: 'python:own_parsers_of_a_config:read'}}",
    })  # fmt: skip
    config = tmp_path / "pegboard.yaml"
    assert main(["ingest", "--config", str(config), "--space", "s1", str(tmp_path / "in")]) == 0
    capfd.readouterr()
    assert main(["workspace", "show", "--config", str(config), "s1", "in", "a.abc", "--text"]) == 0
    assert "HELLO" in capfd.readouterr().out
    config.write_text("workspace: {ocr: {handler: 'python:own_parsers_of_a_config:raed', timeout_seconds: 300}}")
    assert main(["check", "--config", str(config), "--json"]) != 0
    [problem] = json.loads(capfd.readouterr().out)["problems"]
    assert "has no 'raed'. Did you mean 'read'?" in problem["message"]
