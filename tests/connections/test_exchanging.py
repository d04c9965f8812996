"""Exchanging: the token with which a person comes is exchanged for one of the service, and never sent there itself."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from pegboard import Catalog, DefinitionError, Secret, ToolContext, http_app, load_catalog
from pegboard.auth.keys import KeyStore
from pegboard.config.config_warnings import warnings
from pegboard.connections.auth_settings import AuthSettings
from pegboard.connections.exchanged_credentials import ExchangedCredentials
from pegboard.model.caller import Caller
from pegboard.server.identify import Identified
from pegboard.sources.mcp.personal_source import PersonalMcpSource
from pegboard.sources.mcp.server_settings import ServerSettings
from tests.auth.parts import AUDIENCE, ISSUER, Issuer, bearer
from tests.connections.toy_issuer import ACCESS_TOKEN, ID_JAG, JWT_BEARER, TOKEN_EXCHANGE, ToyIssuer
from tests.connections.toy_upstreams import ApiUpstream, McpUpstream, mail_of
from tests.server.doors import served
from tests.timing import PATIENCE_S

SECRET = "the-secret-of-our-client"
LOGIN_SECRET = "the-secret-of-our-client-at-the-login"
ENV = {"SECRET": SECRET, "LOGIN_SECRET": LOGIN_SECRET}
EARLIER = "2025-11-25"


@dataclass
class Company:
    """A server whose callers come with tokens of one login, an issuer of its services' tokens, and the services."""

    login: Issuer
    issuer: ToyIssuer
    mcp: McpUpstream
    api: ApiUpstream
    catalog: Catalog
    url: str
    key: str

    def token(self, user: str, **claims: Any) -> str:
        """Return a token of the login, which the issuer knows as well."""
        token = self.login.token(sub=user, **claims)
        self.issuer.people[token] = user
        return token

    async def call(self, credential: str, tool: str, **args: Any) -> dict[str, Any]:
        async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
            url = f"{self.url}/v1/tools/{tool}/call"
            response = await client.post(url, json=args, headers=bearer(credential))
        return response.json() if response.status_code == 200 else {"error": response.json()}


@asynccontextmanager
async def company(folder: Path, **auth: Any) -> AsyncGenerator[Company]:
    async with (
        Issuer().running() as login,
        ToyIssuer(path="/tenant").running() as issuer,
        McpUpstream(issuer).running() as mcp,
        ApiUpstream(issuer).running() as api,
    ):
        issuer.add_client("pegboard", secret=SECRET)
        sent = {"mode": "exchange", "issuer": issuer.url, "client_id": "pegboard", "client_secret": "${SECRET}", **auth}
        config = {
            "name": "acme",
            "tools": [
                {"name": "mail", "type": "mcp", "mcp": {"transport": "http", "url": mcp.resource}, "auth": sent},
                {"name": "me", "type": "webhook", "description": "Say who calls.",
                 "webhook": {"url": f"{api.origin}/mail", "method": "GET"}, "auth": {**sent, "resource": api.origin}},
            ],
            "audit": {"store": "sqlite:./audit.db"},
            "identity": {
                "api_keys": {"store": "sqlite:./keys.db"},
                "jwt": {"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": login.jwks_url},
                "map": [
                    {"when": {"claim": {"sub": "*"}}, "user": "{sub}", "space": "acme"},
                    {"when": {"key": "ann-laptop"}, "user": "ann", "space": "acme"},
                ],
            },
        }  # fmt: skip
        path = folder / "pegboard.yaml"
        path.write_text(json.dumps(config))
        key, _ = KeyStore(folder / "keys.db").add("ann-laptop")
        catalog, loaded = load_catalog(path, env=ENV)
        async with served(http_app(catalog, config=loaded)) as url:
            yield Company(login, issuer, mcp, api, catalog, url, key)
        assert mcp.crossed == []


