"""CredentialWatch: ends open streams when the credential that opened them is no longer valid."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING

from pegboard.core.registry import Registry
from pegboard.core.steady_clock import steady_time
from pegboard.lazy import LazyModule
from pegboard.server.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from pegboard.auth import present_rights
    from pegboard.auth.present_rights import Standing
else:
    present_rights = LazyModule("pegboard.auth.present_rights")

CREDENTIAL_CHECK_S = 2.0  # seconds between two checks of all open streams; a stream ends within 5 s of its credential


class CredentialWatch:
    """Checks the credentials of all open streams together, every two seconds, for as long as there is a stream.

    Requests are checked on arrival, so only open streams need this. Streams of a host that identifies its callers
    itself are not checked: only the host could.

    Args:
        registry: its identity rules apply, as they are at each check.
        wall_clock: seconds since 1970.
    """

    def __init__(self, registry: Registry, *, wall_clock: Callable[[], float] = steady_time) -> None:
        self._registry, self._clock = registry, wall_clock
        self._open: dict[int, tuple[Standing, Callable[[], object]]] = {}
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._checking: asyncio.Task[None] | None = None

    def watch(self, principal: Principal, end: Callable[[], object]) -> Callable[[], None]:
        """Call `end` once when the credential of a stream ends; returns the function to call at the stream's end."""
        identity = principal.identity
        if not identity.proof and identity.credential != ANONYMOUS:
            return _nothing
        number = next(self._numbers)
        self._open[number] = (
            present_rights.Standing(identity.proof, identity.key_id, identity.ends_at, principal.profile),
            end,
        )
        if self._timer is None and self._checking is None:
            self._check_later()
        return lambda: self._forget(number)

    def _forget(self, number: int) -> None:
        self._open.pop(number, None)
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_later(self) -> None:
        # A timer, so that an open stream does not need a task.
        self._timer = asyncio.get_running_loop().call_later(CREDENTIAL_CHECK_S, self._begin_check)

    def _begin_check(self) -> None:
        self._timer = None
        # In an empty context: a request's context would be kept alive.
        task = asyncio.get_running_loop().create_task(self._check(), context=Context())
        self._checking = task

    async def _check(self) -> None:
        asked = {standing for standing, _ in self._open.values()}
        try:
            over = await present_rights.ended_standings(
                self._registry.declarations.identity, asked, wall_clock=self._clock
            )
            for number, (standing, end) in list(self._open.items()):
                if standing in over and self._open.pop(number, None) is not None:
                    end()
        finally:
            self._checking = None
            if self._open:
                self._check_later()


def _nothing() -> None:
    """Do nothing: the default for a stream that is not watched."""
