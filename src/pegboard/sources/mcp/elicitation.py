"""Elicitation: forwards a server's questions to the caller of the tool."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import mcp_types as types
from mcp.client.session import ClientRequestContext

from pegboard.model.bounds import Bounds
from pegboard.model.call_context import CallContext
from pegboard.model.caller import Caller
from pegboard.model.error import CallError
from pegboard.model.json_types import is_object
from pegboard.sources.foreign_text import cleaned
from pegboard.sources.mcp.definitions import UnfitError, checked_form

MCP_QUESTION_BYTES = 2_000  # bytes of a server's question

# The call being sent. Over streamable HTTP it is also set for messages on that request's stream.
_calling: ContextVar[CallContext | None] = ContextVar("pegboard_calling", default=None)
_Person = tuple[Caller, object]


class ElicitationRelay:
    """Tracks the calls on one connection, to find the person that a question is for.

    An abandoned call may continue at the server and ask a question, which is then not for the next caller.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._running: list[CallContext] = []
        self._given_up_by: _Person | None = None
        self._several_gave_up = False

    @contextmanager
    def during(self, ctx: CallContext) -> Generator[None]:
        """Let the server's questions reach this caller during the block."""
        self._running.append(ctx)
        _calling.set(ctx)
        try:
            yield
        except asyncio.CancelledError:
            person = _person(ctx)
            self._several_gave_up |= self._given_up_by not in (None, person)
            self._given_up_by = person
            raise
        finally:
            self._running.remove(ctx)

    def _only_asking_call(self) -> CallContext | None:
        """Return the call that a question of an earlier revision belongs to; `None` if it is ambiguous."""
        calling = _calling.get()
        if calling is not None:
            return calling if any(call is calling for call in self._running) else None
        # With several callers a guess could show one person's question to another.
        if len(self._running) != 1 or self._several_gave_up:
            return None
        (running,) = self._running
        return running if self._given_up_by in (None, _person(running)) else None

    async def answer_elicitation(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Answer a question of an earlier revision, which does not name its call."""
        del context
        if (asked := self._only_asking_call()) is None:
            return types.ErrorData(code=types.INVALID_REQUEST, message="It is not clear whom to ask")
        try:
            return await self._ask_caller(params, asked)
        except UnfitError as error:
            return types.ErrorData(code=types.INVALID_PARAMS, message=f"The question was not asked: {error}")

    async def answer_required(self, required: types.InputRequiredResult, ctx: CallContext) -> types.InputResponses:
        """Return the answers to a call's questions in the current revision.

        Raises:
            CallError: a question is of a kind that is not forwarded.
        """
        answers: types.InputResponses = {}
        for key, request in (required.input_requests or {}).items():
            if not isinstance(request, types.ElicitRequest):
                text = f"{ctx.tool!r} asks for {request.method!r}, which is not passed on to callers."
                raise CallError("upstream_error", text)
            try:
                answers[key] = await self._ask_caller(request.params, ctx)
            except UnfitError as error:
                text = f"What {ctx.tool!r} asks a person was not asked: {error}."
                raise CallError("upstream_error", text) from None
        return answers

    async def _ask_caller(self, params: types.ElicitRequestParams, ctx: CallContext) -> types.ElicitResult:
        """Ask the person behind a call.

        Raises:
            UnfitError: the form hides something, or answers cannot be validated against it.
        """
        if ctx.client is None or not isinstance(params, types.ElicitRequestFormParams):
            return types.ElicitResult(action="decline")
        question = f"The tool {ctx.tool!r} asks: {cleaned(params.message, max_bytes=MCP_QUESTION_BYTES)}"
        form = checked_form(dict(params.requested_schema), bounds=self._bounds)
        try:
            content: Any = await ctx.client.elicit(question, form)
        except CallError as error:
            if error.error.kind == "consent_declined":
                return types.ElicitResult(action="decline")
            # A caller that must call again (consent_required) ends this call; the server is notified.
            raise
        return types.ElicitResult(action="accept", content=content if is_object(content) else {"answer": content})


def _person(ctx: CallContext) -> _Person:
    """Return the person to ask in a call: the named user or session, or else the client."""
    caller = ctx.caller
    is_known = caller.user_id is not None or caller.session_id is not None or caller.credential
    return caller, None if is_known else ctx.request.client
