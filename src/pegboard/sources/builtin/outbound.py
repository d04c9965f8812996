"""Outbound: the settings and the request function of tools that call other servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Self

import orjson
from pydantic import AfterValidator, Field, model_validator

from pegboard.egress.credential_redaction import credentials_in
from pegboard.egress.destinations import Destinations, only_host_of
from pegboard.egress.failures import EgressError
from pegboard.egress.http import GuardedClient, OnOverflow, checked_headers
from pegboard.egress.responses import Response
from pegboard.model.bounds import MIB
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSONValue
from pegboard.model.record import CarriesCredentials
from pegboard.model.secret import Secret
from pegboard.sources.builtin.kind import BuiltinConfig, SecretText, Services


def http_url(url: str) -> str:
    """Check an operator's URL and return it.

    Raises:
        ValueError: it is not an http or https URL.
    """
    try:
        only_host_of(url)
    except DefinitionError:
        # The URL is not quoted: it may come from the environment, or contain a password.
        raise ValueError("this is not an http or https URL; write 'https://host/path'") from None
    return url


HttpUrl = Annotated[str, AfterValidator(http_url)]


class NetworkConfig(BuiltinConfig):
    """The servers that a tool may call, its time limit and the size of answers."""

    timeout_seconds: float = Field(
        30.0, gt=0, le=600, description="The time limit of the whole request, including redirects, in seconds."
    )
    max_response_bytes: int = Field(
        5 * MIB, gt=0, description="The maximum number of bytes read from an answer, after decompression."
    )
    allow_hosts: tuple[str, ...] = Field(
        (), description="The allowed hosts: `api.example.com`, `*.example.com`, `10.0.0.0/8`."
    )
    allow_private: bool = Field(False, description="Whether private and loopback addresses may be reached.")

    @model_validator(mode="after")
    def _hosts_can_be_read(self) -> Self:
        self.destinations()
        return self

    def destinations(self) -> Destinations:
        """Return the allowed destinations.

        Raises:
            ValueError: an entry of `allow_hosts` is invalid.
        """
        try:
            return Destinations(allow_private=self.allow_private, allow_hosts=self.allow_hosts)
        except DefinitionError as exc:
            raise ValueError(str(exc)) from None


class HeaderConfig(NetworkConfig):
    """The hosts that the tool may reach, and the headers of each request. The model chooses the URL."""

    headers: Mapping[str, SecretText] = Field(
        default_factory=dict[str, SecretText],
        description="Headers sent with each request, such as a key. Needs `allow_hosts`.",
    )

    @model_validator(mode="after")
    def _headers_stay_with_their_hosts(self) -> Self:
        if self.headers and not self.allow_hosts:
            raise ValueError("`headers` would be sent to any host that the model names; set `allow_hosts` too")
        check_headers(self.plain_headers())
        return self

    def secrets(self) -> Iterator[Secret]:
        """Yield every value, and for `Bearer key` also the key alone, which the server may repeat."""
        for value in self.headers.values():
            yield from credentials_in(value)

    def plain_headers(self) -> dict[str, str]:
        """Return the headers as they are sent."""
        return {name: value.reveal() for name, value in self.headers.items()}


def check_headers(headers: Mapping[str, str]) -> None:
    """Check that an operator's headers can be sent.

    Raises:
        ValueError: one cannot; the message has its name, but not its value.
    """
    try:
        checked_headers(headers)
    except EgressError as exc:
        raise ValueError(exc.error.message) from None


class Web(CarriesCredentials, frozen=True, kw_only=True):
    """The outbound access of one tool: its settings and fixed headers."""

    config: NetworkConfig
    services: Services
    headers: Mapping[str, str]
    destinations: Destinations

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        max_redirects: int | None = None,
        on_overflow: OnOverflow = "raise",
    ) -> Response:
        """Send one request through the guarded client and return the whole response."""
        # A new client for each call: connections and cookies are never shared by callers.
        async with GuardedClient(
            self.destinations,
            headers=self.headers,
            bounds=self.services.bounds,
            resolve=self.services.resolve,
        ) as client:
            return await client.request(
                method,
                url,
                headers=headers,
                body=body,
                timeout_s=self.config.timeout_seconds,
                max_response_bytes=self.config.max_response_bytes,
                max_redirects=max_redirects,
                on_overflow=on_overflow,
            )


def web(
    config: NetworkConfig,
    services: Services,
    headers: Mapping[str, str] | None = None,
    *,
    fixed_url: str | None = None,
) -> Web:
    """Return the outbound access of a tool. With the operator's `fixed_url`, only that host is allowed."""
    own = config.destinations()
    destinations = own if fixed_url is None or config.allow_hosts else only_host_of(fixed_url)
    return Web(config=config, services=services, headers=headers or {}, destinations=destinations)


def fitting(text: str, max_bytes: int) -> str:
    """Return the longest beginning of a text that has at most `max_bytes` bytes as JSON."""
    if len(text) * 6 + 2 <= max_bytes or len(orjson.dumps(text)) <= max_bytes:
        return text
    low, high = 0, min(len(text), max_bytes)
    while low < high:
        middle = (low + high + 1) // 2
        if len(orjson.dumps(text[:middle].encode("utf-8", "replace").decode())) <= max_bytes:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def size_of(value: JSONValue) -> int:
    """Return the size of a value as JSON, in bytes."""
    return len(orjson.dumps(value))
