"""Live: calls as they happen: a page, and the stream of events behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pegboard.core.call.finished_call import FinishedCall, StartedCall
from pegboard.core.cancellation import cancel_and_wait
from pegboard.core.safe_text import safe
from pegboard.server.console.frame import frame
from pegboard.server.console.outcome_words import outcome_in_words
from pegboard.server.console.page_error import PageError
from pegboard.server.console.pages import SECURITY_HEADERS, Pages
from pegboard.server.console.shown_time import took
from pegboard.server.console.visit import Visit
from pegboard.server.event_hub import Outbox
from pegboard.server.http_api.api_app import client_gone
from pegboard.server.limits import STREAM_PING_S
from pegboard.telemetry.call_log import name_of

LIVE_STREAMS = 50  # open at once
LIVE_BATCH_S = 0.05  # how long events are collected for one write, in seconds
LIVE_NAME_CHARS = 128  # of a requested name


class LiveCalls:
    """A `CallObserver` that writes the calls that one person may see to their stream, without arguments and results.

    Operators see all calls, others those of their own credential.
    """

    times_stages = True

    def __init__(self, outbox: Outbox, *, credential: str | None) -> None:
        self._outbox, self._credential = outbox, credential

    def started(self, call: StartedCall) -> None:
        """Write the start of a call."""
        if self._is_shown(call):
            self._put("started", _start_of(call))

    def finished(self, call: FinishedCall) -> None:
        """Write the end of a call."""
        if self._is_shown(call.started):
            stages = {name: round(spent * 1e3, 3) for name, spent in call.stage_s.items()}
            end = {
                "kind": call.kind,
                "outcome": outcome_in_words(call.kind),
                "took": took(call.duration_s),
                "stages": stages,
            }
            self._put("finished", {**_start_of(call.started), **end})

    def _is_shown(self, call: StartedCall) -> bool:
        return self._credential is None or call.caller.credential == self._credential

    def _put(self, name: str, fields: dict[str, object]) -> None:
        self._outbox.put(b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(fields)))


def _start_of(call: StartedCall) -> dict[str, object]:
    # The page writes these as text, but a browser would still obey a character that turns the text around.
    name, who = safe(call.name[:LIVE_NAME_CHARS]), safe(name_of(call.caller)[:LIVE_NAME_CHARS])
    return {
        "id": call.call_id, "parent": call.parent_call_id, "tool": name, "who": who,
        "profile": call.profile, "door": call.door, "at": call.at,
    }  # fmt: skip


class LivePage:
    """`/console/live` and `/console/live/events`."""

    def __init__(self, pages: Pages, *, has_others: bool) -> None:
        self._pages, self._has_others = pages, has_others
        self._open: set[Outbox] = set()
        self._is_ended = False

    @property
    def is_ended(self) -> bool:
        """Whether the server ends, and with it every stream."""
        return self._is_ended

    def begin(self) -> None:
        """Accept listeners, even after an earlier end."""
        self._is_ended = False

    @contextmanager
    def opened(self, outbox: Outbox) -> Generator[None]:
        """Count a stream while it is open."""
        self._open.add(outbox)
        try:
            yield
        finally:
            self._open.discard(outbox)

    def end_streams(self) -> None:
        """End every open stream; otherwise a server that shuts down would wait for them."""
        self._is_ended = True
        for outbox in self._open:
            outbox.wake.set()

    async def show(self, visit: Visit) -> Response:
        values = {"has_others": self._has_others, "has_audit": visit.gateway.catalog.executor.ports.audit is not None}
        return self._pages.page("live.html", {**frame(visit, "live"), **values})

    async def events(self, visit: Visit) -> Response:
        """Return the stream; it ends with the session's credential, and with the server."""
        if len(self._open) >= LIVE_STREAMS:
            text = "Too many people look at live calls. Close one page, or try again in a moment."
            raise PageError(429, "Too many streams", text, retry_after_s=5)
        return _Stream(self, visit)


class _Stream(Response):
    """Server-sent events of the calls that a person may see."""

    def __init__(self, page: LivePage, visit: Visit) -> None:
        super().__init__(media_type="text/event-stream", headers={**SECURITY_HEADERS, "x-accel-buffering": "no"})
        self._page, self._visit = page, visit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        visit, outbox = self._visit, Outbox()
        watch = LiveCalls(outbox, credential=None if visit.is_operator else visit.person.credential)
        leaving = asyncio.create_task(client_gone(receive))
        leaving.add_done_callback(lambda _: outbox.wake.set())
        # Cancelled when the credential ends, as if the browser had left.
        forget = visit.gateway.watch(visit.session_of, leaving.cancel)
        end = visit.gateway.catalog.executor.record(watch)
        outbox.put(b": listening\n\n")
        with self._page.opened(outbox):
            try:
                while not (leaving.done() or self._page.is_ended):
                    is_filled = await outbox.filled(STREAM_PING_S)
                    body = outbox.take() if is_filled else b": ping\n\n"
                    if body:
                        await send({"type": "http.response.body", "body": body, "more_body": True})
                    if is_filled:
                        # The first event is written at once; of many calls a second, some together.
                        await asyncio.sleep(LIVE_BATCH_S)
                await send({"type": "http.response.body", "body": b""})
            finally:
                end()
                forget()
                await cancel_and_wait(leaving)
