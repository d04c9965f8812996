"""Text structure: structured output that a server promised but sent only as JSON text."""

from __future__ import annotations

from pegboard.core.json_reader import parse_json
from pegboard.model.result import ToolResult


def structure_in_text(result: object) -> ToolResult:
    """Return a result with the structured output parsed from its text, as many servers send it.

    Raises:
        TypeError: the result has another form.
        CallError: the text is not JSON.
    """
    if not isinstance(result, ToolResult) or result.has_structured or len(result.content) != 1:
        raise TypeError("no result of one text")
    return result._replace(structured=parse_json(result.text), has_structured=True)
