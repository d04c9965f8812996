"""Who answers a question with fewer roles than its call began with, which were taken away meanwhile, says nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from pegboard import CallContext, Catalog, Profile, ToolContext, http_app
from pegboard.model.hops import HOPS_KEY
from pegboard.server.identify import Identified
from tests.server.doors import served


class Bank:
    """A host's own login in front of tools that pay for payers alone; and what was paid."""

    def __init__(self) -> None:
        self.paid, self.roles = list[str](), ("reader", "payer")
        self.catalog = catalog = Catalog("bank")

        @catalog.predicate(name="may_pay")
        def may_pay(ctx: ToolContext) -> bool:
            return "payer" in ctx.roles

        @catalog.tool(consent="always", available="may_pay", groups="core")
        async def pay(to: str) -> str:
            """Pay somebody."""
            self.paid.append(to)
            return "paid"

        @catalog.tool(available="may_pay", groups="core")
        async def ask_and_pay(ctx: CallContext, to: str) -> str:
            """Ask for the amount, then pay."""
            amount: Any = await ctx.ask("How much?", schema={"type": "integer"})
            self.paid.append(f"{to} {amount}")
            return "paid"

        catalog.profile(Profile(name="chat", include=("core",)))

    def who(self, _request: object) -> Identified:
        return Identified(user="ann", space="s1", roles=self.roles, profiles=("chat",))

    @asynccontextmanager
    async def client(self, era: str, meanwhile: Callable[[], object]) -> AsyncGenerator[Client]:
        """Give a client over MCP whose person says yes when `meanwhile` has happened."""

        async def answer(_ctx: Any, params: Any) -> types.ElicitResult:
            meanwhile()
            return types.ElicitResult(action="accept", content={"answer": 7} if "How much" in params.message else {})

        app = http_app(self.catalog, identify=self.who)
        async with served(app) as url, httpx2.AsyncClient(verify=False) as http:
            transport = streamable_http_client(f"{url}/mcp", http_client=http)
            async with Client(transport, mode=era, elicitation_callback=answer) as client:  # type: ignore[arg-type] - an era
                yield client

    def become(self, *roles: str) -> Callable[[], None]:
        return lambda: setattr(self, "roles", roles)


async def ended(client: Client, tool: str) -> str:
    try:
        result = await client.call_tool(tool, {"to": "bob"})
    except MCPError as error:
        assert "No tool named" in str(error), error
        return "not_found"
    return (result.meta or {}).get("pegboard/error", {}).get("kind", "ok") if result.is_error else "ok"


TOOLS = ("pay", "ask_and_pay")


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(("era", "kind"), [("legacy", "consent_required"), ("2026-07-28", "not_found")])
async def test_a_yes_of_a_person_who_lost_a_role_while_they_thought_runs_nothing(
    era: str, kind: str, tool: str
) -> None:
    bank = Bank()
    async with bank.client(era, bank.become("reader")) as client:
        assert await ended(client, tool) == kind
    assert bank.paid == []


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_yes_of_a_person_who_has_the_same_roles_in_another_order_and_more_runs_once(
    era: str, tool: str
) -> None:
    bank = Bank()
    async with bank.client(era, bank.become("boss", "payer", "reader")) as client:
        assert await ended(client, tool) == "ok"
    assert len(bank.paid) == 1


@pytest.mark.parametrize(("roles", "paid"), [(("reader",), []), (("payer", "reader"), ["bob"])])
async def test_so_it_is_where_the_call_came_over_another_gateway(roles: tuple[str, ...], paid: list[str]) -> None:
    bank = Bank()
    async with bank.client("legacy", bank.become(*roles)) as client:
        meta: Any = {HOPS_KEY: ["elsewhere"]}
        result = await client.call_tool("pay", {"to": "bob"}, meta=meta)
    assert (bank.paid, result.is_error) == (paid, not paid)
