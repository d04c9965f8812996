"""What files of each format say, and hostile ones: each is one line, and the reader goes on."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import docx
import pytest
from docx.oxml import parse_xml

from pegboard.model.document import NewDocument
from pegboard.workspace.chunking import chunks_of
from pegboard.workspace.file_reader import FileReader


@pytest.fixture(scope="module")
async def reader() -> AsyncIterator[FileReader]:
    """One pool for all of them: a bad file must not spoil the next."""
    async with FileReader() as made:
        yield made


def packed(parts: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def word() -> bytes:
    document = docx.Document()
    document.core_properties.title, document.core_properties.author = "Travel rules", "Ann"
    document.core_properties.created = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    document.add_heading("Travel", 1)
    document.add_paragraph("Second class, please. Größe 😀")
    table = document.add_table(rows=0, cols=2)
    for row in (("city", "price"), ("Rome", "120"), ("Oslo", "80")):
        cells = table.add_row().cells
        cells[0].text, cells[1].text = row
    document.add_paragraph("The end.")
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


SHEET = """<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>{rows}</sheetData>{more}</worksheet>"""
RELS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
CORE = (
    'xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/"'
)
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def workbook(*sheets: str, merged: str = "", properties: str = "") -> bytes:
    """Return a workbook; `merged` are ranges of cells of each sheet, and `properties` what it tells of itself."""
    ranges = "".join(f'<mergeCell ref="{each}"/>' for each in merged.split())
    more = f"<mergeCells>{ranges}</mergeCells>" if ranges else ""
    names = range(1, len(sheets) + 1)
    listed = "".join(f'<sheet name="Sheet {n}" sheetId="{n}" r:id="rId{n}"/>' for n in names)
    related = "".join(
        f'<Relationship Id="rId{n}" Type="{RELS}/worksheet" Target="worksheets/sheet{n}.xml"/>' for n in names
    )
    return packed(
        {
            "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"/>'.encode(),
            "_rels/.rels": (
                f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="rId1" Type="{RELS}/officeDocument" '
                'Target="xl/workbook.xml"/></Relationships>'
            ).encode(),
            "xl/workbook.xml": (
                '<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" '
                f'xmlns:r="{RELS}"><sheets>{listed}</sheets></workbook>'
            ).encode(),
            "xl/_rels/workbook.xml.rels": (
                f'<Relationships xmlns="{PACKAGE}/relationships">{related}</Relationships>'
            ).encode(),
            "docProps/core.xml": f"<cp:coreProperties {CORE}>{properties}</cp:coreProperties>".encode(),
            **{
                f"xl/worksheets/sheet{n}.xml": SHEET.format(rows=each, more=more).encode()
                for n, each in enumerate(sheets, 1)
            },
        }
    )


def row(number: int, *values: Any) -> str:
    cells = ""
    for place, value in enumerate(values):
        spot = f"{chr(65 + place)}{number}"
        if isinstance(value, str):
            cells += f'<c r="{spot}" t="inlineStr"><is><t>{value}</t></is></c>'
        elif value is not None:
            cells += f'<c r="{spot}"><v>{value}</v></c>'
    return f'<row r="{number}">{cells}</row>'


def pdf(*pages: str, kids: str | None = None, info: str = "", typed: str = "") -> bytes:
    """Return a PDF with a text on each page; `typed` is what somebody typed into a form on them."""
    numbers = [4 + 2 * place for place in range(len(pages))]
    objects = {
        1: f"<< /Type /Catalog /Pages 2 0 R {'/AcroForm << /Fields [90 0 R] >>' if typed else ''} >>",
        2: f"<< /Type /Pages /Count {len(pages)} /Kids [{kids or ' '.join(f'{n} 0 R' for n in numbers)}] >>",
        3: "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    }
    for number, text in zip(numbers, pages, strict=True):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects[number] = (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            f"/Contents {number + 1} 0 R {'/Rotate 90 /Annots [90 0 R]' if typed else ''} >>"
        )
        objects[number + 1] = f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream"
    if typed:
        shown = f"BT /F1 12 Tf 2 5 Td ({typed}) Tj ET"
        objects[90] = (
            "<< /Type /Annot /Subtype /Widget /FT /Tx /T (name) /F 4 /Rect [72 600 300 620] /AP << /N 91 0 R >> "
            f"/V ({typed}) >>"
        )
        objects[91] = (
            "<< /Type /XObject /Subtype /Form /BBox [0 0 228 20] /Resources << /Font << /F1 3 0 R >> >> "
            f"/Length {len(shown)} >>\nstream\n{shown}\nendstream"
        )
    if info:
        objects[99] = info
    body, places = b"%PDF-1.4\n", dict[int, int]()
    for number, content in objects.items():
        places[number] = len(body)
        body += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = len(body)
    entries = "".join(f"{number} 1\n{place:010} 00000 n \n" for number, place in places.items())
    trailer = f"<< /Size 100 /Root 1 0 R {'/Info 99 0 R' if info else ''} >>"
    return body + f"xref\n0 1\n0000000000 65535 f \n{entries}trailer\n{trailer}\nstartxref\n{table}\n%%EOF".encode()


async def test_a_word_document_has_its_text_headings_tables_and_who_wrote_it(reader: FileReader) -> None:
    document = await reader.read("rules.docx", word())
    assert document.error == ""
    assert document.text == (
        "# Travel\n\nSecond class, please. Größe 😀\n\ncity | price\nRome | 120\nOslo | 80\n\nThe end."
    )
    assert {key: document.metadata[key] for key in ("title", "author", "created", "headings")} == {
        "title": "Travel rules", "author": "Ann", "created": "2026-01-02T03:04:05+00:00", "headings": ["Travel"],
    }  # fmt: skip
    [table] = document.tables
    assert (table.columns, table.rows) == (("city", "price"), (("Rome", 120), ("Oslo", 80)))


W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
ALTERNATE = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
BOX = "<w:txbxContent><w:p><w:r><w:t>boxed</w:t></w:r></w:p></w:txbxContent>"
PARTS = {
    "a content control": "<w:sdt><w:sdtContent><w:p><w:r><w:t>{0}</w:t></w:r></w:p></w:sdtContent></w:sdt>",
    "a value in a form": "<w:p><w:sdt><w:sdtContent><w:r><w:t>{0}</w:t></w:r></w:sdtContent></w:sdt></w:p>",
    "what was inserted": (
        "<w:p><w:ins><w:r><w:t>{0}</w:t></w:r></w:ins><w:del><w:r><w:delText>x</w:delText></w:r></w:del></w:p>"
    ),
    "a field": "<w:p><w:fldSimple><w:r><w:t>{0}</w:t></w:r></w:fldSimple></w:p>",
    "a smart tag": "<w:p><w:smartTag><w:r><w:t>{0}</w:t></w:r></w:smartTag></w:p>",
    "a link": "<w:p><w:hyperlink><w:r><w:t>{0}</w:t></w:r></w:hyperlink></w:p>",
    "a table in a table": (
        "<w:tbl><w:tr><w:tc><w:tbl><w:tr><w:tc><w:p><w:r><w:t>{0}</w:t></w:r></w:p></w:tc></w:tr></w:tbl></w:tc></w:tr>"
        "</w:tbl>"
    ),
    "a text box": (
        f"<w:p><w:r><mc:AlternateContent {ALTERNATE}><mc:Choice>{BOX}</mc:Choice>"
        f"<mc:Fallback>{BOX}</mc:Fallback></mc:AlternateContent></w:r></w:p>"
    ).replace("boxed", "{0}"),
}


async def test_all_that_a_reader_of_a_word_document_sees_is_read_once(reader: FileReader) -> None:
    document = docx.Document()
    for place, markup in enumerate(PARTS.values()):
        part = parse_xml(f"<w:body {W}>{markup.format(f'quince{place}')}</w:body>")[0]
        document.element.body.insert(len(document.element.body) - 1, part)
    # Above and below the pages; a second section has the same again, and a header of its own.
    document.sections[0].header.paragraphs[0].text, document.sections[0].footer.paragraphs[0].text = "above", "below"
    document.add_section().header.is_linked_to_previous = False
    document.sections[1].header.paragraphs[0].text = "above the annex"
    # One that is named and not there is no reason to lose the rest.
    missing = parse_xml(f'<w:headerReference {W} xmlns:r="{RELS}" w:type="even" r:id="rId999"/>')
    document.sections[1]._sectPr.insert(0, missing)
    file = io.BytesIO()
    document.save(file)
    read = await reader.read("parts.docx", file.getvalue())
    body = [f"quince{place}" for place in range(len(PARTS))]
    assert read.text.split("\n\n") == [*body, "above", "below", "above the annex"]


async def test_a_title_above_a_table_is_no_row_of_it(reader: FileReader) -> None:
    sheet = row(1, "Report of May") + row(2, "city", "people") + row(3, "Rome", 3)
    texts = (b"Report of May\n\ncity;people\nRome;3\n", b"sep=;\ncity;people\nRome;3\n", b'city,people\n"Rome",3\n')
    read = [await reader.read("a.xlsx", workbook(sheet)), *[await reader.read("a.csv", each) for each in texts]]
    assert [[(table.columns, table.rows) for table in each.tables] for each in read] == [
        [(("city", "people"), (("Rome", 3),))]
    ] * 4
    assert "Report of May" in read[0].text
    # What separates values is not what stands within one, and a single column has no title.
    quoted = await reader.read("a.csv", b'id;"name, first, last"\n1;"a, b"\n')
    assert [(table.columns, table.rows) for table in quoted.tables] == [(("id", "name, first, last"), ((1, "a, b"),))]
    spaced = await reader.read("a.csv", b'a, b, c\n1, "x, y", 3\n')
    assert [(table.columns, table.rows) for table in spaced.tables] == [(("a", "b", "c"), ((1, "x, y", 3),))]
    single = await reader.read("a.csv", b"one\n1\n2\n")
    assert [(table.columns, table.rows) for table in single.tables] == [(("one",), ((1,), (2,)))]


async def test_a_workbook_has_a_table_for_each_sheet_with_numbers_as_numbers(reader: FileReader) -> None:
    first = row(1, "region", "total", "code") + row(2, "north", 10.5, "007") + row(3, "south", 20, None)
    document = await reader.read("sales.xlsx", workbook(first, row(1, "x") + row(2, 1)))
    assert document.error == ""
    assert "region | total | code\nnorth | 10.5 | 007" in document.text
    assert [(table.name, table.columns, table.rows) for table in document.tables] == [
        ("Sheet 1", ("region", "total", "code"), (("north", 10.5, "007"), ("south", 20, None))),
        ("Sheet 2", ("x",), ((1,),)),
    ]


async def test_a_cell_that_was_merged_of_several_stands_in_each_of_them(reader: FileReader) -> None:
    costs = row(1, "Costs") + row(2, "team", "2025", None, "2026", None) + row(3, None, "plan", "real", "plan", "real")
    people = row(4, "red", 1, 2, 3, 4) + row(5, None, 5, 6, 7, 8)
    told = "<dc:title>Costs of teams</dc:title><dc:creator>Zoe</dc:creator>"
    read = await reader.read(
        "a.xlsx", workbook(costs + people, merged="A1:E1 A2:A3 B2:C2 D2:E2 A4:A5 Z1:Z9", properties=told)
    )
    assert [(table.columns, table.rows) for table in read.tables] == [
        (("team", "2025 plan", "2025 real", "2026 plan", "2026 real"), (("red", 1, 2, 3, 4), ("red", 5, 6, 7, 8)))
    ]
    assert (read.metadata["title"], read.metadata["author"]) == ("Costs of teams", "Zoe")
    assert read.text.count("Costs") == 1


@pytest.mark.parametrize(
    "payload",
    [b'[{"pay": 1, "pay": 2}]', b'[{"pay": 1, "p\\u0061y": 2}]', b'{"a": [{"b": {"x": 1, "y": 0, "x": 1}}]}'],
)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
async def test_an_object_with_a_key_twice_is_not_read_as_a_table_of_one_of_them(
    reader: FileReader, name: str, payload: bytes
) -> None:
    read = await reader.read(name, payload)
    assert len(read.tables) == 0
    assert "occurs twice in one object" in read.error


async def test_the_lists_in_json_are_tables_wherever_they_stand_and_whatever_it_is_called(reader: FileReader) -> None:
    deep = b'{"meta": {"page": 1}, "data": {"items": [{"id": 1}, {"id": 2}]}}'
    read = [await reader.read("a.json", each) for each in (deep, b'{"id": 1}\n{"id": 2}\n')]
    assert [[(table.name, table.rows) for table in each.tables] for each in read] == [
        [("data_items", ((1,), (2,)))],
        [("", ((1,), (2,)))],
    ]
    broken = await reader.read("a.jsonl", b'{"id": 1}\n{"id":\n')
    assert broken.error == "line 2 is not JSON at column 7: Expecting value"


async def test_a_pdf_has_its_pages_and_what_is_told_of_it(reader: FileReader) -> None:
    info = "<< /Title (Lease) /Author (Bob) /CreationDate (D:20260102030405+02'00') >>"
    document = await reader.read("lease.pdf", pdf("The notice period", "is three months", info=info))
    assert document.error == ""
    assert document.text == "The notice period\n\nis three months"
    assert document.metadata == {
        "title": "Lease", "author": "Bob", "created": "2026-01-02T03:04:05+02:00", "pages": 2,
    }  # fmt: skip
    form = await reader.read("form.pdf", pdf("Name of the guest:", typed="Ann Quince"))
    assert {*form.text.splitlines()} == {"Name of the guest:", "Ann Quince"}


async def test_a_page_has_all_that_a_reader_sees_and_nothing_else(reader: FileReader) -> None:
    page = (
        "<!doctype html><html lang=de><head><title>Reise &amp; mehr</title><style>p{}</style>"
        "<meta name=author content=Ann></head><body><script>evil()</script><h1>Reise</h1><p>Zweite <b>Klasse</b>.</p>"
        "<!-- hidden --><ul><li>a<li>b</ul><table><tr><td>1<td>2</table><img alt='Ein Bild' src=x></body></html>"
    )
    document = await reader.read("a.html", page.encode())
    assert document.text == "# Reise\n\nZweite Klasse.\n\n- a\n- b\n\n1 | 2\nEin Bild"
    assert document.metadata == {"title": "Reise & mehr", "author": "Ann", "language": "de", "headings": ["Reise"]}
    # The head may end without a word of it, the lines of the file are not those of the page, and a picture has a title.
    bare = (
        "<head><title>T</title><svg><title>icon</title></svg><p>one\n line</p>\n<table>\n <tr>\n  <td>1</td>\n  <td>2"
        "</table><pre>if x:\n    y</pre><select><option>a<option>b</select>"
    )
    read = await reader.read("a.html", bare.encode())
    assert (read.text, read.metadata["title"]) == ("one line\n\n1 | 2\n\nif x:\n    y\n\na\nb", "T")
    hidden = (
        "<div hidden>QUINCE<div>QUINCE</div>QUINCE</div><p>1<p style='color: red; display : none'>QUINCE<p>2<ul>"
        "<li hidden>QUINCE<ul><li>QUINCE</ul><li>3</ul><span style=visibility:hidden>QUINCE<br>QUINCE</span>4"
        "<div style=display:none><p hidden>QUINCE</div>5<p style='display:nonesuch'>6<img hidden alt=QUINCE>"
    )
    assert (await reader.read("a.html", hidden.encode())).text.split() == ["1", "2", "-", "3", "45", "6"]
    old = '<?xml version="1.0" encoding="iso-8859-1"?><html><body><p>Café</p></body></html>'.encode("latin-1")
    assert (await reader.read("a.xhtml", old)).text == "Café"
    for named, encoding, text in (
        ("iso-8859-1", "latin-1", "Café"), ("Shift_JIS", "cp932", "休暇①"), ("windows-1251", "cp1251", "Отпуск"),
        ("gb2312", "gb18030", "年假"), ("euc-kr", "cp949", "휴가"),
    ):  # fmt: skip
        old = f'<meta charset="{named}"><p>{text}'.encode(encoding)
        assert (await reader.read("b.htm", old)).text == text


async def test_markdown_tells_its_headings_and_what_stands_before_it(reader: FileReader) -> None:
    front = "---\ntitle: 'Leave'\nauthor: Ann\nlang: en\ndate: 2026-01-02\n---\n"
    # Thousands of blanks took minutes, in a reader and again where a document is cut into passages.
    text = front + "# One\r\n```\n# no heading\n```\n## Two ##\n# a" + " " * 20_000 + "b\n# " + "c" * 9_000 + "\n"
    document = await reader.read("a.md", text.encode("utf-16"))
    assert document.metadata == {
        "title": "Leave", "author": "Ann", "created": "2026-01-02", "language": "en",
        "headings": ["One", "Two", "a", "c" * 200], "encoding": "utf-16", "encoding_from": "mark",
    }  # fmt: skip
    # Each passage below a heading is found by it, too, and has no more of it than a title may have.
    assert chunks_of(document.text)[-1].headings == ("c" * 200,)
    assert "\r" not in document.text
    lines = b"Leave rules\n===========\n\nDays\n----\n\nThirty.\n\n- a\n- b\n---\n\n| a |\n|---|\n"
    assert (await reader.read("b.md", lines)).metadata == {"title": "Leave rules", "headings": ["Leave rules", "Days"]}


ENTITIES = b'<!DOCTYPE x [<!ENTITY a "' + b"ha" * 500 + b'">' + b"".join(
    b'<!ENTITY %c "%s">' % (98 + n, (b"&%c;" % (97 + n)) * 10) for n in range(9)
) + b'<!ENTITY file SYSTEM "file:///etc/passwd">]><x>&j;&file;</x>'  # fmt: skip
OF_ENTITIES = "defines entities, as no Office file does"
# Each file is made when a test asks for it: packing the bombs takes a second, in every worker that collects this file.
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "bomb.docx": (lambda: packed({"word/document.xml": b"\0" * (64 << 20)}), "it unpacks to more than 8 MiB"),
    "bomb.xlsx": (lambda: packed({"xl/workbook.xml": b" " * (64 << 20)}), "it unpacks to more than 8 MiB"),
    "parts.docx": (
        lambda: packed({f"{n}": b"" for n in range(10_500)}),
        "it has 10,500 parts; at most 10,000 are taken",
    ),
    "entities.docx": (lambda: packed({"word/document.xml": ENTITIES}), OF_ENTITIES),
    "entities.xlsx": (lambda: packed({"xl/workbook.xml": ENTITIES}), OF_ENTITIES),
    **{
        f"entities-{encoding}.docx": (
            lambda encoding=encoding: packed({"word/document.xml": ENTITIES.decode().encode(encoding)}),
            OF_ENTITIES,
        )
        for encoding in ("utf-16", "utf-16-be", "utf-32", "utf-7", "cp037")
    },
    "entities-elsewhere.docx": (lambda: packed({"word/media/image.bin": ENTITIES}), OF_ENTITIES),
    "entities-late.docx": (
        lambda: packed({"word/document.xml": b"<!--" + b" " * ((1 << 20) - 10) + b"-->" + ENTITIES}),
        OF_ENTITIES,
    ),
    "broken.docx": (lambda: word()[:2_000], "it is not a valid Office file"),
    "empty.docx": (lambda: b"", "it is not a valid Office file"),
    "plain.docx": (lambda: packed({"a.txt": b"x"}), "it is not a valid Word document"),
    "plain.xlsx": (lambda: packed({"a.txt": b"x"}), "it is not a valid Excel workbook"),
    "noise.pdf": (lambda: b"\x00\x01" * 500, "it is not a readable PDF"),
    "cut.pdf": (lambda: pdf("text")[:60], "it is not a readable PDF"),
    "wide.csv": (lambda: b"a,b\n" + b'"' + b"x" * 1_100_000 + b'",1\n', "line 2 is not CSV"),
    "picture.png": (lambda: b"\x89PNG\r\n", "it is a picture, which no parser reads"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_file_is_one_line_and_the_next_one_is_read(reader: FileReader, name: str) -> None:
    content, said = HOSTILE[name]
    bad, good = await asyncio.gather(reader.read(name, content()), reader.read("good.txt", b"fine"))
    assert said in bad.error
    assert "\n" not in bad.error
    assert (bad.text, bad.tables) == ("", ())
    assert good.text == "fine"


async def test_a_page_tree_that_leads_back_to_itself_ends(reader: FileReader) -> None:
    looping = [pdf("a", kids="2 0 R 2 0 R 4 0 R"), pdf("a", kids="2 0 R " * 50), pdf("a", "b", kids="4 0 R 4 0 R")]
    read = await asyncio.gather(*(reader.read("loop.pdf", each) for each in looping))
    assert all(isinstance(each, NewDocument) for each in read)
    assert len(read[2].text) < 100
    assert (await reader.read("good.pdf", pdf("still here"))).text == "still here"
