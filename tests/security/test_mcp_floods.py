"""The shared security cases of component mcp_http_client that flood us: lists, results and streams without measure."""

import asyncio
import gc
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from mcp_types import jsonrpc_message_adapter

from pegboard.core.view import View
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.result import ResourceLink
from pegboard.sources.mcp import http_transport
from pegboard.sources.mcp.server_settings import ServerSettings
from tests.evil.observing import observed
from tests.security.test_mcp_http_client import GOOD, evil_http, offering, on_http, tool
from tests.timing import OF_THREAD, PATIENCE_S, is_within
from tests.upstream_mcp.parts import EVIL, free_port, on_stdio, running, view_of

TRANSPORTS = ("http", "sse", "stdio")


@asynccontextmanager
async def behaving(kind: str, *options: str, **said: Any) -> AsyncGenerator[tuple[View, Any]]:
    """Give a view of the evil server over one of the three transports, beside a calm one; and its source."""
    calm = on_stdio(EVIL, name="calm", trust="any")
    if kind == "stdio":
        async with running(on_stdio(EVIL, *options, trust="any", **said), calm) as (catalog, (source, _)):
            yield view_of(catalog), source
        return
    port = free_port()
    settings = on_http(port, **said)
    if kind == "sse":
        url = f"http://127.0.0.1:{port}/sse"
        settings = ServerSettings(name="up", transport="sse", url=url, trust="any", **said)
    async with evil_http(port, *options), running(settings, calm) as (catalog, (source, _)):
        yield view_of(catalog), source


def kind_of(result: Any) -> str:
    return "ok" if result.error is None else result.error.kind


def unlike(number: int, round_: int) -> JSON:
    """Return a tool of 1 KB with a schema that no other has."""
    schema = {"type": "object", "properties": {f"p{round_}_{number}": {"type": "string"}}}
    return tool(f"t{number}", schema, description="x" * 900)


async def test_mcpc_02_a_list_too_large_is_refused_at_little_cost_and_the_previous_one_kept(tmp_path: Path) -> None:
    async with running(offering(tmp_path, GOOD)) as (catalog, source):
        blocks: list[float] = []
        for round_ in range(2):
            (tmp_path / "tools.json").write_text(json.dumps([unlike(number, round_) for number in range(10_000)]))
            async with observed() as cost:
                await source._refresh(source._connection)
            assert cost.grown_mib < 100
            blocks.append(cost.longest_block_s)
        # The shorter: what a neighbour takes is not of the list.
        assert is_within(min(blocks), 0.1, OF_THREAD)
        assert source.state().status == "ok"
        assert len(view_of(catalog).names()) == 20
        assert (await view_of(catalog).call("up__good_3", {"text": "hi"})).text == "hi"


@pytest.mark.parametrize(("kind", "reason"), [("http", "larger than 8388608"), ("stdio", "more than 16777216 bytes")])
async def test_mcpc_02_of_fifty_thousand_tools_none_is_taken_and_little_is_read(kind: str, reason: str) -> None:
    async with observed() as cost, behaving(kind, "count=50000") as (view, source):
        assert view.names() == ["calm__echo", "calm__write", "calm__read"]
        assert reason in source.state().reason
    assert cost.grown_mib < 100


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("bomb", [("call=image", "size=50000000"), ("call=structured", "size=100000000")])
async def test_mcpc_18_a_result_too_large_is_not_read_to_its_end(transport: str, bomb: tuple[str, str]) -> None:
    # A slow machine takes longer to send so much than a call may last by itself.
    async with behaving(transport, *bomb, own={"timeout_s": PATIENCE_S}) as (view, _):
        async with observed() as cost:
            result = await view.call("up__echo", {"text": "hi"})
        # Where all messages come on one stream, it has to be cut off.
        assert kind_of(result) == ("result_too_large" if transport == "http" else "upstream_lost")
        assert "bytes" in result.text
        assert cost.grown_mib < 50
        assert is_within(cost.longest_block_s, 0.1, OF_THREAD)
        assert kind_of(await view.call("calm__echo", {"text": "hi"})) == "ok"


@pytest.mark.parametrize(
    ("bomb", "outcome"), [("blocks", "result_too_large"), ("deep", "protocol_error"), ("nan", "protocol_error")]
)
async def test_mcpc_18_a_result_that_cannot_be_read_is_an_error_of_that_call_alone(bomb: str, outcome: str) -> None:
    async with behaving("http", f"call={bomb}", "size=10000") as (view, source):
        result = await view.call("up__echo", {"text": "hi"})
        assert (kind_of(result), source.state().status) == (outcome, "ok")
        assert "up__echo" in result.text


