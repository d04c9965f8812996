"""Problem details: errors in the form of RFC 9457, each with a kind, a status and what to do next."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from pegboard.model.error import CallError, ErrorKind, ToolError
from pegboard.model.json_types import JSON
from pegboard.model.result import ToolResult
from pegboard.providers.mcp import mcp_content, mcp_error

T = TypeVar("T")
MEDIA_TYPE = "application/problem+json"
STATUS_OF_KIND: Mapping[ErrorKind, int] = {
    "not_found": 404, "invalid_arguments": 422, "rate_limited": 429, "ratelimit_unavailable": 503,
    "consent_required": 403, "consent_declined": 403, "consent_expired": 403, "consent_mismatch": 409,
    "connection_required": 403,
    "hook_refused": 403, "timeout": 504, "cancelled": 409, "busy": 503, "budget_exceeded": 429, "recursion_limit": 403,
    "upstream_unavailable": 502, "upstream_lost": 502, "upstream_error": 502, "upstream_auth": 502,
    "protocol_error": 502, "blocked_destination": 403, "result_too_large": 500, "output_invalid": 500,
    "template_error": 500, "read_only": 403, "schema_too_complex": 500, "needs_review": 403,
    "storage_unavailable": 503, "audit_unavailable": 503, "shutting_down": 503, "tool_error": 500,
    "config_invalid": 500,
}  # fmt: skip
KIND_OF_STATUS: Mapping[int, str] = {
    400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    408: "request_timeout", 413: "body_too_large", 415: "unsupported_media_type", 421: "misdirected_request",
    429: "rate_limited", 500: "internal_error", 503: "busy",
}  # fmt: skip
"""The kinds of faulty requests that are refused before any tool is involved."""
REQUEST_STATUSES = (400, 401, 403, 404, 408, 413, 415, 421, 429, 503)
"""The statuses that any request may get before a tool is looked up."""


class ProblemError(Exception):
    """The request is answered with problem details.

    `kind` is the error kind of a call, or the fault of the request itself, e.g. `method_not_allowed`.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail = status, kind, detail
        self.headers, self.more = dict(headers or {}), dict(more or {})

    def body(self) -> JSON:
        """Return the problem details."""
        return {
            "type": f"urn:pegboard:error:{self.kind}",
            "title": self.kind.replace("_", " ").capitalize(),
            "status": self.status,
            "kind": self.kind,
            "detail": self.detail,
            **self.more,
        }


def not_found(detail: str) -> ProblemError:
    """Return the common answer for things that do not exist and things that this caller may not know of."""
    return ProblemError(404, "not_found", detail)


async def answered(work: Awaitable[T]) -> T:
    """Await an operation of a store or an engine.

    Raises:
        ProblemError: it raised a `CallError`; the client may try again in a second if that is an outage.
    """
    try:
        return await work
    except CallError as error:
        kind, status = error.error.kind, STATUS_OF_KIND[error.error.kind]
        headers = {"retry-after": "1"} if status in (429, 503) else {}
        raise ProblemError(status, kind, error.error.message, headers=headers) from None


def problem_of(result: ToolResult, call_id: str) -> ProblemError:
    """Return a failed call as a problem; the tool's own text goes into `content`."""
    error = result.error or ToolError(kind="tool_error", message=result.text or "The tool reports an error.")
    shown: dict[str, Any] = mcp_error(error)
    more = {key: value for key, value in shown.items() if key not in ("kind", "message")}
    content = [mcp_content(block) for block in result.content]
    if content not in ([], [{"type": "text", "text": error.message}]):
        more["content"] = content
    if call_id:
        more["callId"] = call_id
    headers: dict[str, str] = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    return ProblemError(STATUS_OF_KIND[error.kind], error.kind, error.message, headers=headers, more=more)
