"""UploadPlaces: a few slots for uploads, shared so that a slow sender does not block others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from pegboard.model.bounds import KIB
from pegboard.server.body_reader import Message, Receive
from pegboard.server.http_api.problem_details import STATUS_OF_KIND, ProblemError
from pegboard.server.open_requests import OpenRequests
from pegboard.server.principal import Principal

T = TypeVar("T")

UPLOADS_AT_ONCE = 4  # slots of one server, three of them for one caller; other uploads wait
UPLOAD_WAIT_S = 60.0  # seconds that an upload waits for a slot
UPLOAD_PATIENCE_S = 1.0  # seconds that a caller without a slot waits before another upload is stopped
UPLOAD_LEAST_BYTES_S = 16 * KIB  # bytes per second below which an upload may be stopped if each caller has one slot

_RETRY = {"retry-after": str(int(UPLOAD_WAIT_S))}
_NO_PLACE = "Too many files are being sent to this server just now, by you or by others. Send this one again later."


@dataclass(eq=False, kw_only=True, slots=True)
class UploadPlace:
    """One running upload: its owner, the bytes received, and whether it lost its slot."""

    whose: tuple[str | None, ...]
    began_s: float
    arrived_bytes: int = 0
    deadline: asyncio.Timeout | None = None
    is_given_up: bool = False

    def rate(self, now_s: float) -> float:
        """Return the bytes received per second."""
        return self.arrived_bytes / max(now_s - self.began_s, 1e-6)

    def counted(self, receive: Receive) -> Receive:
        """Return a `receive` that counts the bytes of the body."""

        async def receiving() -> Message:
            message = await receive()
            self.arrived_bytes += len(message.get("body", b""))
            return message

        return receiving

    async def arrive(self, reading: Awaitable[T]) -> T:
        """Wait for the file while it keeps its slot.

        Raises:
            ProblemError: busy; the upload was so slow that another caller got its slot.
        """
        try:
            async with asyncio.timeout(None) as self.deadline:
                return await reading
        except TimeoutError:
            if not self.is_given_up:
                raise
            text = "The file came so slowly that its place was given to another caller. Send it again later."
            headers = {**_RETRY, "connection": "close"}
            raise ProblemError(STATUS_OF_KIND["busy"], "busy", text, headers=headers) from None
        finally:
            self.deadline = None


@dataclass(kw_only=True, slots=True)
class UploadPlaces:
    """The slots of one server. One caller never has all of them; others wait for a limited time.

    A caller without a slot that has waited for `UPLOAD_PATIENCE_S` gets the slot of the slowest upload of the caller
    with most slots. If each caller has one, only uploads slower than `UPLOAD_LEAST_BYTES_S` lose theirs.
    """

    now_s: Callable[[], float] = field(default=lambda: asyncio.get_running_loop().time())
    _open: OpenRequests = field(default_factory=lambda: OpenRequests(UPLOADS_AT_ONCE), init=False)
    _freed: asyncio.Condition = field(default_factory=asyncio.Condition, init=False)
    _places: set[UploadPlace] = field(default_factory=set[UploadPlace], init=False)
    _waiting: Counter[tuple[str | None, ...]] = field(default_factory=Counter[tuple[str | None, ...]], init=False)

    @asynccontextmanager
    async def place(self, principal: Principal) -> AsyncGenerator[UploadPlace]:
        """Wait for a slot.

        Raises:
            ProblemError: busy; no slot became free in time.
        """
        async with self._freed:
            try:
                async with asyncio.timeout(UPLOAD_WAIT_S):
                    await self._entered(principal)
            except TimeoutError:
                raise ProblemError(STATUS_OF_KIND["busy"], "busy", _NO_PLACE, headers=_RETRY) from None
        place = UploadPlace(whose=principal.shares_as, began_s=self.now_s())
        self._places.add(place)
        try:
            yield place
        finally:
            self._places.remove(place)
            self._open.leave(place.whose)
            async with self._freed:
                self._freed.notify_all()

    async def _entered(self, principal: Principal) -> None:
        whose = principal.shares_as
        self._waiting[whose] += 1
        try:
            while not self._is_turn_of(whose) or self._open.enter(principal) is None:
                try:
                    async with asyncio.timeout(UPLOAD_PATIENCE_S):
                        await self._freed.wait()
                except TimeoutError:
                    self._take_one_for(whose)
        finally:
            self._waiting[whose] -= 1
            if not self._waiting[whose]:
                del self._waiting[whose]

    def _is_turn_of(self, whose: tuple[str | None, ...]) -> bool:
        """Tell whether a caller has no slot yet, or nobody without a slot is waiting."""
        with_one = {each.whose for each in self._places}
        return whose not in with_one or with_one >= self._waiting.keys()

    def _take_one_for(self, whose: tuple[str | None, ...]) -> None:
        """Stop an upload if that is fair. A file that has arrived and is being parsed keeps its slot."""
        count = Counter(each.whose for each in self._places)
        if whose in count:
            return
        now_s, most = self.now_s(), max(count.values(), default=0)
        arriving = [
            each
            for each in self._places
            if each.deadline is not None
            and not each.is_given_up
            and count[each.whose] == most
            and (most > 1 or each.rate(now_s) < UPLOAD_LEAST_BYTES_S)
        ]
        if arriving:
            slowest = min(arriving, key=lambda each: each.rate(now_s))
            assert slowest.deadline is not None
            slowest.is_given_up = True
            slowest.deadline.reschedule(now_s)
