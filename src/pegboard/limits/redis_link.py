"""Redis link: runs one script for many callers over one connection, with pipelined requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextvars import Context
from hashlib import sha1
from typing import Any, NamedTuple

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError, RedisError, ResponseError

_STEPS = 10
_OVER = "the connection is closed"


class _Question(NamedTuple):
    """A request: its future, its command as Redis reads it, and the step when it starts to count silence."""

    answer: asyncio.Future[Any]
    words: bytes
    step: int


class RedisLink:
    """One connection to Redis and its pending requests; Redis answers in order.

    It connects on the first request, and is over (`is_over`) when the connection fails or a request times out; callers
    then create another one. Requests younger than the one that timed out still get their answers. There are only two
    kinds of tasks: one that reads the answers, and one that writes all requests of one turn of the loop. It belongs to
    the loop in which it was created; `close` ends it.

    Args:
        connection: not connected yet.
        script: the Lua script of each request, which takes as many keys as are passed.
    silence_s: seconds without any answer until a request times out.
    """

    def __init__(self, connection: AbstractConnection, script: str, *, silence_s: float) -> None:
        self._step_s = silence_s / _STEPS
        self._connection, self._script = connection, script.encode()
        self._digest = sha1(self._script).hexdigest().encode()  # noqa: S324 - Redis identifies scripts by it
        # We time requests ourselves: an idle connection has not failed.
        connection.socket_timeout = None
        self._loop = asyncio.get_running_loop()
        self._unsent: list[_Question] = []
        self._sent = deque[_Question]()
        self._step = self._heard = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_connected = self.is_over = False
        self._writer: asyncio.Task[None] | None = None
        # In an empty context, since the first caller's would be kept alive for as long as the connection.
        self._reader = self._loop.create_task(self._read(), context=Context())

    async def ask(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Any:
        """Run the script and return its answer.

        Raises:
            TimeoutError: the store answered nothing for `silence_s`.
            ResponseError: the store refuses this request.
            RedisError, OSError: the connection fails.
        """
        words = [b"%d" % len(keys), *keys, *arguments]
        try:
            return await self._run_script(b"EVALSHA", self._digest, words)
        except NoScriptError:
            return await self._run_script(b"EVAL", self._script, words)

    async def _run_script(self, command: bytes, script: bytes, words: Sequence[bytes]) -> Any:
        if self._reader.done():
            raise ConnectionError(_OVER)
        # If the timer is running, the current step began before this request.
        began = self._step if self._timer is None else self._step + 1
        question = _Question(self._loop.create_future(), _packed((command, script, *words)), began)
        self._unsent.append(question)
        if self._timer is None:
            self._timer = self._loop.call_later(self._step_s, self._look)
        self._write()
        return await question.answer

    # -- requests and answers

    def _write(self) -> None:
        if self._is_connected and self._writer is None:
            self._writer = self._loop.create_task(self._send(), context=Context())

    async def _send(self) -> None:
        try:
            while self._unsent:
                # Requests that timed out are not sent, so nothing is charged for them.
                asked = [one for one in self._unsent if not one.answer.done()]
                self._unsent.clear()
                self._sent += asked
                await self._connection.send_packed_command(b"".join([one.words for one in asked]), check_health=False)
        except (RedisError, OSError) as error:
            self._end(error)
            self._reader.cancel()
        finally:
            self._writer = None

    async def _read(self) -> None:
        try:
            await self._connection.connect()
            self._is_connected = True
            self._write()
            while True:
                try:
                    self._take(await self._connection.read_response(), None)
                except ResponseError as error:
                    self._take(None, error)
        except (RedisError, OSError) as error:
            self._end(error)
        finally:
            self._end(ConnectionError(_OVER))
            await self._connection.disconnect(nowait=True)

    def _take(self, answer: Any, error: ResponseError | None) -> None:
        self._heard = self._step
        if not self._sent:
            # Answers can no longer be assigned to requests.
            raise RedisError("the store answered what nobody had asked")
        waiting = self._sent.popleft()
        if waiting.answer.done():
            return
        if error is None:
            waiting.answer.set_result(answer)
        else:
            _refuse(waiting, error)

    # -- timeouts

    def _look(self) -> None:
        """Time out requests if the store has answered nothing meanwhile.

        The wait is divided into steps: a blocked loop loses one step, and then still reads the answers that have
        arrived.
        """
        self._step += 1
        self._timer = None
        waiting = [one for one in (*self._sent, *self._unsent) if not one.answer.done()]
        latest = self._step - _STEPS
        if self._heard <= latest:
            for one in waiting:
                if one.step <= latest:
                    self.is_over = True
                    _refuse(one, TimeoutError())
            waiting = [one for one in waiting if not one.answer.done()]
        if waiting:
            self._timer = self._loop.call_later(self._step_s, self._look)
        elif self.is_over:
            self._reader.cancel()

    def _end(self, error: Exception) -> None:
        self.is_over = True
        for one in (*self._sent, *self._unsent):
            if not one.answer.done():
                # A new exception for each, since a shared one would collect all tracebacks.
                _refuse(one, ConnectionError(str(error)))
        self._sent.clear()
        self._unsent.clear()

    async def close(self) -> None:
        """Close the connection; pending requests fail."""
        self.is_over = True
        self._reader.cancel()
        await asyncio.wait({self._reader})


def _packed(words: Sequence[bytes]) -> bytes:
    """Return a command in wire form."""
    return b"".join([b"*%d\r\n" % len(words), *[b"$%d\r\n%b\r\n" % (len(word), word) for word in words]])


def _refuse(question: _Question, error: Exception) -> None:
    question.answer.set_exception(error)
    # Mark the exception as retrieved, since the caller may be gone and asyncio would log it.
    question.answer.exception()
