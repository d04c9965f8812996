"""Webhook: tools that an operator's HTTP service runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from pegboard.connections.upstream_credentials import UpstreamCredentials, account_of
from pegboard.core.digests import digest
from pegboard.core.json_text import json_bytes
from pegboard.egress.connections import Resolve, system_resolve
from pegboard.egress.credential_redaction import revealed, without_credentials
from pegboard.egress.destinations import only_host_of
from pegboard.egress.failures import EgressError
from pegboard.egress.http import checked_headers
from pegboard.egress.responses import Response
from pegboard.egress.urls import expand_path, parse_url, placeholders_of
from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.model.bounds import DEFAULT_BOUNDS, Bounds
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError, DefinitionError, Problem
from pegboard.model.hops import HOPS_HEADER
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.model.record import replace
from pegboard.model.secret import Secret
from pegboard.model.tool import ToolEntry, ToolSpec
from pegboard.sources.body_template import BodyTemplate
from pegboard.sources.http_service import (
    SERVICE_GRACE_S,
    HttpService,
    ServiceRequest,
    query_of,
    scalar,
    value_of,
    with_query,
)

if TYPE_CHECKING:
    from pegboard.sources import expressions
else:
    expressions = LazyModule("pegboard.sources.expressions")

WEBHOOK_RESULT_S = 1.0  # seconds for the expression that extracts the result from a response
WEBHOOK_INLINE_RESULT_BYTES = 16_384  # bytes of a response above which the expression runs in a thread


Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
# Without a body: arguments go into the query string.
_IN_QUERY: Final = frozenset({"GET", "DELETE"})
_OUR_HEADERS = frozenset({"content-type"})
# `['key']` of a JSON path, which is `."key"` in JMESPath.
_KEY_STEP = re.compile(r"\[\s*(?:'([^'\\]*)'|\"([^\"\\]*)\")\s*\]")


@dataclass(frozen=True, kw_only=True, slots=True)
class WebhookSettings:
    """How to call a service.

    `url` may have `{placeholders}` in its path and query, each filled by the argument of that name. `body` is "args",
    i.e. the arguments that are not in the URL, or a template (see `body_template`). `result` is the path to the result
    in the response: JMESPath, or a JSON path that starts with `$`. `credentials` have a token for each request.
    """

    url: str
    method: Method = "POST"
    headers: Mapping[str, str | Secret] = field(default_factory=dict[str, "str | Secret"], repr=False)
    timeout_s: float = 30.0
    body: JSONValue = "args"
    result: str | None = None
    bounds: Bounds = DEFAULT_BOUNDS
    resolve: Resolve = field(default=system_resolve, repr=False)
    credentials: UpstreamCredentials | None = field(default=None, repr=False)


def webhook_entry(spec: ToolSpec, settings: WebhookSettings) -> ToolEntry:
    """Return the tool that calls this service.

    Raises:
        DefinitionError: invalid settings, all of them; `path` of each problem is the key of the settings.
    """
    faults: list[Problem] = []
    template = _template(spec, settings, faults)
    path = _result_path(settings, faults)
    in_url = _in_url(spec, settings, faults)
    _check_headers(settings, faults)
    if faults:
        raise DefinitionError(faults)
    timeout_s = min(settings.timeout_s, spec.timeout_s or settings.timeout_s)
    service = HttpService(
        who=f"The service behind {spec.name!r}",
        destinations=only_host_of(settings.url),
        headers=settings.headers,
        timeout_s=timeout_s,
        bounds=settings.bounds,
        resolve=settings.resolve,
        credentials=settings.credentials,
    )

    async def call(ctx: CallContext, args: JSON) -> object:
        response = await service.send(_request(settings, args, in_url, template), ctx)
        value = value_of(
            response,
            who=service.who,
            expects_json=path is not None or spec.output_schema is not None,
            bounds=settings.bounds,
        )
        return value if path is None else await _part(value, path, settings, service, response)

    # Results of other services are checked like those of foreign tools.
    entry_spec = replace(spec, timeout_s=timeout_s + SERVICE_GRACE_S, output_check=spec.output_check or "warn")
    secrets = list(service.secrets())
    # Credentials are excluded from the digest, since they change often.
    reaches = digest([settings.url, settings.method, sorted(settings.headers), settings.body, settings.result])
    handler = without_credentials(call, secrets) if secrets else call
    return ToolEntry(spec=entry_spec, handler=handler, reaches=reaches, account=account_of(settings.credentials))


# ---------------------------------------------------------------- validation


def _in_url(spec: ToolSpec, settings: WebhookSettings, faults: list[Problem]) -> frozenset[str]:
    """Return the arguments in the URL; each must be required, and text or a number."""
    try:
        names = frozenset(placeholders_of(settings.url))
        url = parse_url(expand_path(settings.url, dict.fromkeys(names, "x")))
        only_host_of(settings.url)
    except (DefinitionError, EgressError) as error:
        message = error.error.message if isinstance(error, EgressError) else str(error)
        faults.append(Problem(path="url", message=message))
        return frozenset()
    if url.fragment:
        faults.append(Problem(path="url", message="a part behind '#' is never sent. Remove it"))
    properties: JSON = spec.input_schema.get("properties", {})
    required: Sequence[str] = spec.input_schema.get("required", ())
    for name in sorted(names):
        inner: Any = properties.get(name)
        if inner is None:
            fault = "is not a parameter: declare it under `parameters`"
        elif name not in required and not (is_object(inner) and "default" in inner):
            fault = "may be missing from a call: make it `required: true`"
        elif is_object(inner) and inner.get("type") in ("object", "array"):
            fault = f"is an {inner['type']}, and only a text, a number or a boolean fits into a URL"
        else:
            continue
        faults.append(Problem(path="url", message=f"{{{name}}} in the URL {fault}"))
    return names


def _template(spec: ToolSpec, settings: WebhookSettings, faults: list[Problem]) -> BodyTemplate | None:
    if settings.body == "args":
        return None
    if settings.method in _IN_QUERY:
        faults.append(Problem(path="body", message=f"a {settings.method} request has no body. Remove it, or use POST"))
        return None
    try:
        template = BodyTemplate.read(settings.body)
    except DefinitionError as error:
        faults.append(Problem(path="body", message=str(error)))
        return None
    known: JSON = spec.input_schema.get("properties", {})
    faults += [
        Problem(path="body", message=f"{{{{ {name} }}}} is not a parameter: declare it under `parameters`")
        for name in sorted(name for name in template.names if name is not None and name not in known)
    ]
    return template


def _result_path(settings: WebhookSettings, faults: list[Problem]) -> str | None:
    if settings.result is None:
        return None
    path = as_expression(settings.result)
    try:
        expressions.check(path)
    except DefinitionError as error:
        text = f"{settings.result!r} is not a path such as `$.data.id`, nor a JMESPath expression: {error}"
        faults.append(Problem(path="result", message=text))
    except ImportError as error:
        faults.append(Problem(path="result", message=needs_package(error.name, "tools")))
    return path


def _check_headers(settings: WebhookSettings, faults: list[Problem]) -> None:
    for name, value in settings.headers.items():
        try:
            checked_headers(revealed({name: value}))
            if name.lower() in _OUR_HEADERS:
                raise EgressError("invalid_arguments", f"The header {name!r} is JSON's own here. Remove it.")
            if name.lower() == HOPS_HEADER:
                raise EgressError("invalid_arguments", f"The header {name!r} is Pegboard's own. Remove it.")
        except EgressError as error:
            faults.append(Problem(path=f"headers.{name}", message=error.error.message))


def as_expression(path: str) -> str:
    """Return a path as JMESPath: `$.a['b c'][0]` becomes `a."b c"[0]`; a path without `$` is unchanged."""
    if not path.startswith("$"):
        return path
    steps = _KEY_STEP.sub(
        lambda match: "." + orjson.dumps(match[1] if match[1] is not None else match[2]).decode(), path[1:]
    )
    return steps.removeprefix(".") or "@"


# ---------------------------------------------------------------- one call


def _request(
    settings: WebhookSettings, args: JSON, in_url: frozenset[str], template: BodyTemplate | None
) -> ServiceRequest:
    for name in in_url:
        if is_object(args.get(name)) or is_list(args.get(name)):
            text = f"{name!r} is a part of the URL: give a text or a number."
            raise CallError("invalid_arguments", text)
    url = expand_path(settings.url, {name: scalar(args[name]) for name in in_url if name in args})
    rest = {name: value for name, value in args.items() if name not in in_url}
    if settings.method in _IN_QUERY:
        return ServiceRequest(method=settings.method, url=with_query(url, query_of(rest)))
    body = json_bytes(rest if template is None else template.filled(args))
    return ServiceRequest(method=settings.method, url=url, headers={"content-type": "application/json"}, body=body)


async def _part(
    value: Any, path: str, settings: WebhookSettings, service: HttpService, response: Response
) -> JSONValue:
    """Return the part of the response at the path; computed in a thread if the response is large."""

    def evaluate() -> JSONValue:
        return expressions.evaluate(
            path, value, timeout_s=WEBHOOK_RESULT_S, max_size=settings.bounds.http_response_bytes
        )

    try:
        part = evaluate() if len(response.body) <= WEBHOOK_INLINE_RESULT_BYTES else await asyncio.to_thread(evaluate)
    except CallError:
        part = None
    if part is None:
        text = (
            f"{service.who} answered {response.status_code}, but there is nothing at {settings.result!r} in its answer."
        )
        raise CallError(
            "protocol_error", f"{text} The action may have happened: check before you repeat it.", outcome_unknown=True
        )
    return part
