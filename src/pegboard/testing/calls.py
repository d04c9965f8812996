"""Calls: what users test calls of their tools with: recorded events, contexts, who sees what, a scripted person."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

from pegboard.catalog import Catalog, default_catalog
from pegboard.core.call.listeners import DELIVERED
from pegboard.core.view import View
from pegboard.model.call_context import CallContext
from pegboard.model.consent import ConsentRequest
from pegboard.model.context import ToolContext
from pegboard.model.decision import Code
from pegboard.model.event import Event, EventType
from pegboard.model.json_types import JSONValue

_TYPES = frozenset(get_args(EventType))


class EventRecorder:
    """An observer that keeps every event in the order of arrival: `callbacks=` of a call, or `catalog.observe`."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __getattr__(self, name: str) -> Callable[[Event], None]:
        if name not in _TYPES:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return self.events.append

    @property
    def types(self) -> list[str]:
        """The types of what was heard, in order."""
        return [event.type for event in self.events]

    def of(self, event_type: EventType) -> list[Event]:
        """Return the events of one type."""
        return [event for event in self.events if event.type == event_type]

    def payloads(self, event_type: EventType) -> list[Mapping[str, JSONValue]]:
        """Return what the events of one type say."""
        return [event.payload for event in self.of(event_type)]


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedContext(CallContext):
    """A call context for a handler that a test calls by itself; `recorder` has what it emitted."""

    recorder: EventRecorder = field(default_factory=EventRecorder, repr=False)

    @property
    def events(self) -> list[Event]:
        """What the handler emitted: progress, events of its own, those of sub-agents."""
        return self.recorder.events


def call_context(*, call_id: str = "", tool: str = "tool", **fields: Any) -> RecordedContext:
    """Return a context to call a handler with; `fields` are those of `ToolContext`, such as `user_id` and `secrets`.

    No guard stands before the handler then: to test what a caller meets, call it on a view.
    """
    origin, recorder, numbers = ToolContext(**fields), EventRecorder(), itertools.count()
    identity = call_id or os.urandom(8).hex()

    def emit(
        event_type: EventType, payload: Mapping[str, JSONValue], ok: bool | None = None, /, of: Event | None = None
    ) -> Awaitable[None]:
        request = origin.request
        if of is not None:
            recorder.events.append(of)
            return DELIVERED
        about = (event_type, tool, request.id, identity, request.parent_call, next(numbers), time.time(), ok, payload)
        recorder.events.append(Event(*about))
        return DELIVERED

    return RecordedContext(
        caller=origin.caller,
        host=origin.host,
        request=origin.request,
        memo=origin.memo,
        origin_context=origin,
        emitter=emit,
        call_id=identity,
        tool=tool,
        recorder=recorder,
    )


def assert_visible(view: View, name: str) -> None:
    """Fail, with the reason and the smallest fix, unless the caller of a view may use the tool.

    Raises:
        AssertionError: it is hidden.
    """
    decision = view.why(name)
    if not decision.visible:
        fix = "" if decision.fix is None else f" Fix: {decision.fix.text}."
        raise AssertionError(f"{name!r} is hidden, code {decision.code!r}: {decision.reason.rstrip('.')}.{fix}")


def assert_hidden(view: View, name: str, code: Code | None = None) -> None:
    """Fail unless a tool is hidden from the caller of a view, and for this reason where `code` says one.

    Raises:
        AssertionError: it is visible, or hidden by another code.
    """
    decision = view.why(name)
    if decision.visible:
        raise AssertionError(f"{name!r} is visible: {decision.reason}.")
    if code is not None and decision.code != code:
        raise AssertionError(f"{name!r} is hidden by code {decision.code!r}, not {code!r}: {decision.reason}.")


@contextmanager
def isolated_catalog(name: str = "test") -> Generator[Catalog]:
    """Let `default_catalog` be an empty catalog for the time of the block, so that a test declares nothing for good.

    Gives that catalog. One test of a process at a time: `default_catalog` belongs to the process.
    """
    fresh, own = Catalog(name), default_catalog.runtime
    default_catalog.runtime = fresh.runtime
    try:
        yield fresh
    finally:
        default_catalog.runtime = own


class ScriptedApprover:
    """Answers questions for consent in the order of a script, and keeps them; for `ToolContext(approve=…)`.

    A question beyond the script is a no.
    """

    def __init__(self, answers: tuple[bool, ...]) -> None:
        self.requests: list[ConsentRequest] = []
        self._answers = list(answers)

    def __call__(self, request: ConsentRequest) -> bool:
        self.requests.append(request)
        return self._answers.pop(0) if self._answers else False

    @property
    def left(self) -> int:
        """How many answers nobody asked for."""
        return len(self._answers)


def scripted_approver(*answers: bool) -> ScriptedApprover:
    """Return a person who gives these answers, one to each question."""
    return ScriptedApprover(answers)
