"""What a server behind HTTP says by its status arrives as what it is, and a session that it forgot is opened anew."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from pegboard.model.error import ToolError
from pegboard.model.secret import Secret
from pegboard.sources.mcp.server_settings import ServerSettings
from tests.builtin.web import Asked, Site, answer
from tests.upstream_mcp.parts import running, view_of

TOOL = {"name": "do", "description": "Do it.", "inputSchema": {"type": "object"}}
JSON = ["Content-Type: application/json"]


class Upstream:
    """A server with one tool, whose calls it answers with `played`, one after the other, and then as it should."""

    def __init__(self, *played: bytes) -> None:
        self.played = list(played)
        self.sessions = self.calls = self.runs = 0

    def __call__(self, asked: Asked) -> bytes:
        request: dict[str, Any] = json.loads(asked.body) if asked.body else {}
        method = request.get("method", "")
        if asked.method != "POST":
            return answer(b"", status="405 Not Allowed")
        if "id" not in request:
            return answer(b"", status="202 Accepted")
        if method == "initialize":
            self.sessions += 1
            info = {"name": "up", "version": "1"}
            result: Any = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            return self._said(request, {"result": result}, f"Mcp-Session-Id: s{self.sessions}")
        if method == "tools/list":
            return self._said(request, {"result": {"tools": [TOOL]}})
        if method != "tools/call":
            return self._said(request, {"error": {"code": -32601, "message": "no such method"}})
        self.calls += 1
        if self.played:
            return self.played.pop(0)
        self.runs += 1
        return self._said(request, {"result": {"content": [{"type": "text", "text": "done"}]}})

    @staticmethod
    def _said(request: dict[str, Any], said: dict[str, Any], *headers: str) -> bytes:
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}).encode()
        return answer(body, headers=[*JSON, *headers])


async def called(upstream: Upstream) -> ToolError | str:
    async with Site(upstream).server() as server:
        settings = ServerSettings(name="up", transport="http", url=f"{server.url}/mcp")
        async with running(settings) as (catalog, _):
            result = await view_of(catalog).call("up__do", {})
            return result.error or result.text


def contradicts(message: str) -> bool:
    return "not run" in message and "may have" in message


@pytest.mark.parametrize(
    ("status", "headers", "kind", "wait_s"),
    [
        ("401 Who", [], "upstream_auth", None),
        ("403 No", [], "upstream_auth", None),
        ("429 Slow", ["Retry-After: 7"], "rate_limited", 7.0),
        ("429 Slow", ["Retry-After: 99999999999"], "rate_limited", 999_999.0),
        ("429 Slow", ["Retry-After: soon"], "rate_limited", None),
        ("502 Bad", [], "upstream_unavailable", None),
        ("503 Away", ["Retry-After: 3"], "upstream_unavailable", 3.0),
    ],
)
async def test_a_status_arrives_as_what_it_says(
    status: str, headers: list[str], kind: str, wait_s: float | None
) -> None:
    upstream = Upstream(answer(b"", status=status, headers=headers))
    error = await called(upstream)
    assert isinstance(error, ToolError)
    assert (error.kind, error.retry_after_s, upstream.runs) == (kind, wait_s, 0)
    assert not contradicts(error.message)


async def test_a_date_says_too_when_to_come_back() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)
    error = await called(Upstream(answer(b"", status="429 Slow", headers=[f"Retry-After: {date}"])))
    assert isinstance(error, ToolError)
    assert error.retry_after_s is not None
    assert 80_000 < error.retry_after_s <= 86_400


@pytest.mark.parametrize(
    "forgotten",
    [
        answer(b"", status="404 Not Found"),
        answer(b'{"error":{"message":"Bad Request: No valid session ID provided"}}', status="400 Bad", headers=JSON),
        answer(b'{"error":"Session not found"}', status="400 Bad", headers=JSON),
        answer(b"unknown session", status="400 Bad"),
    ],
)
async def test_a_forgotten_session_is_opened_anew_and_the_call_runs_once(forgotten: bytes) -> None:
    upstream = Upstream(forgotten)
    assert await called(upstream) == "done"
    assert (upstream.sessions, upstream.calls, upstream.runs) == (2, 2, 1)


class Ran(Upstream):
    """A server that answers its first call once the tool ran, and not with 200."""

    def __init__(self, status: str, said: dict[str, Any]) -> None:
        super().__init__()
        self.status, self.said = status, said

    def __call__(self, asked: Asked) -> bytes:
        request: dict[str, Any] = json.loads(asked.body) if asked.body else {}
        if request.get("method") != "tools/call" or self.runs:
            return super().__call__(asked)
        self.calls, self.runs = self.calls + 1, self.runs + 1
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], **self.said}).encode()
        return answer(body, status=self.status, headers=JSON)


@pytest.mark.parametrize("status", ["400 Bad", "404 Not Found"])
@pytest.mark.parametrize(
    "said",
    [
        {"error": {"code": -32000, "message": "unknown session at the bank"}},
        {"error": {"code": -32603, "message": "the session was not found in the game"}},
        {"result": {"isError": True, "content": [{"type": "text", "text": "no valid session: log in"}]}},
    ],
    ids=["error", "internal", "result"],
)
async def test_a_tool_that_ran_is_not_run_again_because_it_speaks_of_a_session(
    status: str, said: dict[str, Any]
) -> None:
    upstream = Ran(status, said)
    error = await called(upstream)
    assert isinstance(error, ToolError)
    assert (upstream.sessions, upstream.calls, upstream.runs) == (1, 1, 1)
    assert not contradicts(error.message)


async def test_a_session_that_is_forgotten_again_and_again_says_one_thing() -> None:
    upstream = Upstream(*[answer(b"", status="404 Not Found")] * 50)
    error = await called(upstream)
    assert isinstance(error, ToolError)
    assert upstream.runs == 0
    assert upstream.calls < 10
    assert not contradicts(error.message)


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
async def test_what_a_server_says_of_its_failure_has_no_credential_for_who_asks_why(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    def says_the_key(asked: Asked) -> bytes:
        request: dict[str, Any] = json.loads(asked.body) if asked.body else {}
        if request.get("method") != method:
            return upstream(asked)
        error = {"code": -32000, "message": f"bad key {key}"}
        return answer(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode(), headers=JSON)

    upstream, key = Upstream(), "sk-canary/4711+plain"
    async with Site(says_the_key).server() as server:
        headers = {"Authorization": Secret(f"Bearer {key}")}
        settings = ServerSettings(name="up", transport="http", url=f"{server.url}/mcp", headers=headers)
        async with running(settings) as (catalog, source):
            told = repr([source.state(), view_of(catalog).why("up__do"), await view_of(catalog).call("up__do", {})])
    assert "bad key [redacted]" in told
    assert "canary" not in told + caplog.text


async def test_an_error_that_names_no_request_is_the_answer_to_the_only_one_there_is() -> None:
    said = {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": "the disk is full"}}
    error = await called(Upstream(answer(json.dumps(said).encode(), headers=JSON)))
    assert isinstance(error, ToolError)
    assert (error.kind, "the disk is full" in error.message) == ("upstream_error", True), error
