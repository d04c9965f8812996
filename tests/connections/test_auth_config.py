"""`auth:` in a config: the same keys for MCP servers, APIs and webhooks, and a clear refusal of what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pegboard import DefinitionError, ToolContext, load_catalog
from pegboard.config.reload import Reloader
from tests.connections.agreeing import ANN, BOB, connect
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import ApiUpstream, McpUpstream, mail_of

KEY = "a-key-of-connections-that-is-long-enough-0123456789"
CONNECTIONS = {"key": "${CONNECTIONS_KEY}", "store": "sqlite:./c.db", "public_url": "http://127.0.0.1:8420"}
ENV = {"CONNECTIONS_KEY": KEY, "SECRET": "hush-hush-secret"}


def written(
    folder: Path, *tools: dict[str, Any], connections: dict[str, Any] | None = CONNECTIONS, **sections: Any
) -> Path:
    config: dict[str, Any] = {"name": "acme", "tools": [*tools], **sections}
    if connections is not None:
        config["connections"] = connections
    path = folder / "pegboard.yaml"
    path.write_text(json.dumps(config))
    return path


def loaded(
    folder: Path, *tools: dict[str, Any], connections: dict[str, Any] | None = CONNECTIONS, **sections: Any
) -> Any:
    return load_catalog(written(folder, *tools, connections=connections, **sections), env=ENV)[0]


async def said(catalog: Any, user: str, name: str, **args: Any) -> Any:
    view = await catalog.aview(ToolContext(user_id=user, space_id="acme"))
    return await view.call(name, args)


async def test_one_auth_section_serves_a_server_an_api_and_a_webhook_for_each_person(tmp_path: Path) -> None:
    async with (
        ToyIssuer().running() as issuer,
        McpUpstream(issuer).running() as mcp,
        ApiUpstream(issuer, scopes=("read", "write")).running() as api,
    ):
        auth = {"mode": "user", "issuer": issuer.url}
        catalog = loaded(
            tmp_path,
            {"name": "mail", "type": "mcp", "mcp": {"transport": "http", "url": mcp.resource}, "auth": auth},
            {"name": "post", "type": "openapi", "auth": auth,
             "openapi": {"spec": f"{api.origin}/openapi.json", "base_url": api.origin}},
            {"name": "me", "type": "webhook", "description": "Say who calls.", "auth": auth,
             "webhook": {"url": f"{api.origin}/me", "method": "GET"}},
        )  # fmt: skip
        async with catalog:
            for source, name in (("post", "post__readMail"), ("me", "me")):
                refused = await said(catalog, "ann", name)
                assert refused.error.kind == "connection_required"
                assert refused.error.details["source"] == source
                decision = await catalog.view(ToolContext(user_id="ann", space_id="acme")).awhy(name)
                assert (decision.visible, decision.callable) == (True, False)
                assert decision.fix is not None
                assert decision.fix.text == f"connect {source}"
                for person in (ANN, BOB):
                    await connect(catalog.connections, issuer, person, source=source)
                for user in ("ann", "bob"):
                    assert (await said(catalog, user, name)).structured["user"] == user
                assert (await catalog.view(ToolContext(user_id="ann", space_id="acme")).awhy(name)).callable
            assert (await said(catalog, "bob", "post__readMail")).structured["mail"] == mail_of("bob")
            issuer.expire_all()
            assert (await said(catalog, "ann", "post__writeMail", text="hello")).error is None
            assert api.said == [("ann", "hello")]
            assert issuer.hits["token:refresh_token"] == 1
            await connect(catalog.connections, issuer, ANN)
            await said(catalog, "ann", "mail__connect")
            assert (await said(catalog, "ann", "mail__read_mail")).text == mail_of("ann")
            stranger = await catalog.view(ToolContext()).call("me", {})
            assert (stranger.error.kind, "no user" in stranger.error.message) == ("connection_required", True)


async def test_a_service_has_one_token_of_its_own_for_all_callers(tmp_path: Path) -> None:
    async with (
        ToyIssuer(path="/tenant").running() as issuer,
        McpUpstream(issuer).running() as mcp,
        ApiUpstream(issuer).running() as api,
    ):
        issuer.add_client("robot", secret=ENV["SECRET"])
        auth = {"mode": "client_credentials", "issuer": issuer.url, "client_id": "robot", "client_secret": "${SECRET}"}
        catalog = loaded(
            tmp_path,
            {"name": "mail", "type": "mcp", "mcp": {"transport": "http", "url": mcp.resource}, "auth": auth},
            {"name": "me", "type": "webhook", "description": "Say who calls.",
             "webhook": {"url": f"{api.origin}/me", "method": "GET"}, "auth": {**auth, "resource": api.origin}},
            connections=None,
        )  # fmt: skip
        async with catalog:
            for user in ("ann", "bob"):
                assert (await said(catalog, user, "mail__whoami")).text == "You are robot."
                assert (await said(catalog, user, "me")).structured["user"] == "robot"
            assert issuer.hits["token:client_credentials"] == 2
            issuer.expire_all()
            assert (await said(catalog, "ann", "me")).structured["user"] == "robot"
            assert (await said(catalog, "ann", "mail__whoami")).text == "You are robot."
            assert issuer.hits["token:client_credentials"] == 4
            issuer.switches.statuses["token"] = 400
            issuer.revoke_all()
            refused = await said(catalog, "ann", "me")
            assert (refused.error.kind, "operator" in refused.error.message) == ("upstream_auth", True)
            credentials = catalog.registry.sources["mail"].settings.auth._credentials
            assert credentials.fix() == "correct the credentials of mail"
            everything = repr([refused, catalog.registry.sources["mail"].state()])
            assert not any(secret in everything for secret in (*issuer.secrets, ENV["SECRET"]))


async def test_static_headers_are_those_of_before(tmp_path: Path) -> None:
    async with ToyIssuer().running() as issuer, ApiUpstream(issuer).running() as api:
        hook = {"name": "me", "type": "webhook", "description": "Say who calls.",
                "webhook": {"url": f"{api.origin}/me", "method": "GET"},
                "auth": {"mode": "static", "bearer": "${SECRET}"}}  # fmt: skip
        catalog = loaded(tmp_path, hook, connections=None)
        async with catalog:
            refused = await said(catalog, "ann", "me")
        assert refused.error.kind == "upstream_auth"
        assert api.authorizations == [f"Bearer {ENV['SECRET']}"]


MCP = {"name": "mail", "type": "mcp", "mcp": {"transport": "http", "url": "https://mail.example.com/mcp"}}
CLIENT = {"client_id": "a", "client_secret": "b"}
STDIO = {"name": "mail", "type": "mcp", "mcp": {"transport": "stdio", "command": "x"}}


@pytest.mark.parametrize(
    ("tool", "auth", "text"),
    [
        (MCP, {"mode": "oauth"}, "is not one of none, static, client_credentials, user, exchange, id_jag"),
        (MCP, {"mode": "none", "scopes": "read"}, "`scopes` goes with `mode: client_credentials` or `mode: user`"),
        (MCP, {"mode": "exchange"}, "`mode: exchange` needs the id of a client"),
        (MCP, {"mode": "exchange", "client_id": "a"}, "needs `client_secret` or `private_key`"),
        (MCP, {"mode": "exchange", **CLIENT}, "who gets the credentials"),
        (MCP, {"mode": "exchange", **CLIENT, "login": {"issuer": "https://x.example", "client_id": "a"}},
         "`login` goes with `mode: id_jag`, not with `mode: exchange`"),
        (MCP, {"mode": "id_jag", **CLIENT, "token_url": "https://x.example/t"}, "audience of the identity assertion"),
        (MCP, {"mode": "id_jag", **CLIENT, "issuer": "https://x.example"}, "the issuer that identifies people"),
        (MCP, {"mode": "id_jag", **CLIENT, "issuer": "https://x.example",
               "login": {"issuer": "https://y.example", "client_id": "a"}}, "auth.login"),
        ({**MCP, "mcp": {**MCP["mcp"], "trust": "any"}}, {"mode": "exchange", **CLIENT, "issuer": "https://x.example"},
         "define the tools of all others"),
        (MCP, {"mode": "user", "bearer": "x"}, "`bearer` goes with `mode: static`, not with `mode: user`"),
        (MCP, {"mode": "static"}, "needs `bearer`, `basic` or `headers`"),
        (MCP, {"mode": "client_credentials"}, "needs the id of a client"),
        (MCP, {"mode": "client_credentials", "client_id": "a", "client_secret": "b"}, "who gets the credentials"),
        (MCP, {"mode": "user", "client_id": "a", "client_secret": "b"}, "who gets the secret"),
        (MCP, {"mode": "user", "issuer": "ftp://x"}, "not an http or https URL"),
        (MCP, {"mode": "user", "token_url": "https://x.example/t"}, "or neither"),
        (STDIO, {"mode": "user"}, "goes with an MCP server over HTTP"),
        ({**MCP, "mcp": {**MCP["mcp"], "trust": "any"}}, {"mode": "user"}, "define the tools of all others"),
        ({**MCP, "mcp": {**MCP["mcp"], "headers": {"authorization": "x"}}}, {"mode": "user"}, "Remove it"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_line(
    tmp_path: Path, tool: dict[str, Any], auth: dict[str, Any], text: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        loaded(tmp_path, {**tool, "auth": auth})
    assert text in str(refused.value)
    assert "pegboard.yaml:1:" in str(refused.value)


@pytest.mark.parametrize(
    ("connections", "text"),
    [
        (None, "there is no `connections:`"),
        ({"key": "short"}, "has 5 bytes; a key of connections has 32 or more"),
        ({"key": KEY, "store": "redis://x"}, "a store of the kind 'redis' is unknown"),
        ({"key": KEY, "public_url": "https://x.example/"}, "public_url"),
        ({}, "key"),
    ],
)  # fmt: skip
def test_connections_that_cannot_be_stored_are_refused(
    tmp_path: Path, connections: dict[str, Any] | None, text: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        loaded(tmp_path, {**MCP, "auth": {"mode": "user"}}, connections=connections)
    assert text in str(refused.value)


async def test_a_reload_keeps_the_sessions_of_persons_and_tells_them_of_a_disconnection(tmp_path: Path) -> None:
    async with ToyIssuer().running() as issuer, McpUpstream(issuer).running() as mcp:
        tool: dict[str, Any] = {
            "name": "mail", "type": "mcp", "mcp": {"transport": "http", "url": mcp.resource},
            "auth": {"mode": "user", "issuer": issuer.url},
        }  # fmt: skip
        path = written(tmp_path, tool)
        catalog, config = load_catalog(path, env=ENV)
        assert catalog.connections is not None
        async with catalog:
            made = await connect(catalog.connections, issuer, ANN)
            await said(catalog, "ann", "mail__connect")
            source: Any = catalog.registry.sources["mail"]
            [session] = source.sessions.of("mail")
            reloader = Reloader(path, ENV, catalog, config=config)
            written(tmp_path, {**tool, "rate_limit": "100/60s"}, connections={**CONNECTIONS, "older_key": "o" * 32})
            assert await reloader.reload(), reloader.problems
            assert catalog.registry.sources["mail"] is source
            assert [*source.sessions.of("mail")] == [session]
            assert (await said(catalog, "ann", "mail__whoami")).text == "You are ann."
            entry = next(entry for entry in catalog.snapshot().entries if entry.qualified_id == "mail.whoami")
            assert entry.spec.rate_limit is not None
            # The new connections tell the source that was kept.
            assert catalog.connections is not None
            await catalog.connections.disconnect(made.id)
            assert [*source.sessions.of("mail")] == []
            # Another issuer: nothing of before may be used.
            written(tmp_path, {**tool, "auth": {"mode": "user", "issuer": "https://login.example.com"}})
            assert await reloader.reload(), reloader.problems
            assert catalog.registry.sources["mail"] is not source


async def test_a_token_for_another_resource_is_refused_once_refreshed_once_and_then_asks_to_connect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with ToyIssuer().running() as issuer, ApiUpstream(issuer).running() as api:
        catalog = loaded(
            tmp_path,
            {"name": "me", "type": "webhook", "description": "Say who calls.",
             "auth": {"mode": "user", "issuer": issuer.url},
             "webhook": {"url": f"{api.origin}/me", "method": "GET"}},
        )  # fmt: skip
        issuer.switches.resource_of_tokens, issuer.switches.checks_resource = "https://other.example/api", False
        async with catalog:
            await connect(catalog.connections, issuer, ANN, source="me")
            before = api.hits["requests"]
            answer = await said(catalog, "ann", "me")
            assert (answer.error.kind, "must connect to 'me' first" in answer.error.message) == (
                "connection_required", True,
            )  # fmt: skip
            assert api.hits["requests"] - before == 2, "once with the token, once with the refreshed one"
            assert issuer.hits["token:refresh_token"] == 1
            assert "refuses a fresh token of user 'ann' for 'me'" in caplog.text
            assert not any(secret in caplog.text for secret in issuer.secrets)
