"""Anthropic messages: the format of `POST /v1/messages`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pegboard.model.json_types import JSON, is_object
from pegboard.testing.model_formats.openai_chat import bearer_of
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
    ScriptError,
    ToolOutcome,
)

_STOPS = {"end": "end_turn", "length": "max_tokens", "filtered": "refusal"}
_NAME_CHARS = 128
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicMessages:
    """Messages."""

    api: ModelApi = "anthropic"

    def key_of(self, call: HttpCall) -> str:
        return call.headers.get("x-api-key") or bearer_of(call)

    def read(self, call: HttpCall) -> ModelRequest:
        body = call.body
        if "anthropic-version" not in call.headers:
            raise RefusedRequestError("anthropic-version: header is required")
        if not call.path.endswith("/count_tokens") and not isinstance(body.get("max_tokens"), int):
            raise RefusedRequestError("max_tokens: Field required")
        messages = [message for item in objects(body.get("messages"), "messages") for message in _messages(item)]
        offered = objects(body.get("tools") or [], "tools")
        return ModelRequest(
            api=self.api,
            model=str(body.get("model")),
            is_streamed=body.get("stream") is True,
            system=text_of(body.get("system")),
            messages=checked_pairs(merged(messages)),
            # Anthropic's built-in tools have a type instead of a schema.
            tools=checked_names([tool.get("name") for tool in offered], _NAME_CHARS),
            body=body,
            headers=call.headers,
            path=call.path,
        )

    def whole(self, request: ModelRequest, turn: ModelTurn, number: int) -> JSON:
        content = [_block(part, number, index) for index, part in enumerate(turn.content)]
        return _message(request, number) | {
            "content": content,
            "stop_reason": _stop(turn),
            "usage": _usage(turn.input_tokens, turn.output_tokens),
        }

    def stream(self, request: ModelRequest, turn: ModelTurn, number: int) -> Iterator[Step]:
        begun = _message(request, number) | {"usage": _usage(turn.input_tokens, 1)}
        yield _event("message_start", message=begun)
        yield _event("ping")
        index, is_open = -1, False
        for part in turn.parts:
            if isinstance(part, str):
                if not is_open:
                    index, is_open = index + 1, True
                    yield _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
                yield _event("content_block_delta", index=index, delta={"type": "text_delta", "text": part})
            elif isinstance(part, CallsTool):
                if is_open:
                    yield _event("content_block_stop", index=index)
                index, is_open = index + 1, False
                block = _block(part, number, index, is_begun=True)
                yield _event("content_block_start", index=index, content_block=block)
                for piece in ("", *pieces(part.json_text)):
                    delta = {"type": "input_json_delta", "partial_json": piece}
                    yield _event("content_block_delta", index=index, delta=delta)
                yield _event("content_block_stop", index=index)
            elif isinstance(part, ModelFailure):
                yield event(self.error(part), "error")
                return
            else:
                yield part
        if is_open:
            yield _event("content_block_stop", index=index)
        yield _event(
            "message_delta",
            delta={"stop_reason": _stop(turn), "stop_sequence": None},
            usage=_usage(turn.input_tokens, turn.output_tokens),
        )
        yield _event("message_stop")

    def error(self, failure: ModelFailure) -> JSON:
        default = "invalid_request_error" if failure.status < 500 else "api_error"
        kind = _ERROR_TYPES.get(failure.status, default)
        return {"type": "error", "error": {"type": kind, "message": failure.message}, "request_id": "req_scripted"}


def _messages(item: dict[str, Any]) -> Iterator[ModelMessage]:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system"):
        raise RefusedRequestError(f"messages: Unexpected role {role!r}. Allowed roles are 'user' or 'assistant'.")
    side: Literal["user", "assistant"] = "assistant" if role == "assistant" else "user"
    if isinstance(content, str):
        yield ModelMessage(role=side, text=content)
        return
    for block in objects(content, "content"):
        kind = block.get("type")
        if kind == "tool_use":
            arguments = block.get("input")
            if not is_object(arguments):
                raise RefusedRequestError("tool_use.input: Input should be an object")
            yield ModelMessage(role=side, calls=(CallsTool(str(block.get("name")), arguments, str(block.get("id"))),))
        elif kind == "tool_result":
            outcome = ToolOutcome(
                call_id=str(block.get("tool_use_id")),
                text=text_of(block.get("content")),
                is_error=block.get("is_error") is True,
            )
            yield ModelMessage(role=side, outcomes=(outcome,))
        else:
            yield ModelMessage(role=side, text=text_of([block]))


def _block(part: str | CallsTool, number: int, index: int, *, is_begun: bool = False) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not is_begun and isinstance(part.arguments, str):
        raise ScriptError("Anthropic sends the arguments of a call as an object unless it streams: give a mapping.")
    identity = call_id(part, "toolu_", number, index)
    return {"type": "tool_use", "id": identity, "name": part.name, "input": {} if is_begun else part.arguments}


def _message(request: ModelRequest, number: int) -> dict[str, Any]:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _usage(read: int, written: int) -> JSON:
    return {
        "input_tokens": read,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": written,
        "service_tier": "standard",
    }


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind} | fields, kind)


def _stop(turn: ModelTurn) -> str:
    return "tool_use" if turn.has_calls and turn.stop == "end" else _STOPS[turn.stop]
