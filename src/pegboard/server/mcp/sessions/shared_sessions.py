"""SharedSessions: the messages between workers about sessions of earlier revisions.

An answer goes to the worker that asked, a cancellation to the worker that runs the call, and a client that resumes a
stream receives it from the worker that keeps it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Message, Receive, Send

from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.identifiers import new_id
from pegboard.model.json_types import JSON
from pegboard.server.bus import BUS_ANSWER_S, Bus
from pegboard.server.limits import STREAM_PING_S
from pegboard.server.mcp.asking.unanswered_requests import worker_of
from pegboard.server.mcp.sessions.sessions import SESSIONS, Session, Sessions

_EVENT_OF = re.compile(r"p([0-9a-f]{16})-[0-9]{1,18}")


@dataclass(slots=True)
class Wishes:
    """The subscriptions of a session's client."""

    level: str | None = None
    uris: set[str] = field(default_factory=set[str])


class SharedSessions:
    """The sessions of all workers, as seen by one of them.

    Args:
        bus: the connection to the others.
        sessions: the sessions of this worker.
        follow: lets a client of another worker continue one of our streams, over these `receive` and `send`.
        cancel: cancels an open request of a session; does nothing if there is none.
    """

    def __init__(
        self,
        bus: Bus,
        sessions: Sessions,
        *,
        follow: Callable[[Session, str, Receive, Send], Awaitable[None]],
        cancel: Callable[[Session, str], None],
    ) -> None:
        self._bus, self._sessions, self._follow, self._cancel = bus, sessions, follow, cancel
        self._wishes = BoundedCache[str, Wishes](max_entries=SESSIONS)
        self._following: dict[str, asyncio.Queue[JSON]] = {}
        self._followed: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        for kind, handler in {
            "session.answer": self._on_answer,
            "session.cancelled": self._on_cancelled,
            "session.ended": self._on_ended,
            "session.wishes": self._on_wishes,
            "session.resume": self._on_resume,
            "session.left": self._on_left,
            "session.sent": self._on_sent,
            "hello": self._on_hello,
        }.items():
            bus.on(kind, handler)

    # -- answers to questions

    async def answer(self, session: Session, response: JSON, *, roles: Iterable[str]) -> bool:
        """Forward an answer from a caller with these roles to the worker that asked; `False` if no other worker could.

        Raises:
            ConnectionError: that worker cannot be reached.
        """
        worker = worker_of(response.get("id"))
        if worker is None or worker == self._bus.worker:
            return False
        body: JSON = {"session": session.name, "response": response, "roles": list(roles)}
        await self._bus.tell("session.answer", body, to=worker)
        return True

    def _on_answer(self, _worker: str, body: JSON) -> None:
        session = self._sessions.named(body["session"])
        if session is not None:
            session.questions.take(body["response"], roles=body["roles"])

    # -- ends

    def cancelled(self, session: Session, request: str) -> None:
        """Cancel a request of a session in the worker that runs it."""
        self._bus.tell_soon("session.cancelled", {"session": session.name, "request": request})

    def _on_cancelled(self, _worker: str, body: JSON) -> None:
        session = self._sessions.named(body["session"])
        if session is not None:
            self._cancel(session, body["request"])

    def ended(self, session: Session) -> None:
        """Mark a session as ended in all workers."""
        self._bus.tell_soon("session.ended", {"session": session.name, "ends_at": session.ends_at})

    def _on_ended(self, _worker: str, body: JSON) -> None:
        self._sessions.ended_elsewhere(body["session"], body["ends_at"])

    # -- subscriptions

    def wished(self, session: Session, before: Wishes) -> None:
        """Publish a change in a session's subscriptions."""
        added, removed = session.uris - before.uris, before.uris - session.uris
        if session.level != before.level or added or removed:
            self._wishes.remember(session.name, Wishes(session.level, set(session.uris)))
            body: JSON = {"level": session.level, "added": sorted(added), "removed": sorted(removed)}
            self._bus.tell_soon("session.wishes", {"session": session.name, **body})

    def _on_wishes(self, _worker: str, body: JSON) -> None:
        # It is kept until the client reaches any worker, this one included, also if the session was forgotten here.
        session = self._sessions.named(body["session"])
        known = self._wishes.get(body["session"]) or Wishes()
        wishes = Wishes(body["level"], (known.uris | set(body["added"])) - set(body["removed"]))
        self._wishes.remember(body["session"], wishes)
        if session is not None:
            session.level, session.uris = wishes.level, set(wishes.uris)

    def _on_hello(self, worker: str, _body: JSON) -> None:
        """Send a new worker the existing subscriptions."""
        self._begin(self._tell_wishes(worker, {**self._wishes}))

    async def _tell_wishes(self, worker: str, wishes: Mapping[str, Wishes]) -> None:
        with contextlib.suppress(ConnectionError):
            # One after the other: there may be as many as sessions, and the bus carries other messages too.
            for name, wished in wishes.items():
                body: JSON = {"session": name, "level": wished.level, "added": sorted(wished.uris), "removed": []}
                await self._bus.tell("session.wishes", body, to=worker)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def remembered(self, session: Session) -> None:
        """Apply the subscriptions received from other workers to a session that starts here."""
        wishes = self._wishes.get(session.name)
        if wishes is not None:
            session.level, session.uris = wishes.level, set(wishes.uris)

    # -- streams

    async def follow_there(self, worker: str, session: Session, last: str, receive: Receive, send: Send) -> bool:
        """Send a client the rest of another worker's stream; `False` if that worker does not answer."""
        follow = new_id()
        queue = self._following[follow] = asyncio.Queue[JSON]()
        leaving = asyncio.create_task(_client_left(receive))
        try:
            body: JSON = {"session": session.name, "last": last, "follow": follow}
            if not await self._bus.tell("session.resume", body, to=worker):
                return False
            has_begun = False
            while (sent := await _next(queue, leaving, has_begun=has_begun)) is not None:
                has_begun = True
                await send(_message(sent))
                if not sent["more"]:
                    break
            return has_begun or leaving.done()
        except ConnectionError:
            return False
        finally:
            leaving.cancel()
            del self._following[follow]
            self._bus.tell_soon("session.left", {"follow": follow}, to=worker)

    def _on_sent(self, _worker: str, body: JSON) -> None:
        queue = self._following.get(body["follow"])
        if queue is not None:
            queue.put_nowait(body)

    def _on_resume(self, worker: str, body: JSON) -> None:
        session, follow = self._sessions.named(body["session"]), str(body["follow"])
        left = self._followed[follow] = asyncio.Event()

        async def send(message: Message) -> None:
            is_start = message["type"] == "http.response.start"
            sent: JSON = {"follow": follow, "more": is_start or message.get("more_body", False)}
            if is_start:
                headers = [[name.decode(), value.decode()] for name, value in message["headers"]]
                sent |= {"status": message["status"], "headers": headers}
            await self._bus.tell("session.sent", {**sent, "body": message.get("body", b"").decode()}, to=worker)

        async def receive() -> Message:
            await left.wait()
            return {"type": "http.disconnect"}

        async def run() -> None:
            try:
                if session is not None:
                    await self._follow(session, body["last"], receive, send)
            except ConnectionError:
                pass
            finally:
                del self._followed[follow]

        self._begin(run())

    def _on_left(self, _worker: str, body: JSON) -> None:
        left = self._followed.get(body["follow"])
        if left is not None:
            left.set()


def other_keeper_of(last_event_id: str, worker: str) -> str | None:
    """Return the worker that keeps the stream of an event; `None` if it is the worker with this name."""
    match = _EVENT_OF.fullmatch(last_event_id)
    return None if match is None or match[1] == worker else match[1]


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _next(queue: asyncio.Queue[JSON], leaving: asyncio.Task[None], *, has_begun: bool) -> JSON | None:
    """Return the next message; `None` if the client has left or the other worker no longer responds."""
    getting = asyncio.ensure_future(queue.get())
    try:
        patience_s = 2 * STREAM_PING_S if has_begun else BUS_ANSWER_S
        await asyncio.wait((getting, leaving), timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        return getting.result() if getting.done() else None
    finally:
        getting.cancel()


def _message(sent: JSON) -> dict[str, Any]:
    if "status" in sent:
        headers = [(name.encode(), value.encode()) for name, value in sent["headers"]]
        return {"type": "http.response.start", "status": sent["status"], "headers": headers}
    return {"type": "http.response.body", "body": sent["body"].encode(), "more_body": sent["more"]}
