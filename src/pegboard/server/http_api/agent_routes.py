"""AgentRoutes: run an agent, and return its result at once or stream its text and events."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from msgspec import Struct

from pegboard.agents.access import caller_of, may_run
from pegboard.agents.run_report import report_of
from pegboard.core.cancellation import cancel_and_wait
from pegboard.core.view import View
from pegboard.model.agent import AgentResult
from pegboard.model.event import Event
from pegboard.model.json_types import JSON, JSONValue, is_object
from pegboard.server.event_hub import frame, wire_event
from pegboard.server.http_api.api_app import Api, ApiRequest, client_gone
from pegboard.server.http_api.limits import AGENT_QUERY_CHARS, AGENT_SESSION_CHARS
from pegboard.server.http_api.problem_details import STATUS_OF_KIND, ProblemError, not_found
from pegboard.server.http_api.responses import EventStream, Reply, json_reply, wants_events
from pegboard.server.limits import STREAM_PING_S


class AgentQuery(Struct, frozen=True, kw_only=True):
    """The parameters of a run."""

    query: str
    context: Mapping[str, JSONValue]
    session_id: str | None

    @classmethod
    def of(cls, body: JSON) -> AgentQuery:
        """Return the parameters in a request's body.

        Raises:
            ProblemError: the body has another form.
        """
        unknown = sorted(body.keys() - {"query", "context", "sessionId"})
        query, context, session_id = body.get("query"), body.get("context"), body.get("sessionId")
        if unknown:
            raise _bad(f"$.{unknown[0][:100]}: unknown here. Possible: context, query, sessionId.")
        if not isinstance(query, str) or not 0 < len(query) <= AGENT_QUERY_CHARS:
            raise _bad(f"$.query: a text of 1 to {AGENT_QUERY_CHARS} characters is needed.")
        if context is not None and not is_object(context):
            raise _bad("$.context: an object is needed.")
        if not (session_id is None or (isinstance(session_id, str) and 0 < len(session_id) <= AGENT_SESSION_CHARS)):
            raise _bad(f"$.sessionId: a text of 1 to {AGENT_SESSION_CHARS} characters is needed.")
        return cls(query=query, context=context or {}, session_id=session_id)


class AgentRoutes:
    """POST /v1/agents/{name}/run."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def run(self, request: ApiRequest) -> Reply | None:
        """Run an agent; if the client disconnects, the run and everything below it is cancelled."""
        name, view = request.path["name"], self._view(request)
        catalog = self._api.gateway.catalog
        if name not in catalog.registry.declarations.agents or not await may_run(name, view):
            recorder = catalog.executor.observe_run(caller_of(view), name, os.urandom(8).hex())
            recorder.end("not_found", arguments=None, costs={}, output=None)
            # The same words as for an unknown agent, so that nobody learns which agents others have.
            raise not_found(f"No agent named {name[:100]!r} is available to this caller.")
        asked = AgentQuery.of(await self._api.body(request))
        runtime = await catalog.runtime.agents.ready()
        items = runtime.stream(
            name, asked.query, context=asked.context, session_id=asked.session_id, ctx=caller_of(view)
        )
        stream = EventStream(request.send) if wants_events(request.headers) else None
        writing = asyncio.create_task(_written(items, stream))
        leaving = asyncio.create_task(client_gone(request.receive))
        try:
            await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
            return writing.result() if writing.done() else None
        finally:
            await cancel_and_wait(writing, leaving)

    def _view(self, request: ApiRequest) -> View:
        # Listeners to this caller's calls also receive the agent's calls.
        ctx, _ = self._api.event_hub.follow(self._api.context(request), request.principal)
        return self._api.gateway.catalog.view(ctx, profile=request.principal.profile)


async def _written(items: AsyncGenerator[str | Event | AgentResult], stream: EventStream | None) -> Reply | None:
    """Stream a run's output as it arrives, or return its result alone."""
    async with aclosing(items):
        result: AgentResult | None = None
        coming = asyncio.ensure_future(anext(items, None))
        try:
            while True:
                await asyncio.wait((coming,), timeout=None if stream is None else STREAM_PING_S)
                if not coming.done():
                    assert stream is not None
                    await stream.ping()
                    continue
                item = coming.result()
                if item is None:
                    break
                coming = asyncio.ensure_future(anext(items, None))
                if isinstance(item, AgentResult):
                    result = item
                elif stream is not None:
                    await stream.write(_frame(item))
        finally:
            await cancel_and_wait(coming)
    assert result is not None
    if stream is None:
        return _reply(result)
    problem = _problem(result)
    await stream.write(frame("result", report_of(result)) if problem is None else frame("problem", problem.body()))
    await stream.close()
    return None


def _frame(item: str | Event) -> bytes:
    return frame("text", {"text": item}) if isinstance(item, str) else frame(item.type, wire_event(item))


def _reply(result: AgentResult) -> Reply:
    problem = _problem(result)
    if problem is not None:
        raise problem
    return json_reply(report_of(result))


def _problem(result: AgentResult) -> ProblemError | None:
    error = result.error
    if error is None:
        return None
    more: dict[str, Any] = {"retryable": error.retryable, **report_of(result)}
    # `status` in a problem is the HTTP status.
    more["runStatus"] = more.pop("status")
    if error.hint:
        more["hint"] = error.hint
    headers: dict[str, str] = {}
    if error.retry_after_s is not None:
        more["retry_after_s"] = error.retry_after_s
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    return ProblemError(STATUS_OF_KIND[error.kind], error.kind, error.message, headers=headers, more=more)


def _bad(text: str) -> ProblemError:
    return ProblemError(422, "invalid_arguments", text)