async def test_each_caller_gets_the_token_of_their_person_and_their_own_goes_to_the_issuer_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with company(tmp_path) as here:
        ann, bob = here.token("ann"), here.token("bob")
        for user, token in (("ann", ann), ("bob", bob), ("ann", ann)):
            assert mail_of(user) in json.dumps(await here.call(token, "me"))
        for user, token in (("ann", ann), ("bob", bob), ("ann", ann)):
            await here.call(token, "mail__connect")
            answer = await here.call(token, "mail__read_mail")
            assert mail_of(user) in json.dumps(answer), answer
        # One for each person and service: what was exchanged once is used until it expires.
        assert here.issuer.hits[f"token:{TOKEN_EXCHANGE}"] == 4
        for form in here.issuer.seen["token"]:
            assert form["subject_token"] in (ann, bob)
            assert form["subject_token_type"] == ACCESS_TOKEN
            assert "actor_token" not in form
        assert not {f"Bearer {token}" for token in (ann, bob)} & {*here.api.authorizations, *here.mcp.authorizations}
        written = caplog.text + "".join(repr(file.read_bytes()) for file in tmp_path.iterdir())
        assert [secret for secret in (*here.issuer.secrets, ann, bob, SECRET) if secret in written] == []


async def test_an_api_key_cannot_be_exchanged_and_the_refusal_says_what_to_do(tmp_path: Path) -> None:
    async with company(tmp_path) as here:
        for tool in ("me", "mail__connect"):
            error = (await here.call(here.key, tool))["error"]
            assert error["kind"] == "connection_required"
            source = tool.partition("__")[0]
            assert error["detail"] == (
                f"{source!r} exchanges the caller's token, but the caller sent none. "
                "Call with a token (JWT) of your company's login; an API key cannot be exchanged."
            )
        assert here.issuer.hits["token"] == 0
        decision = await here.catalog.view(ToolContext(user_id="ann", space_id="acme")).awhy("me")
        assert (decision.visible, decision.callable) == (True, False)
        assert decision.fix is not None
        assert decision.fix.text == "call with a token of your login"
        stranger = await here.catalog.view(ToolContext()).call("me", {})
        assert stranger.error is not None
        assert "this caller has no user" in stranger.error.message


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_clients_of_both_eras_call_with_their_own_token(tmp_path: Path, mode: Any) -> None:
    async with company(tmp_path) as here:
        for user in ("ann", "bob"):
            async with (
                httpx2.AsyncClient(headers=bearer(here.token(user)), timeout=PATIENCE_S) as http,
                Client(streamable_http_client(f"{here.url}/mcp", http_client=http), mode=mode) as client,
            ):
                assert (await client.call_tool("me", {})).structured_content == {"user": user, "mail": mail_of(user)}
                # The first list finds out what there is.
                await client.list_tools()
                names = {tool.name for tool in (await client.list_tools()).tools}
                assert f"mail__only_for_{user}" in names
                assert not any("bob" in name for name in names) or user == "bob"


async def test_another_token_of_the_same_person_is_exchanged_again_also_within_one_session(tmp_path: Path) -> None:
    async with company(tmp_path) as here:
        first, second = here.token("ann", jti="1"), here.token("ann", jti="2")
        async with (
            httpx2.AsyncClient(headers=bearer(first), timeout=PATIENCE_S) as http,
            Client(streamable_http_client(f"{here.url}/mcp", http_client=http), mode="legacy") as client,
        ):
            assert not (await client.call_tool("me", {})).is_error
            http.headers.update(bearer(second))
            answer = await client.call_tool("me", {})
            assert not answer.is_error, answer
        exchanged = [form["subject_token"] for form in here.issuer.seen["token"] if form["resource"] == here.api.origin]
        assert exchanged == [first, second]


