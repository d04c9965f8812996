"""EventRoute: a stream that reports a caller's own calls, and changes of its own list."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any

from pegboard.core.cancellation import cancel_and_wait
from pegboard.server.event_hub import Outbox, frame, owner_of
from pegboard.server.http_api.api_app import Api, ApiRequest, client_gone
from pegboard.server.http_api.problem_details import ProblemError
from pegboard.server.http_api.responses import EVENT_STREAM, EventStream, Reply
from pegboard.server.limits import CHANGES_SETTLE_S, STREAM_PING_S
from pegboard.server.principal import Principal

API_STREAMS = 1_000  # open at once, of everybody
API_STREAMS_OF_ONE = 20  # and of one caller


class EventRoute:
    """GET /v1/events."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._open: set[Outbox] = set()
        self._of_one: Counter[tuple[str | None, ...]] = Counter()
        self._is_ended = False

    def begin(self) -> None:
        """Accept listeners, also after an earlier end."""
        self._is_ended = False

    def end(self) -> None:
        """End every open stream; otherwise a server that shuts down would wait for them."""
        self._is_ended = True
        for outbox in self._open:
            outbox.wake.set()

    async def listen(self, request: ApiRequest) -> Reply | None:
        """Stream events until the client leaves or the server ends."""
        if request.is_head:
            # A stream does not have an end that a client could wait for.
            return Reply(b"", media_type=EVENT_STREAM)
        event_hub = self._api.event_hub
        if event_hub.refusal is not None:
            raise ProblemError(503, "busy", f"Calls run at other workers too. {event_hub.refusal}")
        owner = owner_of(request.principal, self._api.gateway.context(request.principal))
        whose = (*owner, request.principal.address)
        if event_hub.streams >= API_STREAMS or self._of_one[whose] >= API_STREAMS_OF_ONE:
            text = "Too many event streams are open. Close one, or try again in a moment."
            raise ProblemError(429, "rate_limited", text, headers={"retry-after": "5"})
        with ExitStack() as stack:
            outbox = Outbox()
            self._of_one[whose] += 1
            stack.callback(self._leave, whose)
            stack.callback(event_hub.listen(owner, outbox))
            stack.callback(self._api.gateway.catalog.subscribe(changed := _Signal()))
            # It is not a call, and must not block calls.
            self._api.open.leave(request.principal.shares_as)
            stack.callback(self._api.open.reenter, request.principal.shares_as)
            known = await self._shown(request.principal)
            await self._stream(request, outbox, self._watch(request.principal, known, changed, outbox))
        return None

    async def _stream(self, request: ApiRequest, outbox: Outbox, watch: Coroutine[Any, Any, None]) -> None:
        leaving, watching = asyncio.create_task(client_gone(request.receive)), asyncio.create_task(watch)
        # Cancelled when the credential ends, as if the client had left.
        forget = self._api.gateway.watch(request.principal, leaving.cancel)
        for task in (leaving, watching):
            task.add_done_callback(lambda _: outbox.wake.set())
        self._open.add(outbox)
        try:
            stream = EventStream(request.send)
            await stream.write(b": listening\n\n")
            while not (leaving.done() or watching.done() or self._is_ended):
                if not await outbox.filled(STREAM_PING_S):
                    await stream.ping()
                elif waiting := outbox.take():
                    await stream.write(waiting)
            await stream.close()
        finally:
            forget()
            self._open.discard(outbox)
            await cancel_and_wait(leaving, watching)

    def _leave(self, whose: tuple[str | None, ...]) -> None:
        self._of_one[whose] -= 1
        if not self._of_one[whose]:
            del self._of_one[whose]

    async def _watch(self, principal: Principal, known: object, changed: _Signal, outbox: Outbox) -> None:
        """Add a `list_changed` event to the outbox whenever this caller's own list has changed."""
        while True:
            await changed.wait()
            await asyncio.sleep(CHANGES_SETTLE_S)
            changed.clear()
            now = await self._shown(principal)
            if now != known:
                known = now
                outbox.put(frame("list_changed", {"what": "tools", "profile": principal.profile}))

    async def _shown(self, principal: Principal) -> object:
        if principal.profile is not None and principal.profile not in self._api.gateway.registry.profiles:
            return None
        tools = await self._api.gateway.view(principal).atools()
        return [(entry.wire_name, entry.fingerprint) for entry in tools]


class _Signal(asyncio.Event):
    """An event that any thread can set by calling it."""

    def __init__(self) -> None:
        super().__init__()
        self._home = asyncio.get_running_loop()

    def __call__(self) -> None:
        if not self._home.is_closed():
            self._home.call_soon_threadsafe(self.set)
