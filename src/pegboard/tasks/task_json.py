"""Task JSON: the form of a task in plain HTTP and on the command line."""

from __future__ import annotations

from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.task import TaskRecord
from pegboard.providers.mcp import mcp_error, mcp_result


def task_json(record: TaskRecord) -> JSON:
    """Return a task as JSON; missing values are left out."""
    shown: dict[str, JSONValue] = {
        "id": record.task_id,
        "tool": record.tool,
        "state": record.state,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "expires_at": record.created_at + record.ttl_s,
        "durable": record.is_durable,
    }
    if record.message:
        shown["message"] = record.message
    if record.fraction is not None:
        shown["fraction"] = record.fraction
    if record.questions:
        shown["questions"] = {
            key: {"message": question.message, "form": question.form} for key, question in record.questions.items()
        }
    if record.result is not None:
        shown["result"] = mcp_result(record.result)
    if record.error is not None:
        shown["error"] = mcp_error(record.error)
    return shown
