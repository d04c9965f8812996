"""CallRoutes: run one guarded call and return its result, at once or after its events; cancel a call."""

from __future__ import annotations

import asyncio
import contextlib

from pegboard.core.cancellation import cancel_and_wait
from pegboard.model.json_types import JSON
from pegboard.model.result import ToolResult
from pegboard.providers.mcp import mcp_result
from pegboard.server.event_hub import EventHub, Follower, Outbox, Owner, frame, owner_of
from pegboard.server.http_api.api_app import Api, ApiRequest, client_gone
from pegboard.server.http_api.problem_details import ProblemError, not_found, problem_of
from pegboard.server.http_api.responses import EventStream, Reply, json_reply, wants_events
from pegboard.server.limits import STREAM_PING_S

# A call that is refused within this time and before its first progress is answered with its own HTTP status.
API_OPEN_STREAM_S = 0.05

Running = asyncio.Task[ToolResult]


class CallRoutes:
    """POST /v1/tools/{name}/call and /v1/calls/{id}/cancel."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def call(self, request: ApiRequest) -> Reply | None:
        """Call a tool; if the client disconnects early, the call is cancelled."""
        arguments = await self._api.body(request)
        gateway, outbox = self._api.gateway, Outbox() if wants_events(request.headers) else None
        ctx, following = self._api.event_hub.follow(self._api.context(request), request.principal, own=outbox)
        view = gateway.exposed(request.principal, ctx)
        wished = request.query.get("as_task", "false")
        if wished not in ("true", "false"):
            raise ProblemError(400, "bad_request", f"as_task={wished[:20]!r}: write true or false.")
        as_task = wished == "true"
        running = asyncio.create_task(view.call(request.path["name"], arguments, as_task=as_task))
        leaving = asyncio.create_task(client_gone(request.receive))
        try:
            if outbox is None:
                await asyncio.wait((running, leaving), return_when=asyncio.FIRST_COMPLETED)
            else:
                await _begun(outbox, running, leaving)
                if not running.done() or not running.result().is_error:
                    await self._stream(EventStream(request.send), outbox, following, running, leaving)
                    return None
            return _reply(running.result(), following.call_id) if running.done() else None
        finally:
            await cancel_and_wait(running, leaving)

    async def _stream(
        self, stream: EventStream, outbox: Outbox, following: Follower, running: Running, leaving: asyncio.Task[None]
    ) -> None:
        """Stream the events of a call, and finally its result or problem."""
        while not leaving.done():
            is_over = running.done()
            waiting = outbox.take()
            if waiting:
                await stream.write(waiting)
            if is_over:
                await stream.write(_last_frame(running.result(), following.call_id))
                await stream.close()
                return
            if not await outbox.filled(STREAM_PING_S):
                await stream.ping()

    async def cancel(self, request: ApiRequest) -> Reply:
        """Cancel a running call of this caller; any other id is unknown."""
        call_id = request.path["id"]
        owner = owner_of(request.principal, self._api.gateway.context(request.principal))
        event_hub = self._api.event_hub
        if event_hub.owns(owner, call_id):
            is_cancelled = self._api.gateway.catalog.cancel(call_id)
        else:
            is_cancelled = await _cancelled_elsewhere(event_hub, owner, call_id)
        if not is_cancelled:
            raise not_found(f"No call {call_id[:100]!r} of yours is running.")
        return json_reply({"callId": call_id, "cancelled": True})


async def _cancelled_elsewhere(event_hub: EventHub, owner: Owner, call_id: str) -> bool:
    try:
        is_cancelled = await event_hub.cancel_elsewhere(owner, call_id)
    except ConnectionError:
        text = "The call may run at another worker, which cannot be asked at the moment. Try again in a moment."
        raise ProblemError(503, "busy", text, headers={"retry-after": "1"}) from None
    if not is_cancelled and event_hub.refusal is not None:
        raise ProblemError(503, "busy", f"The call may run at another worker. {event_hub.refusal}")
    return is_cancelled


async def _begun(outbox: Outbox, running: Running, leaving: asyncio.Task[None]) -> None:
    """Wait for something to stream: a second event, the end, or a moment without either."""
    for task in (running, leaving):
        task.add_done_callback(lambda _: outbox.wake.set())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(API_OPEN_STREAM_S):
            while not (running.done() or leaving.done() or outbox.waiting > 1):
                outbox.wake.clear()
                await outbox.wake.wait()


def _reply(result: ToolResult, call_id: str) -> Reply:
    if result.is_error:
        raise problem_of(result, call_id)
    return json_reply(_shown(result, call_id))


def _shown(result: ToolResult, call_id: str) -> JSON:
    of_task = {} if result.task_id is None else {"taskId": result.task_id}
    return {"callId": call_id, **of_task, **mcp_result(result)}


def _last_frame(result: ToolResult, call_id: str) -> bytes:
    if result.is_error:
        return frame("problem", problem_of(result, call_id).body())
    return frame("result", _shown(result, call_id))
