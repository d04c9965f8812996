"""Gemini: the format of `POST /v1beta/models/NAME:generateContent` and `:streamGenerateContent`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from pegboard.model.json_types import JSON, is_object
from pegboard.testing.model_formats.wire_format import (
    HttpCall,
    RefusedRequestError,
    Step,
    checked_names,
    checked_pairs,
    event,
    merged,
    objects,
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

_STOPS = {"end": "STOP", "length": "MAX_TOKENS", "filtered": "SAFETY"}
_NAME_CHARS = 128
_PATH = re.compile(r"/(?:v1|v1beta|v1alpha)/models/([^/:]+):(generateContent|streamGenerateContent|countTokens)")
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Gemini:
    """generateContent, and its stream as server-sent events."""

    api: ModelApi = "google"

    def key_of(self, call: HttpCall) -> str:
        return call.headers.get("x-goog-api-key") or call.query.get("key", "")

    def read(self, call: HttpCall) -> ModelRequest:
        body, path = call.body, matched(call.path)
        assert path is not None
        is_streamed = path[2] == "streamGenerateContent"
        if is_streamed and call.query.get("alt") != "sse":
            raise RefusedRequestError("The scripted model streams only with `?alt=sse`.")
        messages = [_message(item, index) for index, item in enumerate(objects(body.get("contents"), "contents"))]
        instruction = body.get("systemInstruction")
        names = [
            each.get("name")
            for tool in objects(body.get("tools") or [], "tools")
            for each in objects(tool.get("functionDeclarations") or [], "functionDeclarations")
        ]
        return ModelRequest(
            api=self.api,
            model=path[1],
            is_streamed=is_streamed,
            system=text_of(instruction.get("parts")) if is_object(instruction) else "",
            messages=checked_pairs(merged(_paired(messages))),
            tools=checked_names(names, _NAME_CHARS),
            body=body,
            headers=call.headers,
            path=call.path,
        )

    def whole(self, request: ModelRequest, turn: ModelTurn, number: int) -> JSON:
        parts = [{"text": part} if isinstance(part, str) else _call(part) for part in turn.content]
        if None in parts:
            return _answer(request, number, [], _usage(turn), "MALFORMED_FUNCTION_CALL")
        return _answer(request, number, parts, _usage(turn), _STOPS[turn.stop])

    def stream(self, request: ModelRequest, turn: ModelTurn, number: int) -> Iterator[Step]:
        begun = {"promptTokenCount": turn.input_tokens, "totalTokenCount": turn.input_tokens}
        for part in turn.parts:
            if isinstance(part, str | CallsTool):
                content = {"text": part} if isinstance(part, str) else _call(part)
                if content is None:
                    yield event(_answer(request, number, [], _usage(turn), "MALFORMED_FUNCTION_CALL"))
                    return
                yield event(_answer(request, number, [content], begun))
            elif isinstance(part, ModelFailure):
                yield event(self.error(part))
                return
            else:
                yield part
        yield event(_answer(request, number, [{"text": ""}], _usage(turn), _STOPS[turn.stop]))

    def error(self, failure: ModelFailure) -> JSON:
        status = _STATUSES.get(failure.status, "UNKNOWN")
        return {"error": {"code": failure.status, "message": failure.message, "status": status}}


def matched(path: str) -> re.Match[str] | None:
    """Return the model and the method in a path of Gemini's API; `None` for other paths."""
    return _PATH.fullmatch(path)


def _message(item: dict[str, Any], index: int) -> ModelMessage:
    role = item.get("role") or "user"
    if role not in ("user", "model", "function"):
        raise RefusedRequestError(f"Please use a valid role: user, model. It was {role!r}.")
    parts = objects(item.get("parts"), "parts")
    text = text_of([part for part in parts if not part.get("thought")])
    called = [part["functionCall"] for part in parts if is_object(part.get("functionCall"))]
    answered = [part["functionResponse"] for part in parts if is_object(part.get("functionResponse"))]
    # Without ids, the outcomes of a turn belong to its calls by their names, in order.
    return ModelMessage(
        role="assistant" if role == "model" else "user",
        text=text,
        calls=tuple(
            CallsTool(str(call.get("name")), call.get("args") or {}, call_ref)
            for call, call_ref in zip(called, _ids(called), strict=True)
        ),
        outcomes=tuple(
            ToolOutcome(
                call_id=call_ref,
                name=str(each.get("name")),
                text=_result_text(each.get("response")),
            )
            for each, call_ref in zip(answered, _ids(answered), strict=True)
        ),
    )


def _ids(items: Sequence[dict[str, Any]]) -> Iterator[str]:
    count = Counter[str]()
    for item in items:
        name = str(item.get("name"))
        count[name] += 1
        yield str(item.get("id") or f"{name} {count[name]}")


def _paired(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Return the messages without empty ones, such as the last piece of a stream."""
    return [message for message in messages if message.text or message.calls or message.outcomes]


def _result_text(response: Any) -> str:
    if is_object(response) and len(response) == 1:
        # What is not an object has to be wrapped in one, under a key of the client's choice.
        (response,) = response.values()
    if isinstance(response, str):
        return response
    return orjson.dumps(response).decode()


def _call(call: CallsTool) -> dict[str, Any] | None:
    """Return the part with a tool call; `None` if its arguments are not an object, since Gemini drops such calls."""
    arguments: Any = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            return None
    identity = {} if call.id is None else {"id": call.id}
    return {"functionCall": identity | {"name": call.name, "args": arguments}} if is_object(arguments) else None


def _answer(request: ModelRequest, number: int, parts: Any, usage: JSON, stop: str | None = None) -> JSON:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if stop is not None:
        candidate["finishReason"] = stop
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": request.model,
        "responseId": f"response-{number}",
    }


def _usage(turn: ModelTurn) -> JSON:
    return {
        "promptTokenCount": turn.input_tokens,
        "candidatesTokenCount": turn.output_tokens,
        "totalTokenCount": turn.input_tokens + turn.output_tokens,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": turn.input_tokens}],
    }
