"""Output: check a result against its schema, remove secrets, and limit its size."""

from __future__ import annotations

import logging
import math
from operator import is_
from typing import Any

from pegboard.core.call.record import Call
from pegboard.core.digests import canonical_json
from pegboard.core.json_text import json_bytes
from pegboard.core.normalise import structured
from pegboard.core.redaction import Redactor
from pegboard.core.schema import NO_ARGUMENT, ArgumentProblem, Compiled, json_path
from pegboard.model.error import CallError, ToolError
from pegboard.model.json_types import JSONValue, is_list, is_object
from pegboard.model.record import replace
from pegboard.model.result import Content, ResourceContent, TextContent, ToolResult

SHOWN_MISFITS = 10  # problems shown of a result that is returned with a warning

log = logging.getLogger("pegboard")


def checked(call: Call, result: ToolResult, given: object) -> ToolResult:
    """Validate a result against the output schema. A tool with a schema must return structured output.

    `given` is the handler's return value. If it does not fit, it is converted again by the handler's annotation:
    the tool has run already, and Python treats `True` as an int.
    """
    promise = call.plan.output
    if promise is None or result.is_error:
        return result
    if not result.has_structured:
        text = result.text
        if len(result.content) != 1 or not promise.is_valid(text):
            if (reread := _reread(call, promise, given)) is not None:
                return reread
            raise CallError(
                "output_invalid",
                f"{call.name!r} ran, but gave no structured result as it promises.",
                hint="This is a bug of the tool: with an output schema it must return content blocks in "
                "ToolResult(content=…, structured=…).",
                outcome_unknown=True,
            )
        return result._replace(structured=text, has_structured=True)
    try:
        if promise.is_valid(result.structured):
            return result if call.plan.exact_output is None else _warned(call, call.plan.exact_output, result)
    except CallError as error:
        # The tool has run, so a result that takes too long to validate is returned with a warning.
        return _with_warning(result, [{"path": "$", "rule": error.error.kind, "message": error.error.message}])
    if (reread := _reread(call, promise, given)) is not None:
        return reread
    odd_numbers = _odd_numbers(given)
    problems = [
        problem._replace(message=odd_numbers.get(problem.path, problem.message))
        for problem in _problems(promise, result)
    ]
    listed = "; ".join(f"{problem.path}: {problem.message}" for problem in problems[:5])
    details = {"problems": [problem._asdict() for problem in problems]}
    text = f"{call.name!r} ran, but its result breaks its own output schema: {listed}."
    raise CallError("output_invalid", text, outcome_unknown=True, details=details)


def _reread(call: Call, promise: Compiled, given: object) -> ToolResult | None:
    """Return the result converted by its annotation; `None` if that fails."""
    if call.entry.reread is None:
        return None
    try:
        read = call.entry.reread(given)
        result = read if isinstance(read, ToolResult) else structured(read)
        return result if promise.is_valid(result.structured) else None
    except (CallError, ValueError, TypeError):
        return None


def _odd_numbers(given: object) -> dict[str, str]:
    """Return a problem text, by path, for each float that JSON cannot represent."""
    said: dict[str, str] = {}
    stack: list[tuple[tuple[str | int, ...], object]] = [((), given)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, float) and not math.isfinite(value):
            said[json_path(list(path))] = f"{value} is not a number in JSON; `float | None` gives it as null"
        elif is_object(value):
            stack += [((*path, str(key)), item) for key, item in value.items()]
        elif is_list(value) or isinstance(value, tuple):
            stack += [((*path, place), item) for place, item in enumerate(value)]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any
    return said


def _warned(call: Call, exact: Compiled, result: ToolResult) -> ToolResult:
    """Return the result with warnings about the declared schema, if only a weaker one is enforced."""
    try:
        if exact.is_valid(result.structured):
            return result
        problems = _problems(exact, result)
    except CallError:
        return result
    return _with_warning(result, [{"path": item.path, "rule": item.rule, "message": item.message} for item in problems])


def _with_warning(result: ToolResult, misfits: list[JSONValue]) -> ToolResult:
    return result._replace(meta={**result.meta, "output_mismatch": misfits[:SHOWN_MISFITS]})


def _problems(judge: Compiled, result: ToolResult) -> list[ArgumentProblem]:
    """Return the problems of a result, without values: they may contain data that the schema should keep in."""
    return [
        problem._replace(value="", message=problem.message.replace(NO_ARGUMENT, "is not in the schema"))
        for problem in judge.problems(result.structured)
    ]


