"""Logs of `pegboard serve`: a line for each request and each call, also where one is refused, and nobody's secrets."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pegboard import Catalog, http_app
from pegboard.auth.keys import KeyStore
from pegboard.config import load_catalog
from pegboard.model.source_state import SourceState
from pegboard.server.access_log import AccessLog
from tests.core.parts import FakeSource, foreign
from tests.server.doors import call, inside, workshop
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
    said = server.said.read_text().splitlines()
    assert [line.split()[0] for line in said] == ["Serving", "Console,"], "addresses, and no record of the call"


OFFICE = """\
tools:
  - {name: refund, type: internal, handler: "python:faulty:refund"}
profiles:
  desk: {include: [core]}
  guest: {include: [core], deny: [refund]}
identity:
  api_keys: {store: "sqlite:keys.db"}
  map:
    - {when: {key: ann-laptop}, user: ann, space: north, profiles: [desk]}
    - {when: {key: bob-phone}, user: bob, profiles: [guest]}
"""


def fields_of(caplog: pytest.LogCaptureFixture, logger: str) -> list[dict[str, Any]]:
    return [vars(record)["fields"] for record in caplog.records if record.name == logger and hasattr(record, "fields")]


async def test_the_log_says_who_called_a_tool_with_which_key_and_why_somebody_was_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, store = tmp_path / "pegboard.yaml", KeyStore(tmp_path / "keys.db")
    file.write_text(OFFICE)
    (tmp_path / "faulty.py").write_text("def refund() -> str:\n    return 'done'\n")
    keys = {name: store.add(name)[0] for name in ("ann-laptop", "bob-phone", "old-pc")}
    store.revoke("old-pc")
    keys["bob-phone, wrong"] = keys["bob-phone"][:-8] + "x" * 8
    catalog, loaded = load_catalog(file, env={})
    for logger in ("pegboard.access", "pegboard.calls", "pegboard.serve"):
        caplog.set_level(logging.INFO, logger=logger)
    app = http_app(catalog, config=loaded)
    trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    async with inside(app):
        transport = httpx2.ASGITransport(app=AccessLog(app))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8420") as client:
            for key in keys.values():
                heads = {"authorization": f"Bearer {key}", **trace}
                await client.post("/v1/tools/refund/call", json={}, headers=heads)
            for profile in ("desk", keys["ann-laptop"]):
                heads = {"authorization": f"Bearer {keys['bob-phone']}"}
                await client.post("/v1/tools/refund/call", params={"profile": profile}, json={}, headers=heads)
    requests, calls, refused = (fields_of(caplog, f"pegboard.{name}") for name in ("access", "calls", "serve"))
    assert [(one["caller"], one["key"], one.get("space"), one["tool"], one["outcome"]) for one in calls] == [
        ("ann", "ann-laptop", "north", "refund", "ok"), ("bob", "bob-phone", None, "refund", "not_found"),
    ]  # fmt: skip
    assert (calls[1]["code"], "code" in calls[0]) == ("policy", False)
    assert calls[1]["reason"].startswith("denied by ['refund'] (")
    assert calls[1]["reason"].endswith("pegboard.yaml:5)")
    assert [(one["key"], one["reason"]) for one in refused] == [
        ("old-pc", "revoked key"), ("bob-phone", "wrong secret"),
        ("bob-phone", "the caller may not use the profile 'desk'"), ("bob-phone", "no such profile"),
    ]  # fmt: skip
    assert [(one["caller"], one.get("profile")) for one in refused[2:]] == [("bob", "desk"), ("bob", None)]
    # Each request has the id of its call, or of its refusal.
    assert [one["request_id"] for one in requests] == [one["request_id"] for one in (*calls, *refused)]
    assert {one["trace_id"] for one in requests[: len(keys)]} == {"a" * 32}
    assert not any(key in record.getMessage() + str(vars(record)) for key in keys.values() for record in caplog.records)


async def test_a_source_that_is_lost_returns_or_has_other_tools_is_a_warning_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    catalog: Catalog = workshop()[0]
    source = FakeSource(name="git", listed=[foreign("git", "log")])
    catalog.add_source(source)
    async with inside(http_app(catalog)):
        for state in (
            SourceState(status="unreachable", is_up=False, reason="no answer"),
            SourceState(),
            SourceState(changed=frozenset({"git.log"})),
            SourceState(changed=frozenset({"git.log"}), quarantined=frozenset({"git.new"})),
        ):
            for _ in range(2):
                source.now = state
                source.relist(source.listed)
    events = [fields for fields in fields_of(caplog, "pegboard") if "event" in fields]
    assert events == [
        {"event": "source_lost", "source": "git"}, {"event": "source_returned", "source": "git"},
        {"event": "tools_changed", "source": "git", "tools": ["git.log"]},
        {"event": "tools_quarantined", "source": "git", "tools": ["git.new"]},
    ]  # fmt: skip
