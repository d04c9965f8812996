"""Agreeing: connections in a store, and a person who agrees at a toy issuer as a browser would."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from pegboard.connections.auth_settings import AuthSettings
from pegboard.connections.connection_records import Challenge, Connection, Person
from pegboard.connections.connections import Connections
from pegboard.model.secret import Secret
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import Upstream

ANN, BOB = Person(user_id="ann", space_id="acme"), Person(user_id="bob", space_id="acme")
KEY = Secret("a-key-of-connections-that-is-long-enough-0123456789")
PUBLIC_URL = "http://127.0.0.1:8420"
BROWSER = "the-cookie-of-one-browser"


def connections_in(store: str | Path, *, keys: tuple[Secret, ...] = (KEY,), **options: Any) -> Connections:
    """Return a worker's connections; several with one store are several workers."""
    uri = f"sqlite:{store}" if isinstance(store, Path) else store
    made = Connections.open(uri, keys=keys, public_url=options.pop("public_url", PUBLIC_URL))
    for name, value in options.items():
        setattr(made, f"_{name}", value)
        if name == "clock":
            made._tokens._clock = value
    return made


def settings_of(toy: ToyIssuer, upstream: Upstream, *, source: str = "mail", **said: Any) -> AuthSettings:
    """Return the settings of a source whose issuer is on loopback, and is named by the upstream alone."""
    hosts = (urlsplit(toy.url).netloc,)
    return AuthSettings(source=source, mode="user", server_url=upstream.resource, hosts=hosts, **said)


async def sent_back(url: str) -> dict[str, str]:
    """Follow the URL of the issuer as a browser does; return what it is sent back with."""
    async with httpx2.AsyncClient() as browser:
        response = await browser.get(url)
        assert response.status_code == 302, response.text
    query = parse_qs(urlsplit(response.headers["location"]).query)
    return {name: values[0] for name, values in query.items()}


async def connect(
    connections: Connections,
    issuer: ToyIssuer,
    person: Person = ANN,
    *,
    source: str = "mail",
    challenge: Challenge | None = None,
) -> Connection:
    """Let a person connect, with an account at the issuer that has the same name."""
    link = await connections.begin(person, source, *([challenge] if challenge else []))
    issuer.user = person.user_id
    url = await connections.agree(link.ticket.reveal(), browser=BROWSER)
    back = await sent_back(url)
    return await connections.finish(back["state"], browser=BROWSER, code=back["code"], iss=back.get("iss"))
