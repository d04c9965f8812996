"""HTTP service: sends a tool's request to the operator's service, and converts the response to a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import msgspec

from pegboard.connections.connection_records import AccessToken
from pegboard.connections.issuer_discovery import challenge_of
from pegboard.connections.upstream_credentials import UpstreamCredentials
from pegboard.core.json_reader import TooManyValuesError, read_answer
from pegboard.core.json_text import json_bytes
from pegboard.core.schema import check_bounds
from pegboard.egress.client_spans import note_status, request_span
from pegboard.egress.connections import Resolve, system_resolve
from pegboard.egress.credential_redaction import CredentialRedactor, credentials_in, revealed
from pegboard.egress.destinations import Destinations
from pegboard.egress.http import GuardedClient
from pegboard.egress.responses import Response, is_json, media_type, retry_after_s, text_of
from pegboard.model.bounds import DEFAULT_BOUNDS, Bounds
from pegboard.model.call_context import CallContext, UpstreamOutcome
from pegboard.model.error import CallError, ErrorKind
from pegboard.model.hops import HOPS_HEADER, check_may_leave, header_of
from pegboard.model.json_types import JSONValue, is_list, is_object
from pegboard.model.record import CarriesCredentials, replace
from pegboard.model.secret import Secret

# seconds that the executor waits past a request's own deadline, so that the tool can report the timeout
SERVICE_GRACE_S = 1.0
SERVICE_EXCERPT_CHARS = 500  # characters of an error response shown to the model
SERVICE_EXCERPT_READ_CHARS = 65_536  # characters of an error response searched for secrets

# They have no side effects, so a failed request has certainly done no harm.
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "QUERY"})
_TRY_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
# Statuses that describe the service rather than this request.
_KINDS: Final[Mapping[int, ErrorKind]] = {
    401: "upstream_auth", 403: "upstream_auth", 429: "rate_limited",
    502: "upstream_unavailable", 503: "upstream_unavailable", 504: "upstream_unavailable",
}  # fmt: skip


class ServiceRequest(CarriesCredentials, frozen=True, kw_only=True):
    """One request: a full URL, the headers from the arguments, and the body."""

    method: str
    url: str
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    body: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpService:
    """The service behind a tool. `who` is its name in errors.

    `headers` are sent with every request, to its first host only. So is the token that `credentials` have for the
    caller.
    """

    who: str
    destinations: Destinations
    headers: Mapping[str, str | Secret] = field(default_factory=dict[str, "str | Secret"], repr=False)
    timeout_s: float = DEFAULT_BOUNDS.tool_timeout_s
    bounds: Bounds = DEFAULT_BOUNDS
    resolve: Resolve = field(default=system_resolve, repr=False)
    credentials: UpstreamCredentials | None = field(default=None, repr=False)

    def secrets(self) -> Iterator[Secret]:
        """Yield the secrets to redact: headers from the environment, and the credential alone in each.

        Tokens are not among them; each call redacts its own.
        """
        for value in self.headers.values():
            if isinstance(value, Secret):
                yield from credentials_in(value)
        if self.credentials is not None:
            yield from self.credentials.secrets()

    async def send(self, request: ServiceRequest, ctx: CallContext) -> Response:
        """Send the request once, and return a successful response.

        Raises:
            CallError: recursion_limit if it has passed too many servers; connection_required if the caller's person
                must connect first; upstream_auth, rate_limited, upstream_unavailable or upstream_error for every status
                but 2xx; and errors of the guarded client.
        """
        check_may_leave(ctx.request.hops)
        if self.credentials is None:
            response, token = await self._exchange(request, ctx, None), None
        else:
            response, token = await self._with_token(self.credentials, request, ctx)
        if not 200 <= response.status_code < 300:
            raise self._refusal(response, request, ctx, token)
        return response

    async def _with_token(
        self, credentials: UpstreamCredentials, request: ServiceRequest, ctx: CallContext
    ) -> tuple[Response, AccessToken]:
        """Send the request with the caller's token, and again with another one after 401, which ran nothing."""
        token = await credentials.token(ctx.caller)
        response = await self._exchange(request, ctx, token)
        if response.status_code == 401:
            token = await credentials.renewed(ctx.caller, token, challenge_of(401, response.headers))
            response = await self._exchange(request, ctx, token)
        if response.status_code in (401, 403):
            challenge = challenge_of(response.status_code, response.headers)
            if response.status_code == 401 or challenge.wants_more:
                raise await credentials.refusal(ctx.caller, challenge)
        return response, token

    async def _exchange(self, request: ServiceRequest, ctx: CallContext, token: AccessToken | None) -> Response:
        # We set the path header ourselves, overriding arguments and configuration.
        configured, headers = _without_path(revealed(self.headers)), _without_path(request.headers)
        if ctx.request.hops:
            headers[HOPS_HEADER] = header_of(ctx.request.hops)
        if token is not None:
            configured["Authorization"] = f"Bearer {token.value.reveal()}"
            if ctx.call is not None:
                ctx.call.sends(token.value)
                ctx.call.uses_account(token.use())
        # A new client for each call: connections and cookies are never shared by callers.
        async with GuardedClient(
            self.destinations, headers=configured, bounds=self.bounds, resolve=self.resolve
        ) as client:
            with request_span(request.method, request.url, headers) as span:
                try:
                    response = await client.request(
                        request.method, request.url, headers=headers, body=request.body, timeout_s=self.timeout_s
                    )
                except CallError as error:
                    _record(ctx, UpstreamOutcome(error.error.kind))
                    raise
                note_status(span, response.status_code)
        _record(ctx, UpstreamOutcome("ok", str(response.status_code)))
        return response

    def _refusal(
        self, response: Response, request: ServiceRequest, ctx: CallContext, token: AccessToken | None
    ) -> CallError:
        status = response.status_code
        if status == 403 and _went_round(response):
            text = (
                f"{self.who} says that it did not run the call: it is too deep, has gone through too many servers, or "
                "leads back to one of them."
            )
            return CallError("recursion_limit", text)
        may_have_acted = status >= 500 and request.method not in SAFE_METHODS
        excerpt = self._excerpt(response, ctx, token)
        is_temporary = status in _TRY_LATER
        kind: ErrorKind = _KINDS.get(status, "upstream_error")
        text = f"{self.who} answered {status}" + (f": {excerpt!r}." if excerpt else ".")
        if may_have_acted:
            text += " The action may have happened; check before you repeat it."
        elif kind == "upstream_auth":
            text += " It refused our credentials, or what they may do; the operator must correct them."
        elif not is_temporary:
            text += " Correct the arguments, or use another tool."
        return CallError(
            kind,
            text + (" Try again later." if is_temporary else ""),
            retryable=is_temporary,
            retry_after_s=retry_after_s(response),
            outcome_unknown=may_have_acted,
            details={"status": status, "body": excerpt},
        )

    def _excerpt(self, response: Response, ctx: CallContext, token: AccessToken | None) -> str:
        """Return the beginning of the body in one line.

        It is redacted before it is cut, since a cut secret is not recognised.
        """
        secrets = (*self.secrets(), *([] if token is None else [token.value]))
        clean = CredentialRedactor(secrets).text(text_of(response)[:SERVICE_EXCERPT_READ_CHARS])
        if ctx.redactor is not None:
            clean = ctx.redactor.text(clean)
        line = " ".join("".join(char if char.isprintable() else " " for char in clean).split())
        return line if len(line) <= SERVICE_EXCERPT_CHARS else line[: SERVICE_EXCERPT_CHARS - 1] + "…"


