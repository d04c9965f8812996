"""HTTP hook: a hook that a service of the operator runs. Each call is sent to it as a signed JSON message."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Struct, UnsetType

from pegboard.core.json_text import json_bytes
from pegboard.core.normalise import structured
from pegboard.core.redaction import without
from pegboard.egress.client_spans import note_status, request_span
from pegboard.egress.connections import Resolve, system_resolve
from pegboard.egress.destinations import Destinations, encrypted_host_of
from pegboard.egress.http import GuardedClient
from pegboard.egress.message_signature import signed_headers
from pegboard.egress.responses import Response
from pegboard.model.bounds import DEFAULT_BOUNDS, Bounds
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.hook import Hook, HookKind, Verdict
from pegboard.model.hook_call import HookCall
from pegboard.model.hops import HOPS_HEADER, check_may_leave, header_of
from pegboard.model.json_types import JSON
from pegboard.model.result import ToolResult
from pegboard.model.secret import Secret
from pegboard.providers.mcp import mcp_result
from pegboard.sources.http_service import value_of

A = TypeVar("A")


class HookServiceError(Exception):
    """The service gave no usable answer. Not a `CallError`, so that the model sees nothing of the service."""


class _BeforeAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer of a service before a call."""

    verdict: Literal["allow", "deny", "ask", "replace"]
    reason: str = ""
    arguments: JSON | UnsetType = UNSET


class _AfterAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer of a service after a call; without `result` the result stays as it is."""

    result: Any = UNSET


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpHookSettings:
    """The address of the service, and the secret that signs requests to it."""

    kind: HookKind
    url: str
    secret: Secret
    match: str = "*"
    required: bool = False
    bounds: Bounds = DEFAULT_BOUNDS
    resolve: Resolve = field(default=system_resolve, repr=False)


def http_hook(settings: HttpHookSettings) -> Hook:
    """Return the hook that asks this service.

    Raises:
        DefinitionError: the URL is neither https nor on this machine, or the kind is `around`.
    """
    destinations = encrypted_host_of(settings.url, content="arguments")
    parts = urlsplit(settings.url)
    if settings.kind == "around":
        raise DefinitionError("A service cannot run around a call: it has no way to run the tool. Use before or after.")
    # A query may hold a token.
    name = f"{parts.scheme}://{parts.netloc}{parts.path}"
    asked = _Service(settings, destinations, who=f"The hook at {name}")
    run: Mapping[HookKind, Callable[..., Awaitable[object]]] = {
        "before": asked.before, "after": asked.after, "on_error": asked.told, "on_complete": asked.told
    }  # fmt: skip
    return Hook(kind=settings.kind, run=run[settings.kind], match=settings.match, required=settings.required, name=name)


class _Service:
    def __init__(self, settings: HttpHookSettings, destinations: Destinations, *, who: str) -> None:
        self._settings, self._destinations, self._who = settings, destinations, who

    async def before(self, call: HookCall) -> Verdict:
        answer = await self._ask(call, {}, _BeforeAnswer)
        if answer is None:
            raise HookServiceError(f"{self._who} answered nothing; a hook before a call must give a verdict")
        if answer.verdict == "replace" and answer.arguments is UNSET:
            raise HookServiceError(f"{self._who} answered 'replace' without `arguments`")
        args = None if isinstance(answer.arguments, UnsetType) else answer.arguments
        return Verdict(answer.verdict, answer.reason, args)

    async def after(self, call: HookCall, result: ToolResult) -> object:
        answer = await self._ask(call, _with(result, call), _AfterAnswer)
        if answer is None or answer.result is UNSET:
            return None
        # `None` from a hook keeps the result; a service that answers null replaces it.
        return structured(None) if answer.result is None else answer.result

    async def told(self, call: HookCall, result: ToolResult) -> None:
        """Send the result of a finished call; the service's answer changes nothing."""
        await self._ask(call, _with(result, call), object)

    async def _ask(self, call: HookCall, more: JSON, form: type[A]) -> A | None:
        """Send the call and return the answer; `None` if it is empty."""
        body = json_bytes({"hook": self._settings.kind, "call": _shown(call), **more})
        timestamp_s = int(time.time())
        # One for each message: a call is judged again after its arguments were replaced.
        message_id = os.urandom(16).hex()
        headers = signed_headers(self._settings.secret, message_id, timestamp_s, body)
        headers["content-type"] = "application/json"
        try:
            response = await self._sent(body, headers, call)
            if not 200 <= response.status_code < 300:
                raise HookServiceError(f"{self._who} answered {response.status_code}")
            if not response.body or form is object:
                return None
            value = value_of(response, who=self._who, expects_json=True, bounds=self._settings.bounds)
            return msgspec.convert(value, form)
        except CallError as error:
            raise HookServiceError(error.error.message) from error
        except msgspec.ValidationError as error:
            raise HookServiceError(f"{self._who} gave an answer in the wrong format: {error}") from error

    async def _sent(self, body: bytes, headers: dict[str, str], call: HookCall) -> Response:
        settings, hops = self._settings, call.ctx.request.hops
        check_may_leave(hops)
        if hops:
            headers[HOPS_HEADER] = header_of(hops)
        async with GuardedClient(self._destinations, bounds=settings.bounds, resolve=settings.resolve) as client:
            with request_span("POST", settings.url, headers) as span:
                # Redirects are not followed: the message is signed for this address only.
                response = await client.request(
                    "POST", settings.url, headers=headers, body=body, timeout_s=settings.bounds.hook_s, max_redirects=0
                )
                note_status(span, response.status_code)
                return response


def _with(result: ToolResult, call: HookCall) -> JSON:
    shown, redactor = mcp_result(result), call.ctx.redactor
    if redactor is not None:
        # Results are redacted after the last hook, and no secret may reach another service.
        shown = without(shown, clean=redactor.text, may_find=redactor.finds)
    return {"result": shown}


def _shown(call: HookCall) -> JSON:
    ctx = call.ctx
    return {
        "id": ctx.call_id,
        "request_id": ctx.request_id,
        "tool": call.tool.qualified_id,
        "name": call.wire_name,
        "arguments": call.args,
        "caller": {
            "user": ctx.user_id,
            "space": ctx.space_id,
            "session": ctx.session_id,
            "agent": ctx.agent,
            "roles": sorted(ctx.roles),
        },
    }
