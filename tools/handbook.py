"""Handbook: write the files of `examples/handbook` that nobody writes by hand: PDF, Word and Excel.

Run it again after a change: what it writes is the same each time.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import docx

FOLDER = Path(__file__).parents[1] / "examples" / "handbook"
WRITTEN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
AUTHOR = "Ines Faber"

PASSWORDS = (
    (
        "Passwords and devices",
        "",
        "Every account has a password of its own, made and kept by the password",
        "manager. Nobody asks you for one: neither the office nor a machine.",
        "",
        "A second factor is needed for mail, code and payroll. Use the grey key that",
        "you were given on your first day; it is replaced within two days when lost.",
    ),
    (
        "Lost devices",
        "",
        "Call 0555 0142 within the hour, at night too. We erase a lost laptop from",
        "afar, and you have a new one on the next working day.",
        "",
        "Visitors use the network FERNHILL-GUEST, whose code WREN-2041 changes monthly.",
    ),
)
ONBOARDING = (
    "Your buddy meets you at nine at the front desk. Bring an identity card.",
    "In the first week you set up your laptop, meet your team, and read this handbook.",
)
STEPS = (
    ("day", "step", "owner"),
    ("1", "Laptop, grey key and building pass", "Office"),
    ("1", "Lunch with the team", "Buddy"),
    ("3", "Safety tour of the calibration lab", "Lab"),
    ("5", "First talk with your team lead", "Team lead"),
    ("30", "Review of the first month", "Team lead"),
)
SHEETS: Mapping[str, Sequence[Sequence[str | int]]] = {
    "Cities": (
        ("city", "hotel_eur", "meals_eur"),
        ("Hamburg", 150, 34), ("London", 220, 52), ("Oslo", 190, 58), ("Porto", 120, 30), ("Zurich", 230, 61),
    ),
    "Budget": (
        ("team", "quarter", "budget_eur"),
        ("Lab", "Q1", 18000), ("Lab", "Q2", 21000), ("Sales", "Q1", 9500), ("Sales", "Q2", 12000),
        ("Office", "Q1", 4000), ("Office", "Q2", 4200),
    ),
}  # fmt: skip
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def pdf(pages: Sequence[Sequence[str]]) -> bytes:
    """Return a PDF with these lines on its pages."""
    told = f"<< /Title ({pages[0][0]}) /Author ({AUTHOR}) /CreationDate (D:{WRITTEN:%Y%m%d%H%M%S}Z) >>"
    numbers = [5 + 2 * place for place in range(len(pages))]
    objects = {
        1: "<< /Type /Catalog /Pages 2 0 R >>",
        2: f"<< /Type /Pages /Count {len(pages)} /Kids [{' '.join(f'{n} 0 R' for n in numbers)}] >>",
        3: "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        4: told,
    }
    for number, lines in zip(numbers, pages, strict=True):
        shown = " T* ".join(f"({line}) Tj" for line in lines)
        stream = f"BT /F1 12 Tf 18 TL 72 720 Td {shown} ET"
        objects[number] = (
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            f"/Contents {number + 1} 0 R >>"
        )
        objects[number + 1] = f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream"
    body, places = b"%PDF-1.4\n", list[int]()
    for number, content in objects.items():
        places.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n".encode()
    entries = "".join(f"{place:010} 00000 n \n" for place in places)
    trailer = f"<< /Size {len(objects) + 1} /Root 1 0 R /Info 4 0 R >>"
    end = (
        f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{entries}trailer\n{trailer}\nstartxref\n{len(body)}\n%%EOF\n"
    )
    return body + end.encode()


def word() -> bytes:
    """Return the Word document."""
    document = docx.Document()
    told = document.core_properties
    told.title, told.author, told.created, told.modified = "Your first month", AUTHOR, WRITTEN, WRITTEN
    document.add_heading("Your first month", 1)
    for text in ONBOARDING:
        document.add_paragraph(text)
    document.add_heading("Steps", 2)
    table = document.add_table(rows=0, cols=len(STEPS[0]))
    for row in STEPS:
        for cell, text in zip(table.add_row().cells, row, strict=True):
            cell.text = text
    file = io.BytesIO()
    document.save(file)
    with zipfile.ZipFile(file) as made:
        return packed({name: made.read(name) for name in made.namelist()})


def workbook(sheets: Mapping[str, Sequence[Sequence[str | int]]]) -> bytes:
    """Return an Excel workbook."""
    names = [*enumerate(sheets, start=1)]
    listed = "".join(f'<sheet name="{name}" sheetId="{n}" r:id="rId{n}"/>' for n, name in names)
    related = "".join(
        f'<Relationship Id="rId{n}" Type="{_OFFICE}/worksheet" Target="worksheets/sheet{n}.xml"/>' for n, _ in names
    )
    parts = "".join(
        f'<Override PartName="/xl/worksheets/sheet{n}.xml" ContentType="{_TYPE}.worksheet+xml"/>' for n, _ in names
    )
    texts = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPE}.sheet.main+xml"/>{parts}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="rId1" '
        f'Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_SHEET}" xmlns:r="{_OFFICE}"><sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{related}</Relationships>',
    }
    for (n, _), rows in zip(names, sheets.values(), strict=True):
        cells = "".join(_row(number, row) for number, row in enumerate(rows, start=1))
        texts[f"xl/worksheets/sheet{n}.xml"] = f'<worksheet xmlns="{_SHEET}"><sheetData>{cells}</sheetData></worksheet>'
    return packed({name: text.encode() for name, text in texts.items()})


def _row(number: int, values: Sequence[str | int]) -> str:
    cells = ""
    for place, value in enumerate(values):
        spot = f"{chr(ord('A') + place)}{number}"
        if isinstance(value, str):
            cells += f'<c r="{spot}" t="inlineStr"><is><t>{value}</t></is></c>'
        else:
            cells += f'<c r="{spot}"><v>{value}</v></c>'
    return f'<row r="{number}">{cells}</row>'


def packed(parts: Mapping[str, bytes]) -> bytes:
    """Return a zip file that knows no time."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            info = zipfile.ZipInfo(name, date_time=(2026, 1, 5, 9, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return file.getvalue()


def main() -> None:
    """Write the three files."""
    (FOLDER / "security" / "passwords.pdf").write_bytes(pdf(PASSWORDS))
    (FOLDER / "people" / "first-month.docx").write_bytes(word())
    (FOLDER / "finance" / "rates.xlsx").write_bytes(workbook(SHEETS))


if __name__ == "__main__":
    main()
