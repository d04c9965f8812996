"""Calls: results, errors, progress and cancellation, in both eras of the protocol."""

import asyncio
from typing import Any

import httpx2
import pytest
from mcp import Client

from pegboard import http_app
from tests.server.doors import answer_of, call, inside, post, served, workshop

ERAS = ("2026-07-28", "legacy")


async def test_a_structured_value_has_a_text_mirror() -> None:
    async with inside(http_app(workshop()[0])) as client:
        result = (await call(client, "count", {"to": 2}))["result"]
        assert result == {
            "content": [{"type": "text", "text": '{"numbers":[0,1]}'}],
            "structuredContent": {"numbers": [0, 1]},
            "isError": False,
            "resultType": "complete",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "workshop", "version": "0.1.0"}},
        }


@pytest.mark.parametrize(("era", "value"), [("2026-07-28", 3), ("legacy", {"result": 3})])
async def test_a_value_that_is_no_object_is_wrapped_for_the_earlier_revisions_only(era: Any, value: Any) -> None:
    async with served(http_app(workshop()[0])) as url, Client(f"{url}/mcp", mode=era) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert (listed["add"].output_schema or {}).get("type") == ("integer" if era == "2026-07-28" else "object")
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == value


async def test_invalid_arguments_are_an_error_that_the_model_can_act_on() -> None:
    async with inside(http_app(workshop()[0])) as client:
        result = (await call(client, "add", {"a": 1, "b": "2"}))["result"]
        assert result["isError"] is True
        assert "$.b" in result["content"][0]["text"]
        assert result["_meta"]["pegboard/error"]["kind"] == "invalid_arguments"
        assert "structuredContent" not in result, "clients hold it to the output schema, and throw before anybody reads"


@pytest.mark.parametrize("meta", [{}, {"progressToken": 1}], ids=["door", "sdk"])
async def test_an_unexpected_error_tells_nothing_but_the_id_of_the_call(meta: dict[str, Any]) -> None:
    async with inside(http_app(workshop()[0])) as client:
        response = await post(client, "tools/call", {"name": "broken"}, meta=meta)
        assert "hunter2" not in response.text
        assert "An unexpected error occurred (call " in response.text
        assert answer_of(response)["result"]["isError"] is True


@pytest.mark.parametrize("era", ERAS)
async def test_progress_comes_when_it_is_asked_for_and_only_upwards(era: Any) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with served(http_app(workshop()[0])) as url, Client(f"{url}/mcp", mode=era) as client:
        await client.call_tool("steps", {"of": 4}, progress_callback=listen)
        result = await client.call_tool("steps", {"of": 4})
    assert heard == [(step / 4, 1.0, f"step {step}") for step in range(4)]
    assert result.is_error is False


@pytest.mark.parametrize("meta", [{}, {"progressToken": 1}], ids=["door", "sdk"])
async def test_a_client_that_closes_its_stream_cancels_the_call_which_ends_once(meta: dict[str, Any]) -> None:
    catalog, seen = workshop()
    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url) as client:
        asked = asyncio.create_task(post(client, "tools/call", {"name": "wait"}, meta=meta))
        await seen.began.wait()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await asyncio.wait_for(seen.ended.wait(), 60)
        assert seen.runs == ["wait", "cleaned"]
        assert seen.results == [("wait", "cancelled")]
        assert (await call(client, "echo", {"text": "still here"}))["result"]["isError"] is False


async def test_an_earlier_client_cancels_by_a_notification() -> None:
    catalog, seen = workshop()
    async with served(http_app(catalog)) as url, Client(f"{url}/mcp", mode="legacy") as client:
        calling = asyncio.create_task(client.call_tool("wait", {}))
        # A word that overtakes its call cancels nothing.
        await asyncio.wait_for(seen.began.wait(), 60)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        await asyncio.wait_for(seen.ended.wait(), 60)
        assert seen.results == [("wait", "cancelled")]
        # Nothing may be on its way to a client of the SDK that closes: by this answer the other one has come too.
        assert (await client.list_tools()).tools


async def test_a_call_may_be_cancelled_by_its_id_from_the_host() -> None:
    catalog, seen = workshop()
    async with inside(http_app(catalog)) as client:
        asked = asyncio.create_task(call(client, "wait"))
        await seen.began.wait()
        (call_id,) = catalog.executor.in_flight
        assert catalog.cancel(call_id)
        assert (await asked)["result"]["_meta"]["pegboard/error"]["kind"] == "cancelled"


async def test_a_hundred_clients_with_the_same_request_id_each_get_their_own_answer() -> None:
    async with served(http_app(workshop()[0])) as url, httpx2.AsyncClient(base_url=url) as client:

        async def one(number: int, meta: dict[str, Any]) -> bool:
            params = {"name": "echo", "arguments": {"text": f"mine {number}"}}
            response = await post(client, "tools/call", params, meta=meta, request_id=1)
            return answer_of(response)["result"]["content"][0]["text"] == f"mine {number}"

        metas: list[dict[str, Any]] = [{}, {"progressToken": 7}]
        assert all(await asyncio.gather(*(one(number, metas[number % 2]) for number in range(100))))