def _record(ctx: CallContext, outcome: UpstreamOutcome) -> None:
    if ctx.call is not None:
        ctx.call.ends_upstream(outcome)


def _without_path(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() != HOPS_HEADER}


def _went_round(response: Response) -> bool:
    """Tell whether a downstream Pegboard refused a call because of the servers that it has passed."""
    try:
        problem = read_answer(response.body) if is_json(media_type(response)) else None
    except ValueError:
        return False
    return is_object(problem) and problem.get("kind") == "recursion_limit"


# ---------------------------------------------------------------- requests


def scalar(value: JSONValue) -> str:
    """Return an argument as text for a URL or a header; values that are not scalars as JSON."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else json_bytes(value).decode()


def query_of(args: Mapping[str, JSONValue]) -> str:
    """Return arguments as a query string: lists repeat their name, `null` is left out."""
    pairs: list[str] = []
    for name, value in args.items():
        items = value if is_list(value) else [value]
        pairs += [f"{quote(name, safe='')}={quote(scalar(item), safe='')}" for item in items if item is not None]
    return "&".join(pairs)


def with_query(url: str, query: str) -> str:
    """Return a URL with a query string appended."""
    return f"{url}{'&' if '?' in url else '?'}{query}" if query else url


# ---------------------------------------------------------------- responses


def value_of(response: Response, *, who: str, expects_json: bool, bounds: Bounds = DEFAULT_BOUNDS) -> object:
    """Return the body of a successful response: a JSON value, text, or raw bytes with their type.

    Raises:
        CallError: protocol_error for a body that should be JSON and is not, or that is too deep; result_too_large for
            one with too many values.
    """
    media = media_type(response)
    if expects_json or (response.body and is_json(media)):
        return _json_value(response, who, bounds)
    if not response.body:
        return f"{who} answered {response.status_code} and said nothing."
    if b"\0" in response.body[:1024] or media.startswith(("image/", "audio/", "video/")):
        return response.body, media or "application/octet-stream"
    return text_of(response)


def _json_value(response: Response, who: str, bounds: Bounds) -> JSONValue:
    kind: ErrorKind = "protocol_error"
    try:
        value = read_answer(response.body, bounds=bounds)
        # The number of values was checked before parsing.
        check_bounds(value, bounds=replace(bounds, json_values=bounds.answer_values))
    except TooManyValuesError as error:
        kind, fault = "result_too_large", str(error)
    except ValueError as error:
        fault = f"JSON that cannot be read ({error})" if response.body else "nothing at all, where JSON was expected"
    except CallError:
        fault = "JSON that is nested too deep, or has too many keys"
    else:
        return value
    text = (
        f"{who} answered {response.status_code} with {fault}. The action may have happened: check before you repeat it."
    )
    raise CallError(kind, text, outcome_unknown=True)