async def test_a_refused_token_is_exchanged_once_more_and_an_exchange_is_made_by_one_call_for_all(
    tmp_path: Path,
) -> None:
    async with company(tmp_path) as here:
        ann = here.token("ann")
        held = here.issuer.switches.held["token"] = asyncio.Event()
        calls = [asyncio.create_task(here.call(ann, "me")) for _ in range(5)]
        async with asyncio.timeout(PATIENCE_S):
            while not here.issuer.hits["token"]:
                await asyncio.sleep(0.01)
        held.set()
        assert all(mail_of("ann") in json.dumps(answer) for answer in await asyncio.gather(*calls))
        assert here.issuer.hits["token"] == 1
        here.issuer.revoke_all()
        assert mail_of("ann") in json.dumps(await here.call(ann, "me"))
        assert here.issuer.hits["token"] == 2
        # A service that refuses a token which was just issued is not asked again and again.
        here.issuer.revoke_all()
        error = (await here.call(ann, "me"))["error"]
        assert (error["kind"], here.issuer.hits["token"]) == ("upstream_auth", 2)


async def test_a_person_whom_the_issuer_refuses_gets_no_token_and_it_is_not_asked_for_each_call(tmp_path: Path) -> None:
    async with company(tmp_path) as here:
        ann = here.login.token(sub="ann")  # as for somebody who has left the company
        for _ in range(3):
            error = (await here.call(ann, "me"))["error"]
            assert error["kind"] == "upstream_auth"
            assert error["detail"] == (
                f"'ann' got no token for 'me': The issuer {here.issuer.url!r} refused: invalid_grant. Log in again; if "
                "that does not help, the operator must allow the exchange there."
            )
        assert here.issuer.hits["token"] == 1


async def test_an_exchanged_token_is_not_used_longer_than_the_callers_own_token_is_valid() -> None:
    async with ToyIssuer().running() as issuer, McpUpstream(issuer).running() as mcp:
        issuer.add_client("pegboard", secret=SECRET)
        now = 1_000_000.0
        credentials = ExchangedCredentials(
            AuthSettings(
                source="mail", mode="exchange", server_url=mcp.resource, issuer=issuer.url, client_id="pegboard",
                client_secret=Secret(SECRET),
            ),
            clock=lambda: now,
            wall_clock=lambda: now,
        )  # fmt: skip

        async def version(subject: str) -> int:
            issuer.people[subject] = "ann"
            return (await credentials.token(Caller(user_id="ann", subject_token=Secret(subject)))).version

        short = jwt.encode({"sub": "ann", "exp": now + 100}, "k" * 32)
        assert [await version(short), await version(short), await version("opaque")] == [1, 1, 1]
        now += 101
        assert [await version(short), await version("opaque")] == [2, 1]
        now += 3600
        assert [await version("opaque"), await version("no.token.either")] == [2, 1]


async def test_the_actor_is_named_where_that_is_configured(tmp_path: Path) -> None:
    async with company(tmp_path, sends_actor=True, audience="the mail service") as here:
        answer = await here.call(here.token("ann"), "me")
        assert mail_of("ann") in json.dumps(answer), answer
        await here.call(here.token("bob"), "me")
        [own, *exchanges] = here.issuer.seen["token"]
        assert own["grant_type"] == "client_credentials"
        robot = next(token.access for token in here.issuer.tokens if token.user == "pegboard")
        assert [form["actor_token"] for form in exchanges] == [robot, robot]
        assert {form["audience"] for form in exchanges} == {"the mail service"}


async def test_an_issuer_that_is_away_or_does_not_know_our_client_is_told_apart(tmp_path: Path) -> None:
    async with company(tmp_path) as here:
        here.issuer.switches.statuses["token"] = 503
        error = (await here.call(here.token("ann"), "me"))["error"]
        assert (error["kind"], error["retryable"]) == ("upstream_unavailable", True)
        del here.issuer.switches.statuses["token"]
        here.issuer.clients["pegboard"].secret = "another"
        error = (await here.call(here.token("bob"), "me"))["error"]
        assert (error["kind"], "operator must correct it" in error["detail"]) == ("upstream_auth", True)


async def test_an_issuer_that_answers_with_the_token_itself_does_not_pass_it_through(tmp_path: Path) -> None:
    async with company(tmp_path) as here:
        ann = here.token("ann")
        here.issuer.switches.echoes = True
        error = (await here.call(ann, "me"))["error"]
        assert (error["kind"], "not sent to services" in error["detail"]) == ("upstream_auth", True)
        assert here.api.authorizations == []


