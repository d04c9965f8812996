"""What has expired stays expired when the clock of the machine is set back, as a caller over HTTP sees it."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pegboard import Catalog, Tasks, http_app
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import IdentityRules
from pegboard.auth.tokens import TOKEN_LEEWAY_S
from pegboard.core.steady_clock import steady_time
from pegboard.server.mcp.sessions.session_ids import SESSION_S
from pegboard.server.sealing import REQUEST_STATE_S
from tests.auth.parts import Issuer, bearer, rule
from tests.server.doors import JSON_HEADERS, answer_of, inside, post, workshop

EARLIER = "2025-11-25"
DAY_S = 86_400.0
CAN_ASK = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
YES = {"pegboard.consent": {"action": "accept", "content": {}}}


class Machine:
    """The clocks of a machine: an operator, NTP or a restored snapshot sets one of them, the other only counts."""

    def __init__(self) -> None:
        self.wall, self.elapsed_s = time.time(), time.monotonic()

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.elapsed_s += seconds

    def set(self, seconds: float) -> None:
        self.wall += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(steady_time, "_wall_clock", lambda: machine.wall)
    monkeypatch.setattr(steady_time, "_monotonic_clock", lambda: machine.elapsed_s)
    monkeypatch.setattr(steady_time, "_started_at", machine.wall - machine.elapsed_s)
    monkeypatch.setattr(steady_time, "_is_logged", False)
    return machine


Accepts = Callable[[], Awaitable[bool]]
"""Present something that expires; tell whether the server accepts it."""


async def _echoes(client: httpx2.AsyncClient, credential: str) -> bool:
    answer = await client.post("/v1/tools/echo/call", json={"text": "x"}, headers=bearer(credential))
    assert answer.status_code in (200, 401)
    return answer.status_code == 200


@asynccontextmanager
async def a_key(machine: Machine, folder: Path) -> AsyncGenerator[tuple[float, Accepts]]:
    catalog, _ = workshop()
    keys = KeyStore(folder / "keys.db")
    key = keys.add("ann", lifetime_s=3_600)[0]
    catalog.identity = IdentityRules(key_store=keys.path, map=(rule(key="ann", user="ann", profiles=("chat",)),))
    async with inside(http_app(catalog)) as client:
        yield 3_601, lambda: _echoes(client, key)


@asynccontextmanager
async def a_token(machine: Machine, folder: Path) -> AsyncGenerator[tuple[float, Accepts]]:
    catalog, _ = workshop()
    async with Issuer().running() as issuer:
        token = issuer.token(exp=int(machine.wall) + 3_600)
        rules = (rule(claim={"sub": "*"}, user="{sub}", profiles=("chat",)),)
        catalog.identity = IdentityRules(tokens=issuer.rules(), map=rules)
        async with inside(http_app(catalog)) as client:
            yield 3_601 + TOKEN_LEEWAY_S, lambda: _echoes(client, token)


@asynccontextmanager
async def a_session(machine: Machine, folder: Path) -> AsyncGenerator[tuple[float, Accepts]]:
    catalog, _ = workshop()
    async with inside(http_app(catalog)) as client:
        heads = {**JSON_HEADERS, "mcp-protocol-version": EARLIER}
        hello = {"protocolVersion": EARLIER, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        begun = await client.post("/mcp", headers=heads, json=_message("initialize", hello))
        heads["mcp-session-id"] = begun.headers["mcp-session-id"]

        async def accepts() -> bool:
            answer = await client.post("/mcp", headers=heads, json=_message("tools/list", {}))
            assert answer.status_code in (200, 404)
            return answer.status_code == 200

        yield SESSION_S + 1, accepts


def _message(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@asynccontextmanager
async def a_question(machine: Machine, folder: Path) -> AsyncGenerator[tuple[float, Accepts]]:
    catalog, seen = workshop()
    async with inside(http_app(catalog)) as client:

        async def ask() -> str:
            params = {"name": "wipe", "arguments": {"what": "disk"}}
            asked = answer_of(await post(client, "tools/call", params, path="/mcp/admin", meta=CAN_ASK))
            return asked["result"]["requestState"]

        # Each is good once, so there is one for each try.
        states = [await ask() for _ in range(3)]

        async def accepts() -> bool:
            params = {
                "name": "wipe",
                "arguments": {"what": "disk"},
                "inputResponses": YES,
                "requestState": states.pop(),
            }
            ran = len(seen.runs)
            answer = answer_of(await post(client, "tools/call", params, path="/mcp/admin", meta=CAN_ASK))
            is_refused = "error" in answer and answer["error"]["data"] == {"reason": "invalid_request_state"}
            assert is_refused is (len(seen.runs) == ran)
            return not is_refused

        yield REQUEST_STATE_S + 1, accepts


@asynccontextmanager
async def a_task(machine: Machine, folder: Path) -> AsyncGenerator[tuple[float, Accepts]]:
    catalog = Catalog(tasks=Tasks("memory"))

    @catalog.tool(task="required")
    async def build() -> str:
        """Build something."""
        return "built"

    async with inside(http_app(catalog)) as client:
        heads = {**JSON_HEADERS, "mcp-protocol-version": EARLIER}
        hello = {"protocolVersion": EARLIER, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        begun = await client.post("/mcp", headers=heads, json=_message("initialize", hello))
        heads["mcp-session-id"] = begun.headers["mcp-session-id"]
        call = {"name": "build", "arguments": {}, "task": {"ttl": 3_600_000}}
        made = answer_of(await client.post("/mcp", headers=heads, json=_message("tools/call", call)))
        task_id = made["result"]["task"]["taskId"]

        async def accepts() -> bool:
            answer = await client.post("/mcp", headers=heads, json=_message("tasks/get", {"taskId": task_id}))
            return "result" in answer_of(answer)

        yield 3_601, accepts


THINGS = {"key": a_key, "token": a_token, "session": a_session, "answer to a question": a_question, "task": a_task}


@pytest.mark.parametrize("thing", THINGS.values(), ids=THINGS)
async def test_it_stays_expired_after_the_clock_was_set_back(thing: Any, machine: Machine, tmp_path: Path) -> None:
    async with thing(machine, tmp_path) as (lasts_s, accepts):
        assert await accepts()
        machine.wait(lasts_s)
        assert not await accepts()
        machine.set(-lasts_s)
        assert not await accepts()


@pytest.mark.parametrize("thing", THINGS.values(), ids=THINGS)
async def test_it_lasts_no_longer_when_the_clock_is_set_back(thing: Any, machine: Machine, tmp_path: Path) -> None:
    async with thing(machine, tmp_path) as (lasts_s, accepts):
        machine.set(-DAY_S)
        assert await accepts()
        machine.wait(lasts_s)
        assert not await accepts()
