"""Formats: the supported file formats, by file extension, and their parsers."""

from __future__ import annotations

from typing import Final, NamedTuple


class Format(NamedTuple):
    """One format: its media type, and its parser as `module:function`."""

    mime: str
    parser: str


_PARSING: Final = "pegboard.workspace.parsing"
_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
_ODF: Final = "application/vnd.oasis.opendocument"
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
    ".ndjson": Format("application/jsonl", f"{_PARSING}.tabular:parse_jsonl"),
    ".ipynb": Format("application/x-ipynb+json", f"{_PARSING}.notebook:parse_notebook"),
    ".pdf": Format("application/pdf", f"{_PARSING}.pdf:parse_pdf"),
    ".rtf": Format("application/rtf", f"{_PARSING}.rich_text:parse_rtf"),
    ".docx": Format(f"{_OFFICE}.wordprocessingml.document", f"{_PARSING}.office:parse_docx"),
    ".xlsx": Format(f"{_OFFICE}.spreadsheetml.sheet", f"{_PARSING}.office:parse_xlsx"),
    ".xlsm": Format("application/vnd.ms-excel.sheet.macroEnabled.12", f"{_PARSING}.office:parse_xlsx"),
    ".xls": Format("application/vnd.ms-excel", f"{_PARSING}.office:parse_xls"),
    ".pptx": Format(f"{_OFFICE}.presentationml.presentation", f"{_PARSING}.slides:parse_pptx"),
    ".odt": Format(f"{_ODF}.text", f"{_PARSING}.open_document:parse_odt"),
    ".ods": Format(f"{_ODF}.spreadsheet", f"{_PARSING}.office:parse_ods"),
    ".odp": Format(f"{_ODF}.presentation", f"{_PARSING}.open_document:parse_odp"),
    ".epub": Format("application/epub+zip", f"{_PARSING}.epub:parse_epub"),
    ".eml": Format("message/rfc822", f"{_PARSING}.mail:parse_eml"),
    ".msg": Format("application/vnd.ms-outlook", f"{_PARSING}.mail:parse_msg"),
    ".gz": Format("application/gzip", f"{_PARSING}.detected:parse_gzip"),
    **{
        f".{ending}": Format(mime, f"{_PARSING}.prose:parse_source")
        for ending, mime in {
            "c": "text/x-c", "cfg": "text/plain", "conf": "text/plain", "cpp": "text/x-c++", "cs": "text/x-csharp",
            "css": "text/css", "go": "text/x-go", "h": "text/x-c", "hpp": "text/x-c++", "ini": "text/plain",
            "java": "text/x-java", "js": "text/javascript", "jsx": "text/javascript", "kt": "text/x-kotlin",
            "lua": "text/x-lua", "mjs": "text/javascript", "php": "text/x-php", "pl": "text/x-perl",
            "properties": "text/plain", "ps1": "text/x-powershell", "py": "text/x-python", "pyi": "text/x-python",
            "r": "text/x-r", "rb": "text/x-ruby", "rs": "text/x-rust", "scala": "text/x-scala", "sh": "text/x-sh",
            "sql": "application/sql", "swift": "text/x-swift", "tex": "text/x-tex", "toml": "application/toml",
            "ts": "text/x-typescript", "tsx": "text/x-typescript", "vue": "text/x-vue", "xml": "application/xml",
            "yaml": "application/yaml", "yml": "application/yaml",
        }.items()
    },
}  # fmt: skip
PICTURES: Final = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".tif": "image/tiff", ".tiff": "image/tiff",
    ".gif": "image/gif", ".bmp": "image/bmp", ".webp": "image/webp",
}  # fmt: skip
"""The media types of pictures, by file ending. Only text recognition reads them."""
PICTURE_PARSER: Final = f"{_PARSING}.foreign:parse_picture"
OWN_PARSER: Final = f"{_PARSING}.foreign:parse_own"
DETECTED: Final = Format("application/octet-stream", f"{_PARSING}.detected:parse_detected")
"""Of files whose ending says nothing: the parser finds out what they are."""
_ARCHIVES: Final = (".tar.gz", ".tar.gzip")


def format_of(name: str) -> Format | None:
    """Return the format of a file by its name; `None` if only its contents tell."""
    lowered = name.lower()
    _, dot, suffix = lowered.rpartition(".")
    return FORMATS.get(f".{suffix}") if dot and not lowered.endswith(_ARCHIVES) else None
