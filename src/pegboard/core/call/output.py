"""Output: see that a result fits its promise, tells no secret, and is not too large."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, Any

import orjson

from pegboard.core.call.stages import Call, run_hook
from pegboard.core.hooks import describe
from pegboard.core.normalise import normalise
from pegboard.core.redaction import Redactor
from pegboard.core.schema import copied
from pegboard.core.stepping import InterruptedWaitError
from pegboard.model.error import CallError, ToolError
from pegboard.model.json_types import is_awaitable
from pegboard.model.result import Content, TextContent, ToolResult

if TYPE_CHECKING:
    from pegboard.core.executor import Guards

log = logging.getLogger("pegboard")


async def ask_after(call: Call, guards: Guards, result: ToolResult) -> ToolResult:
    """Show the result to the after-hooks; what one gives instead is checked again. One that fails is skipped."""
    kept = copied(result.structured)
    for hook in call.hooks.after:
        try:
            changed: Any = run_hook(hook, (call, result), guards, call)
            if changed is not None and is_awaitable(changed):
                changed = await changed
        except (asyncio.CancelledError, InterruptedWaitError):
            raise
        except BaseException as error:  # boundary: foreign code; the action is done, so its result is kept
            log.warning("After-hook %s failed on %r.", describe(hook), call.name, exc_info=error)
            if hook.required:
                raise _refused_after(call, error) from error
            changed = None
        if result.structured != kept:
            # What a hook writes into the result that it is shown is lost: nobody would have checked it.
            result = result._replace(structured=copied(kept))
        if changed is not None:
            call.is_by_hand = type(changed) is ToolResult
            result = checked(call, normalise(changed))
            kept = copied(result.structured)
    return result


def _refused_after(call: Call, error: BaseException) -> CallError:
    if isinstance(error, CallError):
        return error
    text = f"A required check after {call.name!r} failed. It was run: do not repeat it unseen."
    return CallError("hook_refused", text, outcome_unknown=True)


def checked(call: Call, result: ToolResult) -> ToolResult:
    """Hold a result against the output schema. A tool that promises structure must give it."""
    promise = call.plan.output
    if promise is None or result.is_error:
        return result
    if not result.has_structured:
        text = result.text
        if len(result.content) != 1 or not promise.is_valid(text):
            raise CallError(
                "output_invalid",
                f"{call.name!r} ran, but gave no structured result as it promises.",
                outcome_unknown=True,
            )
        return result._replace(structured=text, has_structured=True)
    if promise.is_valid(result.structured):
        return result
    problems = promise.problems(result.structured)
    listed = "; ".join(f"{problem.path}: {problem.message}" for problem in problems[:5])
    # The values stay out: they may hold what the schema was to keep in.
    details = {"problems": [problem._replace(value="")._asdict() for problem in problems]}
    text = f"{call.name!r} ran, but its result breaks its own output schema: {listed}."
    raise CallError("output_invalid", text, outcome_unknown=True, details=details)


def redacted(result: ToolResult, redactor: Redactor) -> ToolResult:
    """Return the result without any secret in use, in whatever spelling."""
    content = tuple(_clean_block(block, redactor) for block in result.content)
    structure = redactor.value(result.structured) if result.has_structured else result.structured
    error = clean_error(result.error, redactor) if result.error is not None else None
    return result._replace(content=content, structured=structure, error=error, meta=redactor.value(dict(result.meta)))


def clean_error(error: ToolError, redactor: Redactor) -> ToolError:
    """Return the error without secrets in its words."""
    return dataclasses.replace(
        error,
        message=redactor.text(error.message),
        hint=redactor.text(error.hint),
        details=redactor.value(dict(error.details)),
    )


def _clean_block(block: Content, redactor: Redactor) -> Content:
    clean: dict[str, Any] = {}
    for name, value in block._asdict().items():
        if isinstance(value, str):
            clean[name] = redactor.text(value)
        elif isinstance(value, bytes):
            clean[name] = _clean_bytes(value, redactor)
    return block._replace(**clean)


def _clean_bytes(raw: bytes, redactor: Redactor) -> bytes:
    # latin-1 keeps one character a byte, so a secret is found and nothing else is changed.
    text = raw.decode("latin-1")
    return redactor.text(text).encode("latin-1") if redactor.finds(text) else raw


def finished(call: Call, guards: Guards, result: ToolResult) -> ToolResult:
    """Return the result without secrets; `result_too_large` when it is."""
    if call.redactor is not None:
        result = redacted(result, call.redactor)
    own = call.entry.spec.max_result_bytes
    cap = guards.bounds.result_bytes if own is None else min(own, guards.bounds.result_bytes)
    content = result.content
    if (
        len(content) == 1
        and type(content[0]) is TextContent
        and len(content[0].text) * 4 <= cap
        and not call.is_by_hand
    ):
        return result
    # Four bytes a character at most: what is short need not be encoded to know that it fits.
    if sum([_length(block, 4) for block in result.content]) <= cap and not call.is_by_hand:
        return result
    size = sum(_length(block, 0) for block in result.content)
    if call.is_by_hand and result.structured is not None:
        # Structure that a tool put beside its text by hand may be far larger than the text, or no JSON at all.
        size = max(size, len(orjson.dumps(result.structured, default=str)))
    if size <= cap:
        return result
    text = f"{call.name!r} ran, but its result has {size} bytes, more than the {cap} allowed. Ask for less."
    raise CallError("result_too_large", text, outcome_unknown=not call.entry.spec.is_read_only)


def _length(block: Content, bytes_a_character: int) -> int:
    """Return the bytes of a block; 0 bytes a character means: count them."""
    size = 0
    for part in block:
        if isinstance(part, str):
            size += len(part) * bytes_a_character if bytes_a_character else len(part.encode("utf-8", "replace"))
        elif isinstance(part, bytes):
            size += len(part)
    return size
