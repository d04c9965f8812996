"""send_webhook: post a signed event to a URL."""

from __future__ import annotations

import secrets

from pydantic import Field, field_validator

from pegboard.core.json_text import json_bytes
from pegboard.egress.message_signature import signed_headers
from pegboard.model.bounds import KIB
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.tool import Annotations, Handler
from pegboard.sources.builtin.http_request import result
from pegboard.sources.builtin.kind import BuiltinKind, SecretText, Services, tool_spec
from pegboard.sources.builtin.outbound import NetworkConfig, check_headers, web

WEBHOOK_RESPONSE_BYTES = 64 * KIB  # bytes of the response to a webhook by default

_NOT_FROM_ARGUMENTS = frozenset({"authorization", "cookie", "proxy-authorization", "idempotency-key"})


class WebhookConfig(NetworkConfig):
    """The hosts that may receive events, and the key that signs the events."""

    max_response_bytes: int = Field(
        WEBHOOK_RESPONSE_BYTES, gt=0, description="The maximum number of bytes read from the answer."
    )
    secret: SecretText | None = Field(None, description="Signs each event (HMAC-SHA256); `whsec_…` is read as base64.")
    idempotency_header: str = Field(
        "Idempotency-Key",
        min_length=1,
        description="The header with the event's id, which stays the same when it is sent again.",
    )

    @field_validator("idempotency_header")
    @classmethod
    def _is_a_header(cls, name: str) -> str:
        check_headers({name: ""})
        return name


SPEC = tool_spec(
    "send_webhook",
    "Post a JSON payload to a webhook URL, signed where a secret is configured. It is sent once and never repeated.",
    arguments={
        "url": {"type": "string", "minLength": 1, "maxLength": 8192, "description": "The address of the receiver."},
        "payload": {"description": "Any JSON."},
        "headers": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "maxProperties": 50,
            "description": "Headers of the request.",
        },
    },
    required=("url", "payload"),
    result={
        "status_code": {"type": "integer"},
        "ok": {"type": "boolean", "description": "Whether the status is below 300."},
        "response": {"description": "What was answered: JSON or text, the beginning of it where it is long."},
        "truncated": {"type": "boolean"},
        "webhook_id": {"type": "string", "description": "The name of this event; the receiver got it too."},
    },
    always=("status_code", "ok", "response", "truncated", "webhook_id"),
    annotations=Annotations(read_only=False, destructive=False, idempotent=False, open_world=True),
    examples=({"url": "https://hooks.example.com/orders", "payload": {"event": "order.paid", "id": 7}},),
)


def make(config: WebhookConfig, services: Services) -> Handler:
    """Return the handler."""
    out = web(config, services)

    async def send(ctx: CallContext, args: JSON) -> JSON:
        body = json_bytes(args["payload"])
        headers = _headers_from(args, config.idempotency_header)
        event_id = ctx.call_id or secrets.token_hex(16)
        headers |= {"content-type": "application/json", config.idempotency_header: event_id}
        if config.secret:
            headers |= signed_headers(config.secret, event_id, int(services.now().timestamp()), body)
        # Redirects are not followed: the signed event is for this address only.
        response = await out.request(
            "POST", args["url"], headers=headers, body=body, max_redirects=0, on_overflow="truncate"
        )
        answer = result(response, max_bytes=2 * WEBHOOK_RESPONSE_BYTES)
        return {
            "status_code": response.status_code,
            "ok": response.status_code < 300,
            "response": answer["body"],
            "truncated": answer["truncated"],
            "webhook_id": event_id,
        }

    return send


def _headers_from(args: JSON, idempotency_header: str) -> dict[str, str]:
    headers: dict[str, str] = dict(args.get("headers", {}))
    for name in headers:
        plain = name.lower()
        ours = plain in _NOT_FROM_ARGUMENTS or plain == idempotency_header.lower() or plain == "content-type"
        if ours or plain.startswith(("webhook-", "x-signature")):
            raise CallError("invalid_arguments", f"The header {name!r} is set by this tool. Leave it out.")
    return headers


KIND = BuiltinKind(spec=SPEC, config=WebhookConfig, make=make)
