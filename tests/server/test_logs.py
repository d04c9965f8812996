"""Logs of `pegboard serve`: a line for each request and each call, also where one is refused, and nobody's secrets."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2

from tests.server.doors import call
from tests.server.processes import serving

CONFIG = """\
tools:
  - {name: datetime_now, type: builtin}
  - name: fail
    type: internal
    handler: python:faulty:fail
"""
FAULTY = """
def fail(what: str) -> str:
    raise ValueError(what)
"""
CANARY = "sk-canary-4711"


def shop(folder: Path) -> Path:
    (folder / "pegboard.yaml").write_text(CONFIG)
    (folder / "faulty.py").write_text(FAULTY)
    return folder


async def used(url: str) -> None:
    """Make a call that works, one that fails, one of no tool, and requests that are refused at the door."""
    async with httpx2.AsyncClient(base_url=url) as client:
        await call(client, "datetime_now")
        await call(client, "fail", {"what": CANARY})
        await call(client, "nothing")
        await client.get(f"/nothing/%1b[31m%0ahidden%0aend?token={CANARY}")
        await client.post("/mcp", headers={"Host": "evil.example"})
    for refused in (b"no HTTP at all", b"GET / HTTP/1.1" + b"\r\nX-More: 1" * 300):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(refused + b"\r\n\r\n")
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 400")


async def test_each_request_and_each_call_is_a_line_of_json(tmp_path: Path) -> None:
    async with serving(shop(tmp_path), "--log-format", "json", "--log-level", "info") as server:
        await used(server.url)
    text = server.said.read_text()
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    assert all(line.keys() >= {"time", "level", "logger", "message"} for line in lines)
    calls = [line for line in lines if line["logger"] == "pegboard.calls"]
    assert [(line["tool"], line["outcome"], line["caller"]) for line in calls] == [
        ("datetime_now", "ok", "anonymous"), ("fail", "tool_error", "anonymous"),
        ("nothing", "not_found", "anonymous"),
    ]  # fmt: skip
    assert all(len(line["call_id"]) == 32 and line["ms"] >= 0 for line in calls)
    requests = [line for line in lines if line["logger"] == "pegboard.access"]
    assert [(line["path"], line["status"]) for line in requests] == [
        ("/mcp", 200), ("/mcp", 200), ("/mcp", 400), ("/nothing/\x1b[31m\nhidden\nend", 404), ("/mcp", 421), ("-", 400),
        ("-", 400),
    ]  # fmt: skip
    assert [line["message"] for line in lines if "request_refused" in line["message"]] == [
        "request_refused: more than 256 headers"
    ]
    assert {line["address"] for line in requests} == {"127.0.0.1"}
    # What a tool was told is in no line; its own error is, as before, and belongs to the operator.
    assert [line for line in lines if CANARY in json.dumps(line)] == [
        line for line in lines if line["logger"] == "pegboard" and "'fail'" in line["message"]
    ]
    assert "\x1b" not in text


async def test_as_text_each_line_has_its_time_and_nothing_that_moves_the_screen(tmp_path: Path) -> None:
    async with serving(shop(tmp_path), "--log-level", "info") as server:
        await used(server.url)
    text = server.said.read_text()
    assert "\x1b" not in text
    said = [line.partition("Z info: ")[2] for line in text.splitlines() if "Z info: " in line]
    refused = ["127.0.0.1"] * 3 + ["request_refused:", "127.0.0.1"]
    assert [line.split()[0] for line in said] == ["call", "127.0.0.1"] * 3 + refused
    assert "by anonymous: datetime_now ok in " in said[0]
    assert any("hidden" in line and "end 404 in " in line for line in said)


async def test_without_being_asked_only_warnings_are_logged(tmp_path: Path) -> None:
    async with serving(shop(tmp_path)) as server:
        async with httpx2.AsyncClient(base_url=server.url) as client:
            await call(client, "datetime_now")
    assert len(server.said.read_text().splitlines()) == 1
