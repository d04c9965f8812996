"""OpenAI chat: the format of `POST /v1/chat/completions`, which most other model servers use as well."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pegboard.model.json_types import JSON, is_object
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

_STOPS = {"end": "stop", "length": "length", "filtered": "content_filter"}
NAME_CHARS = 64
ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class OpenAIChat:
    """The chat completions API."""

    api: ModelApi = "openai"

    def key_of(self, call: HttpCall) -> str:
        return bearer_of(call)

    def read(self, call: HttpCall) -> ModelRequest:
        body, messages, system = call.body, list[ModelMessage](), list[str]()
        for item in objects(body.get("messages"), "messages"):
            role = item.get("role")
            if role in ("system", "developer"):
                system.append(text_of(item.get("content")))
            elif role == "user":
                messages.append(ModelMessage(role="user", text=text_of(item.get("content"))))
            elif role == "tool":
                outcome = ToolOutcome(call_id=str(item.get("tool_call_id")), text=text_of(item.get("content")))
                messages.append(ModelMessage(role="user", outcomes=(outcome,)))
            elif role == "assistant":
                calls = tuple(_call(each) for each in objects(item.get("tool_calls") or [], "tool_calls"))
                messages.append(ModelMessage(role="assistant", text=text_of(item.get("content")), calls=calls))
            else:
                raise RefusedRequestError(f"Invalid value for the role of a message: {role!r}.")
        tools = [each.get("function", {}).get("name") for each in objects(body.get("tools") or [], "tools")]
        return ModelRequest(
            api=self.api,
            model=str(body.get("model")),
            is_streamed=body.get("stream") is True,
            system="\n".join(system),
            messages=checked_pairs(merged(messages)),
            tools=checked_names(tools, NAME_CHARS),
            body=body,
            headers=call.headers,
            path=call.path,
        )

    def whole(self, request: ModelRequest, turn: ModelTurn, number: int) -> JSON:
        calls = [part for part in turn.content if isinstance(part, CallsTool)]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": turn.text or None,
            "refusal": None,
            "annotations": [],
        }
        if calls:
            message["tool_calls"] = [
                {
                    "id": call_id(call, "call_", number, index),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.json_text},
                }
                for index, call in enumerate(calls)
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _stop(turn)}
        return self._head(request, number, "chat.completion") | {"choices": [choice], "usage": usage(turn)}

    def stream(self, request: ModelRequest, turn: ModelTurn, number: int) -> Iterator[Step]:
        head = self._head(request, number, "chat.completion.chunk")
        options = request.body.get("stream_options") if is_object(request.body) else None
        wants_usage = is_object(options) and options.get("include_usage") is True
        nothing: dict[str, Any] = {"usage": None} if wants_usage else {}

        def chunk(delta: dict[str, Any], stop: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": stop}
            return event(head | {"choices": [choice]} | nothing)

        yield chunk({"role": "assistant", "content": "", "refusal": None})
        index = -1
        for part in turn.parts:
            if isinstance(part, str):
                yield chunk({"content": part})
            elif isinstance(part, CallsTool):
                index += 1
                identity = {"index": index, "id": call_id(part, "call_", number, index), "type": "function"}
                yield chunk({"tool_calls": [identity | {"function": {"name": part.name, "arguments": ""}}]})
                for piece in pieces(part.json_text):
                    yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
            elif isinstance(part, ModelFailure):
                yield event(self.error(part))
                return
            else:
                yield part
        yield chunk({}, _stop(turn))
        if wants_usage:
            yield event(head | {"choices": [], "usage": usage(turn)})
        yield b"data: [DONE]\n\n"

    def error(self, failure: ModelFailure) -> JSON:
        return {"error": openai_error(failure)}

    def _head(self, request: ModelRequest, number: int, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{number}",
            "object": kind,
            "created": int(time.time()),
            "model": request.model,
            "service_tier": "default",
            "system_fingerprint": "fp_scripted",
        }


def bearer_of(call: HttpCall) -> str:
    """Return the token of `authorization: Bearer`."""
    scheme, _, token = call.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def openai_error(failure: ModelFailure) -> dict[str, Any]:
    """Return an error in OpenAI's form."""
    default = "invalid_request_error" if failure.status < 500 else "server_error"
    kind = ERROR_TYPES.get(failure.status, default)
    return {"message": failure.message, "type": kind, "param": None, "code": None}


def usage(turn: ModelTurn) -> JSON:
    """Return the token usage of an answer."""
    return {
        "prompt_tokens": turn.input_tokens,
        "completion_tokens": turn.output_tokens,
        "total_tokens": turn.input_tokens + turn.output_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _stop(turn: ModelTurn) -> str:
    return "tool_calls" if turn.has_calls and turn.stop == "end" else _STOPS[turn.stop]


def _call(item: dict[str, Any]) -> CallsTool:
    function = item.get("function")
    if not is_object(function) or not isinstance(item.get("id"), str):
        raise RefusedRequestError("'tool_calls': each needs an 'id' and a 'function'.")
    return CallsTool(str(function.get("name")), str(function.get("arguments")), item["id"])
