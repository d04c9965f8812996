"""OAuth 2.1 against a real authorization server: the SDK's client finds it, gets a token and comes in."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from pegboard import CallContext, Catalog, http_app
from pegboard.auth.rules import IdentityRules, TokenRules
from tests.auth.authorization_server import REDIRECT, SECRET, Login, User
from tests.auth.parts import RSA_ONE, bearer, rule
from tests.server.doors import Seen, post, served, workshop


class Storage:
    """What a client keeps between its requests."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self.tokens: OAuthToken | None = None
        self.client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Browser:
    """Opens the page of the authorization server and is sent back with a code."""

    def __init__(self) -> None:
        self.came_back: dict[str, list[str]] = {}

    async def open(self, url: str) -> None:
        async with httpx2.AsyncClient() as client:
            answer = await client.get(url, follow_redirects=False)
        assert answer.headers["location"].startswith(REDIRECT), answer.text
        self.came_back = parse_qs(urlsplit(answer.headers["location"]).query)

    async def result(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=self.came_back["code"][0], state=self.came_back["state"][0])


@asynccontextmanager
async def guarded_by_login() -> AsyncGenerator[tuple[str, Login, Catalog, Seen]]:
    """Serve a workshop that takes the tokens of an authorization server; both are on loopback."""
    catalog, seen = workshop()

    @catalog.tool(groups="core")
    async def whoami(ctx: CallContext) -> dict[str, object]:
        """Tell who asks."""
        return {"user": ctx.user_id, "space": ctx.space_id}

    # Nobody is let in before the rules are there, as the address is known only when it is served.
    catalog.identity = IdentityRules()
    async with served(http_app(catalog)) as url, Login(RSA_ONE, audience=f"{url}/mcp").running() as login:
        catalog.identity = IdentityRules(
            tokens=TokenRules(
                issuer=login.issuer, audience=login.audience, jwks_url=f"{login.issuer}/jwks", scopes=("tools",)
            ),
            map=(
                rule(claim={"team": "support"}, user="{sub}", space="{team}", profiles=("chat",)),
                rule(claim={"team": "machines"}, user="{client_id}", profiles=("admin", "chat")),
            ),
        )
        yield url, login, catalog, seen


def person(url: str, login: Login, storage: Storage, browser: Browser) -> OAuthClientProvider:
    """Return the authorization of a client that a person uses."""
    words: dict[str, Any] = {
        "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code"],
        "token_endpoint_auth_method": "none",
    }
    storage.client = OAuthClientInformationFull.model_validate({"client_id": "app", "issuer": login.issuer, **words})
    metadata = OAuthClientMetadata.model_validate(words)
    return OAuthClientProvider(
        f"{url}/mcp", metadata, storage, redirect_handler=browser.open, callback_handler=browser.result
    )


@asynccontextmanager
async def client_with(auth: Any, address: str, mode: Any = "2026-07-28") -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(auth=auth, timeout=20) as http,
        Client(streamable_http_client(address, http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/chat"])
async def test_a_person_signs_in_and_their_client_comes_in_as_them(mode: str, path: str) -> None:
    async with guarded_by_login() as (url, login, _, _):
        storage, browser = Storage(), Browser()
        async with client_with(person(url, login, storage, browser), f"{url}{path}", mode) as client:
            result = await client.call_tool("whoami", {})
            assert result.structured_content == {"user": "ann", "space": "support"}
            assert "echo" in {tool.name for tool in (await client.list_tools()).tools}
        # One token, asked for this very server, with the scope that the server named.
        assert len(login.tokens) == 1
        assert login.resources == [login.audience] * 2
        assert storage.tokens is not None
        assert storage.tokens.scope == "tools"


async def test_a_person_whom_no_rule_names_is_not_let_in_however_good_the_token() -> None:
    async with guarded_by_login() as (url, login, _, seen):
        login.user = User("mallory")
        storage = Storage()
        with pytest.raises(BaseException):  # noqa: B017, PT011 - the client's own, in a group
            async with client_with(person(url, login, storage, Browser()), f"{url}/mcp") as client:
                await client.call_tool("add", {"a": 1, "b": 2})
        assert storage.tokens is not None
        async with httpx2.AsyncClient(base_url=url) as plain:
            answer = await post(plain, "tools/list", headers=bearer(storage.tokens.access_token))
            assert answer.status_code == 403
        assert seen.runs == []


async def test_a_program_comes_in_with_its_own_credentials() -> None:
    async with guarded_by_login() as (url, login, _, _):
        auth = ClientCredentialsOAuthProvider(
            f"{url}/mcp", Storage(), "robot", SECRET, scope="tools", issuer=login.issuer
        )
        async with client_with(auth, f"{url}/mcp") as client:
            assert (await client.call_tool("whoami", {})).structured_content == {"user": "robot", "space": None}
            assert "wipe" in {tool.name for tool in (await client.list_tools()).tools}


async def test_a_token_for_another_server_of_the_same_login_is_refused() -> None:
    async with guarded_by_login() as (url, login, _, seen):
        login.audience = "https://other.example/mcp"
        async with httpx2.AsyncClient(base_url=url) as client:
            answer = await client.post(
                f"{login.issuer}/token",
                data={"grant_type": "client_credentials", "scope": "tools"},
                auth=httpx2.BasicAuth("robot", SECRET),
            )
            token = answer.json()["access_token"]
            refused = await post(
                client, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, headers=bearer(token)
            )
        assert (refused.status_code, seen.runs) == (401, [])


async def test_a_token_without_the_scope_is_told_which_one_it_needs() -> None:
    async with guarded_by_login() as (url, login, _, _):
        async with httpx2.AsyncClient(base_url=url) as client:
            answer = await client.post(
                f"{login.issuer}/token",
                data={"grant_type": "client_credentials"},
                auth=httpx2.BasicAuth("robot", SECRET),
            )
            narrow = await post(client, "tools/list", headers=bearer(answer.json()["access_token"]))
        assert narrow.status_code == 403
        assert 'error="insufficient_scope", scope="tools"' in narrow.headers["www-authenticate"]