async def test_an_issuer_that_exchanges_on_behalf_of_gets_the_token_as_an_assertion(tmp_path: Path) -> None:
    async with company(tmp_path, grant="on_behalf_of", scopes=["api://mail/.default"]) as here:
        ann = here.token("ann")
        assert mail_of("ann") in json.dumps(await here.call(ann, "me"))
        [form] = here.issuer.seen["token"]
        assert (form["grant_type"], form["assertion"], form["scope"]) == (JWT_BEARER, ann, "api://mail/.default")


@asynccontextmanager
async def enterprise(**more: Any) -> AsyncGenerator[tuple[ToyIssuer, ToyIssuer, Catalog]]:
    """Give the company's issuer, that of the service, and a catalog with the service's MCP server, made in Python."""
    async with (
        ToyIssuer().running() as login,
        ToyIssuer(path="/chat").running() as issuer,
        McpUpstream(issuer, scopes=("read", "write")).running() as mcp,
    ):
        login.add_client("pegboard", secret=LOGIN_SECRET)
        issuer.add_client("pegboard", secret=SECRET)
        issuer.trusted[login.url] = login.key
        settings = AuthSettings(
            source="mail",
            mode="id_jag",
            server_url=mcp.resource,
            issuer=issuer.url,
            client_id="pegboard",
            client_secret=Secret(SECRET),
            scopes=("read",),
            login=AuthSettings(
                source="mail", mode="exchange", server_url=login.url, issuer=login.url, client_id="pegboard",
                client_secret=Secret(LOGIN_SECRET),
            ),
            **more,
        )  # fmt: skip
        catalog = Catalog()
        server = ServerSettings(name="mail", transport="http", url=mcp.resource)
        catalog.add_source(PersonalMcpSource(server, credentials=ExchangedCredentials(settings)))
        async with catalog:
            yield login, issuer, catalog


async def said(catalog: Catalog, user: str, token: str, name: str, **args: Any) -> Any:
    view = await catalog.aview(ToolContext(user_id=user, space_id="acme", subject_token=Secret(token)))
    return await view.call(f"mail__{name}", args)


async def test_the_companys_issuer_asserts_who_calls_and_that_of_the_service_believes_it() -> None:
    async with enterprise() as (login, issuer, catalog):
        login.people.update({"id-token-of-ann": "ann", "id-token-of-bob": "bob"})
        for user in ("ann", "bob", "ann"):
            token = f"id-token-of-{user}"
            await said(catalog, user, token, "connect")
            assert (await said(catalog, user, token, "read_mail")).text == mail_of(user)
        [first, second] = login.seen["token"]
        resource = issuer.resources.copy().pop()
        assert {name: first[name] for name in first if name not in ("authorization", "client_id")} == {
            "grant_type": TOKEN_EXCHANGE,
            "requested_token_type": ID_JAG,
            "subject_token": "id-token-of-ann",
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "audience": issuer.url,
            "resource": resource,
            "scope": "read",
        }
        assert second["subject_token"] == "id-token-of-bob"
        assert [form["grant_type"] for form in issuer.seen["token"]] == [JWT_BEARER] * 2
        assert "id-token" not in json.dumps(issuer.seen["token"])
        needs_more = await said(catalog, "ann", "id-token-of-ann", "write", text="hello")
        assert (needs_more.error.kind, "add them to `scopes`" in needs_more.error.message) == ("upstream_error", True)


async def test_an_assertion_that_either_issuer_refuses_is_told_to_the_person() -> None:
    async with enterprise() as (login, issuer, catalog):
        refused = await said(catalog, "ann", "of-nobody", "connect")
        assert (refused.error.kind, login.url in refused.error.message) == ("upstream_auth", True)
        login.people["id-token-of-ann"] = "ann"
        issuer.trusted.clear()
        refused = await said(catalog, "ann", "id-token-of-ann", "connect")
        assert (refused.error.kind, issuer.url in refused.error.message) == ("upstream_auth", True)
        login.switches.statuses["token"] = 500
        refused = await said(catalog, "ann", "another", "connect")
        assert (refused.error.kind, refused.error.retryable) == ("upstream_unavailable", True)


