"""Provider calls: run the tool calls of one model answer, concurrently where that is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from pegboard.core.view import View
from pegboard.discovery.limits import BATCH_CALLS_AT_ONCE
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.result import ToolResult


class WantedCall(NamedTuple):
    """A tool call of the model: the exported name, and arguments as a dict or as JSON text."""

    id: str
    name: str
    arguments: JSONValue


def as_json(answer: object) -> JSON:
    """Return a provider's response as JSON, from an object of its SDK or from parsed JSON."""
    if isinstance(answer, Mapping):
        return dict(cast("Mapping[str, Any]", answer))
    return cast("Any", answer).model_dump(mode="json", exclude_unset=True, by_alias=True)


async def run_calls(view: View, target: str, calls: Sequence[WantedCall]) -> list[ToolResult]:
    """Run the calls on the View and return their results in order. Errors of guards and tools do not raise.

    Tools that are marked read-only or idempotent run concurrently, the others one after the other, in order.
    """
    results: list[ToolResult | None] = [None] * len(calls)
    places = asyncio.Semaphore(BATCH_CALLS_AT_ONCE)

    async def run(indexes: Sequence[int]) -> None:
        for index in indexes:
            async with places:
                results[index] = await _run(view, target, calls[index])

    await view.prepare()
    together = [index for index, call in enumerate(calls) if _may_overlap(view, target, call.name)]
    one_by_one = [index for index in range(len(calls)) if index not in together]
    async with asyncio.TaskGroup() as group:
        for indexes in (*([index] for index in together), one_by_one):
            group.create_task(run(indexes))
    return [result for result in results if result is not None]


async def _run(view: View, target: str, call: WantedCall) -> ToolResult:
    name = view.wire_name(target, call.name)
    try:
        arguments = view.decode(target, name, call.arguments)
    except KeyError:
        # The executor refuses callers without access, and records the refusal.
        arguments = call.arguments
    return await view.call(name, arguments.encode() if isinstance(arguments, str) else arguments)


def _may_overlap(view: View, target: str, name: str) -> bool:
    entry = view.find(view.wire_name(target, name))
    return entry is not None and (entry.spec.is_read_only or entry.spec.annotations.idempotent is True)
