"""http_request: sends one HTTP request and returns the response, whatever its status."""

from __future__ import annotations

import base64

from pegboard.core.json_reader import read_answer
from pegboard.core.json_text import json_bytes
from pegboard.egress.responses import Response, is_json, media_type, text_of
from pegboard.model.bounds import KIB
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.tool import Annotations, Handler
from pegboard.sources.builtin.kind import BuiltinKind, Services, tool_spec
from pegboard.sources.builtin.outbound import HeaderConfig, fitting, size_of, web

HTTP_RESULT_ROOM_BYTES = 128 * KIB  # bytes of a result reserved for everything except the body

_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})


SPEC = tool_spec(
    "http_request",
    "Send an HTTP request to a URL and return status, headers and body. A status of 400 or more is a result too.",
    arguments={
        "method": {"type": "string", "enum": ["GET", "POST", "PUT", "DELETE", "PATCH"]},
        "url": {"type": "string", "minLength": 1, "maxLength": 8192, "description": "An http or https URL."},
        "headers": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "maxProperties": 50,
            "description": "Headers of the request.",
        },
        "body": {"description": "Text is sent as it is; any other JSON as JSON."},
    },
    required=("method", "url"),
    result={
        "status_code": {"type": "integer"},
        "ok": {"type": "boolean", "description": "Whether the status is below 400."},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        "body": {"description": "JSON if the answer is JSON, else text; base64 where `encoding` says so."},
        "encoding": {"type": "string", "enum": ["json", "text", "base64"]},
        "truncated": {"type": "boolean", "description": "Whether the body was longer than what is returned."},
        "url": {"type": "string", "description": "Where the answer came from, after redirects."},
    },
    always=("status_code", "ok", "headers", "body", "encoding", "truncated", "url"),
    annotations=Annotations(read_only=False, destructive=True, idempotent=False, open_world=True),
    examples=({"method": "GET", "url": "https://api.example.com/items?limit=5"},),
)


def make(config: HeaderConfig, services: Services) -> Handler:
    """Return the handler."""
    out = web(config, services, config.plain_headers())

    async def request(ctx: CallContext, args: JSON) -> JSON:
        headers, body = _message(args)
        response = await out.request(args["method"], args["url"], headers=headers, body=body, on_overflow="truncate")
        return result(response, max_bytes=services.bounds.result_bytes - HTTP_RESULT_ROOM_BYTES)

    return request


def _message(args: JSON) -> tuple[dict[str, str], bytes | None]:
    """Return the headers and the body of the request."""
    headers: dict[str, str] = dict(args.get("headers", {}))
    for name in headers:
        if name.lower() in _CREDENTIALS:
            text = f"The header {name!r} carries credentials, which come from the configuration alone. Leave it out."
            raise CallError("invalid_arguments", text)
    body: JSONValue = args.get("body")
    if body is None:
        return headers, None
    if args["method"] == "GET":
        raise CallError("invalid_arguments", "A GET request has no body. Leave it out, or use POST.")
    is_typed = any(name.lower() == "content-type" for name in headers)
    if isinstance(body, str):
        return headers, body.encode("utf-8", "replace")
    return (headers if is_typed else {**headers, "content-type": "application/json"}), json_bytes(body)


def result(response: Response, *, max_bytes: int) -> JSON:
    """Return a response in the tool's form, its body cut to fit into `max_bytes` of JSON."""
    body, encoding, truncated = _body(response, max_bytes)
    return {
        "status_code": response.status_code,
        "ok": response.status_code < 400,
        "headers": dict(response.headers),
        "body": body,
        "encoding": encoding,
        "truncated": truncated,
        "url": response.url,
    }


def _body(response: Response, max_bytes: int) -> tuple[JSONValue, str, bool]:
    if not response.truncated and is_json(media_type(response)):
        try:
            value = read_answer(response.body)
        except ValueError:
            value = None
        else:
            if size_of(value) <= max_bytes:
                return value, "json", False
    if b"\0" in response.body[:1024]:
        shown = response.body[: max_bytes * 3 // 4 - 4]
        return base64.b64encode(shown).decode(), "base64", response.truncated or len(shown) < len(response.body)
    text = text_of(response)
    shown = fitting(text, max_bytes)
    return shown, "text", response.truncated or len(shown) < len(text)


KIND = BuiltinKind(spec=SPEC, config=HeaderConfig, make=make, needs_context=False)
