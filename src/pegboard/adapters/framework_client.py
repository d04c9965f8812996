"""Framework client: the client for one call; the agent's framework asks for its approval."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from pegboard.core.consent_text import QuestionTooLongError, consent_text, too_long
from pegboard.core.view import View
from pegboard.model.consent import ConsentRequest
from pegboard.model.context_ports import ClientBridge
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue

APPROVALS_REMEMBERED = 256  # pending approvals of one tool that are remembered

Ask: TypeAlias = "Callable[[str], Awaitable[bool | None]]"
"""Shows a person a question; `None` if nobody can be asked."""


class FrameworkClient:
    """Passes the framework's answer to its call, once, and stores the question.

    `answer` is a yes, a no, or `None` if nobody was asked yet. It applies to the called tool only, not to nested calls.
    `agreed_to` is the value of `question` when the person was asked, or part of it: if the definition or arguments
    have changed, the person is asked again. Other questions go to the previous client of the context. `ask` asks the
    person immediately, if the framework supports it.
    """

    def __init__(
        self,
        before: ClientBridge | None,
        *,
        answer: bool | None,
        agreed_to: Mapping[str, Any] | None,
        ask: Ask | None = None,
    ) -> None:
        self._before: Any = before
        self._ask = ask
        self._answer, self._agreed_to = answer, agreed_to
        self._called: str | None = None
        self.question: JSON | None = None
        """The question for the person: its text, and the call that the approval is bound to; `None` without one."""

    @property
    def supports_ui(self) -> bool:
        return self._before is not None and self._before.supports_ui

    def begins(self, tool: str, definition_hash: str) -> None:
        """Record the called tool; nested calls are reported later and ignored."""
        self._called = self._called or tool
        if (begins := getattr(self._before, "begins", None)) is not None:
            begins(tool, definition_hash)

    def has_paid(self, tool: str) -> bool:
        has_paid = getattr(self._before, "has_paid", None)
        return False if has_paid is None else has_paid(tool)

    def spent(self, request: ConsentRequest) -> None:
        if (spent := getattr(self._before, "spent", None)) is not None:
            spent(request)

    async def approve(self, request: ConsentRequest) -> bool | None:
        """Return the framework's answer for this call; otherwise that of the previous client, `None` without one."""
        if self._answer is not None and self._is_meant(request):
            answer, self._answer = self._answer, None
            return answer
        if request.tool == self._called:
            self.question = {**_bound(request), "question": _text(request)}
        if self._ask is not None:
            return await self._ask(_text(request))
        return None if self._before is None else await self._before.approve(request)

    def _is_meant(self, request: ConsentRequest) -> bool:
        agreed_to = self._agreed_to or {}
        same = all(agreed_to[key] == value for key, value in _bound(request).items() if key in agreed_to)
        return same and request.tool == self._called

    def can(self, capability: str) -> bool:
        can = getattr(self._before, "can", None)
        return False if can is None else can(capability)

    async def elicit(self, message: str, schema: JSONValue = None, **options: Any) -> JSONValue:
        return await self._client("ask a person for values").elicit(message, schema, **options)

    async def sample(self, prompt: str, **options: Any) -> JSONValue:
        return await self._client("lend a model").sample(prompt, **options)

    async def roots(self, **options: Any) -> list[JSON]:
        return await self._client("list its folders").roots(**options)

    async def log(self, data: JSONValue, **options: Any) -> None:
        if self._before is not None:
            await self._before.log(data, **options)

    def _client(self, need: str) -> Any:
        if self._before is None:
            raise CallError("consent_required", f"This framework cannot {need}; it can only ask for approval.")
        return self._before


def _bound(request: ConsentRequest) -> JSON:
    return {
        "tool": request.tool,
        "definition_hash": request.definition_hash,
        "args_digest": request.args_digest,
        "user_id": request.user_id,
    }


def _text(request: ConsentRequest) -> str:
    try:
        return consent_text(request)
    except QuestionTooLongError as error:
        raise too_long(request, error) from None


def for_one_call(
    view: View,
    *,
    answer: bool | None = None,
    agreed_to: Mapping[str, Any] | None = None,
    ask: Ask | None = None,
) -> tuple[View, FrameworkClient]:
    """Return the view for one call of a framework that asks people itself, and the client that carries the answer."""
    request = view.ctx.request
    client = FrameworkClient(request.client, answer=answer, agreed_to=agreed_to, ask=ask)
    return view.renewed(view.ctx.inside(host=view.ctx.host, request=request._replace(client=client))), client
