"""The toy issuer and its upstreams do what the protocols say, as Authlib's client and the MCP SDK's see it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from authlib.integrations import httpx_client
from authlib.integrations.base_client.errors import OAuthError
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from joserfc.jwk import RSAKey
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.connections.toy_issuer import ID_JAG, JWT_BEARER, TOKEN_EXCHANGE, ToyIssuer
from tests.connections.toy_upstreams import ApiUpstream, McpUpstream, mail_of

REDIRECT = "http://127.0.0.1:9/callback"
AsyncOAuth2Client: Any = httpx_client.AsyncOAuth2Client  # the stubs do not know it as a context
VERIFIER = "a-verifier-of-forty-three-characters-or-more-is-long-enough"


@asynccontextmanager
async def toys() -> AsyncGenerator[tuple[ToyIssuer, McpUpstream]]:
    async with ToyIssuer(path="/tenant").running() as issuer, McpUpstream(issuer).running() as upstream:
        issuer.add_client("app", redirects=(REDIRECT,))
        yield issuer, upstream


async def agreed(issuer: ToyIssuer, resource: str, *, user: str = "ann", scope: str = "read") -> dict[str, Any]:
    """Return the tokens that a person agreed to, got by Authlib's client."""
    issuer.user = user
    async with AsyncOAuth2Client(
        "app", token_endpoint_auth_method="none", redirect_uri=REDIRECT, scope=scope, code_challenge_method="S256"
    ) as client:
        url, state = client.create_authorization_url(
            f"{issuer.url}/authorize", code_verifier=VERIFIER, resource=resource
        )
        async with httpx2.AsyncClient() as browser:
            back = (await browser.get(url)).headers["location"]
        assert parse_qs(urlsplit(back).query)["iss"] == [issuer.url]
        return await client.fetch_token(
            f"{issuer.url}/token", authorization_response=back, state=state, code_verifier=VERIFIER, resource=resource
        )


async def said(upstream: McpUpstream, access: str, tool: str) -> str:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {access}"}) as http,
        Client(streamable_http_client(upstream.resource, http_client=http)) as client,
    ):
        return (await client.call_tool(tool, {})).content[0].text  # type: ignore[union-attr]


async def test_each_person_who_agreed_reads_their_own_mail() -> None:
    async with toys() as (issuer, upstream):
        for user in ("ann", "bob"):
            token = await agreed(issuer, upstream.resource, user=user)
            assert await said(upstream, token["access_token"], "whoami") == f"You are {user}."
            assert await said(upstream, token["access_token"], "read_mail") == mail_of(user)
        assert upstream.crossed == []


async def test_a_refresh_token_works_once_and_its_second_use_ends_the_agreement() -> None:
    async with toys() as (issuer, upstream):
        token = await agreed(issuer, upstream.resource)
        async with AsyncOAuth2Client("app", token_endpoint_auth_method="none") as client:
            second = await client.refresh_token(f"{issuer.url}/token", refresh_token=token["refresh_token"])
            assert await said(upstream, second["access_token"], "whoami") == "You are ann."
            with pytest.raises(OAuthError, match="invalid_grant"):
                await client.refresh_token(f"{issuer.url}/token", refresh_token=token["refresh_token"])
        assert issuer.hits["reused refresh token"] == 1
        assert issuer.good(second["access_token"]) is None


async def test_a_revoked_agreement_is_refused_upstream_with_the_way_to_a_new_one() -> None:
    async with toys() as (issuer, upstream):
        token = await agreed(issuer, upstream.resource)
        async with AsyncOAuth2Client("app", token_endpoint_auth_method="none") as client:
            await client.revoke_token(f"{issuer.url}/revoke", token["refresh_token"], body="client_id=app")
        async with httpx2.AsyncClient() as http:
            headers = {"authorization": f"Bearer {token['access_token']}"}
            refusal = await http.post(upstream.resource, json={"method": "tools/list"}, headers=headers)
            assert refusal.status_code == 401
            assert f'resource_metadata="{upstream.metadata_url}"' in refusal.headers["www-authenticate"]
            resource = (await http.get(upstream.metadata_url)).json()
            assert resource["authorization_servers"] == [issuer.url]
            origin, path = issuer.url.removesuffix("/tenant"), "/tenant"
            metadata = (await http.get(f"{origin}/.well-known/oauth-authorization-server{path}")).json()
            assert metadata["issuer"] == issuer.url


