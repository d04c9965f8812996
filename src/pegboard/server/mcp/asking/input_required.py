"""InputRequiredChannel: asks a 2026-07-28 client, which calls again with the answers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any, cast

from pegboard.model.consent import ConsentAnswer, ConsentRequest, Stands
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_object
from pegboard.server.mcp.asking.client_channel import (
    CONSENT_KEY,
    ClientChannel,
    QuestionPendingError,
    misfit,
    url_question,
)
from pegboard.server.mcp.asking.notifications import Notifications

_RECORD = "consent"
_CONNECT = "pegboard.connect."
CONNECT_ROUNDS = 3  # how often a call asks to connect one source before it ends
INPUT_MISFITS = 3  # answers to one question that may be invalid before the call ends


class InputRequiredChannel(ClientChannel):
    """Collects the questions without an answer. The call ends, and the client repeats it with the answers.

    Code before a question therefore runs again in each round: a tool should ask first and act afterwards.

    Args:
        capabilities: what the client declared in this request.
        responses: the answers in this request by key, unvalidated; values may be of any type.
        state: the opened state of the previous round; `None` in the first round.
    """

    asks_by_calling_again = True

    def __init__(
        self,
        capabilities: Mapping[str, Any],
        *,
        responses: Mapping[str, object] | None = None,
        state: str | None = None,
    ) -> None:
        super().__init__(capabilities)
        self.questions: dict[str, JSON] = {}
        self._definitions: dict[str, str] = {}
        self._running: dict[str, JSON] = {}
        self._begun: set[str] = set()
        self._asking: str | None = None
        """The call that this round asks about."""
        self._limited: str | None = None
        self._responses = {} if responses is None else dict(responses)
        self._answers: dict[str, JSON] = {}
        self._misfits: dict[str, int] = {}
        """The number of invalid answers per question, over all rounds."""
        self._asked: str | None = None
        """The call that the previous round asked about."""
        self._agreed: dict[str, JSON] = {}
        """Approved calls that have not ended: they start again in each round. Approvals of ended calls are used up."""
        self._paid: str | None = None
        self._previous_definitions: dict[str, str] = {}
        self._links: dict[str, list[str]] = {}
        """The URLs that the earlier rounds asked to open, for each source to be connected."""
        if state is not None:
            self._go_on(json.loads(state))

    def _go_on(self, previous: JSON) -> None:
        """Restore the state of the previous round."""
        self._answers, self._agreed = previous.get("answers", {}), previous.get("agreed", {})
        self._asked, self._paid = previous.get("asked"), previous.get("paid")
        self._misfits, self._links = previous.get("misfits", {}), previous.get("links", {})
        self._previous_definitions = previous.get("definitions", {})

    def begins(self, tool: str, definition_hash: str) -> None:
        """Drop every answer if a definition changed in the meantime: the answers were meant for another definition."""
        self._definitions[tool] = definition_hash
        if self._previous_definitions.get(tool, definition_hash) != definition_hash:
            self._answers, self._responses, self._agreed, self._misfits = {}, {}, {}, {}
            self._asked = self._paid = None

    def has_paid(self, tool: str) -> bool:
        """Tell whether the previous round charged the limits of this call. Its nested calls are charged again."""
        if self._limited is not None:
            return False
        self._limited = tool
        return self._paid == tool

    async def _ask(self, key: str, request: JSON, *, bound_to: ConsentRequest | None = None) -> JSON:
        if bound_to is not None:
            return self._consent(key, request, _binding(bound_to))
        if key == CONSENT_KEY:
            raise CallError("tool_error", f"The key {key!r} is kept for consent; name the question otherwise.")
        known = self._answers.get(key)
        if known is not None:
            return known
        if key not in self._responses:
            return self._pend(key, request)
        answer = self._fitting(key, request, self._responses[key])
        self._answers[key] = answer
        return answer

    def _consent(self, key: str, request: JSON, call: str) -> JSON:
        """Return the answer to exactly this call. An unsolicited answer does not count."""
        answer: object = self._agreed.pop(call, None)
        if answer is None and self._asked == call:
            answer, self._asked = self._responses.pop(key, None), None
        self._asking = call
        if answer is None:
            return self._pend(key, request)
        fitting = self._fitting(key, request, answer)
        self._asking = None
        self._running[call] = fitting
        return fitting

    def _fitting(self, key: str, request: JSON, answer: object) -> JSON:
        """Return an answer that fits its question; otherwise ask again, up to `INPUT_MISFITS` times per question.

        A scripted client would repeat the same invalid answer forever.
        """
        why = misfit(request, answer)
        if why is None:
            return cast("JSON", answer)
        count = self._misfits[key] = self._misfits.get(key, 0) + 1
        if count >= INPUT_MISFITS:
            text = f"The client gave {count} answers that do not fit the question {key!r}; the last one: {why}."
            raise CallError("consent_required", text)
        if key != CONSENT_KEY and request["method"] == "elicitation/create":
            params = request["params"]
            request = {**request, "params": {**params, "message": f"{params['message']} (Not accepted: {why}.)"}}
        return self._pend(key, request)

    def opened_links(self) -> list[str]:
        """Return the URLs that the user agreed to open after the previous round."""
        return [urls[-1] for source, urls in self._links.items() if self._action(source) == "accept"]

    def ask_to_connect(self, source: str, message: str, url: str) -> bool:
        """Ask the user to connect a source in this round; False if the client cannot, or the user did not want to."""
        urls = self._links.get(source, [])
        is_refused = bool(urls) and self._action(source) != "accept"
        if not self.can_open_urls or is_refused or len(urls) >= CONNECT_ROUNDS:
            return False
        self._links[source] = [*urls, url]
        self.questions[f"{_CONNECT}{source}"] = url_question(message, url)
        return True

    def _action(self, source: str) -> object:
        answer = self._responses.get(f"{_CONNECT}{source}")
        return answer.get("action") if is_object(answer) else None

    async def carried(self, request: ConsentRequest, stands: Stands) -> ConsentAnswer | None:
        """Return the answer of an earlier round for a call that continues in this round, if it is still valid."""
        call = _binding(request)
        known = self._agreed.get(call, {})
        if known.get("action") not in ("accept", "decline"):
            return None
        answer = ConsentAnswer(known.get(_RECORD, ""), known["action"] == "accept")
        del self._agreed[call]
        if answer.is_yes and not await stands(answer.consent_id):
            return None
        self._running[call] = known
        self._begun.add(call)
        return answer

    def keeps(self, request: ConsentRequest) -> bool:
        """Tell whether the approval of a call must not be returned to the store: the call was running in an earlier
        round, or continues in the next one after the questions of this round.
        """
        call = _binding(request)
        return call in self._begun or (bool(self.questions) and call in self._running)

    def carry(self, request: ConsentRequest, consent_id: str) -> None:
        """Carry an approval to the next round: it was used up for this call, whatever its origin."""
        self._running[_binding(request)] = {"action": "accept", _RECORD: consent_id}

    def spent(self, request: ConsentRequest) -> None:
        """Record that an approved call has ended: the same call made again needs another approval.

        A refusal is kept, so that nobody is asked twice within one request.
        """
        call = _binding(request)
        if self._running.get(call, {}).get("action") != "decline":
            self._running.pop(call, None)

    def _pend(self, key: str, request: JSON) -> JSON:
        self.questions[key] = request
        raise QuestionPendingError(key)

    def state(self) -> str:
        """Return the state for the next round, before sealing."""
        # A question other than for consent comes from a running tool, whose limits are already charged.
        paid = self._limited if self.questions.keys() - {CONSENT_KEY} else None
        once = secrets.token_hex(12)
        consents = {"asked": self._asking, "agreed": self._running}
        known: JSON = {"answers": self._answers, "definitions": self._definitions, "paid": paid, "once": once}
        known["misfits"], known["links"] = self._misfits, self._links
        return json.dumps({**known, **consents})


class NotifyingChannel(Notifications, InputRequiredChannel):
    """A round whose request asked for progress or log notifications."""


def _binding(request: ConsentRequest) -> str:
    return f"{request.tool} {request.definition_hash} {request.args_digest}"


def once_of(state: str) -> str:
    """Return the unique mark of a state, which makes it usable only once."""
    return cast("str", json.loads(state)["once"])
