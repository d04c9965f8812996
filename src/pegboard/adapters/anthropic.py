"""Anthropic: run the tool calls in a message of its SDK."""

from __future__ import annotations

import base64

from pegboard.adapters.provider_calls import WantedCall, as_json, run_calls
from pegboard.adapters.result_parts import parts_of
from pegboard.core.view import View
from pegboard.model.json_types import JSON
from pegboard.model.result import ImageContent, ToolResult


async def run_tools(view: View, response: object, *, target: str = "anthropic") -> list[JSON]:
    """Run the tool calls of a message; return the two messages to add: the assistant's, and one with the results.

    `response` is the result of `client.messages.create`, or its JSON. `target` is the target that was passed to
    `view.export`. Returns nothing to add if the model called no tool: its answer is final then.
    """
    answer = as_json(response)
    calls = [
        WantedCall(block["id"], block["name"], block["input"])
        for block in answer["content"]
        if block["type"] == "tool_use"
    ]
    results = await run_calls(view, target, calls)
    if not calls:
        return []
    sent = [_tool_result(call.id, result) for call, result in zip(calls, results, strict=True)]
    return [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": sent}]


def _tool_result(call_id: str, result: ToolResult) -> JSON:
    sent: JSON = {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": [_block(part) for part in parts_of(result) if part != ""],
    }
    return {**sent, "is_error": True} if result.is_error else sent


def _block(part: str | ImageContent) -> JSON:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    data = base64.b64encode(part.data).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": part.mime_type, "data": data}}
