"""Task wire: tasks in the wire format of either era."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pegboard.model.error import ToolError
from pegboard.model.json_types import JSON
from pegboard.model.task import Question, TaskRecord
from pegboard.providers.mcp import mcp_error, mcp_result

TASK_POLL_S = 1.0  # milliseconds between two polls, as announced to clients

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
NEEDED: Final[JSON] = {"extensions": {TASKS_EXTENSION: {}}}
"""The capability a client must declare to use tasks."""
_CODES: Final[Mapping[str, int]] = {"not_found": -32602}
_INTERNAL_ERROR = -32603


def declares_tasks(capabilities: Mapping[str, Any]) -> bool:
    """Tell whether a 2026-07-28 client declared support for tasks."""
    extensions: Any = capabilities.get("extensions")
    return isinstance(extensions, Mapping) and TASKS_EXTENSION in extensions


def task(record: TaskRecord) -> JSON:
    """Return a new task in the form of 2026-07-28."""
    shown = _common(record)
    return {**shown, "ttlMs": int(record.ttl_s * 1_000), "pollIntervalMs": int(TASK_POLL_S * 1_000)}


def detailed_task(record: TaskRecord) -> JSON:
    """Return a 2026-07-28 task with all its details."""
    shown = task(record)
    if record.state == "input_required":
        shown["inputRequests"] = {key: input_request(question) for key, question in record.questions.items()}
    elif record.result is not None:
        shown["result"] = {"isError": False, **mcp_result(record.result), "resultType": "complete"}
    elif record.error is not None:
        shown["error"] = rpc_error(record.error)
    return shown


def task_before_2026(record: TaskRecord) -> JSON:
    """Return a task in the form of 2025-11-25."""
    shown = _common(record)
    return {**shown, "ttl": int(record.ttl_s * 1_000), "pollInterval": int(TASK_POLL_S * 1_000)}


def _common(record: TaskRecord) -> JSON:
    shown: JSON = {"taskId": record.task_id, "status": record.state}
    message = record.message or ("" if record.is_durable or record.is_over else "Kept in memory until the server ends.")
    if message:
        shown["statusMessage"] = message
    return {**shown, "createdAt": _moment(record.created_at), "lastUpdatedAt": _moment(record.updated_at)}


def input_request(question: Question) -> JSON:
    """Return the question that a client asks its user."""
    params: JSON = {"mode": "form", "message": question.message, "requestedSchema": question.form}
    return {"method": "elicitation/create", "params": params}


def rpc_error(error: ToolError) -> JSON:
    """Return the JSON-RPC error that ended a task."""
    return {
        "code": _CODES.get(error.kind, _INTERNAL_ERROR),
        "message": error.message,
        "data": {"error": mcp_error(error)},
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
