"""What is recorded of accounts: which call went over which connection, who connected and who disconnected, no token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pegboard import ToolContext
from tests.connections.agreeing import ANN, connect
from tests.connections.test_auth_config import CONNECTIONS, loaded, said
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import ApiUpstream, McpUpstream


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line)["row"] for line in path.read_text().splitlines()]


async def test_rows_name_issuer_scopes_and_connection_and_who_connected_and_never_a_token(tmp_path: Path) -> None:
    async with (
        ToyIssuer().running() as issuer,
        McpUpstream(issuer).running() as mcp,
        ApiUpstream(issuer).running() as api,
    ):
        auth = {"mode": "user", "issuer": issuer.url, "scopes": ["read"]}
        catalog = loaded(
            tmp_path,
            {"name": "mail", "type": "mcp", "mcp": {"transport": "http", "url": mcp.resource}, "auth": auth},
            {"name": "me", "type": "webhook", "description": "Say who calls.", "auth": auth,
             "webhook": {"url": f"{api.origin}/me", "method": "GET"}},
            connections=CONNECTIONS,
            audit={"store": "jsonl:./audit.jsonl"},
        )  # fmt: skip
        names = {"mail": "mail__whoami", "me": "me"}
        async with catalog:
            made = {source: await connect(catalog.connections, issuer, ANN, source=source) for source in names}
            await said(catalog, "ann", "mail__connect")
            for name in names.values():
                assert (await said(catalog, "ann", name)).error is None
            assert (await said(catalog, "bob", "me")).error.kind == "connection_required"
            await catalog.connections.disconnect(made["me"].id, by="ann")
            assert [one.source for one in await catalog.connections.awaited()] == ["me"]
        rows = rows_in(tmp_path / "audit.jsonl")
    calls = {(row["user"], row["name"]): row for row in rows if row.get("event", "call") == "call"}
    for source, name in names.items():
        row = calls["ann", name]
        assert (row["connection"], row["issuer"]) == (made[source].id, issuer.url)
        assert row["scopes"] == list(made[source].scopes)
    assert "connection" not in calls["bob", "me"]
    changes = [row for row in rows if row.get("event", "").startswith("account_")]
    assert [(row["event"], row["credential"], row["detail"]["source"]) for row in changes] == [
        ("account_connected", "ann", "mail"), ("account_connected", "ann", "me"), ("account_disconnected", "ann", "me"),
    ]  # fmt: skip
    assert changes[0]["detail"] == {
        "connection": made["mail"].id, "user": "ann", "space": "acme", "source": "mail", "issuer": issuer.url,
        "scopes": list(made["mail"].scopes),
    }  # fmt: skip
    text = (tmp_path / "audit.jsonl").read_text()
    assert not any(secret in text for secret in issuer.secrets)


async def test_a_connection_that_its_issuer_ends_is_recorded_with_the_reason(tmp_path: Path) -> None:
    async with ToyIssuer().running() as issuer, ApiUpstream(issuer).running() as api:
        catalog = loaded(
            tmp_path,
            {"name": "me", "type": "webhook", "description": "Say who calls.",
             "auth": {"mode": "user", "issuer": issuer.url},
             "webhook": {"url": f"{api.origin}/me", "method": "GET"}},
            audit={"store": "jsonl:./audit.jsonl"},
        )  # fmt: skip
        async with catalog:
            await connect(catalog.connections, issuer, ANN, source="me")
            for token in issuer.tokens:
                token.is_revoked = True
            assert (await said(catalog, "ann", "me")).error.kind == "connection_required"
            view = await catalog.aview(ToolContext(user_id="ann", space_id="acme"))
            assert view.connects_first(view["me"]) == "me"
        rows = [row for row in rows_in(tmp_path / "audit.jsonl") if row.get("event") == "account_disconnected"]
    assert [row["detail"]["reason"] for row in rows] == ["the issuer does not refresh it: invalid_grant"]


@pytest.mark.parametrize("source", ["mail", "me"])
async def test_a_service_that_refuses_tokens_for_another_one_is_logged_and_its_person_told(
    source: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        ToyIssuer().running() as issuer,
        McpUpstream(issuer).running() as mcp,
        ApiUpstream(issuer).running() as api,
    ):
        auth = {"mode": "user", "issuer": issuer.url}
        catalog = loaded(
            tmp_path,
            {"name": "mail", "type": "mcp", "mcp": {"transport": "http", "url": mcp.resource}, "auth": auth},
            {"name": "me", "type": "webhook", "description": "Say who calls.", "auth": auth,
             "webhook": {"url": f"{api.origin}/me", "method": "GET"}},
        )  # fmt: skip
        async with catalog:
            await connect(catalog.connections, issuer, ANN, source=source)
            mcp.resource = api.resource = "https://other.example"
            refused = (await said(catalog, "ann", {"mail": "mail__connect", "me": "me"}[source])).error
        assert (refused.kind, f"'ann' must connect to '{source}'" in refused.message) == ("connection_required", True)
        assert f"The service refuses a fresh token of user 'ann' for '{source}'." in caplog.messages
        assert (mcp.hits["calls of ann"], api.hits["calls of ann"]) == (0, 0)
