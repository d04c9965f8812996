"""The inbox behind MCP: clients that cannot ask get a question's id; those that can are asked, and it stays closed."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pegboard import CallContext, Catalog, HookCall, http_app
from pegboard.consent.grant_scope import matching_of
from pegboard.consent.sqlite_store import SqliteConsents
from pegboard.model.consent import Grant
from tests.server.doors import JSON_HEADERS, answer_of, inside, post

CAN_ASK = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
PAY = {"name": "pay", "arguments": {"to": "bob"}}
DEFER = {"name": "pay_later", "arguments": {"to": "bob"}}


class Shop:
    """A served catalog with an inbox, and what its tools did."""

    def __init__(self, folder: Path) -> None:
        self.store, self.paid, self.began = SqliteConsents(folder / "consents.db"), list[str](), list[str]()
        self.catalog = Catalog("shop", consent_store=self.store)
        self.client: httpx2.AsyncClient

        @self.catalog.tool(consent="always")
        async def pay(to: str) -> str:
            """Pay somebody."""
            self.paid.append(to)
            return "paid"

        @self.catalog.tool(consent="always")
        async def pay_later(ctx: CallContext, to: str) -> str:
            """Pay somebody, on a day that is asked for."""
            self.began.append(to)
            day = await ctx.ask("When?", schema={"type": "string"})
            self.paid.append(f"{to} {day}")
            return "paid"

    async def call(self, params: dict[str, Any], *, can_ask: bool = False) -> dict[str, Any]:
        answer = answer_of(await post(self.client, "tools/call", params, meta=CAN_ASK if can_ask else {}))
        return answer.get("result") or answer["error"]

    async def grant(self, tool: str, calls: int) -> None:
        entry = self.catalog.snapshot().find(tool)
        assert entry is not None
        grant = Grant(
            tool=entry.qualified_id, definition_hash=entry.fingerprint, calls=calls, lasts_s=60.0,
            matching=matching_of({}), any_other=True, user_id=None, credential="anonymous",
        )  # fmt: skip
        await self.store.grant(grant, decided_by="cli:ann")


@asynccontextmanager
async def shop_at(folder: Path) -> AsyncGenerator[Shop]:
    shop = Shop(folder)
    async with inside(http_app(shop.catalog)) as shop.client:
        yield shop


def kind(result: dict[str, Any]) -> str:
    if "code" in result:
        return str(result["code"])
    return result["_meta"]["pegboard/error"]["kind"] if result.get("isError") else result["resultType"]


async def test_a_client_that_cannot_ask_gets_an_id_and_the_same_call_passes_once(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        refused = await shop.call(PAY)
        consent_id = refused["_meta"]["pegboard/error"]["details"]["consent_id"]
        assert f"`pegboard consent approve {consent_id}`" in refused["content"][0]["text"]
        await shop.store.decide(consent_id, is_yes=True, decided_by="cli:ann")
        assert [kind(await shop.call(PAY)) for _ in range(2)] == ["complete", "consent_required"]
        assert shop.paid == ["bob"]


async def test_in_an_earlier_revision_the_yes_waits_for_the_next_session_and_a_no_is_of_its_own(tmp_path: Path) -> None:
    async def session() -> dict[str, str]:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        began = await shop.client.post("/mcp", headers=JSON_HEADERS, json=begin)
        headers = {**JSON_HEADERS, "mcp-session-id": began.headers["mcp-session-id"]}
        await shop.client.post("/mcp", headers=headers, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        return headers

    async def pay(headers: dict[str, str]) -> dict[str, Any]:
        asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": PAY}
        return answer_of(await shop.client.post("/mcp", headers=headers, json=asked))["result"]

    async with shop_at(tmp_path) as shop:
        first, second = await session(), await session()
        refused = await pay(first)
        consent_id = refused["_meta"]["pegboard/error"]["details"]["consent_id"]
        await shop.store.decide(consent_id, is_yes=True, decided_by="cli:ann")
        assert [(await pay(headers))["isError"] for headers in (second, first)] == [False, True]
        [question] = await shop.store.listed()
        await shop.store.decide(question.id, is_yes=False, decided_by="cli:ann")
        kinds = [(await pay(headers))["_meta"]["pegboard/error"]["kind"] for headers in (first, second)]
        assert (kinds, shop.paid) == (["consent_declined", "consent_required"], ["bob"])


async def test_a_client_that_can_ask_is_asked_and_nothing_is_filed_until_it_closes_the_question(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        asked = await shop.call(PAY, can_ask=True)
        assert (kind(asked), await shop.store.listed()) == ("input_required", [])
        closed = {"inputResponses": {"pegboard.consent": {"action": "cancel"}}, "requestState": asked["requestState"]}
        refused = await shop.call({**PAY, **closed}, can_ask=True)
        [question] = await shop.store.listed()
        assert refused["_meta"]["pegboard/error"]["details"] == {"consent_id": question.id}
        assert shop.paid == []


@pytest.mark.parametrize("action", ["decline", "accept"])
async def test_an_answer_of_a_client_is_one_record_and_a_no_asks_no_more(tmp_path: Path, action: str) -> None:
    async with shop_at(tmp_path) as shop:
        asked = await shop.call(PAY, can_ask=True)
        answer = {"pegboard.consent": {"action": action, "content": {}}}
        params = {**PAY, "inputResponses": answer, "requestState": asked["requestState"]}
        ended = await shop.call(params, can_ask=True)
        [record] = await shop.store.listed(is_open=False)
        assert (record.decided_by, record.uses_left) == ("client", 0)
        # Shown again, the same answer is worth nothing.
        assert kind(await shop.call(params, can_ask=True)) == "-32602"
        again = kind(await shop.call(PAY, can_ask=True))
        if action == "decline":
            assert (kind(ended), again, shop.paid) == ("consent_declined", "consent_declined", [])
            await shop.store.forget(record.id)
            assert kind(await shop.call(PAY, can_ask=True)) == "input_required"
        else:
            assert (kind(ended), again, shop.paid) == ("complete", "input_required", ["bob"])


async def test_a_use_of_a_grant_serves_a_call_through_all_its_rounds_and_no_second_one(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        await shop.grant("pay_later", 1)
        asked = await shop.call(DEFER, can_ask=True)
        [key] = asked["inputRequests"]
        answer = {key: {"action": "accept", "content": {"answer": "monday"}}}
        params = {**DEFER, "inputResponses": answer, "requestState": asked["requestState"]}
        # Meanwhile the same call begins again, without the state: the grant has no use left for it.
        assert list((await shop.call(DEFER, can_ask=True))["inputRequests"]) == ["pegboard.consent"]
        assert kind(await shop.call(params, can_ask=True)) == "complete"
        assert kind(await shop.call(params, can_ask=True)) == "-32602"
        other = {**params, "arguments": {"to": "eve"}}
        assert kind(await shop.call(other, can_ask=True)) == "-32602", "a state is of one call"
        assert shop.paid == ["bob monday"]


async def test_a_yes_that_goes_on_to_the_next_round_is_not_there_for_another_call(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        looks = Counter[str]()

        @shop.catalog.before("pay")
        async def look(call: HookCall) -> None:
            looks[call.ctx.call_id] += 1
            if looks[call.ctx.call_id] == 2:
                # Once the yes is there, and before the tool runs.
                await call.ctx.ask("Which day?", schema={"type": "string"})

        consent_id = (await shop.call(PAY))["_meta"]["pegboard/error"]["details"]["consent_id"]
        await shop.store.decide(consent_id, is_yes=True, decided_by="cli:ann")
        first = await shop.call(PAY, can_ask=True)
        (key,) = first["inputRequests"]
        assert key != "pegboard.consent"
        # Meanwhile somebody makes the same call: the yes is on its way.
        other = await shop.call(PAY, can_ask=True)
        assert list(other["inputRequests"]) == ["pegboard.consent"]
        said = {key: {"action": "accept", "content": {"answer": "today"}}}
        answered = {**PAY, "inputResponses": said, "requestState": first["requestState"]}
        assert (kind(await shop.call(answered, can_ask=True)), shop.paid) == ("complete", ["bob"])
        assert list((await shop.call(PAY, can_ask=True))["inputRequests"]) == ["pegboard.consent"]
