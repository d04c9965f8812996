"""Validation: check requests against the models and header rules of the MCP SDK. Loaded when a request needs it."""

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
    """Check what every request of 2026-07-28 says in its `_meta`: revision and capabilities.

    Raises:
        RpcError: it is missing, has another form, or names another revision.
    """
    _raise(classify_inbound_request({"method": method, "params": params}))


def accepts(meta: JSON) -> bool:
    """Tell whether the `_meta` of a request of 2026-07-28 has an acceptable form."""
    try:
        check_envelope("tools/list", {"_meta": meta})
        check_params("tools/list", VERSION, {"_meta": meta}, types.PaginatedRequestParams)
    except RpcError:
        return False
    return True


def check_headers(message: JSON, headers: list[tuple[bytes, bytes]], *, has_tasks: bool) -> None:
    """Check that the headers of a request of 2026-07-28 name its revision, method and target.

    A task is a target only where the server has tasks; elsewhere its methods are unknown.

    Raises:
        RpcError: one is missing, differs from the body, or occurs twice.
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
        RpcError: one is missing, differs from its argument, or has none.
    """
    rejection = validate_mcp_param_headers(schema, arguments, Headers(raw=headers))
    if rejection is not None:
        raise RpcError(rejection.code, rejection.message, rejection.data)


def check_version(version: str) -> None:
    """Check the revision that the header of a notification names.

    Raises:
        RpcError: we do not speak it without sessions.
    """
    rejection = unsupported_protocol_version_rejection(version)
    if rejection is not None:
        raise RpcError(rejection.code, rejection.message, rejection.data)


def check_params(method: str, version: str, params: JSON | None, model: type[BaseModel]) -> None:
    """Check the params of a request against the schema of its revision and the model of its method.

    Raises:
        RpcError: they do not fit.
    """
    try:
        if method in methods.SPEC_CLIENT_METHODS:
            methods.validate_client_request(method, version, params)
        model.model_validate({} if params is None else params, by_name=False)
    except ValidationError:
        # The text of pydantic repeats what the client sent, so it is not passed on.
        raise RpcError(INVALID_PARAMS, "Invalid request parameters", "") from None


def fits_initialize(params: JSON) -> bool:
    """Tell whether the params of an initialize have their form."""
    try:
        check_params("initialize", LATEST_EARLIER, params, types.InitializeRequestParams)
    except RpcError:
        return False
    return True


def _raise(route: object) -> None:
    if isinstance(route, InboundLadderRejection):
        raise RpcError(route.code, route.message, route.data)
