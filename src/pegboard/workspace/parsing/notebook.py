"""Notebook: parses Jupyter notebooks: their texts, code and printed results."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pegboard.model.json_types import JSON, is_list, is_object
from pegboard.workspace.parsing.encodings import decode
from pegboard.workspace.parsing.parsed import Parsed, UnreadableError, check_chars, cleaned
from pegboard.workspace.parsing.prose import markdown_headings

NOTEBOOK_CELLS = 20_000  # cells of one notebook
NOTEBOOK_OUTPUT_CHARS = 10_000  # characters of one printed result; the rest is left out


def parse_notebook(options: object, payload: bytes) -> Parsed:
    """Parse a notebook (nbformat 3 and 4). Pictures and other data in results are left out."""
    source = decode(options, payload)
    try:
        notebook: object = json.loads(source.text)
    except RecursionError:
        raise UnreadableError("it is nested too deeply") from None
    except ValueError as error:
        raise UnreadableError(f"it is not a notebook: {str(error)[:200]}") from None
    cells = list(_cells(notebook)) if is_object(notebook) else []
    if not is_object(notebook) or not ({"cells", "worksheets"} & notebook.keys()):
        raise UnreadableError("it is not a notebook: it has no cells")
    if len(cells) > NOTEBOOK_CELLS:
        raise UnreadableError(f"it has {len(cells):,} cells; at most {NOTEBOOK_CELLS:,} are taken. Split it")
    language = _language(notebook)
    parts: list[str] = []
    size = 0
    for cell in cells:
        for part in _parts(cell, language):
            size += len(part)
            check_chars(size)
            parts.append(part)
    text = cleaned("\n\n".join(part for part in parts if part.strip()))
    headings = markdown_headings(text)
    parsed = Parsed(text=text, headings=headings)
    if headings:
        parsed["title"] = headings[0]
    return source.mark(parsed)


def _cells(notebook: JSON) -> Iterator[JSON]:
    lists = [notebook.get("cells")]
    sheets = notebook.get("worksheets")
    lists += [sheet.get("cells") for sheet in sheets if is_object(sheet)] if is_list(sheets) else []
    for cells in lists:
        if is_list(cells):
            yield from filter(is_object, cells)


def _language(notebook: JSON) -> str:
    metadata: object = notebook.get("metadata")
    for name in ("language_info", "kernelspec"):
        told: object = metadata.get(name) if is_object(metadata) else None
        language: object = (told.get("language") or told.get("name")) if is_object(told) else None
        if isinstance(language, str) and language.isalnum():
            return language[:20]
    return ""


def _parts(cell: JSON, language: str) -> Iterator[str]:
    text = _joined(cell.get("source", cell.get("input")))
    kind = cell.get("cell_type")
    if kind == "heading":
        level: object = cell.get("level")
        yield f"{'#' * (level if isinstance(level, int) and 0 < level < 7 else 1)} {text}"
    elif kind == "code":
        yield f"```{language}\n{text}\n```" if text.strip() else ""
        outputs: object = cell.get("outputs")
        for output in outputs if is_list(outputs) else ():
            printed = _printed(output) if is_object(output) else ""
            yield f"```\n{printed[:NOTEBOOK_OUTPUT_CHARS]}\n```" if printed.strip() else ""
    else:
        yield text


def _printed(output: JSON) -> str:
    """Return the plain text of a result."""
    values: object = output.get("data")
    plain: object = values.get("text/plain") if is_object(values) else None
    return _joined(output.get("text", plain))


def _joined(lines: object) -> str:
    if isinstance(lines, str):
        return lines
    return "".join(line for line in lines if isinstance(line, str)) if is_list(lines) else ""
