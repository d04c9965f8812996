"""Real files: text in the encodings that Excel and old programs write, Office files with extra parts, and scans."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import pytest

from pegboard.model.error import DefinitionError
from pegboard.workspace.file_reader import FileReader
from tests.workspace.library import ON_SQLITE_ALONE, Library, files
from tests.workspace.test_formats import ENTITIES, pdf, word, workbook

GERMAN = "Name;Stadt\nMüller;Köln\nJörg Groß;Düsseldorf\n"
TEXTS = {
    "excel.csv": (GERMAN, "cp1252", "cp1252", "detected"),
    "note.txt": ("caf\xe9", "latin-1", "cp1252", "detected"),
    "page.html": ("<p>Größe und Maß, „ganz“ für Jörg</p>", "cp1252", "cp1252", "detected"),
    "named.html": ("<meta charset=windows-1251><p>Отпуск</p>", "cp1251", "cp1251", "declared"),
    "unicode.csv": (GERMAN.replace(";", "\t"), "utf-16", "utf-16", "mark"),
    "wide.txt": ("Grüße aus Köln und noch etwas Text", "utf-16-le", "utf-16-le", "detected"),
    "polish.csv": ("Imię;Miasto\nŁukasz;Łódź\nŻaneta;Gdańsk\n", "cp1250", "cp1250", "detected"),
    "russian.txt": ("Отпуск составляет тридцать дней", "cp1251", "cp1251", "detected"),
    "japanese.csv": ("名前,都市\n田中,東京\n", "cp932", "cp932", "detected"),
    "marked.csv": ("Straße;Zahl\nx;1\n", "utf-8-sig", None, None),
    "plain.md": ("# Größe\n", "utf-8", None, None),
}


async def test_the_pages_of_gnu_info_are_read(library: Library, tmp_path: Path) -> None:
    info = b"This is sed.info, produced by makeinfo.\n\n\x1f\nFile: sed.info,  Node: Top\n\nThe osprey editor.\n"
    report = await library.take_in(files(tmp_path / "in", {"sed.info": info, "sed.info.gz": gzip.compress(info)}))
    assert (report.bad, report.kinds_not_read) == ([], {})
    hits = (await library.call("search_documents", query="osprey"))["hits"]
    assert {hit["name"] for hit in hits} == {"sed.info", "sed.info.gz"}


PAGE = b"<!DOCTYPE html><html><body><table><tr><td>osprey</td></tr></table></body></html>"
MISNAMED = {
    "export.xls": (PAGE, "text/html"),
    "error.pdf": (PAGE, "text/html"),
    "table.xlsx": (b"bird;count\nosprey;2\n", "text/csv"),
    "old.xls": (b"bird\tcount\nosprey\t2\n", "text/csv"),
    "letter.docx": (b"{\\rtf1\\ansi osprey\\par}", "application/rtf"),
    "scan.txt": (pdf("osprey") + b"\n%%EOF\n", "application/pdf"),
    "notes.md": (word(), "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
}


async def test_a_file_with_a_wrong_ending_is_read_by_its_contents(library: Library, tmp_path: Path) -> None:
    report = await library.take_in(files(tmp_path / "in", {name: content for name, (content, _) in MISNAMED.items()}))
    assert report.bad == []
    hits = (await library.call("search_documents", query="osprey"))["hits"]
    assert {hit["name"] for hit in hits} == set(MISNAMED) - {"notes.md"}
    source_id = await library.source_id()
    for name, (_, mime) in MISNAMED.items():
        info = await library.call("document_info", source_id=source_id, path=name)
        assert info["mime"] == mime, name


async def test_text_in_any_encoding_comes_in_and_its_encoding_is_told(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "in", {name: text.encode(encoding) for name, (text, encoding, _, _) in TEXTS.items()})
    report = await library.take_in(folder)
    assert report.bad == []
    source_id = await library.source_id()
    for name, (text, _, encoding, known_from) in TEXTS.items():
        info = await library.call("document_info", source_id=source_id, path=name)
        assert (info["encoding"], info["encoding_from"]) == (encoding, known_from), name
        read = await library.call("read_document", document_id=info["document_id"])
        if not name.endswith(".html"):
            assert read["text"] == text, name
    rows = await library.call("query_documents", sql="SELECT Stadt FROM excel WHERE Name = 'Müller'")
    assert rows["rows"] == [["Köln"]]
    assert (await library.call("grep_documents", pattern="„ganz“ für Jörg"))["total"] == 1
    assert dict((await library.take_in(folder)).counts) == {"unchanged": len(TEXTS)}


async def test_a_source_says_in_which_encoding_its_texts_are(library: Library, tmp_path: Path) -> None:
    # Without the setting this is as good as Windows-1252.
    folder = files(tmp_path / "in", {"a.txt": "pomůže".encode("cp1250"), "b.txt": "ASCII alone"})
    await library.take_in(folder, encoding="windows-1250")
    assert (await library.call("grep_documents", pattern="pomůže"))["total"] == 1
    info = await library.call("document_info", source_id=await library.source_id(), path="a.txt")
    assert (info["encoding"], info["encoding_from"]) == ("cp1250", "set")
    # It stays with the source, and another one has all files read again.
    (folder / "a.txt").write_bytes("pomůže později".encode("cp1250"))
    assert (await library.take_in(folder)).counts["changed"] == 1
    assert (await library.call("grep_documents", pattern="později"))["total"] == 1
    assert (await library.take_in(folder, encoding="koi8-r")).counts["changed"] == 2
    assert (await library.call("grep_documents", pattern="později"))["total"] == 0
    assert (await library.take_in(folder, encoding="auto")).counts["changed"] == 2
    with pytest.raises(DefinitionError, match="There is no encoding 'hex'"):
        await library.take_in(folder, encoding="hex")


@ON_SQLITE_ALONE
async def test_what_is_not_text_is_still_refused(library: Library, tmp_path: Path) -> None:
    noise = bytes(range(256)) * 20
    report = await library.take_in(files(tmp_path / "in", {"picture.txt": b"\x89PNG\r\n\x1a\n\0\0" + noise}))
    assert "it is not a text" in report.bad[0].reason


async def test_a_pdf_without_text_is_empty_and_says_so(library: Library, tmp_path: Path) -> None:
    report = await library.take_in(files(tmp_path / "in", {"scan.pdf": pdf("", "", ""), "b.txt": "words"}))
    assert (report.empty, report.bad, report.counts["added"]) == (["scan.pdf"], [], 2)
    source_id = await library.source_id()
    info = await library.call("document_info", source_id=source_id, path="scan.pdf")
    assert (info["status"], info["char_count"], info["pages"]) == ("empty", 0, 3)
    assert "OCR" in info["note"]
    assert "OCR" in (await library.call("read_document", document_id=info["document_id"]))["note"]
    assert (await library.call("document_info", source_id=source_id, path="b.txt"))["status"] == "ready"


SVG = b'<?xml version="1.0"?><!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/svg11.dtd"><svg/>'
PLIST = b'<?xml version="1.0"?><!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "x.dtd"><plist/>'


def extended(payload: bytes, parts: dict[str, bytes], types: str = "") -> bytes:
    """Return an Office file with more parts, and with more types of parts."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(payload)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "[Content_Types].xml":
                content = content.replace(b"</Types>", types.encode() + b"</Types>")
            if name not in parts:
                new.writestr(name, content)
        for name, content in parts.items():
            new.writestr(name, content)
    return file.getvalue()


