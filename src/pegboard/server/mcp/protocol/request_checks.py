"""Request checks: check requests with the models and header rules of the MCP SDK. Loaded on demand."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.shared.inbound import (
    MCP_NAME_HEADER,
    InboundLadderRejection,
    classify_inbound_request,
    decode_header_value,
    find_duplicated_routing_header,
    unsupported_protocol_version_rejection,
    validate_mcp_param_headers,
)
from mcp_types import methods
from pydantic import BaseModel, Field, ValidationError
from starlette.datastructures import Headers

from pegboard.model.json_types import JSON
from pegboard.server.mcp.protocol.jsonrpc import HEADER_MISMATCH, INVALID_PARAMS, RpcError
from pegboard.server.mcp.protocol.revisions import LATEST_EARLIER, VERSION


class TaskParams(types.RequestParams):
    """The params of a request that names a task."""

    task_id: str


class UpdateTaskParams(TaskParams):
    """The params of tasks/update."""

    input_responses: dict[str, Any] = Field(default_factory=dict[str, Any])


class SkillParams(types.RequestParams):
    """The params of skills/get."""

    uri: str = Field(min_length=1)


class DirectoryParams(types.PaginatedRequestParams):
    """The params of resources/directory/read."""

    uri: str = Field(min_length=1)


def check_envelope(method: str, params: object) -> None:
    """Check the revision and capabilities in the `_meta` of a 2026-07-28 request.

    Raises:
        RpcError: they are missing, invalid, or name another revision.
    """
    _raise(classify_inbound_request({"method": method, "params": params}))


def accepts(meta: JSON) -> bool:
    """Tell whether the `_meta` of a 2026-07-28 request is acceptable."""
    try:
        check_envelope("tools/list", {"_meta": meta})
        check_params("tools/list", VERSION, {"_meta": meta}, types.PaginatedRequestParams)
    except RpcError:
        return False
    return True


def check_headers(message: JSON, headers: list[tuple[bytes, bytes]], *, has_tasks: bool) -> None:
    """Check that the headers of a 2026-07-28 request name its revision, method and target.

    A task is a target only if the server has tasks; otherwise its methods are unknown.

    Raises:
        RpcError: a header is missing, differs from the body, or occurs twice.
    """
    named = Headers(raw=headers)
    duplicated = find_duplicated_routing_header(named.items())
    if duplicated is not None:
        raise RpcError(HEADER_MISMATCH, f"{duplicated} header appears more than once")
    _raise(classify_inbound_request(message, headers=dict(named)))
    if has_tasks and message["method"] in ("tasks/get", "tasks/update", "tasks/cancel"):
        # Source: the extension io.modelcontextprotocol/tasks, routing headers.
        task_id = message["params"].get("taskId")
        if decode_header_value(named.get(MCP_NAME_HEADER)) != task_id:
            text = f"{MCP_NAME_HEADER} header does not match the request body's 'taskId' parameter"
            raise RpcError(HEADER_MISMATCH, text)


def check_mirrored(schema: JSON, arguments: JSON, headers: list[tuple[bytes, bytes]]) -> None:
    """Check the headers that mirror arguments of a call.

    Raises:
        RpcError: a header is missing, differs from its argument, or mirrors an absent argument.
    """
    rejection = validate_mcp_param_headers(schema, arguments, Headers(raw=headers))
    if rejection is not None:
        raise RpcError(rejection.code, rejection.message, rejection.data)


def check_version(version: str) -> None:
    """Check the revision in the header of a notification.

    Raises:
        RpcError: it is not supported without sessions.
    """
    rejection = unsupported_protocol_version_rejection(version)
    if rejection is not None:
        raise RpcError(rejection.code, rejection.message, rejection.data)


def check_params(method: str, version: str, params: JSON | None, model: type[BaseModel]) -> None:
    """Check params against the schema of their revision and the model of their method.

    Raises:
        RpcError: they do not match.
    """
    try:
        if method in methods.SPEC_CLIENT_METHODS:
            methods.validate_client_request(method, version, params)
        model.model_validate({} if params is None else params, by_name=False)
    except ValidationError:
        # Pydantic's message repeats the client's input, so it is not passed on.
        raise RpcError(INVALID_PARAMS, "Invalid request parameters", "") from None


def fits_initialize(params: JSON) -> bool:
    """Tell whether the params of an initialize are valid."""
    try:
        check_params("initialize", LATEST_EARLIER, params, types.InitializeRequestParams)
    except RpcError:
        return False
    return True


def _raise(route: object) -> None:
    if isinstance(route, InboundLadderRejection):
        raise RpcError(route.code, route.message, route.data)
