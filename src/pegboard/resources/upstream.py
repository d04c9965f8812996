"""Beside: what sources offer beside tools, in the form of this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from pegboard.model.resource import CompletionSpec, PromptArgument, PromptSpec, ResourceSpec, Spec
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry
from pegboard.sources.mcp.upstream_resources import UpstreamEntry


@runtime_checkable
class Offering(Protocol):
    """A source that has more than tools."""

    @property
    def name(self) -> str: ...

    def resource_entries(self) -> Sequence[UpstreamEntry]:
        """Return the last good lists."""
        ...

    def groups(self) -> frozenset[str]: ...

    def state(self) -> SourceState: ...


class Beside:
    """The resources, prompts and completions of one source, at one moment. Fills the port `Source`.

    It is started, stopped and watched by the catalog, whose source it is: here it is only read.
    """

    def __init__(self, source: Offering) -> None:
        self._source = source
        found = source.resource_entries()
        self._entries = tuple(one.entry for one in found)
        self.specs: Mapping[str, Spec] = {one.entry.qualified_id: _spec(one) for one in found}

    @property
    def name(self) -> str:
        return self._source.name

    def entries(self) -> Sequence[ToolEntry]:
        return self._entries

    def groups(self) -> frozenset[str]:
        return self._source.groups()

    def state(self) -> SourceState:
        return self._source.state()

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Do nothing: the catalog tells of changes."""

    async def start(self) -> None:
        """Do nothing: the catalog starts it."""

    async def stop(self) -> None:
        """Do nothing: the catalog stops it."""


def _spec(one: UpstreamEntry) -> Spec:
    said: dict[str, Any] = dict(one.fields)
    if one.kind == "resource":
        return ResourceSpec(**said)
    if one.kind == "completion":
        return CompletionSpec(**said)
    arguments = tuple(PromptArgument(*argument) for argument in said.pop("arguments"))
    return PromptSpec(arguments=arguments, **said)