async def test_parts_that_nobody_parses_may_have_a_document_type() -> None:
    more = {
        "word/media/image1.svg": SVG,
        "__MACOSX/word/._document.xml": PLIST,
        "docProps/Preview.plist": PLIST,
        "customXml/item9.xml": PLIST,
    }
    types = '<Default Extension="svg" ContentType="image/svg+xml"/>'
    async with FileReader() as reader:
        document = await reader.read("a.docx", extended(word(), more, types))
        assert (document.error, "Second class" in document.text) == ("", True)
        sheet = workbook('<row r="1"><c r="A1" t="inlineStr"><is><t>QUINCE</t></is></c></row>')
        typed = (
            '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
            '<Default Extension="xml" ContentType="application/xml"/></Types>'
        )
        parts = {"xl/media/image1.svg": SVG, "docProps/Preview.plist": PLIST, "[Content_Types].xml": typed.encode()}
        document = await reader.read("a.xlsx", extended(sheet, parts))
        assert (document.error, "QUINCE" in document.text) == ("", True)


@pytest.mark.parametrize(
    "name", ["word/document.xml", "word/styles.xml", "docProps/core.xml", "word/_rels/document.xml.rels"]
)
async def test_parts_that_are_parsed_may_not(name: str) -> None:
    async with FileReader() as reader:
        document = await reader.read("a.docx", extended(word(), {name: ENTITIES}))
    assert "defines entities, as no Office file does" in document.error


async def test_notes_are_judged_whatever_type_they_claim_to_have() -> None:
    related = (
        '<Relationship Id="rId99" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes" '
        'Target="media/notes.svg"/></Relationships>'
    )
    with zipfile.ZipFile(io.BytesIO(word())) as archive:
        rels = archive.read("word/_rels/document.xml.rels").replace(b"</Relationships>", related.encode())
    parts = {"word/media/notes.svg": ENTITIES, "word/_rels/document.xml.rels": rels}
    types = '<Default Extension="svg" ContentType="image/svg+xml"/>'
    async with FileReader() as reader:
        document = await reader.read("a.docx", extended(word(), parts, types))
    assert "defines entities, as no Office file does" in document.error
