"""Formats: the supported file formats, by file extension, and their parsers."""

from __future__ import annotations

from typing import Final, NamedTuple


class Format(NamedTuple):
    """One format: its media type, and its parser as `module:function`."""

    mime: str
    parser: str


_PARSING: Final = "pegboard.workspace.parsing"
_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
FORMATS: Final = {
    ".txt": Format("text/plain", f"{_PARSING}.prose:parse_text"),
    ".text": Format("text/plain", f"{_PARSING}.prose:parse_text"),
    ".log": Format("text/plain", f"{_PARSING}.prose:parse_text"),
    ".rst": Format("text/x-rst", f"{_PARSING}.prose:parse_text"),
    ".md": Format("text/markdown", f"{_PARSING}.prose:parse_markdown"),
    ".markdown": Format("text/markdown", f"{_PARSING}.prose:parse_markdown"),
    ".html": Format("text/html", f"{_PARSING}.markup:parse_html"),
    ".htm": Format("text/html", f"{_PARSING}.markup:parse_html"),
    ".xhtml": Format("application/xhtml+xml", f"{_PARSING}.markup:parse_html"),
    ".csv": Format("text/csv", f"{_PARSING}.tabular:parse_csv"),
    ".tsv": Format("text/tab-separated-values", f"{_PARSING}.tabular:parse_tsv"),
    ".json": Format("application/json", f"{_PARSING}.tabular:parse_json"),
    ".jsonl": Format("application/jsonl", f"{_PARSING}.tabular:parse_jsonl"),
    ".pdf": Format("application/pdf", f"{_PARSING}.pdf:parse_pdf"),
    ".docx": Format(f"{_OFFICE}.wordprocessingml.document", f"{_PARSING}.office:parse_docx"),
    ".xlsx": Format(f"{_OFFICE}.spreadsheetml.sheet", f"{_PARSING}.office:parse_xlsx"),
    ".ndjson": Format("application/jsonl", f"{_PARSING}.tabular:parse_jsonl"),
}


def format_of(name: str) -> Format | None:
    """Return the format of a file by its name; `None` if no parser supports it."""
    _, dot, suffix = name.rpartition(".")
    return FORMATS.get(f".{suffix.lower()}") if dot else None