@pytest.mark.parametrize(
    ("transport", "size"),
    # Of lists fewer are read than of other values; over SSE an event may have a megabyte.
    [("http", 1_500_000), ("http", 100_000), ("sse", 300_000), ("sse", 100_000), ("stdio", 1_500_000),
     ("stdio", 100_000)],
)  # fmt: skip
async def test_a_result_of_millions_of_small_values_holds_nobody(transport: str, size: int) -> None:
    async with behaving(transport, "call=values", f"size={size}", own={"timeout_s": PATIENCE_S}) as (view, source):
        async with observed() as cost:
            result = await view.call("up__echo", {"text": "hi"})
        assert (kind_of(result), source.state().status) == ("result_too_large", "ok")
        assert result.error is not None
        assert result.error.outcome_unknown
        assert "`json_values` or `answer_containers` under `limits:`" in result.text
        assert is_within(cost.longest_block_s, 0.1, OF_THREAD)


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_result_of_too_many_records_is_told_to_the_call_that_waits(transport: str) -> None:
    async with behaving(transport, "call=records", "size=120000", own={"timeout_s": PATIENCE_S}) as (view, source):
        async with observed() as cost:
            result = await view.call("up__echo", {"text": "hi"})
        assert (kind_of(result), source.state().status) == ("result_too_large", "ok")
        assert is_within(cost.longest_block_s, 0.1, OF_THREAD)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_page_of_too_many_values_is_refused_with_the_limit_to_raise(tmp_path: Path, transport: str) -> None:
    listed = tmp_path / "tools.json"
    listed.write_text(json.dumps([tool("large", {"type": "object", "examples": [[]] * 80_000})]))
    async with behaving(transport, f"tools={listed}") as (_, source):
        reason = source.state().reason
        assert "more than 150000 values, or 75000 lists and objects" in reason
        assert "raise `json_values` or `answer_containers` under `limits:`" in reason
    raised = replace(DEFAULT_BOUNDS, answer_containers=200_000)
    async with behaving(transport, f"tools={listed}", bounds=raised) as (_, source):
        assert "values" not in source.state().reason


def one_reading_s(text: bytes) -> float:
    """Return the CPU that the SDK takes to read a message once, which is done at one stretch."""
    # Of the message alone, as `observed` takes it: not of going through all that the tests have left.
    gc.freeze()
    began = time.thread_time()
    jsonrpc_message_adapter.validate_json(text, by_name=False)
    took_s = time.thread_time() - began
    gc.unfreeze()
    return took_s


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_list_as_long_as_may_be_holds_the_loop_for_one_reading_of_it_at_most(
    tmp_path: Path, transport: str
) -> None:
    listed = tmp_path / "tools.json"
    listed.write_text(json.dumps(GOOD))
    async with behaving(transport, f"tools={listed}", own={"timeout_s": PATIENCE_S}) as (view, source):
        blocks: list[float] = []
        readings: list[float] = []
        for round_ in range(3):
            names = [f"t{round_}_{number}" for number in range(1_000)]
            properties = {name: {f"{name}_{other}": {"type": "string"} for other in range(40)} for name in names}
            tools = [tool(name, {"type": "object", "properties": properties[name]}) for name in names]
            listed.write_text(json.dumps(tools))
            message = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}}).encode()
            readings.append(one_reading_s(message))
            async with observed() as cost:
                await source.refresh()
            blocks.append(cost.longest_block_s)
            assert set(names) <= {name.removeprefix("up__") for name in view.names()}
        # About half of one reading was seen; 1.3 where the SDK read the list three times at one stretch.
        assert min(blocks) < 0.95 * min(readings), f"{blocks} of {readings}"


def chain(hops: int) -> JSON:
    """Return a schema in which one reference leads through all others."""
    steps = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(hops)}
    return {"type": "object", "$defs": {**steps, f"d{hops}": {}}}


def alternatives(first: int) -> JSON:
    """Return a schema that takes some milliseconds to judge, and that no other has."""
    return {"type": "object", "properties": {"x": {"anyOf": [{"const": first + number} for number in range(400)]}}}


