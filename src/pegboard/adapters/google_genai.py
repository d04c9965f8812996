"""Google Gen AI: run the tool calls in a response of its SDK."""

from __future__ import annotations

import base64
from typing import Any

from pegboard.adapters.provider_calls import WantedCall, as_json, run_calls
from pegboard.adapters.result_parts import error_text, parts_of
from pegboard.core.view import View
from pegboard.model.json_types import JSON
from pegboard.model.result import ImageContent, ToolResult


async def run_tools(view: View, response: object, *, target: str = "gemini") -> list[Any]:
    """Run the tool calls of a response; return the two contents to add: the model's own, and one with the results.

    `response` is the result of `client.models.generate_content`, or its JSON. `target` is the target that was passed to
    `view.export`. Returns nothing to add if the model called no tool: its answer is final then.
    """
    answer = as_json(response)
    candidates: list[JSON] = answer.get("candidates") or [{}]
    content: JSON = candidates[0].get("content") or {}
    parts: list[JSON] = content.get("parts") or []
    wanted: list[JSON] = [part[key] for part in parts for key in _CALL if part.get(key)]
    calls = [WantedCall(call.get("id") or "", call["name"], call.get("args") or {}) for call in wanted]
    results = await run_calls(view, target, calls)
    if not calls:
        return []
    sent = [_function_response(call, result) for call, result in zip(calls, results, strict=True)]
    # The model's own content is returned unchanged: its thoughts are signed.
    candidate = content if isinstance(response, dict) else response.candidates[0].content  # type: ignore[attr-defined] - the SDK's response
    return [candidate, {"role": "user", "parts": sent}]


_CALL = ("functionCall", "function_call")


def _function_response(call: WantedCall, result: ToolResult) -> JSON:
    parts = parts_of(result)
    text = "\n".join(part for part in parts if isinstance(part, str))
    if result.error is not None:
        response: JSON = {"error": error_text(result.error)}
    else:
        response = {"output": result.structured if result.has_structured else text}
    sent: JSON = {"name": call.name, "response": response}
    if call.id:
        sent["id"] = call.id
    if images := [_inline(part) for part in parts if isinstance(part, ImageContent)]:
        sent["parts"] = images
    return {"functionResponse": sent}


def _inline(image: ImageContent) -> JSON:
    return {"inlineData": {"mimeType": image.mime_type, "data": base64.b64encode(image.data).decode()}}