async def test_an_issuer_that_gives_another_token_than_an_identity_assertion_is_refused() -> None:
    async with enterprise() as (login, issuer, catalog):
        login.people["id-token-of-ann"] = "ann"
        login.switches.echoes = True
        refused = await said(catalog, "ann", "id-token-of-ann", "connect")
        assert (refused.error.kind, "invalid_token_response" in refused.error.message) == ("upstream_auth", True)
        assert issuer.hits["token"] == 0


async def test_an_issuer_whose_metadata_are_those_of_another_gets_no_token(tmp_path: Path) -> None:
    async with company(tmp_path) as here:
        here.issuer.switches.says_issuer = "https://thief.example"
        error = (await here.call(here.token("ann"), "me"))["error"]
        assert (error["kind"], "put another issuer in its place" in error["detail"]) == ("upstream_auth", True)
        assert here.issuer.hits["token"] == 0


async def test_meta_tools_say_that_a_token_is_missing(tmp_path: Path) -> None:
    async with company(tmp_path) as here:
        source: Any = here.catalog.registry.sources["mail"]
        refused = await source.credentials.required(Caller(user_id="ann"))
        assert (refused.error.kind, "the caller sent none" in refused.error.message) == ("connection_required", True)


def test_a_host_wraps_the_token_of_its_caller() -> None:
    assert Identified.of({"user": "ann", "subject_token": Secret("a token")}).subject_token == Secret("a token")
    with pytest.raises(DefinitionError, match="must be wrapped"):
        Identified.of({"user": "ann", "subject_token": "a token"})


async def test_an_assertion_for_another_audience_is_refused() -> None:
    async with enterprise(audience="of-nobody") as (login, issuer, catalog):
        login.people["id-token-of-ann"] = "ann"
        refused = await said(catalog, "ann", "id-token-of-ann", "connect")
        assert (refused.error.kind, issuer.url in refused.error.message) == ("upstream_auth", True)


def test_a_token_in_plain_text_and_settings_that_exchange_nothing_are_refused() -> None:
    plain: Any = "a token"
    with pytest.raises(DefinitionError, match="wrap it"):
        ToolContext(user_id="ann", subject_token=plain)
    settings = AuthSettings(source="mail", mode="user", server_url="https://x.example")
    with pytest.raises(DefinitionError, match="exchanges no tokens"):
        ExchangedCredentials(settings)
    ctx = ToolContext(user_id="ann", subject_token=Secret("a token"))
    assert "a token" not in repr((ctx, ctx.caller, ctx.subject_token))
    with pytest.raises(DefinitionError, match="subject_token"):
        ctx.child(subject_token=Secret("another"))


def test_check_warns_of_a_source_that_exchanges_tokens_which_the_server_does_not_accept(tmp_path: Path) -> None:
    auth = {
        "mode": "exchange",
        "issuer": "https://login.example",
        "client_id": "pegboard",
        "client_secret": "${SECRET}",
    }
    hook = {"name": "me", "type": "webhook", "description": "Say.", "webhook": {"url": "https://x.example"}}
    path, told = tmp_path / "pegboard.yaml", list[list[str]]()
    for jwt_rules in ({}, {"jwt": {"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": "https://login.example/keys"}}):
        rules = [{"when": {"key": "ann"}, "user": "ann", "profiles": []}]
        identity = {"api_keys": {"store": "sqlite:./keys.db"}, "map": rules, **jwt_rules}
        path.write_text(json.dumps({"name": "acme", "tools": [{**hook, "auth": auth}], "identity": identity}))
        catalog, config = load_catalog(path, env=ENV)
        told.append([problem.message for problem in warnings(config, catalog)])
    assert told[1] == []
    [text] = told[0]
    assert "`exchange` needs the caller's token, but this server accepts no tokens" in text
