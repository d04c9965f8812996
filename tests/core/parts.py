"""The small parts that tests of the core share: a clock, an observer, a source, a few tools. All really work."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from pegboard import Catalog, Event, ToolContext, ToolResult, ToolSpec
from pegboard.model.event import EventType
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from pegboard.model.tool import Runs, ToolEntry

Args = dict[str, Any]
ANN = ToolContext(user_id="ann", space_id="s1", budget=None)


class Clock:
    """A monotonic clock that moves when it is told to."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Recorder:
    """An observer that keeps every event in the order of arrival."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __getattr__(self, name: str) -> Callable[[Event], None]:
        if name not in get_args(EventType):
            raise AttributeError(name)
        return self.events.append

    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def results(self) -> list[Event]:
        return [event for event in self.events if event.type == "on_tool_result"]


@dataclass(kw_only=True)
class FakeSource:
    """A source in memory whose state and listing the test sets."""

    name: str
    listed: list[ToolEntry] = field(default_factory=list)
    now: SourceState = field(default_factory=SourceState)
    declared: frozenset[str] = frozenset({"core"})
    started: int = 0
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def entries(self) -> Sequence[ToolEntry]:
        return self.listed

    def groups(self) -> frozenset[str]:
        return self.declared

    def state(self) -> SourceState:
        return self.now

    def subscribe(self, on_change: Callable[[], None]) -> None:
        self.listeners.append(on_change)

    async def start(self) -> None:
        self.started += 1

    async def stop(self) -> None:
        self.started -= 1

    def relist(self, listed: list[ToolEntry]) -> None:
        self.listed = listed
        for notify in self.listeners:
            notify()


class SlowSource(FakeSource):
    """Lists its tools when `arrives` is set, if it was waited for."""

    arrives: asyncio.Event
    is_waited_for: asyncio.Event

    async def first_listed(self) -> None:
        self.is_waited_for.set()
        await self.arrives.wait()
        self.relist([foreign(self.name, "read")])

    def state(self) -> SourceState:
        return SourceState(status="ok" if self.arrives.is_set() else "connecting", is_up=self.arrives.is_set())


def slow(name: str) -> SlowSource:
    source = SlowSource(name=name)
    source.arrives, source.is_waited_for = asyncio.Event(), asyncio.Event()
    return source


def foreign(source: str, name: str, **said: Any) -> ToolEntry:
    """Return a tool as a source lists it: foreign, of a toolset that a policy may name as a whole."""
    entry = ToolSpec(name=name, namespace=source, origin=f"{source}:1", **said).bind(echo)
    return replace(entry, source=source, is_foreign=True, is_toolset=True)


async def echo(ctx: object, args: Args) -> Args:
    return dict(args)


def spec(name: str = "echo", *, properties: Args | None = None, required: Sequence[str] = (), **said: Any) -> ToolSpec:
    """Return a declaration whose arguments are `properties`; anything goes where they are `None`."""
    schema: Args = {"type": "object", "properties": properties or {}}
    if required:
        schema["required"] = list(required)
    return ToolSpec(name=name, input_schema=schema, allow_unknown=properties is None, **said)


def one_tool(handler: Any = echo, *, runs: Runs | None = None, catalog: Catalog | None = None, **said: Any) -> Catalog:
    """Return a catalog with the tool `echo`, run by `handler`."""
    catalog = catalog or Catalog()
    catalog.register(spec(**said), handler, runs=runs)
    return catalog


def kind_of(result: ToolResult) -> str:
    """Return the kind of an error, or `ok`."""
    return "ok" if result.error is None else result.error.kind
