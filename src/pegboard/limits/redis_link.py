"""Redis link: one script, run for many at once over one connection, on which questions go out without waiting."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextvars import Context
from hashlib import sha1
from typing import Any, NamedTuple

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError, RedisError, ResponseError

LIMIT_STORE_SILENCE_S = 0.03  # of the store; with what else a decision takes, that stays below 50 ms


_STEPS = 10
_STEP_S = LIMIT_STORE_SILENCE_S / _STEPS
_OVER = "the connection is closed"


class _Question(NamedTuple):
    """What is asked, its words as Redis reads them, and from which step on the store may be silent about it."""

    answer: asyncio.Future[Any]
    words: bytes
    step: int


class RedisLink:
    """One connection to a Redis, and the questions that are under way on it; Redis answers in their order.

    It connects with its first question, and is over (`is_over`) when the connection fails or a question waited in
    vain; whoever asks makes another one then. Questions that are younger than that one still get their answer.
    Nothing is a task of its own but the reading of the answers, and one writing for all that is asked in one turn of
    the loop. Belongs to the loop in which it was made; `close` ends it.

    Args:
        connection: not connected yet.
        script: the Lua that each question runs, with as many keys as it names.
    """

    def __init__(self, connection: AbstractConnection, script: str) -> None:
        self._connection, self._script = connection, script.encode()
        self._digest = sha1(self._script).hexdigest().encode()  # noqa: S324 - by which Redis knows a script
        # Patience is ours: an idle connection is not one that fails.
        connection.socket_timeout = None
        self._loop = asyncio.get_running_loop()
        self._unsent: list[_Question] = []
        self._sent = deque[_Question]()
        self._step = self._heard = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_connected = self.is_over = False
        self._writer: asyncio.Task[None] | None = None
        # Not in the context of whoever happens to ask first: it would be kept for as long as the connection.
        self._reader = self._loop.create_task(self._read(), context=Context())

    async def ask(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Any:
        """Run the script with these, and return its answer.

        Raises:
            TimeoutError: nobody was answered for `LIMIT_STORE_SILENCE_S`.
            ResponseError: the store refuses this one.
            RedisError, OSError: the connection fails.
        """
        words = [b"%d" % len(keys), *keys, *arguments]
        try:
            return await self._asked(b"EVALSHA", self._digest, words)
        except NoScriptError:
            return await self._asked(b"EVAL", self._script, words)

    async def _asked(self, command: bytes, script: bytes, words: Sequence[bytes]) -> Any:
        if self._reader.done():
            raise ConnectionError(_OVER)
        # With a timer that runs, the step that has begun is none of this question's.
        began = self._step if self._timer is None else self._step + 1
        question = _Question(self._loop.create_future(), _packed((command, script, *words)), began)
        self._unsent.append(question)
        if self._timer is None:
            self._timer = self._loop.call_later(_STEP_S, self._look)
        self._write()
        return await question.answer

    # -- to the store, and back

    def _write(self) -> None:
        if self._is_connected and self._writer is None:
            self._writer = self._loop.create_task(self._send(), context=Context())

    async def _send(self) -> None:
        try:
            while self._unsent:
                # Nobody waits for what was given up, and nothing is charged for it.
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
            # What answers belong to which question, nobody can tell any more.
            raise RedisError("the store answered what nobody had asked")
        waiting = self._sent.popleft()
        if waiting.answer.done():
            return
        if error is None:
            waiting.answer.set_result(answer)
        else:
            _refuse(waiting, error)

    # -- patience

    def _look(self) -> None:
        """Give up whoever waited while the store answered nobody.

        It is looked in steps: a loop that was held up loses one step by it, and still reads the answer that came
        meanwhile.
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
            self._timer = self._loop.call_later(_STEP_S, self._look)
        elif self.is_over:
            self._reader.cancel()

    def _end(self, error: Exception) -> None:
        self.is_over = True
        for one in (*self._sent, *self._unsent):
            if not one.answer.done():
                # One each: what is raised twice carries the ways of both.
                _refuse(one, ConnectionError(str(error)))
        self._sent.clear()
        self._unsent.clear()

    async def close(self) -> None:
        """Let the connection go; who still waits is told that it is closed."""
        self.is_over = True
        self._reader.cancel()
        await asyncio.wait({self._reader})


def _packed(words: Sequence[bytes]) -> bytes:
    """Return a command as it goes over the wire."""
    return b"".join([b"*%d\r\n" % len(words), *[b"$%d\r\n%b\r\n" % (len(word), word) for word in words]])


def _refuse(question: _Question, error: Exception) -> None:
    question.answer.set_exception(error)
    # Whoever asked may be gone by the time it would be raised: then asyncio shall not complain of it.
    question.answer.exception()
