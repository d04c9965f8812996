"""Request: what belongs to one request or turn and to all calls in it."""

from __future__ import annotations

import os
from typing import NamedTuple

from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.budget import Spending
from pegboard.model.context_ports import ClientBridge, StepRunner
from pegboard.model.error import CallError


class CallBudget:
    """The number of calls that one root request may still make, shared by all its sub-agents.

    `max_calls=None` means the bound `calls_per_request`.
    """

    __slots__ = ("max_calls", "used")

    def __init__(self, max_calls: int | None = None) -> None:
        self.max_calls = max_calls
        self.used: int = 0

    def spend(self, *, default: int | None = None, look_only: bool = False) -> None:
        """Take one call from the budget, or with `look_only` check that one is left.

        Raises:
            CallError: `budget_exceeded`, if none is left.
        """
        limit = default if self.max_calls is None else self.max_calls
        if limit is None:
            limit = DEFAULT_BOUNDS.calls_per_request
        if self.used >= limit:
            raise CallError(
                "budget_exceeded",
                f"This request has made its {limit} calls. Finish with what is known, or start a new request.",
                hint="Hosts: one ToolContext a request; `budget=CallBudget(n)` changes the number.",
            )
        if not look_only:
            self.used += 1


class Attachment(NamedTuple):
    """A file that came with a request: bytes, which JSON arguments cannot hold."""

    content: bytes

    def __repr__(self) -> str:
        return f"Attachment({len(self.content)} bytes)"


class Request(NamedTuple):
    """One request or turn: its id, deadline (on the executor's clock, seconds), budget, client and observers.

    `observers` receive the events of its calls. `steps` is the durable side if a task runs a call of the request.
    `door` names the transport of the request, such as `mcp` or `http`; empty for host code. `hops` are the ids of the
    servers that it has passed, this one last; empty without a server.
    `attachment` is the file that it uploads. `spending` is what the surrounding call passes on to budgets.
    """

    id: str
    client: ClientBridge | None = None
    observers: object = None
    deadline: float | None = None
    budget: CallBudget | None = None
    depth: int = 0
    parent_call: str | None = None
    conversation: object = None
    message: object = None
    message_queue: object = None
    steps: StepRunner | None = None
    door: str = ""
    hops: tuple[str, ...] = ()
    attachment: Attachment | None = None
    spending: Spending | None = None


def new_request() -> Request:
    """Return a request with an unguessable id and its own budget."""
    return Request(os.urandom(16).hex(), budget=CallBudget())
