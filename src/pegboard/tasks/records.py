"""Records: convert tasks, results and errors to JSON and back. Later versions must be able to read it."""

from __future__ import annotations

import base64
from typing import Any, cast

from pegboard.model.caller import Caller
from pegboard.model.error import ToolError
from pegboard.model.json_types import JSON
from pegboard.model.policy import Policy
from pegboard.model.result import CONTENT_TYPES, Content, ToolResult
from pegboard.model.task import Agreement, Outcome, Question, TaskCall

_BLOCKS: dict[str, type[Any]] = {kind.__name__: kind for kind in CONTENT_TYPES}
_CALLER = ("user_id", "space_id", "session_id", "agent", "credential", "address")
_PLAIN = (
    "task_id", "owner", "tool", "definition_hash", "arguments", "created_at", "ttl_s", "profile", "depth",
    "request_id", "door",
)  # fmt: skip


def call_to_json(call: TaskCall) -> JSON:
    """Return the stored form of a call."""
    return {
        **{name: getattr(call, name) for name in _PLAIN},
        "include": None if call.include is None else list(call.include),
        "internal": list(call.internal),
        "hops": list(call.hops),
        "agreed": None if call.agreed is None else list(call.agreed),
        "caller": {
            **{name: getattr(call.caller, name) for name in _CALLER},
            "roles": sorted(call.caller.roles),
            "proof": call.caller.proof,
            "policy": _policy_to_json(call.caller.policy),
        },
    }


def call_of_json(stored: JSON) -> TaskCall:
    """Return a call from its stored form."""
    caller, include, agreed = stored["caller"], stored["include"], stored["agreed"]
    stored_caller = Caller(
        **{name: caller[name] for name in _CALLER},
        roles=frozenset(caller["roles"]),
        # Records of versions that did not store it lack it.
        proof=caller.get("proof", ""),
        policy=_policy_of_json(caller["policy"]) or Policy(),
    )
    return TaskCall(
        **{name: stored[name] for name in _PLAIN},
        caller=stored_caller,
        include=None if include is None else tuple(include),
        internal=tuple(stored["internal"]),
        # Like the proof above.
        hops=tuple(stored.get("hops", ())),
        agreed=None if agreed is None else Agreement(*agreed),
    )


def _policy_to_json(policy: Policy | None) -> JSON | None:
    if policy is None:
        return None
    allow = None if policy.allow is None else list(policy.allow)
    return {
        "allow": allow,
        "deny": list(policy.deny),
        "within": _policy_to_json(policy.within),
        "origin": policy.origin,
    }


def _policy_of_json(stored: JSON | None) -> Policy | None:
    if stored is None:
        return None
    allow = None if stored["allow"] is None else tuple(stored["allow"])
    return Policy(
        allow=allow, deny=tuple(stored["deny"]), within=_policy_of_json(stored["within"]), origin=stored["origin"]
    )


def outcome_to_json(outcome: Outcome) -> JSON:
    """Return the stored form of an outcome."""
    error = None if outcome.error is None else error_to_json(outcome.error)
    return {"result": None if outcome.result is None else _result_to_json(outcome.result), "error": error}


def outcome_of_json(stored: JSON) -> Outcome:
    """Return an outcome from its stored form."""
    error, result = stored["error"], stored["result"]
    return Outcome(None if result is None else _result_of_json(result), None if error is None else error_of_json(error))


def _result_to_json(result: ToolResult) -> JSON:
    return {
        "content": [_block_to_json(block) for block in result.content],
        "structured": result.structured,
        "has_structured": result.has_structured,
        "is_error": result.is_error,
        "error": None if result.error is None else error_to_json(result.error),
        "meta": dict(result.meta),
    }


def _result_of_json(stored: JSON) -> ToolResult:
    error = stored["error"]
    return ToolResult(
        tuple(_block_of_json(block) for block in stored["content"]),
        stored["structured"],
        stored["is_error"],
        None if error is None else error_of_json(error),
        stored["meta"],
        stored["has_structured"],
    )


def _block_to_json(block: Content) -> JSON:
    fields = {
        name: {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
        for name, value in block._asdict().items()
    }
    return {"block": type(block).__name__, **fields}


def _block_of_json(stored: JSON) -> Content:
    fields = {
        name: base64.b64decode(value["base64"]) if _is_bytes(name, value) else value
        for name, value in stored.items()
        if name != "block"
    }
    return cast("Content", _BLOCKS[stored["block"]](**fields))


def _is_bytes(name: str, value: Any) -> bool:
    return name in ("data", "blob") and isinstance(value, dict)


def error_to_json(error: ToolError) -> JSON:
    """Return the stored form of an error."""
    return {
        "kind": error.kind,
        "message": error.message,
        "hint": error.hint,
        "retryable": error.retryable,
        "retry_after_s": error.retry_after_s,
        "outcome_unknown": error.outcome_unknown,
        "details": dict(error.details),
    }


def error_of_json(stored: JSON) -> ToolError:
    """Return an error from its stored form."""
    return ToolError(**stored)


def question_to_json(question: Question) -> JSON:
    """Return the stored form of a question."""
    return {"message": question.message, "form": question.form, "is_single": question.is_single}


def question_of_json(stored: JSON) -> Question:
    """Return a question from its stored form."""
    return Question(**stored)
