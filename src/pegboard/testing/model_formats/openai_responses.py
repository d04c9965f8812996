"""OpenAI responses: the format of `POST /v1/responses`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pegboard.model.json_types import JSON, is_object
from pegboard.testing.model_formats.openai_chat import NAME_CHARS, bearer_of, openai_error
from pegboard.testing.model_formats.wire_format import (
    HttpCall,
    RefusedRequestError,
    Step,
    call_id,
    checked_names,
    checked_pairs,
    event,
    merged,
    objects,
    pieces,
    text_of,
)
from pegboard.testing.model_script import (
    CallsTool,
    ModelApi,
    ModelFailure,
    ModelMessage,
    ModelRequest,
    ModelTurn,
    ToolOutcome,
)

_STOPS = {"length": "max_output_tokens", "filtered": "content_filter"}


class OpenAIResponses:
    """The responses API, without its server-side state (`previous_response_id`, `conversation`)."""

    api: ModelApi = "openai_responses"

    def key_of(self, call: HttpCall) -> str:
        return bearer_of(call)

    def read(self, call: HttpCall) -> ModelRequest:
        body = call.body
        for key in ("previous_response_id", "conversation"):
            if body.get(key) is not None:
                raise RefusedRequestError(
                    f"{key!r} is not supported: the scripted model keeps no state. Send the whole input."
                )
        raw_input = body.get("input")
        items = [{"role": "user", "content": raw_input}] if isinstance(raw_input, str) else objects(raw_input, "input")
        messages, system = list[ModelMessage](), [text_of(body.get("instructions"))]
        for item in items:
            kind, role = item.get("type", "message"), item.get("role")
            if kind == "message" and role in ("system", "developer"):
                system.append(text_of(item.get("content")))
            elif kind == "message" and role in ("user", "assistant"):
                messages.append(ModelMessage(role=role, text=text_of(item.get("content"))))
            elif kind == "function_call":
                called = CallsTool(str(item.get("name")), str(item.get("arguments")), str(item.get("call_id")))
                messages.append(ModelMessage(role="assistant", calls=(called,)))
            elif kind == "function_call_output":
                outcome = ToolOutcome(call_id=str(item.get("call_id")), text=text_of(item.get("output")))
                messages.append(ModelMessage(role="user", outcomes=(outcome,)))
            elif kind == "message":
                raise RefusedRequestError(f"Invalid value for the role of a message: {role!r}.")
        offered = objects(body.get("tools") or [], "tools")
        return ModelRequest(
            api=self.api,
            model=str(body.get("model")),
            is_streamed=body.get("stream") is True,
            system="\n".join(filter(None, system)),
            messages=checked_pairs(merged(messages)),
            tools=checked_names([tool.get("name") for tool in offered if tool.get("type") == "function"], NAME_CHARS),
            body=body,
            headers=call.headers,
            path=call.path,
        )

    def whole(self, request: ModelRequest, turn: ModelTurn, number: int) -> JSON:
        output = [_item(part, number, index) for index, part in enumerate(turn.content)]
        return _response(request, turn, number) | _ending(turn) | {"output": output, "usage": _usage(turn)}

    def stream(self, request: ModelRequest, turn: ModelTurn, number: int) -> Iterator[Step]:
        stream = _Stream(number)
        begun = _response(request, turn, number) | {"status": "in_progress"}
        yield stream.event("response.created", response=begun)
        yield stream.event("response.in_progress", response=begun)
        for part in turn.parts:
            if isinstance(part, str):
                yield from stream.text(part)
            elif isinstance(part, CallsTool):
                yield from stream.close()
                yield from stream.call(part)
            elif isinstance(part, ModelFailure):
                error = openai_error(part)
                yield stream.event("error", code=error["type"], message=error["message"], param=None)
                return
            else:
                yield part
        yield from stream.close()
        ended = begun | _ending(turn) | {"output": stream.items, "usage": _usage(turn)}
        yield stream.event(f"response.{ended['status']}", response=ended)

    def error(self, failure: ModelFailure) -> JSON:
        return {"error": openai_error(failure)}


class _Stream:
    """Makes the numbered events of one answer, and keeps track of the current text item."""

    def __init__(self, number: int) -> None:
        self.items: list[dict[str, Any]] = []
        self._number, self._sequence, self._text = number, -1, ""
        self._is_open = False

    def event(self, kind: str, **fields: Any) -> bytes:
        self._sequence += 1
        return event({"type": kind, "sequence_number": self._sequence} | fields, kind)

    def text(self, delta: str) -> Iterator[bytes]:
        index = len(self.items)
        if not self._is_open:
            self._is_open, self._text = True, ""
            begun: dict[str, Any] = {"status": "in_progress", "content": []}
            item = _item("", self._number, index) | begun
            yield self.event("response.output_item.added", output_index=index, item=item)
            yield self._of_text("response.content_part.added", part=_text_part(""))
        self._text += delta
        yield self._of_text("response.output_text.delta", delta=delta, logprobs=[])

    def close(self) -> Iterator[bytes]:
        if not self._is_open:
            return
        yield self._of_text("response.output_text.done", text=self._text, logprobs=[])
        yield self._of_text("response.content_part.done", part=_text_part(self._text))
        yield from self._finish_item(_item(self._text, self._number, len(self.items)))
        self._is_open = False

    def call(self, call: CallsTool) -> Iterator[bytes]:
        index = len(self.items)
        item = _item(call, self._number, index)
        begun = item | {"status": "in_progress", "arguments": ""}
        yield self.event("response.output_item.added", output_index=index, item=begun)
        place = {"item_id": item["id"], "output_index": index}
        for piece in pieces(call.json_text):
            yield self.event("response.function_call_arguments.delta", **place, delta=piece)
        done = "response.function_call_arguments.done"
        yield self.event(done, **place, name=call.name, arguments=call.json_text)
        yield from self._finish_item(item)

    def _of_text(self, kind: str, **fields: Any) -> bytes:
        index = len(self.items)
        item_id = f"msg_{self._number}_{index}"
        return self.event(kind, item_id=item_id, output_index=index, content_index=0, **fields)

    def _finish_item(self, item: dict[str, Any]) -> Iterator[bytes]:
        yield self.event("response.output_item.done", output_index=len(self.items), item=item)
        self.items.append(item)


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _item(part: str | CallsTool, number: int, index: int) -> dict[str, Any]:
    if isinstance(part, str):
        message = {"type": "message", "id": f"msg_{number}_{index}", "status": "completed", "role": "assistant"}
        return message | {"content": [_text_part(part)]}
    return {
        "type": "function_call",
        "id": f"fc_{number}_{index}",
        "call_id": call_id(part, "call_", number, index),
        "name": part.name,
        "arguments": part.json_text,
        "status": "completed",
    }


def _response(request: ModelRequest, turn: ModelTurn, number: int) -> dict[str, Any]:
    body = request.body if is_object(request.body) else {}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": {},
        "model": request.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "user": None,
    }


def _ending(turn: ModelTurn) -> dict[str, Any]:
    if turn.stop == "end":
        return {"status": "completed"}
    return {"status": "incomplete", "incomplete_details": {"reason": _STOPS[turn.stop]}}


def _usage(turn: ModelTurn) -> JSON:
    return {
        "input_tokens": turn.input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": turn.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": turn.input_tokens + turn.output_tokens,
    }
