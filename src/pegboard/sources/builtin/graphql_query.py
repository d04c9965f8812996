"""graphql_query: sends a query to a GraphQL endpoint."""

from __future__ import annotations

from typing import Any, cast

from pegboard.core.json_text import json_bytes
from pegboard.egress.responses import check_status, json_of
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_list, is_object
from pegboard.model.tool import Annotations, Handler
from pegboard.sources.builtin.kind import BuiltinKind, Services, tool_spec
from pegboard.sources.builtin.outbound import HeaderConfig, web

_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization", "content-type"})
_WHO = "The GraphQL server"


SPEC = tool_spec(
    "graphql_query",
    "Send a GraphQL query or mutation with its variables and return its data.",
    arguments={
        "endpoint": {"type": "string", "minLength": 1, "maxLength": 8192, "description": "The URL of the GraphQL API."},
        "query": {"type": "string", "minLength": 1, "description": "A query or mutation in GraphQL."},
        "variables": {"type": "object", "description": "The values of its variables."},
        "headers": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "maxProperties": 50,
            "description": "Headers of the request.",
        },
    },
    required=("endpoint", "query"),
    result={"data": {"description": "What the query asked for."}},
    always=("data",),
    annotations=Annotations(read_only=False, destructive=True, idempotent=False, open_world=True),
    examples=(
        {
            "endpoint": "https://api.example.com/graphql",
            "query": "query($id: ID!) { user(id: $id) { name } }",
            "variables": {"id": "7"},
        },
    ),
)


def make(config: HeaderConfig, services: Services) -> Handler:
    """Return the handler."""
    out = web(config, services, config.plain_headers())

    async def ask(ctx: CallContext, args: JSON) -> JSON:
        headers: dict[str, str] = dict(args.get("headers", {}))
        for name in headers:
            if name.lower() in _CREDENTIALS:
                text = f"The header {name!r} is set by this tool or its configuration. Leave it out."
                raise CallError("invalid_arguments", text)
        headers |= {"content-type": "application/json", "accept": "application/graphql-response+json, application/json"}
        body = json_bytes({"query": args["query"], "variables": args.get("variables", {})})
        response = await out.request("POST", args["endpoint"], headers=headers, body=body)
        if response.status_code in (401, 403, 429):
            check_status(response, _WHO)
        try:
            answer = json_of(response, _WHO)
        except CallError:
            check_status(response, _WHO)
            raise
        return _data(answer, lambda: check_status(response, _WHO))

    return ask


def _data(answer: Any, check: Any) -> JSON:
    """Return the data of a response, or raise the server's errors."""
    if is_object(answer) and is_list(answer.get("errors")) and answer["errors"]:
        messages = [_message(error) for error in cast("list[Any]", answer["errors"])[:5]]
        raise CallError(
            "upstream_error",
            f"{_WHO} refused the query: {'; '.join(messages)}. Correct it and call again.",
            details={"errors": messages},
            outcome_unknown=answer.get("data") is not None,
        )
    check()
    if not is_object(answer) or "data" not in answer:
        raise CallError("protocol_error", f"{_WHO} gave neither 'data' nor 'errors'. Check the endpoint.")
    return {"data": answer["data"]}


def _message(error: Any) -> str:
    message = error.get("message") if is_object(error) else error
    return str(message)[:500]


KIND = BuiltinKind(spec=SPEC, config=HeaderConfig, make=make, needs_context=False)
