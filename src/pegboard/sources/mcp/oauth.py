"""OAuth: wraps requests to a server with the flow that gets and renews its token."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx2  # noqa: TID251 - the SDK's flows are written for it; each request goes out through egress.transport

from pegboard.egress.destinations import Destinations
from pegboard.egress.failures import EgressError
from pegboard.egress.transport import GuardedTransport
from pegboard.model.error import CallError
from pegboard.sources.mcp.server_settings import ServerSettings

MCP_SIGN_IN_REQUESTS = 40  # requests of one sign-in


class OAuthTransport(httpx2.AsyncBaseTransport):
    """Runs an `httpx2.Auth` around each request.

    The server names the token endpoints, so those requests may go only to public addresses and to the operator's
    `auth_hosts`.
    """

    def __init__(self, inner: GuardedTransport, auth: httpx2.Auth, settings: ServerSettings) -> None:
        self._inner, self._auth, self._server = inner, auth, settings.name
        self._own = _place(httpx2.URL(settings.url))
        self._hosts = frozenset(settings.auth_hosts)
        max_bytes = settings.bounds.message_line_bytes
        self._public = GuardedTransport(Destinations(), max_response_bytes=max_bytes)
        allowed = Destinations(allow_private=True, allow_hosts=settings.auth_hosts)
        self._named = GuardedTransport(allowed, max_response_bytes=max_bytes)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request, and the flow's own requests before or after it.

        Raises:
            CallError: the error of the flow; `upstream_auth`, if it fails in another way; else the transport's error.
        """
        flow = self._auth.async_auth_flow(request)
        try:
            return await self._through(flow)
        except (CallError, httpx2.HTTPError):
            raise
        except Exception as error:  # boundary: a flow is foreign code
            text = f"{self._server!r} could not be signed in to: {error}"
            raise EgressError("upstream_auth", text) from error
        finally:
            await flow.aclose()

    async def _through(self, flow: AsyncGenerator[httpx2.Request, httpx2.Response]) -> httpx2.Response:
        request = await anext(flow)
        for _ in range(MCP_SIGN_IN_REQUESTS):
            response = await self._transport_for(request.url).handle_async_request(request)
            response.request = request
            try:
                following = await flow.asend(response)
            except StopAsyncIteration:
                return response
            await response.aclose()
            request = following
        text = f"Signing in to {self._server!r} did not end after {MCP_SIGN_IN_REQUESTS} requests."
        raise EgressError("upstream_auth", text)

    def _transport_for(self, url: httpx2.URL) -> GuardedTransport:
        if _place(url) == self._own:
            return self._inner
        return self._named if self._hosts & {url.host, _place(url)} else self._public

    async def aclose(self) -> None:
        for transport in (self._inner, self._public, self._named):
            await transport.aclose()


def _place(url: httpx2.URL) -> str:
    port = url.port or (443 if url.scheme == "https" else 80)
    return f"[{url.host}]:{port}" if ":" in url.host else f"{url.host}:{port}"
