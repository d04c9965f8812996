"""`pegboard doctor SOURCE --as`: the way of a person's account, step by step, and the step that fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pegboard.connections.connection_check import check_connection
from pegboard.connections.upstream_credentials import PersonalCredentials
from pegboard.model.caller import Caller
from tests.connections.agreeing import ANN, connect, connections_in, settings_of
from tests.connections.test_auth_config import loaded, written
from tests.connections.test_personal_lock import pegboard
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import ApiUpstream, McpUpstream

STEPS = ["metadata", "issuer", "client", "token", "list"]
AS_ANN = ("--as", "user=ann,space=acme")


async def test_the_command_walks_to_the_missing_connection_and_to_the_tools_after_it(tmp_path: Path) -> None:
    async with ToyIssuer().running() as issuer, McpUpstream(issuer).running() as mcp:
        tool = {"name": "mail", "type": "mcp", "mcp": {"transport": "http", "url": mcp.resource},
                "auth": {"mode": "user", "issuer": issuer.url}}  # fmt: skip
        written(tmp_path, tool)
        code, out, err = await pegboard(tmp_path, "doctor", "mail", *AS_ANN, "--json")
        told = json.loads(out)
        assert (code, told["ok"], [step["name"] for step in told["steps"]]) == (1, False, STEPS[:4]), err
        assert [step["ok"] for step in told["steps"]] == [True, True, True, False]
        assert told["steps"][0]["detail"].endswith(f"which names {issuer.url}")
        assert "no account of 'ann' is connected at 'mail'" in told["steps"][3]["detail"]
        assert told["steps"][3]["to_do"] == "pegboard connect mail --as user=ann"
        catalog = loaded(tmp_path, tool)
        async with catalog:
            await connect(catalog.connections, issuer, ANN)
        code, out, err = await pegboard(tmp_path, "doctor", "mail", *AS_ANN)
        assert (code, "The account of 'ann' at 'mail' works." in out) == (0, True), (out, err)
        assert not any(secret in out + err for secret in issuer.secrets)
        assert issuer.hits["register"] == 1, "only connecting registers a client"
        code, out, err = await pegboard(tmp_path, "doctor", "post", *AS_ANN)
        assert (code, "No source 'post' uses accounts of people; there are: mail." in err) == (1, True)


def _issuer_says_another(issuer: ToyIssuer, _api: ApiUpstream) -> None:
    issuer.switches.says_issuer = "https://evil.example"


def _service_is_of_another(_issuer: ToyIssuer, api: ApiUpstream) -> None:
    api.switches.resource = "https://other.example/api"


def _no_registration(issuer: ToyIssuer, _api: ApiUpstream) -> None:
    issuer.switches.has_registration = False


def _no_metadata_of_the_issuer(issuer: ToyIssuer, _api: ApiUpstream) -> None:
    issuer.switches.statuses["metadata"] = 500


@pytest.mark.parametrize(
    ("breaks", "step", "detail", "to_do"),
    [
        (_service_is_of_another, "metadata", "about another service", "See that the URL of the source is right"),
        (_issuer_says_another, "issuer", "are those of 'https://evil.example'", "See that the issuer"),
        (_no_metadata_of_the_issuer, "issuer", "did not send its metadata", "See that the issuer can be reached"),
        (_no_registration, "client", "registers no clients by itself", "write its `client_id` under `auth:`"),
    ],
)
async def test_the_step_that_fails_says_why_and_what_to_do(
    breaks: Callable[[ToyIssuer, ApiUpstream], None], step: str, detail: str, to_do: str, tmp_path: Path
) -> None:
    async with ToyIssuer().running() as issuer, ApiUpstream(issuer).running() as api:
        connections = connections_in(tmp_path / "c.db")
        credentials = PersonalCredentials(connections, settings_of(issuer, api))
        breaks(issuer, api)

        async def lists() -> str:
            raise AssertionError("no step after one that fails is taken")

        steps = await check_connection(credentials, Caller(user_id="ann", space_id="acme"), connections, lists)
        assert [one.name for one in steps] == STEPS[: STEPS.index(step) + 1]
        assert [one.ok for one in steps] == [True] * (len(steps) - 1) + [False]
        assert detail in steps[-1].detail
        assert to_do in steps[-1].to_do
        assert await connections.awaited() == []
        await connections.close()


async def test_tokens_that_the_service_refuses_fail_at_the_list(tmp_path: Path) -> None:
    async with ToyIssuer().running() as issuer, McpUpstream(issuer).running() as mcp:
        tool: dict[str, Any] = {"name": "mail", "type": "mcp", "mcp": {"transport": "http", "url": mcp.resource},
                                "auth": {"mode": "user", "issuer": issuer.url}}  # fmt: skip
        issuer.switches.resource_of_tokens = "https://other.example/mcp"
        catalog = loaded(tmp_path, tool)
        async with catalog:
            await connect(catalog.connections, issuer, ANN)
        written(tmp_path, tool)
        code, out, _ = await pegboard(tmp_path, "doctor", "mail", *AS_ANN, "--json")
        last = json.loads(out)["steps"][-1]
        assert (code, last["name"], last["ok"]) == (1, "list", False)
        assert "`resource` under `auth:`" in last["to_do"]
