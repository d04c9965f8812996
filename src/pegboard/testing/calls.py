"""Calls: helpers for testing tool calls: recorded events, contexts, visibility assertions, scripted approvals."""

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
    """An observer that records every event in order; pass it as `callbacks=` of a call or to `catalog.observe`."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __getattr__(self, name: str) -> Callable[[Event], None]:
        if name not in _TYPES:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return self.events.append

    @property
    def types(self) -> list[str]:
        """The types of the recorded events, in order."""
        return [event.type for event in self.events]

    def of(self, event_type: EventType) -> list[Event]:
        """Return the events of one type."""
        return [event for event in self.events if event.type == event_type]

    def payloads(self, event_type: EventType) -> list[Mapping[str, JSONValue]]:
        """Return the payloads of the events of one type."""
        return [event.payload for event in self.of(event_type)]


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedContext(CallContext):
    """A call context for a handler that a test calls directly; `recorder` has the events that the handler emitted."""

    recorder: EventRecorder = field(default_factory=EventRecorder, repr=False)

    @property
    def events(self) -> list[Event]:
        """The events that the handler emitted: progress, custom events, events of sub-agents."""
        return self.recorder.events


def call_context(*, call_id: str = "", tool: str = "tool", **fields: Any) -> RecordedContext:
    """Return a context for calling a handler directly; `fields` are fields of `ToolContext`, such as `user_id`.

    No guards run when a handler is called directly. To test a call with its guards, use `view.call`.
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
    """Fail if a tool is hidden from the caller of a view; the message has the reason and the smallest fix.

    Raises:
        AssertionError: the tool is hidden.
    """
    decision = view.why(name)
    if not decision.visible:
        fix = "" if decision.fix is None else f" Fix: {decision.fix.text}."
        raise AssertionError(f"{name!r} is hidden, code {decision.code!r}: {decision.reason.rstrip('.')}.{fix}")


def assert_hidden(view: View, name: str, code: Code | None = None) -> None:
    """Fail if a tool is visible to the caller of a view; with `code`, also if it is hidden for another reason.

    Raises:
        AssertionError: the tool is visible, or hidden with another code.
    """
    decision = view.why(name)
    if decision.visible:
        raise AssertionError(f"{name!r} is visible: {decision.reason}.")
    if code is not None and decision.code != code:
        raise AssertionError(f"{name!r} is hidden by code {decision.code!r}, not {code!r}: {decision.reason}.")


@contextmanager
def isolated_catalog(name: str = "test") -> Generator[Catalog]:
    """Replace `default_catalog` by an empty catalog within the block, and yield it.

    Declarations of the test are gone after the block. `default_catalog` is global to the process, so only one test of
    a process may do this at a time.
    """
    fresh, own = Catalog(name), default_catalog.runtime
    default_catalog.runtime = fresh.runtime
    try:
        yield fresh
    finally:
        default_catalog.runtime = own


class ScriptedApprover:
    """Answers consent requests in the order of a script, and records them; pass it as `ToolContext(approve=…)`.

    Requests after the end of the script are denied.
    """

    def __init__(self, answers: tuple[bool, ...]) -> None:
        self.requests: list[ConsentRequest] = []
        self._answers = list(answers)

    def __call__(self, request: ConsentRequest) -> bool:
        self.requests.append(request)
        return self._answers.pop(0) if self._answers else False

    @property
    def left(self) -> int:
        """The number of answers that were not used yet."""
        return len(self._answers)


def scripted_approver(*answers: bool) -> ScriptedApprover:
    """Return an approver that gives these answers, one for each request."""
    return ScriptedApprover(answers)
