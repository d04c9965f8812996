"""Context ports: the connections of a call to its client and to its task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pegboard.model.consent import ConsentRequest
from pegboard.model.json_types import JSON, JSONValue


class ClientBridge(Protocol):
    """The requests that a call can send to its client.

    A client of the revision 2026-07-28 answers a question by calling again. Its bridge has more methods. `begins(tool,
    definition_hash)` is called for each call before anybody is asked. `has_paid(tool) -> bool` tells whether an earlier
    round was already charged to the limits. `carry(request, consent_id)` keeps an approval for the next round; `await
    carried(request, stands)` returns it unless `await stands(consent_id)` says that it was revoked. `spent(request)` is
    called when an approved call has ended. `keeps(request)` tells whether the call began in an earlier round or
    continues in the next; then a refusal does not give its approval back.
    """

    @property
    def supports_ui(self) -> bool: ...

    async def elicit(self, message: str, schema: JSONValue = None) -> JSONValue: ...

    async def approve(self, request: ConsentRequest) -> bool | None:
        """Ask the person for approval; `None` if the client cannot be asked now."""
        ...


class Client(ClientBridge, Protocol):
    """The MCP client at the other end of a call, as `ctx.client` of a handler.

    A question that the client cannot answer ends the call with `consent_required`. A client of the revision 2026-07-28
    answers by calling again: the tool then runs from its beginning, so ask before side effects that should happen once.
    `key` identifies a question within a call; without it, the text does.
    """

    def can(self, capability: str) -> bool:
        """Tell whether the client declared a capability: `elicitation`, `sampling` or `roots`."""
        ...

    async def elicit(self, message: str, schema: JSONValue = None, *, key: str | None = None) -> JSONValue:
        """Ask the person for values: an object that fits `schema`, or one value if the schema is not an object."""
        ...

    async def sample(self, prompt: str, *, max_tokens: int = ..., key: str | None = None) -> JSONValue:
        """Ask the client's own model; returns the text of its answer."""
        ...

    async def roots(self, *, key: str = ...) -> list[JSON]:
        """Ask for the client's root folders, each with its `uri` and optionally a `name`."""
        ...

    async def log(self, data: JSONValue, *, level: str = ..., logger: str = ...) -> None:
        """Send a log message to the client, if it wants messages of that level."""
        ...


class StepRunner(Protocol):
    """The durable side of one task, behind `CallContext.step` and `ask`. It belongs to the call `call_id` only.

    `has_run` is set once all guards have passed and the tool runs.
    """

    has_run: bool

    @property
    def task_id(self) -> str: ...

    @property
    def is_moving(self) -> bool:
        """Whether this run was stopped although its task continues, in another worker or later."""
        ...

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
        """Record the progress of the task, for callers who ask."""
        ...
