"""Text structure: the structure of a result that a server promised, and sent as JSON in its text alone."""

from __future__ import annotations

from pegboard.core.json_reader import parse_json
from pegboard.model.result import ToolResult


def structure_in_text(result: object) -> ToolResult:
    """Return a result with the structure that it promises and has in its text alone, as many servers send it.

    Raises:
        TypeError: it is no such result.
        CallError: the text is not JSON.
    """
    if not isinstance(result, ToolResult) or result.has_structured or len(result.content) != 1:
        raise TypeError("no result of one text")
    return result._replace(structured=parse_json(result.text), has_structured=True)