async def test_a_code_needs_its_verifier_its_resource_and_is_good_once() -> None:
    async with toys() as (issuer, upstream), httpx2.AsyncClient() as http:
        asked = {"response_type": "code", "client_id": "app", "redirect_uri": REDIRECT, "scope": "read"}
        assert (await http.get(f"{issuer.url}/authorize", params=asked)).json()["error"] == "invalid_request"
        token = await agreed(issuer, upstream.resource)
        [code] = issuer.codes
        form = {"grant_type": "authorization_code", "code": code, "client_id": "app", "redirect_uri": REDIRECT,
                "code_verifier": VERIFIER, "resource": upstream.resource}  # fmt: skip
        assert (await http.post(f"{issuer.url}/token", data=form)).json()["error"] == "invalid_grant"
        assert issuer.hits["replayed code"] == 1
        assert issuer.good(token["access_token"]) is None


async def test_an_application_gets_tokens_of_its_own_by_secret_and_by_signature() -> None:
    async with toys() as (issuer, upstream):
        key = RSAKey.generate_key(2048, {"kid": "ours"})
        issuer.add_client("secretive", secret="hush")
        issuer.add_client("signed", keys={"keys": [key.as_dict(private=False)]})
        async with AsyncOAuth2Client("secretive", "hush") as client:
            token = await client.fetch_token(
                f"{issuer.url}/token", grant_type="client_credentials", resource=upstream.resource
            )
            assert await said(upstream, token["access_token"], "whoami") == "You are secretive."
        async with AsyncOAuth2Client(
            "signed", key.as_dict(private=True), token_endpoint_auth_method=PrivateKeyJWT(f"{issuer.url}/token")
        ) as client:
            token = await client.fetch_token(
                f"{issuer.url}/token", grant_type="client_credentials", resource=upstream.resource
            )
            assert await said(upstream, token["access_token"], "whoami") == "You are signed."


async def test_the_login_of_a_company_is_exchanged_for_a_token_here() -> None:
    async with ToyIssuer().running() as company, toys() as (issuer, upstream), httpx2.AsyncClient() as http:
        company.add_client("gateway", secret="hush")
        company.people["login-of-ann"] = "ann"
        issuer.trusted[company.url] = company.key
        issuer.people["login-of-ann"] = "ann"
        subject = {"subject_token": "login-of-ann", "subject_token_type": "urn:ietf:params:oauth:token-type:id_token"}
        exchanged = await http.post(
            f"{issuer.url}/token",
            data={"grant_type": TOKEN_EXCHANGE, "client_id": "app", "resource": upstream.resource, **subject},
        )
        assert await said(upstream, exchanged.json()["access_token"], "whoami") == "You are ann."
        asked = {"grant_type": TOKEN_EXCHANGE, "requested_token_type": ID_JAG, "audience": issuer.url,
                 "resource": upstream.resource, "scope": "read", "resource_client_id": "app", **subject}  # fmt: skip
        jag = (await http.post(f"{company.url}/token", data=asked, auth=("gateway", "hush"))).json()["access_token"]
        form = {"grant_type": JWT_BEARER, "assertion": jag, "client_id": "app"}
        token = (await http.post(f"{issuer.url}/token", data=form)).json()["access_token"]
        assert await said(upstream, token, "whoami") == "You are ann."
        forged = await http.post(f"{company.url}/token", data=form | {"client_id": "gateway"}, auth=("gateway", "hush"))
        assert forged.json()["error"] == "invalid_grant"


async def test_an_api_tells_in_its_document_how_to_log_in_and_asks_for_more_scopes() -> None:
    async with toys() as (issuer, _), ApiUpstream(issuer).running() as api, httpx2.AsyncClient() as http:
        token = await agreed(issuer, api.resource, user="bob")
        document = (await http.get(f"{api.origin}/openapi.json")).json()
        flows = document["components"]["securitySchemes"]["login"]["flows"]
        assert flows["authorizationCode"]["tokenUrl"] == f"{issuer.url}/token"
        headers = {"authorization": f"Bearer {token['access_token']}"}
        assert (await http.get(f"{api.origin}/mail", headers=headers)).json()["mail"] == mail_of("bob")
        refusal = await http.post(f"{api.origin}/mail", headers=headers, json={"text": "hello"})
        assert (refusal.status_code, 'scope="write"' in refusal.headers["www-authenticate"]) == (403, True)
