"""Context ports: what a call can ask of the other end, and of the task that it is a part of. Ports of the context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pegboard.model.consent import ConsentRequest
from pegboard.model.json_types import JSONValue


class ClientBridge(Protocol):
    """What the client at the other end of this call can do for us.

    One that asks by having the client call again also has `begins(tool, definition_hash)`, which is told of each call
    before anybody is asked, and `has_paid(tool) -> bool`: whether limits were charged for it before its question. Its
    `spent(request)` hears that a call which was answered has ended.
    """

    @property
    def supports_ui(self) -> bool: ...

    async def elicit(self, message: str, schema: JSONValue = None) -> JSONValue: ...

    async def approve(self, request: ConsentRequest) -> bool | None:
        """Ask the person for a yes; `None` when the client cannot be asked now."""
        ...


class StepRunner(Protocol):
    """The durable side of one task, behind `CallContext.step` and `ask`."""

    async def step(
        self, name: str, run: Callable[..., object], args: tuple[object, ...], *, retries: int
    ) -> object: ...

    async def ask(self, question: str, schema: JSONValue) -> JSONValue: ...
