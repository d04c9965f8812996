"""Bus: messages and questions between the workers of a server, sealed with their shared keys."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol, cast

import orjson
from msgspec import Struct, field

from pegboard.core.cancellation import cancel_and_wait
from pegboard.core.identifiers import new_id
from pegboard.model.json_types import JSON
from pegboard.server.sealing import Sealing

BUS_ANSWER_S = 1.0  # seconds for another worker to answer on the bus
BUS_WAITING = 10_000  # messages waiting to be sent

log = logging.getLogger("pegboard.serve")
NO_BUS = (
    "This server has several workers, and nothing connects them. The operator can add "
    '`server: {bus: "redis://HOST:PORT"}` to its config, or serve with one worker.'
)
Handler = Callable[[str, JSON], JSON | None]
"""Receives the sender and the message; its return value is the answer to a question."""


class Transport(Protocol):
    """Carries messages to all subscribers of a channel."""

    async def listen(self, channels: Sequence[str], hear: Callable[[bytes], None], is_listening: asyncio.Event) -> None:
        """Receive messages until cancelled; sets the event each time it is connected."""
        ...

    async def publish(self, channel: str, message: bytes) -> int:
        """Send a message; return the number of subscribers.

        Raises:
            ConnectionError: the transport is not reachable.
        """
        ...

    async def probe(self) -> None:
        """Check that messages can be sent now; see `core.ports.Probed`.

        Raises:
            ConnectionError: they cannot.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def stop_if_cancelled() -> None:
    """Raise if this task was cancelled and a store's client swallowed that, as both of ours do at times.

    Raises:
        asyncio.CancelledError: it was cancelled.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class Others(NamedTuple):
    """The other workers of a server: whether there may be any, whether there are, and the bus to them."""

    may_be: bool = False
    are_known: bool = False
    bus: Bus | None = None


ALONE = Others()


class _Waiting(NamedTuple):
    """An outgoing message, and who waits for it to be sent."""

    to: str
    message: bytes
    sent: asyncio.Future[int] | None


class Answers(NamedTuple):
    """The answers of other workers, and whether all of them answered."""

    bodies: list[JSON]
    are_all: bool


class _Answers(Struct):
    """The answers to one question, as they arrive."""

    bodies: list[JSON] = field(default_factory=list[JSON])
    more: asyncio.Event = field(default_factory=asyncio.Event)


class Bus:
    """One worker's connection to the others.

    Args:
        transport: carries the messages.
        sealing: the server's keys; messages sealed with other keys are ignored.
    """

    def __init__(self, transport: Transport, sealing: Sealing) -> None:
        self._transport, self._sealing = transport, sealing
        self._handlers: dict[str, tuple[Handler, ...]] = {"answers": (self._answered,)}
        self._asked: dict[str, _Answers] = {}
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue(BUS_WAITING)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._was_full = False

    @property
    def worker(self) -> str:
        """The name of this worker."""
        return self._sealing.worker

    async def probe(self) -> None:
        """Check that the other workers can be reached; see `core.ports.Probed`.

        Raises:
            ConnectionError: they cannot.
        """
        await self._transport.probe()

    def on(self, kind: str, handler: Handler) -> None:
        """Register a handler for a kind of message; if the sender waits, the first answer counts."""
        self._handlers[kind] = (*self._handlers.get(kind, ()), handler)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Receive and send within the block; waits a moment for the connection."""
        self._loop, is_listening = asyncio.get_running_loop(), asyncio.Event()
        self._waiting = asyncio.Queue(BUS_WAITING)
        channels = (self._channel("all"), self._channel(self.worker))
        tasks = [
            asyncio.create_task(self._transport.listen(channels, self._hear, is_listening)),
            asyncio.create_task(self._send()),
        ]
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(is_listening.wait(), BUS_ANSWER_S)
            self.tell_soon("hello", {})
            yield
        finally:
            self._loop = None
            await cancel_and_wait(*tasks)
            await self._transport.close()

    def _channel(self, name: str) -> str:
        return f"bus:{name}"

    # -- outgoing messages

    async def tell(self, kind: str, body: JSON, *, to: str = "all") -> int:
        """Send a message to one worker or to all others; return how many received it.

        Raises:
            ConnectionError: the bus is not reachable.
        """
        sent = asyncio.get_running_loop().create_future()
        if not self._put(kind, body, to, sent):
            raise ConnectionError("the bus is full")
        receivers = await sent
        return receivers - 1 if to == "all" else receivers

    def tell_soon(self, kind: str, body: JSON, *, to: str = "all") -> None:
        """Send without waiting, from the loop's own thread. Messages that cannot be sent are dropped and logged."""
        self._put(kind, body, to, None)

    def _put(self, kind: str, body: JSON, to: str, sent: asyncio.Future[int] | None) -> bool:
        if self._loop is None:
            return False
        text = orjson.dumps(["bus", self._sealing.audience, self.worker, kind, body], default=str)
        try:
            self._waiting.put_nowait(_Waiting(to, self._sealing.codec.seal(text).encode(), sent))
        except asyncio.QueueFull:
            if not self._was_full:
                log.warning("The bus is too slow for its messages; some are lost.")
            self._was_full = True
            return False
        self._was_full = False
        return True

    async def _send(self) -> None:
        # One after the other, to keep their order.
        while True:
            to, message, sent = await self._waiting.get()
            try:
                receivers = await self._transport.publish(self._channel(to), message)
            except ConnectionError as error:
                log.warning("A message to the other workers could not be sent: %s", error)
                if sent is not None and not sent.done():
                    sent.set_exception(error)
            else:
                if sent is not None and not sent.done():
                    sent.set_result(receivers)
                if not receivers:
                    for handler in self._handlers.get("gone", ()):
                        handler(to, {})
            stop_if_cancelled()

    async def ask(self, kind: str, body: JSON, *, is_enough: Callable[[JSON], bool] = lambda _: False) -> Answers:
        """Ask all others; return the answers that arrive in time, or stop at the first sufficient one.

        Raises:
            ConnectionError: the bus is not reachable.
        """
        question, answers = new_id(), _Answers()
        self._asked[question] = answers
        try:
            count = await self.tell(kind, {**body, "question": question})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BUS_ANSWER_S):
                    while len(answers.bodies) < count and not any(map(is_enough, answers.bodies)):
                        answers.more.clear()
                        await answers.more.wait()
        finally:
            del self._asked[question]
        return Answers(answers.bodies, len(answers.bodies) >= count)

    # -- incoming messages

    def _hear(self, message: bytes) -> None:
        opened = self._sealing.codec.open(message.decode("latin-1"))
        try:
            parsed: Any = None if opened is None else orjson.loads(opened)
        except ValueError:
            return
        # Messages sealed for another purpose are not for us; our own messages come back too.
        if not isinstance(parsed, list) or parsed[:2] != ["bus", self._sealing.audience] or parsed[2] == self.worker:
            return
        worker, kind, body = cast("tuple[str, str, JSON]", tuple(parsed[2:]))  # pyright: ignore[reportUnknownArgumentType] - JSON
        for handler in self._handlers.get(kind, ()):
            try:
                answer = handler(worker, body)
            except Exception:
                log.exception("A message of another worker could not be handled (%r).", kind)
                return
            if answer is not None:
                self.tell_soon("answers", {"question": body["question"], "answer": answer}, to=worker)
                return

    def _answered(self, _worker: str, body: JSON) -> None:
        answers = self._asked.get(body["question"])
        if answers is not None:
            answers.bodies.append(body["answer"])
            answers.more.set()
