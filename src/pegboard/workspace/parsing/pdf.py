"""Pdf: extracts the text of PDF files."""

from __future__ import annotations

import io
import math
import re
from datetime import datetime
from typing import Any, cast

import pypdfium2  # pyright: ignore[reportMissingTypeStubs] - it has none

from pegboard.model.json_types import JSON
from pegboard.workspace.parsing.foreign import recognized
from pegboard.workspace.parsing.parsed import Parsed, UnreadableError, check_chars, cleaned, one_line

PDF_PAGES = 10_000  # pages of one PDF
OCR_DOTS_PER_INCH = 200  # the resolution of a page for text recognition; most engines work well with it
OCR_PIXELS = 25_000_000  # pixels of a page for text recognition; larger pages get a lower resolution

# With an optional zone, as in `D:20260102030405+02'00'`.
_DATE = re.compile(r"D:(\d{14})(?:(Z)|([+-]\d\d)'?(\d\d)?)?")
# Words that a line break split, with PDFium's mark.
_CUT = re.compile("[\ufffe\u00ad]\\s*")


def parse_pdf(options: JSON, payload: bytes) -> Parsed:
    """Parse a PDF, page by page, including the values of its forms.

    A page of pictures has no text, unless the options name a function for text recognition as `ocr`.
    """
    ocr: str = options.get("ocr", "")
    untyped: Any = pypdfium2
    try:
        document = untyped.PdfDocument(payload)
    except untyped.PdfiumError as error:
        reason = str(error)
        text = "it is locked with a password" if "password" in reason.lower() else f"it is not a readable PDF: {reason}"
        raise UnreadableError(text[:300]) from None
    if document.get_formtype():
        document.init_forms()
    count = len(document)
    if count > PDF_PAGES:
        raise UnreadableError(f"it has {count:,} pages; at most {PDF_PAGES:,} are taken. Split it")
    pages: list[str] = []
    size = bare = 0
    for number in range(count):
        try:
            page = _flattened(untyped, document, number)
            text = _CUT.sub("", str(page.get_textpage().get_text_bounded()))
            is_bare = not text.strip() and untyped.raw.FPDFPage_CountObjects(page) > 0
            bare += is_bare
            if is_bare and ocr:
                text = recognized(ocr, _picture_of(page), "image/png")
            page.close()
        except untyped.PdfiumError as error:
            raise UnreadableError(f"its page {number + 1} cannot be read: {error}"[:300]) from None
        size += len(text)
        check_chars(size)
        pages.append(text.strip())
    # Pages of pictures only have no text, not even line breaks between them.
    parsed = Parsed(text=cleaned("\n\n".join(pages)) if any(pages) else "", pages=count)
    if bare:
        parsed["ocr_pages" if ocr else "bare_pages"] = bare
    metadata = cast("dict[str, str]", document.get_metadata_dict())
    if one_line(metadata.get("Title", "")):
        parsed["title"] = one_line(metadata["Title"])
    if one_line(metadata.get("Author", "")):
        parsed["author"] = one_line(metadata["Author"])
    created = _DATE.match(metadata.get("CreationDate", ""))
    if created is not None:
        parsed["created"] = _iso(created)
    return parsed


def _picture_of(page: Any) -> bytes:
    """Return a page as a PNG in shades of grey."""
    width, height = page.get_size()
    scale = min(OCR_DOTS_PER_INCH / 72, math.sqrt(OCR_PIXELS / max(1.0, width * height)))
    file = io.BytesIO()
    # pypdfium2 makes pictures with Pillow, which comes with python-pptx.
    page.render(scale=scale, grayscale=True).to_pil().save(file, "PNG")
    return file.getvalue()


def _flattened(untyped: Any, document: Any, number: int) -> Any:
    """Return a page whose content includes its form fields and notes."""
    page = document[number]
    if not untyped.raw.FPDFPage_GetAnnotCount(page):
        return page
    untyped.raw.FPDFPage_Flatten(page, untyped.raw.FLAT_NORMALDISPLAY)
    # The flattened content is only visible after the page is reopened.
    page.close()
    return document[number]


def _iso(date: re.Match[str]) -> str:
    digits, utc, hours, minutes = date.groups()
    try:
        moment = datetime.strptime(digits, "%Y%m%d%H%M%S").isoformat()  # noqa: DTZ007 - a PDF need not say its zone
    except ValueError:
        return str(digits)
    if utc:
        return f"{moment}+00:00"
    return f"{moment}{hours}:{minutes or '00'}" if hours else moment
