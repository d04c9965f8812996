"""Unanswered requests: what a client has yet to answer, in the middle of a call of an earlier revision."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
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
_FEWER_RIGHTS = "whoever answered has not all the roles any more that the call began with."


class _Question(NamedTuple):
    """One that is open, and the roles with which the call began that asks it."""

    answered: asyncio.Future[JSON]
    roles: frozenset[str]


class UnansweredRequests:
    """The open questions of one client. Each has an id that no other question has.

    Args:
        worker: the name of the worker that asks, where there may be others; part of the ids.
        refusal: why nobody can be asked.
    """

    def __init__(self, worker: str = "", refusal: str | None = None) -> None:
        self._open: dict[str, _Question] = {}
        self._prefix = f"pegboard-{worker}-" if worker else "pegboard-"
        self.refusal = refusal

    async def ask(self, outlet: MessageOutlet, request: JSON, *, roles: Iterable[str] = ()) -> JSON:
        """Send a request on the stream of a call, which began with these roles; return the client's response to it.

        Raises:
            CallError: `consent_required`; nobody can be asked.
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
        """Take a response; `False` when it answers no question of ours.

        `roles` are those that whoever sends it has now, `None` where nobody can say. The call that asks goes on with
        those that it began with: who has fewer by now answers nothing, and the call learns that.
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
        """Tell all who wait that nobody will answer."""
        for answered, _ in self._open.values():
            if not answered.done():
                answered.set_result({"error": {"message": "the session has ended."}})


def worker_of(question_id: object) -> str | None:
    """Return the worker that asked a question, by its id; `None` where that says nothing of it."""
    match = _ASKED_BY.match(question_id) if isinstance(question_id, str) else None
    return None if match is None else match[1]


class SessionChannel(Notifications, EarlierChannel):
    """Sends the client a request of its own and waits for the answer, on the stream of this call."""

    def ask_through(self, outlet: MessageOutlet, questions: UnansweredRequests, *, roles: Iterable[str] = ()) -> None:
        """Ask on the stream of this call, which has these roles; its client answers wherever it likes."""
        self._asking, self._questions, self._roles = outlet, questions, roles

    async def close_stream(self) -> None:
        await self._asking.close()

    async def put(self, key: str, request: JSON) -> JSON:
        """Send a ready question, and return the client's answer.

        Raises:
            CallError: there is none, or it does not fit.
        """
        return await self._ask(key, request)

    async def _ask(self, key: str, request: JSON, *, bound_to: ConsentRequest | None = None) -> JSON:
        response = await self._questions.ask(self._asking, request, roles=self._roles)
        error, result = as_object(response.get("error")), as_object(response.get("result"))
        if error is not None:
            raise CallError("consent_required", f"The client could not be asked: {error.get('message')}")
        why = misfit(request, result)
        if result is None or why is not None:
            raise CallError("consent_required", f"The client's answer does not fit the question ({key!r}): {why}.")
        return result
