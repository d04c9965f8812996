"""Operation call: builds the request of an operation from the arguments of a call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import quote

from pegboard.core.json_text import json_bytes
from pegboard.egress.credential_redaction import revealed
from pegboard.egress.urls import fill_path
from pegboard.model.json_types import JSON, JSONValue, is_object
from pegboard.model.secret import Secret
from pegboard.sources.http_service import ServiceRequest, query_of, scalar, with_query
from pegboard.sources.openapi.operations import Argument, Operation
from pegboard.sources.openapi.parameter_styles import in_header, in_path, in_query
from pegboard.sources.openapi.request_bodies import written


def request_of(operation: Operation, args: JSON, *, base: str, query: Mapping[str, str | Secret]) -> ServiceRequest:
    """Return the request; `query` is added to every query string.

    Raises:
        EgressError: invalid_arguments for a value that does not fit its place.
    """
    filled = [(argument, args[argument.name]) for argument in operation.arguments if argument.name in args]
    path = {argument.wire: _in_path(argument, value) for argument, value in filled if argument.where == "path"}
    pairs = [
        pair
        for argument, value in filled
        if argument.where in ("query", "querystring")
        for pair in _in_query(argument, value)
    ]
    pairs += [query_of(revealed(query))] if query else []
    headers = {
        argument.wire: _as_header(argument, value)
        for argument, value in filled
        if argument.where == "header" and value is not None
    }
    cookies = [pair for argument, value in filled if argument.where == "cookie" for pair in _in_query(argument, value)]
    if cookies:
        headers["cookie"] = "; ".join(cookies)
    body, media = _body(operation, args)
    if body is not None:
        headers["content-type"] = media
    url = with_query(fill_path(base + operation.path, path), "&".join(pairs))
    return ServiceRequest(
        method=operation.method, url=url, headers={"accept": "application/json, */*;q=0.5", **headers}, body=body
    )


def _in_path(argument: Argument, value: JSONValue) -> str:
    if argument.as_json:
        return quote(json_bytes(value).decode(), safe="")
    return in_path(
        argument.wire, value, style=argument.style, explode=argument.explode, is_rest=argument.allow_reserved
    )


def _in_query(argument: Argument, value: JSONValue) -> list[str]:
    if argument.where == "querystring":
        text = query_of(value) if is_object(value) and not argument.as_json else quote(scalar(value), safe="")
        return [text] if text else []
    if argument.as_json:
        return [f"{quote(argument.wire, safe='')}={quote(json_bytes(value).decode(), safe='')}"]
    return in_query(
        argument.wire,
        value,
        style=argument.style,
        explode=argument.explode,
        allow_reserved=argument.allow_reserved,
    )


def _as_header(argument: Argument, value: JSONValue) -> str:
    # A header is ASCII only, and JSON can escape all other characters.
    as_ascii = argument.as_json and json.dumps(value, separators=(",", ":"))
    return as_ascii or in_header(value, explode=argument.explode)


def _body(operation: Operation, args: JSON) -> tuple[bytes | None, str]:
    body = operation.body
    if body is None or (body.argument is not None and body.argument not in args):
        return None, ""
    if body.argument is not None:
        return written(body, args[body.argument])
    return written(body, {a.wire: args[a.name] for a in operation.arguments if a.where == "body" and a.name in args})
