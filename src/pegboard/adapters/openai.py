"""OpenAI: run the tool calls in a response of its SDK, for chat completions or the responses API."""

from __future__ import annotations

from typing import Any

from pegboard.adapters.provider_calls import WantedCall, as_json, run_calls
from pegboard.adapters.result_parts import data_url, parts_of, text_of
from pegboard.core.view import View
from pegboard.model.json_types import JSON
from pegboard.model.result import ToolResult


async def run_tools(view: View, response: object, *, target: str | None = None) -> list[JSON]:
    """Run the tool calls of a response; return what to add to the messages (or the input): its words, then the results.

    `response` is what `client.chat.completions.create` or `client.responses.create` gave, or its JSON. `target` is what
    `view.export` was asked for, where that is another than `openai` and `openai_responses`. Empty when the model called
    no tool: its answer is final then.
    """
    answer = as_json(response)
    if "output" in answer:
        return await _run_responses(view, answer, target or "openai_responses")
    return await _run_chat(view, answer, target or "openai")


async def _run_chat(view: View, answer: JSON, target: str) -> list[JSON]:
    message: JSON = answer["choices"][0]["message"]
    calls = [
        WantedCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
        if "function" in call
    ]
    results = await run_calls(view, target, calls)
    sent: list[JSON] = [
        {"role": "tool", "tool_call_id": call.id, "content": text_of(result)}
        for call, result in zip(calls, results, strict=True)
    ]
    return [_without_none(message), *sent] if sent else []


async def _run_responses(view: View, answer: JSON, target: str) -> list[JSON]:
    items: list[JSON] = answer["output"]
    calls = [
        WantedCall(item["call_id"], item["name"], item["arguments"])
        for item in items
        if item["type"] == "function_call"
    ]
    results = await run_calls(view, target, calls)
    sent: list[JSON] = [
        {"type": "function_call_output", "call_id": call.id, "output": _output(result)}
        for call, result in zip(calls, results, strict=True)
    ]
    return [*map(_without_none, items), *sent] if sent else []


def _output(result: ToolResult) -> Any:
    parts = parts_of(result)
    if all(isinstance(part, str) for part in parts):
        return text_of(result)
    return [
        {"type": "input_text", "text": part}
        if isinstance(part, str)
        else {"type": "input_image", "image_url": data_url(part), "detail": "auto"}
        for part in parts
    ]


def _without_none(message: JSON) -> JSON:
    return {key: value for key, value in message.items() if value is not None}
