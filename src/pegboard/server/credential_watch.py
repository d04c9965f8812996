"""CredentialWatch: ends open streams when the credential that opened them is no longer valid."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable

from pegboard.auth.present_rights import Standing, ended_standings
from pegboard.core.registry import Registry
from pegboard.server.principal import ANONYMOUS, Principal

CREDENTIAL_CHECK_S = 2.0  # between two checks of all open streams; a stream ends within 5 s of its credential


class CredentialWatch:
    """Checks the credentials of all open streams together, every two seconds, for as long as there is a stream.

    A request is judged when it arrives, so only what stays open needs this. Streams of a host that identifies its
    callers itself are not checked: only the host can.

    Args:
        registry: its identity rules count, as they are at each check.
        wall_clock: seconds since 1970.
    """

    def __init__(self, registry: Registry, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._registry, self._clock = registry, wall_clock
        self._open: dict[int, tuple[Standing, Callable[[], object]]] = {}
        self._numbers = itertools.count()
        self._checking: asyncio.Task[None] | None = None

    def watch(self, principal: Principal, end: Callable[[], object]) -> Callable[[], None]:
        """Call `end` once if the credential of a stream ends; returns the function to call when the stream is over."""
        who = principal.identity
        if not who.proof and who.credential != ANONYMOUS:
            return _nothing
        number = next(self._numbers)
        self._open[number] = Standing(who.proof, who.key_id, who.ends_at, principal.profile), end
        if self._checking is None:
            self._checking = asyncio.create_task(self._check(), name="pegboard-credential-watch")
        return lambda: self._forget(number)

    def _forget(self, number: int) -> None:
        self._open.pop(number, None)
        if not self._open and self._checking is not None:
            self._checking.cancel()
            self._checking = None

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(CREDENTIAL_CHECK_S)
            asked = {standing for standing, _ in self._open.values()}
            over = await ended_standings(self._registry.declarations.identity, asked, wall_clock=self._clock)
            for number, (standing, end) in list(self._open.items()):
                if standing in over and self._open.pop(number, None) is not None:
                    end()


def _nothing() -> None:
    """Stand for a stream that is not watched."""
