"""An answer belongs to the stream that its request opened: no upstream gives one caller what another asked for."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pegboard.sources.mcp.answer_filter import Expectation, NoAnswer, OneAnswer, OpenRequests, SentRequest
from pegboard.sources.mcp.server_settings import ServerSettings
from tests.security.test_mcp_http_client import evil_http, on_http
from tests.timing import PATIENCE_S
from tests.upstream_mcp.parts import free_port, running, until, view_of

CALLERS = 10


@asynccontextmanager
async def misled(kind: str, transport: str, *, timeout_s: float) -> AsyncGenerator[ServerSettings]:
    port = free_port()
    async with evil_http(port, f"call={kind}"):
        yield (
            on_http(port, timeout_s=timeout_s)
            if transport == "http"
            else ServerSettings(
                name="up", transport="sse", url=f"http://127.0.0.1:{port}/sse", trust="any", timeout_s=timeout_s
            )
        )


@pytest.mark.parametrize(("kind", "transport"), [("others", "http"), ("others_sse", "http")])
async def test_what_comes_on_the_stream_of_one_request_answers_no_other(kind: str, transport: str) -> None:
    async with misled(kind, transport, timeout_s=2.0) as settings, running(settings) as (catalog, _):
        results = await asyncio.gather(
            *(view_of(catalog).call("up__echo", {"text": f"for {caller}"}) for caller in range(CALLERS))
        )
    assert [result.is_error for result in results] == [True] * CALLERS
    assert not [result.text for result in results if "for " in result.text.replace("Wait for", "")]


# An answer that says what it answers as a request does: readers differ in what it is.
DISGUISES = (
    {"method": None}, {"method": 5}, {"method": ["x"]}, {"method": "x", "params": 3},
    {"method": "notifications/progress", "params": [1]}, {"method": "x"}, {"method": ""},
)  # fmt: skip


@pytest.mark.parametrize("disguise", DISGUISES, ids=str)
@pytest.mark.parametrize("kind", ["disguised_sse", "disguised_get"])
async def test_an_answer_that_passes_for_another_message_answers_nobody(kind: str, disguise: dict[str, Any]) -> None:
    port = free_port()
    # Only what is never answered is waited out.
    settings = on_http(port, timeout_s=10.0 if kind == "disguised_sse" else PATIENCE_S)
    options = (f"call={kind}", "session=s", f"as={json.dumps(disguise)}")
    async with evil_http(port, *options), running(settings) as (catalog, _):
        results = await asyncio.gather(
            *(view_of(catalog).call("up__echo", {"text": f"for {caller}"}) for caller in range(CALLERS))
        )
    heard = [(caller, result.text) for caller, result in enumerate(results) if "for " in result.text]
    # On the stream that no request opened nothing is answered; each request has its own answer after that.
    own = [(caller, f"for {caller}") for caller in range(CALLERS)]
    assert [one for one in heard if "Wait for" not in one[1]] == (own if kind == "disguised_get" else [])


# What looks like JSON to who reads the beginning of a header only.
LIKE_JSON = ("application/jsonl", "application/json, text/plain", "application/json|application/json")


@pytest.mark.parametrize("media", LIKE_JSON)
async def test_an_answer_is_read_by_one_reading_of_its_media_type(media: str) -> None:
    port = free_port()
    settings = on_http(port, timeout_s=2.0)
    async with evil_http(port, "call=neighbour", f"media={media}"), running(settings) as (catalog, _):
        results = await asyncio.gather(
            *(view_of(catalog).call("up__echo", {"text": f"for {caller}"}) for caller in range(CALLERS))
        )
    assert [result.is_error for result in results] == [True] * CALLERS
    assert not [result.text for result in results if "for " in result.text.replace("Wait for", "")]


@pytest.mark.parametrize("media", ["text/event-streams", "text/event-stream, text/plain"])
async def test_only_a_stream_of_events_has_no_cap(media: str, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    async with evil_http(port, "call=flood", f"media={media}", f"log={log}"), running(on_http(port)) as (catalog, _):
        result = await view_of(catalog).call("up__echo", {"text": "much"})
        await until(lambda: "flooded" in log.read_text())
    assert result.is_error
    # The cap is 8 MiB; a connection holds some more on its way.
    assert int(log.read_text().split("flooded ")[1].split()[0]) < 32


@pytest.mark.parametrize("kind", ["double", "foreign", "string_id"])
async def test_a_stream_for_all_answers_each_open_request_once(kind: str) -> None:
    # Only what is never answered is waited out; a busy machine may take its time for the rest.
    timeout_s = 2.0 if kind == "string_id" else PATIENCE_S
    async with misled(kind, "sse", timeout_s=timeout_s) as settings, running(settings) as (catalog, _):
        tools = view_of(catalog)
        results = [await tools.call("up__echo", {"text": f"for {caller}"}) for caller in range(3)]
    if kind == "string_id":
        assert [result.is_error for result in results] == [True] * 3
    else:
        assert [result.text for result in results] == ["for 0", "for 1", "for 2"]


# ---------------------------------------------------------------- the rule, message by message


def answer(request_id: Any, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": {}, **more}


def progress(token: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token}}


SENT = SentRequest(request_id=7, progress_token=7)


@pytest.mark.parametrize(
    ("expectation", "message", "is_taken"),
    [
        (OneAnswer(SENT), answer(7), True),
        (OneAnswer(SENT), answer(8), False),
        (OneAnswer(SENT), answer("7"), False),
        (OneAnswer(SENT), answer(7.0), False),
        (OneAnswer(SentRequest(request_id=1)), answer(True), False),
        (OneAnswer(SENT), answer(None), False),
        (OneAnswer(SENT), {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "x"}}, True),
        (OneAnswer(SENT), progress(7), True),
        (OneAnswer(SENT), progress(8), False),
        (OneAnswer(SENT), progress("7"), False),
        (OneAnswer(SENT), {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create"}, True),
        (NoAnswer(), answer(7), False),
        (NoAnswer(), {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}, True),
        (OpenRequests({7}), answer(7), True),
        (OpenRequests({7}), answer("7"), False),
        (OpenRequests({1}), answer(True), False),
        (OpenRequests({7}), answer([7]), False),
        (OpenRequests(set()), progress(3), True),
    ],
)
def test_a_message_is_taken_where_it_belongs(expectation: Expectation, message: dict[str, Any], is_taken: bool) -> None:
    assert expectation.takes(message) is is_taken


def test_an_answer_is_taken_once() -> None:
    for expectation in (OneAnswer(SENT), OpenRequests({7})):
        assert [expectation.takes(answer(7)), expectation.takes(answer(7))] == [True, False]