def redacted(result: ToolResult, redactor: Redactor) -> ToolResult:
    """Return the result with every secret removed, in any spelling; the same object if it has none."""
    content, structure, meta, error = result.content, result.structured, result.meta, result.error
    clean = [_clean_block(block, redactor) for block in content]
    if len(clean) > 1:
        clean = _joined(clean, redactor)
    if not all(map(is_, clean, content)):
        content = tuple(clean)
    if result.has_structured:
        structure = redactor.value(structure)
    if meta:
        meta = redactor.value(meta if is_object(meta) else dict(meta))
    if error is not None:
        error = clean_error(error, redactor)
    if content is result.content and structure is result.structured and meta is result.meta and error is None:
        return result
    return result._replace(content=content, structured=structure, meta=meta, error=error)


def clean_error(error: ToolError, redactor: Redactor) -> ToolError:
    """Return the error with the secrets removed from its texts."""
    return replace(
        error,
        message=redactor.text(error.message),
        hint=redactor.text(error.hint),
        details=redactor.value(dict(error.details)),
    )


_BARE = (None, None)


def _joined(blocks: list[Content], redactor: Redactor) -> list[Content]:
    """Return the blocks without the secrets that begin in the text of one and continue in that of the next."""
    texts = [block.text for block in blocks if isinstance(block, TextContent | ResourceContent) and block.text]
    if len(texts) < 2 or (clean := redactor.texts(texts)) == texts:
        return blocks
    left = iter(clean)
    return [
        block._replace(text=next(left)) if isinstance(block, TextContent | ResourceContent) and block.text else block
        for block in blocks
    ]


def _clean_block(block: Content, redactor: Redactor) -> Content:
    if type(block) is TextContent and block[1:] == _BARE:
        text = redactor.text(block.text)
        return block if text is block.text else block._replace(text=text)
    clean: dict[str, Any] = {}
    for name, value in block._asdict().items():
        if isinstance(value, str):
            clean[name] = redactor.text(value)
        elif isinstance(value, bytes):
            clean[name] = _clean_bytes(value, redactor)
        elif isinstance(value, tuple | list):
            clean[name] = tuple(redactor.value([*value]))  # pyright: ignore[reportUnknownArgumentType] - JSON
        elif value is not None:
            clean[name] = value if isinstance(value, int) else redactor.value(dict(value))
    return block._replace(**clean)


def _clean_bytes(raw: bytes, redactor: Redactor) -> bytes:
    # latin-1 maps each byte to one character, so secrets are found and other bytes stay unchanged.
    text = raw.decode("latin-1")
    return redactor.text(text).encode("latin-1") if redactor.finds(text) else raw


def finished(call: Call, result: ToolResult) -> ToolResult:
    """Return the redacted result; `result_too_large` if it exceeds the cap.

    The size is checked before redaction, which costs time, and again after it, which may add bytes.
    """
    _check_size(call, result)
    if call.redactor is None or (clean := redacted(result, call.redactor)) is result:
        return result
    _check_size(call, clean)
    return clean


def _check_size(call: Call, result: ToolResult) -> None:
    own, cap = call.entry.spec.max_result_bytes, call.bounds.result_bytes
    setting = "limits.result_bytes"
    if own is not None and own < cap:
        cap, setting = own, "max_result_bytes"
    content = result.content
    if len(content) == 1 and type(block := content[0]) is TextContent and not call.is_by_hand:
        text, _, meta = block
        if meta is None and len(text) * 4 <= cap:
            return
    # A character has at most four bytes, so a short text fits without being encoded.
    if sum([_length(block, 4) for block in result.content]) <= cap and not call.is_by_hand:
        return
    size = sum(_length(block, 0) for block in result.content)
    if call.is_by_hand and result.structured is not None:
        # Structured output set by a tool may be far larger than its text, or not JSON at all.
        size = max(size, len(canonical_json(result.structured)))
    if size <= cap:
        return
    text = (
        f"{call.name!r} ran, but its result has {size} bytes, more than the {cap} allowed. Ask for less, or have "
        f"`{setting}` raised."
    )
    raise CallError("result_too_large", text, outcome_unknown=not call.entry.spec.is_read_only)


def _length(block: Content, bytes_a_character: int) -> int:
    """Return the size of a block in bytes; 0 bytes per character means an exact count."""
    size = 0
    for part in block:
        if isinstance(part, str):
            size += len(part) * bytes_a_character if bytes_a_character else len(part.encode("utf-8", "replace"))
        elif isinstance(part, bytes):
            size += len(part)
        elif part is not None:
            size += len(json_bytes(part, default=str))
    return size
