"""Disconnect: look after a long call: end it when its client leaves, keep its connection warm meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Receive, Send

from pegboard.core.stepping import Begun, first_step
from pegboard.model.bounds import STREAM_PING_S, WATCHED_AFTER_S
from pegboard.server.mcp.fast_path import Answer, Plan

_SSE_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]


async def answer(plan: Plan, receive: Receive, send: Send) -> None:
    """Do the work of a plain request and write its answer, unless the client leaves before."""
    begun = first_step(plan.work)
    if isinstance(begun, Begun):
        await _watched(plan.request_id, begun, receive, send)
    else:
        await _write(plan.request_id, begun, send, as_event=False)


async def _watched(request_id: bytes, work: Begun, receive: Receive, send: Send) -> None:
    watcher = DisconnectWatcher(receive, send)
    task = asyncio.current_task()
    assert task is not None
    timer = asyncio.get_running_loop().call_later(WATCHED_AFTER_S, watcher.start, task)
    try:
        done = await work
        timer.cancel()
        watcher.stop()
        await _write(request_id, done, send, as_event=watcher.streaming)
    except asyncio.CancelledError:
        # Our own watcher cancelled us: the client is gone, and nobody waits for an answer.
        if not (watcher.client_left and task.uncancel() == 0):
            raise
    finally:
        timer.cancel()
        watcher.stop()


async def _write(request_id: bytes, done: Answer, send: Send, *, as_event: bool) -> None:
    body = done.message(request_id)
    if as_event:
        await send({"type": "http.response.body", "body": b"event: message\r\ndata: " + body + b"\r\n\r\n"})
        return
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": done.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class DisconnectWatcher:
    """Cancels the task of a call when its client leaves, and pings until it is done."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._tasks: list[asyncio.Task[None]] = []
        self.client_left = self.streaming = False

    def start(self, call: asyncio.Task[Any]) -> None:
        """Begin to watch over `call`."""
        self._tasks = [asyncio.create_task(self._wait_for_leaving(call)), asyncio.create_task(self._ping())]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _wait_for_leaving(self, call: asyncio.Task[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.client_left = True
        call.cancel()

    async def _ping(self) -> None:
        await asyncio.sleep(STREAM_PING_S - WATCHED_AFTER_S)
        await self._send({"type": "http.response.start", "status": 200, "headers": _SSE_HEADERS})
        self.streaming = True
        while True:
            await self._send({"type": "http.response.body", "body": b": ping\r\n\r\n", "more_body": True})
            await asyncio.sleep(STREAM_PING_S)
