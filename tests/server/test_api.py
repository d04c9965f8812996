"""The plain HTTP API: what a caller sees, calls and cancels, and how it is told of errors."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from pegboard import Bounds, Catalog, DefinitionError, Profile, RateLimit, ToolSpec, http_app
from pegboard.model.error import ERROR_KINDS
from pegboard.model.source_state import SourceState
from pegboard.server.http_api.problem_details import STATUS_OF_KIND
from tests.core.parts import FakeSource
from tests.server.asgi import send_raw
from tests.server.doors import inside, served, workshop
from tests.server.http_callers import context_of_user, heard_until, known_callers
from tests.timing import PATIENCE_S

EVENTS = {"accept": "text/event-stream"}


def problem(response: httpx2.Response) -> tuple[int, str]:
    """Return (status, kind) of problem details, after looking at their form."""
    assert response.headers["content-type"] == "application/problem+json"
    told = response.json()
    assert told["type"] == f"urn:pegboard:error:{told['kind']}"
    assert told["status"] == response.status_code
    assert told["title"]
    assert told["detail"]
    return response.status_code, told["kind"]


async def listed(client: httpx2.AsyncClient, **query: Any) -> list[str]:
    return [tool["name"] for tool in (await client.get("/v1/tools", params=query)).json()["tools"]]


async def test_a_caller_lists_shows_and_calls_the_tools_of_a_profile() -> None:
    async with inside(http_app(workshop()[0])) as client:
        chat = ["add", "echo", "count", "wait", "steps", "greet", "broken"]
        assert await listed(client) == await listed(client, profile="chat") == chat
        assert await listed(client, profile="admin") == [*(name for name in chat if name != "echo"), "wipe"]
        shown = (await client.get("/v1/tools/add")).json()
        assert shown == (await client.get("/v1/tools")).json()["tools"][0]
        assert shown["inputSchema"]["required"] == ["a", "b"]
        called = await client.post("/v1/tools/add/call", json={"a": 1, "b": 2})
        told = called.json()
        assert told.pop("callId")
        assert told == {"content": [{"type": "text", "text": "3"}], "structuredContent": 3}
        assert (await client.post("/v1/tools/main.add/call", json={"a": 1, "b": 2})).json()["structuredContent"] == 3
        assert (await client.post("/v1/tools/steps/call")).json()["content"] == [{"type": "text", "text": "done"}]


async def test_a_list_comes_in_pages() -> None:
    async with inside(http_app(workshop()[0])) as client:
        found: list[str] = []
        page = (await client.get("/v1/tools?limit=3")).json()
        while True:
            assert len(page["tools"]) <= 3
            found += [tool["name"] for tool in page["tools"]]
            if "nextCursor" not in page:
                break
            page = (await client.get("/v1/tools", params={"limit": 3, "cursor": page["nextCursor"]})).json()
        assert found == await listed(client)


async def test_hidden_and_absent_are_the_same_everywhere() -> None:
    names = ["wipe", "inner", "main.wipe", "away__tool", "nobody"]
    catalog = workshop()[0]
    catalog.add_source(FakeSource(name="away", now=SourceState(status="unreachable", is_up=False)))
    async with inside(http_app(catalog)) as client:
        for method, path in [("GET", ""), ("GET", "/why"), ("POST", "/call")]:
            answers = [await client.request(method, f"/v1/tools/{name}{path}") for name in names]
            words = set()
            for name, answer in zip(names, answers, strict=True):
                told = answer.json()
                told.pop("callId", None)
                words.add((answer.status_code, str(told).replace(name, "NAME")))
            assert len(words) == 1, words
        assert problem(await client.get("/v1/tools?profile=nobody")) == (404, "not_found")
        assert problem(await client.get("/v1/tools?profile=")) == (404, "not_found")


async def test_only_an_operator_is_told_why_a_tool_is_hidden() -> None:
    catalog = workshop()[0]
    catalog.add_source(FakeSource(name="away", now=SourceState(status="unreachable", is_up=False)))
    app = known_callers(http_app(catalog, config=context_of_user))
    async with served(app) as url, httpx2.AsyncClient(base_url=url) as client:
        away = (await client.get("/v1/tools/away__tool/why", headers={"x-user": "operator"})).json()
        assert (away["code"], away["fix"]["text"]) == ("source", "bring source 'away' up (pegboard doctor)")
        assert (await client.get("/v1/tools/away__tool/why", headers={"x-user": "ann"})).json()["code"] == "unknown"
        told = (await client.get("/v1/tools/wipe/why", headers={"x-user": "operator"})).json()
        assert (told["visible"], told["code"], told["fix"]["text"]) == (False, "group", "include 'admin'")
        assert (await client.get("/v1/tools/wipe/why", headers={"x-user": "ann"})).json()["code"] == "unknown"
        assert (await client.get("/v1/tools/add/why", headers={"x-user": "ann"})).json()["code"] == "visible"


async def test_why_over_http_says_what_a_call_would_be_refused_with() -> None:
    catalog = Catalog()
    for spec in (
        ToolSpec(name="free"),
        ToolSpec(name="asks", consent="always"),
        ToolSpec(name="full", rate_limit=RateLimit(max_calls=1, window_s=60)),
    ):
        catalog.register(spec, lambda ctx, args: "done")
    async with inside(http_app(catalog)) as client:
        for name, kind in (("free", None), ("full", None), ("asks", "consent_required")):
            told = (await client.get(f"/v1/tools/{name}/why")).json()
            assert (told["visible"], told["callable"], told["blocked"] and told["blocked"]["kind"]) == (
                True, kind is None, kind,
            )  # fmt: skip
            assert told["asks"] is (name == "asks")
            tools = [(await client.get(f"/v1/tools/{name}")).json()]
            tools += (await client.get("/v1/tools")).json()["tools"]
            tools += (await client.get("/v1/search", params={"q": name})).json()["hits"]
            assert {tool["name"]: tool.get("asks") for tool in tools} == {"free": None, "full": None, "asks": True}
            problem = (await client.post(f"/v1/tools/{name}/call", json={})).json()
            assert problem.get("kind") == kind
        full = (await client.get("/v1/tools/full/why")).json()["blocked"]
        assert full["kind"] == "rate_limited"
        assert datetime.fromisoformat(full["until"]) > datetime.now(UTC)


async def test_errors_are_problem_details_with_the_status_of_their_kind() -> None:
    catalog, seen = workshop(bounds=Bounds(request_body_bytes=1_000, json_depth=10))
    plain = {"content-type": "application/json"}
    async with inside(http_app(catalog)) as client:
        call = "/v1/tools/add/call"
        wrong = await client.post(call, json={"a": "1"})
        assert problem(wrong) == (422, "invalid_arguments")
        assert [one["path"] for one in wrong.json()["details"]["problems"]] == ["$.b", "$.a"]
        assert problem(await client.post(call, json=[1])) == (422, "invalid_arguments")
        assert problem(await client.post(call, content=b'{"a":1', headers=plain)) == (400, "bad_request")
        assert problem(await client.post(call, content=b'{"a":NaN,"b":1}', headers=plain)) == (400, "bad_request")
        assert problem(await client.post(call, content=b"[" * 50, headers=plain)) == (400, "bad_request")
        assert problem(await client.post(call, content=b"a=1")) == (415, "unsupported_media_type")
        packed = {**plain, "content-encoding": "gzip"}
        assert problem(await client.post(call, content=b"{}", headers=packed)) == (415, "unsupported_media_type")
        assert problem(await client.post(call, json={"a": "x" * 1_000})) == (413, "body_too_large")
        assert problem(await client.get("/v1/nothing")) == (404, "not_found")
        assert problem(await client.get("/v1/tools?limit=0")) == (400, "bad_request")
        assert problem(await client.get("/v1/tools?limit=5&limit=6")) == (400, "bad_request")
        assert problem(await client.get("/v1/tools?cursor=5")) == (404, "not_found")
        assert problem(await client.get("/v1/tools?colour=red")) == (400, "bad_request")
        assert problem(await client.post("/v1/tools/wipe/call?profile=admin", json={"what": "x"})) == (
            403,
            "consent_required",
        )
        assert problem(await client.get("/v1/tools", headers={"host": "evil.example"})) == (421, "misdirected_request")
        assert problem(await client.get("/v1/x", headers={"host": "evil.example"})) == (421, "misdirected_request")
        assert problem(await client.get("/v1/tools", headers={"origin": "http://evil.example"})) == (403, "forbidden")
        refused = await client.delete(call)
        assert problem(refused) == (405, "method_not_allowed")
        assert refused.headers["allow"] == "POST"
        broken = await client.post("/v1/tools/broken/call")
        assert problem(broken) == (500, "tool_error")
        assert "hunter2" not in broken.text
    assert "add" not in seen.runs


def test_every_error_kind_has_a_status() -> None:
    assert set(STATUS_OF_KIND) == ERROR_KINDS


async def test_a_rate_limit_says_when_to_come_back() -> None:
    catalog = Catalog()

    @catalog.tool(rate_limit="1/60s")
    async def once() -> str:
        """Once a minute."""
        return "done"

    catalog.profile(Profile(name="chat", include=("core",)))
    async with inside(http_app(catalog)) as client:
        assert (await client.post("/v1/tools/once/call")).status_code == 200
        refused = await client.post("/v1/tools/once/call")
        assert problem(refused) == (429, "rate_limited")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.json()["retry_after_s"] <= 60


async def test_a_call_tells_its_progress_and_at_last_its_result() -> None:
    async with inside(http_app(workshop()[0])) as client:
        response = await client.post("/v1/tools/steps/call", headers=EVENTS)
        assert response.headers["content-type"] == "text/event-stream"
        events = await heard_until(response, "result")
    assert [event.name for event in events] == ["on_tool_call", *["on_progress"] * 3, "result"]
    assert [event.data["payload"]["message"] for event in events[1:4]] == ["step 0", "step 1", "step 2"]
    assert events[-1].data == {
        "callId": events[0].data["callId"],
        "content": [{"type": "text", "text": "done"}],
    }


async def test_a_refusal_has_its_own_status_though_events_were_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    # After this long the stream is opened, whatever comes.
    monkeypatch.setattr("pegboard.server.http_api.call_routes.API_OPEN_STREAM_S", PATIENCE_S)
    async with inside(http_app(workshop()[0])) as client:
        assert problem(await client.post("/v1/tools/add/call", headers=EVENTS, json={})) == (422, "invalid_arguments")
        assert problem(await client.post("/v1/tools/wipe/call", headers=EVENTS)) == (404, "not_found")


async def until(seen: Any, run: str) -> None:
    """Wait until a tool did something."""
    async with asyncio.timeout(60):
        while run not in seen.runs:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("headers", [{}, EVENTS])
async def test_a_client_that_leaves_cancels_its_call(headers: dict[str, str]) -> None:
    catalog, seen = workshop()
    async with served(http_app(catalog)) as url:
        async with httpx2.AsyncClient(base_url=url) as client:
            calling = asyncio.create_task(client.post("/v1/tools/wait/call", headers=headers))
            await until(seen, "wait")
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
        await until(seen, "cleaned")
        async with asyncio.timeout(60):
            await seen.ended.wait()
    assert seen.results == [("wait", "cancelled")]


async def test_a_call_is_cancelled_by_its_id_and_only_by_its_caller() -> None:
    catalog, seen = workshop()
    app = known_callers(http_app(catalog, config=context_of_user))
    async with served(app) as url, httpx2.AsyncClient(base_url=url, headers={"x-user": "ann"}) as ann:
        async with ann.stream("POST", "/v1/tools/wait/call", headers=EVENTS) as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == "event: on_tool_call"
            (call_id,) = catalog.executor.in_flight
            assert call_id in await anext(lines)
            path = f"/v1/calls/{call_id}/cancel"
            other = await ann.post(path, headers={"x-user": "bob"})
            unknown = await ann.post("/v1/calls/nope/cancel", headers={"x-user": "bob"})
            assert problem(other) == problem(unknown) == (404, "not_found")
            assert other.json()["detail"].replace(call_id, "nope") == unknown.json()["detail"]
            assert "cleaned" not in seen.runs
            assert (await ann.post(path)).json() == {"callId": call_id, "cancelled": True}
            rest = [line async for line in lines]
            assert "event: problem" in rest
        assert problem(await ann.post(path)) == (404, "not_found")
    assert seen.results == [("wait", "cancelled")]


async def test_a_cursor_of_one_caller_is_unknown_to_another() -> None:
    app = known_callers(http_app(workshop()[0], config=context_of_user))
    async with served(app) as url, httpx2.AsyncClient(base_url=url, headers={"x-user": "ann"}) as ann:
        cursor = (await ann.get("/v1/tools?limit=2")).json()["nextCursor"]
        query = {"cursor": cursor, "limit": 2}
        assert (await ann.get("/v1/tools", params=query)).status_code == 200
        assert problem(await ann.get("/v1/tools", params=query, headers={"x-user": "bob"})) == (404, "not_found")
        assert problem(await ann.get("/v1/tools", params={**query, "profile": "admin"})) == (404, "not_found")
        assert problem(await ann.get("/v1/tools", params={"cursor": cursor[:-4] + "AAA="})) == (404, "not_found")


async def test_a_cursor_serves_every_worker_that_has_the_key_it_was_sealed_with() -> None:
    old, new = b"o" * 32, b"n" * 32
    workers = [http_app(workshop()[0], keys=keys) for keys in ((old,), (new, old), (new,), ())]
    async with inside(workers[0]) as client:
        cursor = (await client.get("/v1/tools?limit=2")).json()["nextCursor"]
    statuses = []
    for worker in workers:
        async with inside(worker) as client:
            statuses.append((await client.get("/v1/tools", params={"limit": 2, "cursor": cursor})).status_code)
    assert statuses == [200, 200, 404, 404]


def test_a_key_that_could_be_guessed_is_refused_when_the_app_is_built() -> None:
    with pytest.raises(DefinitionError, match=r"key 2 has 5 bytes; 32 or more are needed"):
        http_app(workshop()[0], keys=(b"k" * 32, b"short"))


async def test_a_nul_that_an_address_brings_reaches_nobody() -> None:
    catalog, asked = Catalog("nul"), list[str]()

    @catalog.tool
    async def echo(text: str) -> str:
        """Echo."""
        asked.append(text)
        return text

    app = http_app(catalog)
    async with app.router.lifespan_context(app):
        for path, query, status in (
            ("/v1/search", b"q=a%00b", 400), ("/v1/tools", b"cursor=%00", 400), ("/v1/tools", b"profile=%00", 400),
            ("/v1/tools/echo\0", b"", 404), ("/v1/consents/\0", b"", 404), ("/v1/tasks/a\0b", b"", 404),
        ):  # fmt: skip
            heads = [(b"host", b"127.0.0.1:8420")]
            answer = await send_raw(app, b"", heads, path=path, method="GET", query=query)
            assert (answer[0], b"\0" in answer[2], b"\\u0000" in answer[2]) == (status, False, False), path
    assert asked == []