@pytest.mark.parametrize(
    "schemas", [[chain(1_500)], [alternatives(1_000 * number) for number in range(30)]], ids=["chain", "many"]
)
async def test_tools_that_are_laborious_to_judge_hold_nobody(tmp_path: Path, schemas: list[JSON]) -> None:
    async with running(offering(tmp_path, GOOD)) as (catalog, source):
        listed = [tool(f"t{number}", schema) for number, schema in enumerate(schemas)]
        (tmp_path / "tools.json").write_text(json.dumps(listed))
        async with observed() as cost:
            await source._refresh(source._connection)
        assert len(view_of(catalog).names()) == len(schemas)
        assert is_within(cost.longest_block_s, 0.1, OF_THREAD)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_integer_of_a_result_arrives_with_every_digit(transport: str) -> None:
    for number in (2**64 - 1, -(2**63), 12345678901234567890, 2**70, -(10**400)):
        async with behaving(transport, "call=number", f"size={number}") as (view, _):
            assert (await view.call("up__echo", {})).structured == {"rows": [{"id": number}]}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_mcpc_18_a_link_in_a_result_is_passed_on_and_never_followed(tmp_path: Path, transport: str) -> None:
    hits: list[int] = []
    secret = tmp_path / "secret.txt"
    secret.write_text("canary-of-the-file")
    listener = await asyncio.start_server(lambda reader, writer: hits.append(1) or writer.close(), "127.0.0.1", 0)
    away = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/x"
    async with listener, behaving(transport, "call=link") as (view, _):
        for uri in (secret.as_uri(), away):
            result = await view.call("up__echo", {"text": uri})
            (link,) = result.content
            assert isinstance(link, ResourceLink)
            # A web address is the client's to open; any other is one of this server's, which asks the other for it.
            assert link.uri == (uri if uri == away else f"pegboard://up/{uri}")
            assert "canary" not in repr(result)
    assert hits == []


@pytest.mark.parametrize("stream", ["endless_sse", "progress_sse"])
async def test_mcpc_20_an_endless_stream_ends_with_the_deadline_of_the_call(stream: str) -> None:
    told: list[object] = []

    class Watching:
        def on_progress(self, event: object) -> None:
            told.append(event)

    async with behaving("http", f"call={stream}", own={"timeout_s": 0.6}) as (view, _):
        began = time.monotonic()
        late = await view.call("up__echo", {"text": "hi"}, callbacks=Watching())
        took_s = time.monotonic() - began
        assert (kind_of(late), is_within(took_s, 1.5)) == ("timeout", True)
        # A hundred a second came.
        assert len(told) <= 10 * took_s + 2


async def test_mcpc_20_a_line_of_a_gigabyte_is_cut_off(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with behaving("http", "call=line_sse", "size=1000000000", f"log={log}") as (view, source):
        async with observed() as cost:
            result = await view.call("up__echo", {"text": "hi"})
        assert (kind_of(result), source.state().status) == ("upstream_lost", "ok")
        assert cost.grown_mib < 50
        assert is_within(cost.longest_block_s, 0.1, OF_THREAD)
    assert "wrote it all" not in log.read_text()


async def test_mcpc_20_a_server_that_breaks_off_at_once_is_asked_again_ever_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits_s = http_transport.MCP_RESUME_WAITS_S
    assert waits_s[0] >= 0.5
    assert all(later >= 2 * earlier for earlier, later in pairwise(waits_s))
    # The second wait is one that nothing outlasts.
    monkeypatch.setattr(http_transport, "MCP_RESUME_WAITS_S", (waits_s[0], 10 * PATIENCE_S))
    log = tmp_path / "log"
    async with behaving("http", "call=retry_sse", f"log={log}", own={"timeout_s": PATIENCE_S}) as (view, source):
        asked = asyncio.create_task(view.call("up__echo", {"text": "hi"}))
        async with asyncio.timeout(PATIENCE_S):
            while "GET 7" not in log.read_text():
                await asyncio.sleep(0.01)
        # Again, if it were asked again at once, as it wants.
        for _ in range(3):
            assert kind_of(await view.call("calm__echo", {"text": "hi"})) == "ok"
        assert log.read_text().count("GET 7") == 1
        assert source.state().status == "ok"
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)


async def test_an_answer_that_is_broken_off_without_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pegboard.sources.mcp.http_transport.MCP_RESUMES", 3)
    monkeypatch.setattr("pegboard.sources.mcp.http_transport.MCP_RESUME_WAITS_S", (0.0,))
    log = tmp_path / "log"
    async with behaving("http", "call=retry_sse", f"log={log}", own={"timeout_s": PATIENCE_S}) as (view, source):
        result = await view.call("up__echo", {"text": "hi"})
        assert (kind_of(result), source.state().status) == ("upstream_lost", "ok")
        assert log.read_text().count("GET 7") == 3
