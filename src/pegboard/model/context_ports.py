"""Context ports: what a call can ask of the other end, and of the task that it is a part of. Ports of the context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pegboard.model.consent import ConsentRequest
from pegboard.model.json_types import JSON, JSONValue


class ClientBridge(Protocol):
    """What the client at the other end of this call can do for us.

    One that asks by having the client call again also has `begins(tool, definition_hash)`, which is told of each call
    before anybody is asked, and `has_paid(tool) -> bool`: whether limits were charged for it before its question. Its
    `carry(request, consent_id)` takes a yes along to the next round, where `await carried(request, stands)` gives
    it back if `await stands(consent_id)` says that nobody has taken it back;
    `spent(request)` hears that a call which was answered has ended, and `keeps(request)` tells whether it was begun in
    a round before, or goes on in the next: then its yes does not go back where it is refused now.
    """

    @property
    def supports_ui(self) -> bool: ...

    async def elicit(self, message: str, schema: JSONValue = None) -> JSONValue: ...

    async def approve(self, request: ConsentRequest) -> bool | None:
        """Ask the person for a yes; `None` when the client cannot be asked now."""
        ...


class Client(ClientBridge, Protocol):
    """The MCP client at the other end of a call, as `ctx.client` of a handler.

    A question that the client cannot answer ends the call with `consent_required`. A client of the revision 2026-07-28
    is asked by calling again with the answer: the tool then runs from its beginning, so ask before you do anything
    that should happen once. `key` names a question among those of one call; without it, its words do.
    """

    def can(self, capability: str) -> bool:
        """Tell whether it declared a capability: `elicitation`, `sampling` or `roots`."""
        ...

    async def elicit(self, message: str, schema: JSONValue = None, *, key: str | None = None) -> JSONValue:
        """Ask the person for values: an object that fits `schema`, or one value where the schema is no object."""
        ...

    async def sample(self, prompt: str, *, max_tokens: int = ..., key: str | None = None) -> JSONValue:
        """Ask the client's own model; gives the text of its answer."""
        ...

    async def roots(self, *, key: str = ...) -> list[JSON]:
        """Ask for the folders that the client works in, each with its `uri` and perhaps a `name`."""
        ...

    async def log(self, data: JSONValue, *, level: str = ..., logger: str = ...) -> None:
        """Send a line to its log, if it wants lines of that level."""
        ...


class StepRunner(Protocol):
    """The durable side of one task, behind `CallContext.step` and `ask`. It belongs to the call `call_id` alone.

    `has_run` is set when every guard has let that call pass, and its tool is run.
    """

    has_run: bool

    @property
    def task_id(self) -> str: ...

    @property
    def call_id(self) -> str: ...

    async def step(
        self,
        name: str,
        run: Callable[..., object],
        args: tuple[object, ...],
        *,
        retries: int,
        timeout_s: float | None,
    ) -> object: ...

    async def ask(self, question: str, schema: JSONValue) -> JSONValue: ...

    def progress(self, fraction: float, message: str) -> None:
        """Note how far the task is, for those who ask."""
        ...
