"""Unanswered requests: questions to a client of an earlier revision that are still open during a call."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pegboard.core.identifiers import new_id
from pegboard.model.consent import ConsentRequest
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.server.mcp.asking.client_channel import misfit
from pegboard.server.mcp.asking.earlier_channel import EarlierChannel
from pegboard.server.mcp.asking.notifications import MessageOutlet, Notifications
from pegboard.server.mcp.protocol.jsonrpc import as_object

_ASKED_BY = re.compile(r"pegboard-([0-9a-f]{16})-")
_FEWER_RIGHTS = "the sender of the answer no longer has all the roles that the call began with."


class _Question(NamedTuple):
    """An open question, and the roles of the caller when the call began."""

    answered: asyncio.Future[JSON]
    roles: frozenset[str]


class UnansweredRequests:
    """The open questions of one client, each with a unique id.

    Args:
        worker: the name of the asking worker if there are several; part of the ids.
        refusal: the reason why the client cannot be asked.
    """

    def __init__(self, worker: str = "", refusal: str | None = None) -> None:
        self._open: dict[str, _Question] = {}
        self._prefix = f"pegboard-{worker}-" if worker else "pegboard-"
        self.refusal = refusal

    async def ask(self, outlet: MessageOutlet, request: JSON, *, roles: Iterable[str] = ()) -> JSON:
        """Send a request on the stream of a call that began with these roles; return the client's response.

        Raises:
            CallError: `consent_required`; the client cannot be asked.
        """
        if self.refusal is not None:
            raise CallError("consent_required", f"The client could not be asked. {self.refusal}")
        question_id = f"{self._prefix}{new_id()}"
        answered: asyncio.Future[JSON] = asyncio.get_running_loop().create_future()
        self._open[question_id] = _Question(answered, frozenset(roles))
        try:
            await outlet.send({"jsonrpc": "2.0", "id": question_id, **request})
            return await answered
        except asyncio.CancelledError:
            await outlet.notify("notifications/cancelled", {"requestId": question_id})
            raise
        finally:
            del self._open[question_id]

    def take(self, response: JSON, *, roles: Iterable[str] | None = None) -> bool:
        """Accept a response; return False if it does not answer one of our questions.

        `roles` are the sender's current roles, or `None` if unknown. The call continues with the roles it began with,
        so an answer from a sender who has lost one of them is rejected, and the call gets an error.
        """
        question_id: JSONValue = response.get("id")
        question = self._open.get(question_id) if isinstance(question_id, str) else None
        if question is None:
            return False
        if not question.answered.done():
            may_answer = roles is None or question.roles.issubset(roles)
            question.answered.set_result(response if may_answer else {"error": {"message": _FEWER_RIGHTS}})
        return True

    def end(self) -> None:
        """Tell all waiting calls that there will be no answer."""
        for answered, _ in self._open.values():
            if not answered.done():
                answered.set_result({"error": {"message": "the session has ended."}})


def worker_of(question_id: object) -> str | None:
    """Return the name of the worker that asked a question, taken from its id; `None` if the id does not contain one."""
    match = _ASKED_BY.match(question_id) if isinstance(question_id, str) else None
    return None if match is None else match[1]


class UnfitAnswerError(CallError):
    """The client answered a question with an error, or with something that does not fit it."""


class SessionChannel(Notifications, EarlierChannel):
    """Sends the client a request and waits for its answer, on the stream of this call."""

    def ask_through(self, outlet: MessageOutlet, questions: UnansweredRequests, *, roles: Iterable[str] = ()) -> None:
        """Ask on the stream of this call, which has these roles; the answer may arrive on any connection."""
        self._asking, self._questions, self._roles = outlet, questions, roles

    def tell_through_session(self, tell_soon: Callable[[JSON], None], awaited: set[str]) -> None:
        """Send what belongs to no request with `tell_soon`. `awaited` are pages that the session's user has to open."""
        self._tell_soon, self.awaited = tell_soon, awaited

    def completed(self, elicitation_id: str) -> None:
        """Tell the client that its user is done at a page. Source: MCP 2025-11-25, elicitation, URL mode."""
        method, params = "notifications/elicitation/complete", {"elicitationId": elicitation_id}
        self._tell_soon({"jsonrpc": "2.0", "method": method, "params": params})

    async def close_stream(self) -> None:
        await self._asking.close()

    async def put(self, key: str, request: JSON) -> JSON:
        """Send a question in wire form and return the client's answer.

        Raises:
            UnfitAnswerError: the client answered with an error, or its answer does not fit.
            CallError: the client cannot be asked.
        """
        return await self._ask(key, request)

    async def _ask(self, key: str, request: JSON, *, bound_to: ConsentRequest | None = None) -> JSON:
        response = await self._questions.ask(self._asking, request, roles=self._roles)
        error, result = as_object(response.get("error")), as_object(response.get("result"))
        if error is not None:
            raise UnfitAnswerError("consent_required", f"The client could not be asked: {error.get('message')}")
        why = misfit(request, result)
        if result is None or why is not None:
            text = f"The client's answer does not fit the question ({key!r}): {why}."
            raise UnfitAnswerError("consent_required", text)
        return result
