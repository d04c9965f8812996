"""Start page: what `/` says is here, to a person who opens the server's address."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pegboard.server.authenticator import Authenticated, Authenticator
from pegboard.server.gateway import Gateway
from pegboard.server.host_guard import HostGuard, Refusal


class StartPage:
    """One page of plain text. Names of the catalog and its profiles are for those who may use them."""

    def __init__(self, gateway: Gateway, host_guard: HostGuard, authenticator: Authenticator) -> None:
        self._gateway, self._host_guard, self._authenticator = gateway, host_guard, authenticator

    @property
    def routes(self) -> list[Route]:
        return [Route("/", endpoint=self._answer)]

    async def _answer(self, request: Request) -> Response:
        refusal = self._host_guard.refusal(request.scope["headers"])
        if refusal is not None:
            return PlainTextResponse(refusal.text, status_code=refusal.status)
        caller = await self._authenticator.identify(request.scope)
        return PlainTextResponse(self._text(request.scope.get("root_path", ""), caller))

    def _text(self, root: str, caller: Authenticated | Refusal) -> str:
        profiles = () if isinstance(caller, Refusal) else self._authenticator.profiles_of(caller)
        name = "" if isinstance(caller, Refusal) else f": the tools of {self._gateway.catalog.name}"
        places = [
            (f"{root}/mcp", "MCP over streamable HTTP, for agents and their hosts"),
            *((f"{root}/mcp/{profile}", f"the same, as profile {profile!r}") for profile in profiles),
            (f"{root}/v1/tools", f"the tools over plain HTTP, which {root}/openapi.json describes"),
            (f"{root}/healthz", "whether the server is well; also /readyz and /metrics"),
        ]
        width = max(len(path) for path, _ in places)
        lines = [f"Pegboard{name}", "", *(f"{path:<{width}}  {what}" for path, what in places)]
        if isinstance(caller, Refusal):
            lines += ["", "A credential is needed, and none that is good here came with this request."]
        return "\n".join(lines) + "\n"
