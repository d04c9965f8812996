"""InputRequiredChannel: ask a client of 2026-07-28, which is told what is missing and calls again with the answers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any, cast

from pegboard.model.consent import ConsentRequest
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.server.mcp.client_channel import CONSENT_KEY, ClientChannel, fits


class InputRequiredChannel(ClientChannel):
    """Collects the questions that have no answer yet. The call ends, and begins again with the client's answers.

    So code that stands before a question runs again in each round: a tool asks first and acts afterwards.

    Args:
        capabilities: what the client declared with this very request.
        responses: answers that came with it, by key, from the client as they are.
        state: what we sealed in the round before, opened again; `None` in the first round.
    """

    asks_by_calling_again = True

    def __init__(
        self, capabilities: Mapping[str, Any], *, responses: Mapping[str, JSON] | None = None, state: str | None = None
    ) -> None:
        super().__init__(capabilities)
        self.questions: dict[str, JSON] = {}
        self._responses: Mapping[str, JSON] = responses or {}
        previous: JSON = {} if state is None else json.loads(state)
        self._answers: dict[str, JSON] = previous.get("answers", {})
        self._consent_to: str | None = previous.get("consent_to")
        self._paid: str | None = previous.get("paid")
        self._limited: str | None = None
        self._definitions: dict[str, str] = {}
        self._previous_definitions: dict[str, str] = previous.get("definitions", {})

    def begins(self, tool: str, definition_hash: str) -> None:
        """Void every answer where a definition changed while the person thought: they were given to another call."""
        self._definitions[tool] = definition_hash
        if self._previous_definitions.get(tool, definition_hash) != definition_hash:
            self._answers, self._responses, self._consent_to, self._paid = {}, {}, None, None

    def has_paid(self, tool: str) -> bool:
        """Tell whether limits were charged for this call in the round before; calls of its own are charged anew."""
        if self._limited is not None:
            return False
        self._limited = tool
        return self._paid == tool

    async def _ask(self, key: str, request: JSON, *, bound_to: ConsentRequest | None = None) -> JSON:
        if bound_to is not None and not self._is_bound(bound_to):
            # A yes that came along unasked, or was given to another call, is none.
            return self._pend(key, request)
        if key == CONSENT_KEY and bound_to is None:
            raise CallError("tool_error", f"The key {key!r} is kept for consent; name the question otherwise.")
        known = self._answers.get(key)
        if known is not None:
            return known
        answer = self._responses.get(key)
        if answer is None or not fits(request, answer):
            return self._pend(key, request)
        self._answers[key] = answer
        return answer

    def _is_bound(self, request: ConsentRequest) -> bool:
        """Tell whether the person was asked about this very call; if not, they are going to be."""
        call = f"{request.tool} {request.definition_hash} {request.args_digest}"
        if self._consent_to == call:
            return True
        self._consent_to = call
        self._answers.pop(CONSENT_KEY, None)
        return False

    def _pend(self, key: str, request: JSON) -> JSON:
        self.questions[key] = request
        raise CallError("consent_required", f"The client was asked and has to call again with the answer ({key!r}).")

    def state(self) -> str:
        """Return what the next round must know, to be sealed."""
        # A question other than for consent is asked by a tool that runs: its limits have been charged.
        paid = self._limited if self.questions.keys() - {CONSENT_KEY} else None
        once = secrets.token_hex(12)
        known = {"answers": self._answers, "consent_to": self._consent_to, "definitions": self._definitions}
        return json.dumps({**known, "paid": paid, "once": once})


def once_of(state: str) -> str:
    """Return the mark by which a state is known, so that it serves only once."""
    return cast("str", json.loads(state)["once"])
