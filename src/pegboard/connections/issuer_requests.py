"""Issuer requests: single requests to issuers, and for metadata to services, through the guarded client."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

from pegboard.connections.auth_settings import AuthSettings
from pegboard.connections.connection_records import ConnectFailedError
from pegboard.connections.limits import ISSUER_ANSWER_BYTES, ISSUER_REQUEST_S
from pegboard.egress.connections import Resolve, system_resolve
from pegboard.egress.destinations import Destinations, only_host_of
from pegboard.egress.http import GuardedClient
from pegboard.egress.responses import Response

_JSON = {"accept": "application/json"}
_FORM = {**_JSON, "content-type": "application/x-www-form-urlencoded"}


class IssuerRequests:
    """Sends requests for one source. They follow no redirects, which could lead a credential elsewhere.

    The service names its issuer, and that one its endpoints, so these must have public addresses and https, unless the
    operator named their host.
    """

    def __init__(self, settings: AuthSettings, *, resolve: Resolve = system_resolve) -> None:
        self._settings, self._resolve = settings, resolve

    async def get(self, url: str, *, headers: Mapping[str, str] | None = None) -> Response:
        """Return the response to a GET without credentials.

        Raises:
            EgressError: the server cannot be reached, or its address is refused.
            ConnectFailedError: `not_supported`, if the URL is not https.
        """
        return await self._send("GET", url, headers={**_JSON, **(headers or {})})

    async def post_form(
        self, url: str, fields: Mapping[str, str], *, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Return the response to a form.

        Raises:
            EgressError, ConnectFailedError: as for `get`.
        """
        return await self._send("POST", url, headers={**_FORM, **(headers or {})}, body=urlencode(fields).encode())

    async def post_json(self, url: str, body: bytes) -> Response:
        """Return the response to a JSON document.

        Raises:
            EgressError, ConnectFailedError: as for `get`.
        """
        return await self._send("POST", url, headers={**_JSON, "content-type": "application/json"}, body=body)

    async def _send(self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None) -> Response:
        async with GuardedClient(self._destinations(url), resolve=self._resolve) as client:
            return await client.request(
                method,
                url,
                headers=headers,
                body=body,
                timeout_s=ISSUER_REQUEST_S,
                max_response_bytes=ISSUER_ANSWER_BYTES,
                max_redirects=0,
            )

    def _destinations(self, url: str) -> Destinations:
        if self._settings.trusts(url):
            return only_host_of(url)
        if urlsplit(url).scheme != "https":
            text = f"{url[:200]!r} is not https, and a credential would be sent there. Name its host under `hosts` of "
            raise ConnectFailedError("not_supported", f"{text}{self._settings.source!r} if it is yours.")
        return Destinations()
