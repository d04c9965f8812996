"""Slides, books, emails, notebooks, code, and files whose ending says nothing; and hostile ones of each."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import zipfile
from collections.abc import AsyncIterator, Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import odfdo
import pptx
import pytest
from pptx.util import Inches

from pegboard.workspace.file_reader import FileReader
from tests.workspace.library import Library, files
from tests.workspace.outlook import compound, outlook_mail
from tests.workspace.test_formats import ENTITIES, packed, pdf


@pytest.fixture(scope="module")
async def reader() -> AsyncIterator[FileReader]:
    """One pool for all of them: a bad file must not spoil the next."""
    async with FileReader() as made:
        yield made


def slides() -> bytes:
    untyped: Any = pptx
    presentation = untyped.Presentation()
    presentation.core_properties.author = "Ann"
    slide = presentation.slides.add_slide(presentation.slide_layouts[5])
    slide.shapes.title.text = "Fares"
    table = slide.shapes.add_table(2, 2, Inches(1), Inches(2), Inches(4), Inches(1)).table
    for row, cells in enumerate((("city", "price"), ("Rome", "120"))):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = "Second class"
    slide.notes_slide.notes_text_frame.text = "Ask Bob"
    presentation.slides.add_slide(presentation.slide_layouts[6])
    file = io.BytesIO()
    presentation.save(file)
    return file.getvalue()


def saved(document: Any) -> bytes:
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def open_text() -> bytes:
    document: Any = odfdo.Document("text")
    document.body.clear()
    document.meta.title, document.meta.creator = "Travel rules", "Ann"
    document.body.append(odfdo.Header(2, "Trains"))
    document.body.append(odfdo.Paragraph("Zweite Klasse, bitte. Größe"))
    document.body.append(odfdo.List(["tickets", "seats"]))
    table: Any = odfdo.Table("fares")
    for cells in (["city", "price"], ["Rome", "120"]):
        row: Any = odfdo.Row()
        row.set_values(cells)
        table.append_row(row)
    document.body.append(table)
    return saved(document)


def open_slides() -> bytes:
    document: Any = odfdo.Document("presentation")
    document.body.clear()
    page: Any = odfdo.DrawPage("p1", name="Start")
    page.append(odfdo.Frame.text_frame("Welcome", size=("7cm", "5cm"), position=("1cm", "1cm")))
    document.body.append(page)
    return saved(document)


def open_sheet() -> bytes:
    document: Any = odfdo.Document("spreadsheet")
    document.body.clear()
    table: Any = odfdo.Table("prices")
    for cells in (["item", "price"], ["pen", 2], ["ink", 7]):
        row: Any = odfdo.Row()
        row.set_values(cells)
        table.append_row(row)
    document.body.append(table)
    return saved(document)


CONTAINER = b'<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>'  # noqa: E501
PACKAGE = b"""<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:title>The Lamp</dc:title><dc:creator>Ann</dc:creator><dc:language>en</dc:language></metadata>
<manifest><item id="b" href="two.xhtml" media-type="application/xhtml+xml"/>
<item id="a" href="one%20.xhtml" media-type="application/xhtml+xml"/>
<item id="c" href="missing.xhtml" media-type="application/xhtml+xml"/>
<item id="p" href="p.png" media-type="image/png"/></manifest>
<spine><itemref idref="a"/><itemref idref="b"/><itemref idref="c"/><itemref idref="p"/></spine></package>"""
PAGE = b'<?xml version="1.0"?><!DOCTYPE html><html xmlns="http://www.w3.org/1999/xhtml"><body><h1>%s</h1><p>%s</p></body></html>'


def book(**parts: bytes) -> bytes:
    """Return a book; the first part of a real one is not compressed, and so is none here."""
    return packed({
        "mimetype": b"application/epub+zip", "META-INF/container.xml": CONTAINER, "OPS/book.opf": PACKAGE,
        "OPS/two.xhtml": PAGE % (b"Two", b"It goes out."), "OPS/one .xhtml": PAGE % (b"One", b"It is lit."), **parts,
    }, zipfile.ZIP_STORED)  # fmt: skip


def mail(*, levels: int = 0) -> EmailMessage:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = "Grüße", "Ann <ann@example.com>", "bob@example.com"
    message["Date"] = "Fri, 02 Jan 2026 03:04:05 +0100"
    message.set_content("The plain canary.\n")
    message.add_alternative("<p>The same as a page.</p>", subtype="html")
    if levels:
        message.add_attachment(mail(levels=levels - 1))
    message.add_attachment(b"\x89PNG", maintype="image", subtype="png", filename="plan.png")
    return message


NOTEBOOK: Any = {
    "metadata": {"kernelspec": {"language": "python"}},
    "nbformat": 4,
    "cells": [
        {"cell_type": "markdown", "source": ["# Fares\n", "By city."]},
        {"cell_type": "code", "source": "print(120)", "outputs": [
            {"output_type": "stream", "text": ["120\n"]},
            {"output_type": "display_data", "data": {"image/png": "iVBO", "text/plain": ["<Figure>"]}},
        ]},
    ],
}  # fmt: skip


async def test_slides_have_titles_tables_grouped_texts_and_notes(reader: FileReader) -> None:
    document = await reader.read("fares.pptx", slides())
    assert document.text == "# Fares\n\ncity | price\nRome | 120\n\nSecond class\n\nAsk Bob\n\n# Slide 2"
    assert [(table.columns, table.rows) for table in document.tables] == [(("city", "price"), (("Rome", 120),))]
    told = document.metadata
    assert (told["title"], told["author"], told["pages"], told["headings"]) == ("Fares", "Ann", 2, ["Fares"])


async def test_open_document_files_have_their_texts_tables_and_who_wrote_them(reader: FileReader) -> None:
    text = await reader.read("rules.odt", open_text())
    assert text.text.startswith("## Trains\n\nZweite Klasse, bitte. Größe\n\n")
    assert "tickets" in text.text
    assert [(table.name, table.rows) for table in text.tables] == [("fares", (("Rome", 120),))]
    assert (text.metadata["title"], text.metadata["author"]) == ("Travel rules", "Ann")
    assert (await reader.read("a.odp", open_slides())).text == "# Start\n\nWelcome"
    [table] = (await reader.read("a.ods", open_sheet())).tables
    assert (table.columns, table.rows) == (("item", "price"), (("pen", 2), ("ink", 7)))


async def test_a_book_is_read_in_its_order(reader: FileReader) -> None:
    document = await reader.read("lamp.epub", book())
    assert document.text == "# One\n\nIt is lit.\n\n# Two\n\nIt goes out."
    assert document.metadata == {"title": "The Lamp", "author": "Ann", "language": "en", "headings": ["One", "Two"]}


async def test_an_email_has_its_header_its_text_once_and_the_emails_inside(reader: FileReader) -> None:
    document = await reader.read("a.eml", mail(levels=1).as_bytes())
    assert document.text.count("The plain canary.") == 2
    assert "as a page" not in document.text
    assert document.text.startswith("# Grüße\n\nFrom: Ann <ann@example.com>\nTo: bob@example.com\n")
    assert "Attachments: plan.png" in document.text
    told = document.metadata
    assert (told["title"], told["created"]) == ("Grüße", "2026-01-02T03:04:05+01:00")
    only_page = EmailMessage()
    only_page["Subject"] = "x"
    only_page.set_content("<h1>News</h1><script>no</script>", subtype="html")
    assert (await reader.read("b.eml", only_page.as_bytes())).text == "# x\n\n\n# News"


async def test_an_email_of_outlook_has_its_header_and_text(reader: FileReader) -> None:
    content = outlook_mail({0x0037: "Grüße", 0x1000: "The canary of Outlook.", 0x0C1A: "Ann", 0x0C1F: "ann@x.org"})
    document = await reader.read("a.msg", content)
    assert document.text == '# Grüße\n\nFrom: "Ann" <ann@x.org>\n\nThe canary of Outlook.'
    assert (document.metadata["title"], document.metadata["author"]) == ("Grüße", '"Ann" <ann@x.org>')
    # Other programs use the ending for texts.
    assert (await reader.read("de.msg", b"namespace eval ::tk {}\n")).mime == "text/plain"


async def test_rich_text_and_notebooks_are_read(reader: FileReader) -> None:
    rich = rb"{\rtf1\ansi{\info{\title Reisen}{\author Ann}}Gr\'f6\'dfe \u8364?20\par{\pict 0102}Ende}"
    document = await reader.read("a.rtf", rich)
    assert document.text.split() == ["Größe", "€20", "Ende"]
    assert document.metadata == {"title": "Reisen", "author": "Ann"}
    noted = await reader.read("a.ipynb", json.dumps(NOTEBOOK).encode())
    assert noted.text == "# Fares\nBy city.\n\n```python\nprint(120)\n```\n\n```\n120\n\n```\n\n```\n<Figure>\n```"
    assert (noted.metadata["title"], "iVBO" in noted.text) == ("Fares", False)


MANUAL = b"""'\\" t
.\\" a comment
.TH LAMP 1 "2026"
.ss \\n[.ss] 0
.if  \\n[.g] \\{\\
.  am URL
.    ad l
.  .
.\\}
.SH NAME
lamp \\- light \\fIa room\\fR
.de XX
hidden
..
.SH OPTIONS
.TP
.BR \\-v ", " \\-\\-verbose
Tell more.
"""


CASES: list[tuple[str, Callable[[], bytes], str, str]] = [
    ("main.py", lambda: b"#!/usr/bin/python\n\nprint(1)\n", "text/x-python", "#!/usr/bin/python\n\nprint(1)\n"),
    ("a.yaml", lambda: b"a: &x [1]\nb: *x\n", "application/yaml", "a: &x [1]\nb: *x\n"),
    ("a.toml", lambda: b"[a]\nb = 1\n", "application/toml", "[a]\nb = 1\n"),
    ("README", lambda: b"Read me.\n", "text/plain", "Read me.\n"),
    ("Makefile", lambda: b"all:\n\ttrue\n", "text/plain", "all:\n\ttrue\n"),
    ("a.service", lambda: "[Unit]\nDescription=Größe\n".encode("cp1252"), "text/plain", "[Unit]\nDescription=Größe\n"),
    ("page", lambda: b"<!DOCTYPE html><p>Hello", "text/html", "Hello"),
    ("scan", lambda: pdf("a page"), "application/pdf", "a page"),
    ("book", lambda: book(), "application/epub+zip", "# One\n\nIt is lit.\n\n# Two\n\nIt goes out."),
    ("slides.backup", lambda: open_slides(), "application/vnd.oasis.opendocument.presentation", "# Start\n\nWelcome"),
    ("changelog.gz", lambda: gzip.compress(b"lamp 1\n") + gzip.compress(b"more\n"), "text/plain", "lamp 1\nmore\n"),
    ("notes.md.gz", lambda: gzip.compress(b"# Notes\n"), "text/markdown", "# Notes\n"),
    ("lamp.1", lambda: MANUAL, "text/troff", "# LAMP(1)\n\n## NAME\n\nlamp - light a room\n\n## OPTIONS\n\n-v, --verbose\nTell more."),  # noqa: E501
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "title"),
    [
        (MANUAL, "LAMP(1): light a room"),
        (b".Dd today\n.Dt LAMP 1\n.Sh NAME\n.Nm lamp\n.Nd light a room\n.Sh OPTIONS\nnone\n", "LAMP(1): light a room"),
        ('.TH LAMP 1\n.SH 名前\nlamp \\- 部屋を照らす\n.SH 書式\n'.encode(), "LAMP(1): 部屋を照らす"),
        (b".TH LAMP 1\n.SH NAME\nlamp\n.SH OPTIONS\n-v - more\n", "LAMP(1)"),
    ],
)  # fmt: skip
async def test_the_title_of_a_manual_page_says_what_it_is_about(reader: FileReader, source: bytes, title: str) -> None:
    assert (await reader.read("lamp.1", source)).metadata["title"] == title


@pytest.mark.parametrize(("name", "content", "mime", "text"), CASES, ids=[case[0] for case in CASES])
async def test_code_and_files_without_a_telling_ending_are_read(
    reader: FileReader, name: str, content: Callable[[], bytes], mime: str, text: str
) -> None:
    document = await reader.read(name, content())
    assert (document.error, document.mime, document.text) == ("", mime, text)


DEEP = b"[" * 100_000
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    **{
        f"bomb.{ending}": (lambda: packed({"content.xml": b" " * (64 << 20)}), "it unpacks to more than 8 MiB")
        for ending in ("pptx", "odt", "ods", "odp", "epub")
    },
    **{
        f"entities.{ending}": (lambda: packed({"content.xml": ENTITIES}), "defines entities, as no OpenDocument file")
        for ending in ("odt", "ods", "odp")
    },
    "entities.pptx": (lambda: packed({"ppt/presentation.xml": ENTITIES}), "defines entities, as no Office file does"),
    "entities.epub": (lambda: book(**{"OPS/book.opf": ENTITIES}), "defines entities, as no EPUB file does"),
    "chapters.epub": (
        lambda: book(**{"OPS/book.opf": b'<package xmlns="http://www.idpf.org/2007/opf"><manifest>%s</manifest><spine>%s</spine></package>' % (  # noqa: E501
            b"".join(b'<item id="i%d" href="%d" media-type="text/html"/>' % (n, n) for n in range(5_001)),
            b"".join(b'<itemref idref="i%d"/>' % n for n in range(5_001)),
        )}),
        "it has 5,001 chapters; at most 5,000 are taken",
    ),
    "outside.epub": (lambda: book(**{"META-INF/container.xml": CONTAINER.replace(b"OPS/book.opf", b"/etc/passwd")}),
                     "it is not an EPUB file"),
    "plain.epub": (lambda: packed({"a.txt": b"x"}), "it is not an EPUB file"),
    "plain.odt": (lambda: packed({"a.txt": b"x"}), "it is not an OpenDocument file"),
    "plain.pptx": (lambda: packed({"a.txt": b"x"}), "it is not a PowerPoint presentation"),
    "nested.eml": (lambda: mail(levels=25).as_bytes(), "it has more than 20 emails inside each other"),
    "parts.eml": (
        lambda: b"Subject: x\nContent-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * 1_100 + b"--b--\n",
        "it has more than 1,000 parts",
    ),
    "no.eml": (lambda: b"\n\nno header", "it is not an email"),
    "cut.msg": (lambda: outlook_mail({0x37: "x"})[:700], "it is not an Outlook email"),
    "other.msg": (lambda: compound({"Workbook": b"x"}), "it is not an Outlook email"),
    "deep.ipynb": (lambda: b'{"cells": ' + DEEP, "it is nested too deeply"),
    "huge.ipynb": (
        lambda: json.dumps({"cells": [{"cell_type": "raw", "source": ""}] * 20_001}).encode(),
        "it has 20,001 cells; at most 20,000 are taken",
    ),
    "no.ipynb": (lambda: b"[]", "it is not a notebook"),
    "no.rtf": (lambda: b"hello", "it is not RTF"),
    "bomb.gz": (lambda: gzip.compress(b" " * (64 << 20)), "it unpacks to more than 8 MiB"),
    "twice.gz.gz": (lambda: gzip.compress(gzip.compress(b"x")), "it is an archive, which no parser reads"),
    "cut.gz": (lambda: gzip.compress(b"a text" * 100)[:20], "it is damaged"),
    "noise.gz": (lambda: b"noise", "it is not a gzip file"),
    "a.exe": (lambda: b"MZ\x90\0\3", "it is a binary file, which no parser reads"),
    "photo": (lambda: b"\x89PNG\r\n\x1a\n", "it is a picture, which no parser reads"),
    "id_rsa": (lambda: b"-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n", "it is a private key, which no parser reads"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_file_is_one_line_and_the_next_one_is_read(reader: FileReader, name: str) -> None:
    content, said = HOSTILE[name]
    bad, good = await asyncio.gather(reader.read(name, content()), reader.read("good.txt", b"fine"))
    assert said in bad.error
    assert "\n" not in bad.error
    assert (bad.text, bad.tables) == ("", ())
    assert good.text == "fine"


async def test_a_page_of_a_book_may_name_entities_that_stay_empty(reader: FileReader) -> None:
    document = await reader.read("a.epub", book(**{"OPS/two.xhtml": ENTITIES}))
    assert document.error == ""
    assert "root:" not in document.text
    assert len(document.text) < 1_000


async def test_files_that_no_parser_reads_are_told_with_what_they_are(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "share", {
        "notes": "notes", "photo.png": b"\x89PNG\r\n\x1a\n\0", "lib.so": b"\x7fELF\0", "server.key":
        "-----BEGIN PRIVATE KEY-----\ncanary\n", "src/main.rs": "fn main() {}", "x.tar.gz": gzip.compress(b"x"),
    })  # fmt: skip
    report = await library.take_in(folder)
    assert (dict(report.counts), report.bad, report.total) == ({"added": 2}, [], 6)
    assert {each.path: each.reason for each in report.not_read} == {
        "photo.png": "it is a picture, which no parser reads", "lib.so": "it is a program, which no parser reads",
        "server.key": "it is a private key, which no parser reads",
        "x.tar.gz": "it is an archive, which no parser reads",
    }  # fmt: skip
    assert dict(report.kinds_not_read) == {"png": 1, "so": 1, "key": 1, "gz": 1}
    assert report.seen == report.total
    # Nothing of a key is stored, not even by grep.
    assert (await library.call("grep_documents", pattern="canary"))["matches"] == []
    # A text that became a picture is told like every file that cannot be read any more.
    (folder / "notes").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    [bad] = (await library.take_in(folder)).bad
    assert (bad.path, bad.reason) == ("notes", "it is a picture, which no parser reads")
