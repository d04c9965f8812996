"""Provider calls: the calls of one answer of a model, run through the door, together where that is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from pegboard.core.view import View
from pegboard.discovery.meta_tools.limits import BATCH_CALLS_AT_ONCE
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.result import ToolResult


class WantedCall(NamedTuple):
    """A call that a model wants: by the name that it was sent, with arguments as a dict or as JSON text."""

    id: str
    name: str
    arguments: JSONValue


def as_json(answer: object) -> JSON:
    """Return a provider's answer as JSON: that of its SDK, or what was read of the wire."""
    if isinstance(answer, Mapping):
        return dict(cast("Mapping[str, Any]", answer))
    return cast("Any", answer).model_dump(mode="json", exclude_unset=True, by_alias=True)


async def run_calls(view: View, target: str, calls: Sequence[WantedCall]) -> list[ToolResult]:
    """Run the calls on the View and return their results in order. None raises for what a guard or a tool did.

    Tools that are marked read-only or idempotent run together, the others one after the other, in order.
    """
    results: list[ToolResult | None] = [None] * len(calls)
    places = asyncio.Semaphore(BATCH_CALLS_AT_ONCE)

    async def run(indexes: Sequence[int]) -> None:
        for index in indexes:
            async with places:
                results[index] = await _run(view, target, calls[index])

    await view.prepare()
    together = [index for index, call in enumerate(calls) if _may_overlap(view, target, call.name)]
    apart = [index for index in range(len(calls)) if index not in together]
    async with asyncio.TaskGroup() as group:
        for indexes in (*([index] for index in together), apart):
            group.create_task(run(indexes))
    return [result for result in results if result is not None]


async def _run(view: View, target: str, call: WantedCall) -> ToolResult:
    name = view.wire_name(target, call.name)
    try:
        arguments = view.decode(target, name, call.arguments)
    except KeyError:
        # Whoever is not allowed it is told so by the door, where it is counted and recorded.
        arguments = call.arguments
    return await view.call(name, arguments.encode() if isinstance(arguments, str) else arguments)


def _may_overlap(view: View, target: str, name: str) -> bool:
    entry = view.find(view.wire_name(target, name))
    return entry is not None and (entry.spec.is_read_only or entry.spec.annotations.idempotent is True)
