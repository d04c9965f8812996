"""Console door: loads the console with the first request for it, so that a server without readers pays nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pegboard.auth.rules import ConsoleRules
from pegboard.lazy import LazyModule
from pegboard.server.http_api.api_app import Api
from pegboard.telemetry.part_states import PartStates

if TYPE_CHECKING:
    from pegboard.server.console import console_app
    from pegboard.server.console.console_app import ConsoleApp
    from pegboard.server.console.pending_config import PendingConfig
else:
    console_app = LazyModule("pegboard.server.console.console_app")

NO_RULES = ConsoleRules()


class ConsoleDoor:
    """`/console` and everything below it.

    Args:
        api: the guards and the gateway that all doors over HTTP share.
        login_token: the secret of the one-time login link; empty if there is none.
        part_states: the probes of what the catalog depends on.
        has_others: whether other workers answer calls, too.
        has_own_login: whether the host identifies its callers itself.
        rules: how people log in, and what operators see.
        pending: the files of the config, which may have changed; `None` if the host made the catalog.
    """

    def __init__(
        self, api: Api, part_states: PartStates, *, login_token: str = "", has_own_login: bool = False,
        has_others: bool = False, rules: ConsoleRules = NO_RULES, pending: PendingConfig | None = None,
    ) -> None:  # fmt: skip
        self._api, self._part_states, self._login_token = api, part_states, login_token
        self._has_own_login, self._has_others, self._rules = has_own_login, has_others, rules
        self._pending = pending
        self._app: ConsoleApp | None = None

    @property
    def routes(self) -> list[Route]:
        return [Route("/console", endpoint=self), Route("/console/{rest:path}", endpoint=self)]

    def begin(self) -> None:
        """Accept open streams, also after an earlier end."""
        if self._app is not None:
            self._app.live.begin()

    def end_streams(self) -> None:
        """End every open stream; otherwise a server that shuts down would wait for them."""
        if self._app is not None:
            self._app.live.end_streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            self._app = console_app.ConsoleApp(
                self._api, self._part_states, login_token=self._login_token, has_own_login=self._has_own_login,
                has_others=self._has_others, rules=self._rules, pending=self._pending,
            )  # fmt: skip
        await self._app(scope, receive, send)
