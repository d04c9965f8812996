"""The team of the examples, on a played model, by every door: the command line, HTTP with events, a tool over MCP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pegboard.server.http_api.limits import AGENT_QUERY_CHARS, AGENT_SESSION_CHARS
from pegboard.testing import CallsTool, Hold, ModelFailure, ModelServer
from tests import forking
from tests.server.http_callers import heard
from tests.server.processes import Server, serving
from tests.timing import PATIENCE_S

TEAM = Path(__file__).parents[2] / "examples" / "team"
PLAY = runpy.run_path(str(TEAM / "models.py"))["play"]
ASK = ["lead", "Write about Acme.", "--context", '{"company": "Acme"}']
FACTS = "I found Acme: 40 people, founded in 1998"
SAID = f"The team says: {FACTS} Acme is a company. ({FACTS})"
CALLS = [
    ("lead", "research"), ("lead", "draft"), ("researcher", "look_up"), ("writer", "check"), ("researcher", "look_up"),
]  # fmt: skip


class Played:
    """The model of the team, which plays what the test at hand wants."""

    def __init__(self) -> None:
        self.play: Any = PLAY
        self.server = ModelServer(lambda request: self.play(request))


@pytest.fixture(scope="module")
def played() -> Any:
    played = Played()
    with played.server:
        yield played


@pytest.fixture(autouse=True)
def _as_usual(played: Played) -> None:
    played.play = PLAY


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def served(played: Played, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    folder = tmp_path_factory.mktemp("served")
    for path in TEAM.rglob("*"):
        if path.suffix in (".yaml", ".py"):
            target = folder / path.relative_to(TEAM)
            target.parent.mkdir(exist_ok=True)
            target.write_text(path.read_text())
    (folder / "pegboard.yaml").write_text((TEAM / "pegboard.yaml").read_text() + PROFILES)
    async with serving(folder, env={"TEAM_MODEL_URL": played.server.openai_url}, address=forked()) as server:
        yield server


PROFILES = """
profiles:
  all: {}
  quiet: {deny: [lead]}
  narrow: {allow: ["*look_up", researcher]}
  careful: {deny: ["*look_up"]}
  team: {include: [core]}
  other: {include: []}
audit: {store: "jsonl:./audit.jsonl"}
"""


def forked() -> str:
    """Return where processes are forked that have what agents run on, which takes seconds to import."""
    return forking.having("pegboard.agents.runtime", "pegboard.models.clients.openai_client")


def command(played: Played, *words: str) -> tuple[int, str, str]:
    env = {**os.environ, "TEAM_MODEL_URL": played.server.openai_url}
    done = forking.run(["pegboard", *words], cwd=TEAM, env=env, address=forked())
    return done.returncode, done.stdout.decode(), done.stderr.decode()


# ---- the command line


def test_run_streams_the_answer_and_shows_calls_below_those_that_make_them(played: Played) -> None:
    code, out, err = command(played, "run", *ASK)
    assert (code, out) == (0, f"I ask both. \n{SAID}\n")
    lines = [re.sub(r" \(\d+\.\d s\).*| \{.*", "", line) for line in err.splitlines() if "→" in line or "←" in line]
    assert sorted(lines) == sorted([
        "→ research", "→ draft", "← research", "← draft", "  researcher: → look_up", "  researcher: ← look_up",
        "  writer: → check", "  writer: ← check", "    researcher: → look_up", "    researcher: ← look_up",
    ])  # fmt: skip
    nested = [lines.index(line) for line in ("  writer: → check", "    researcher: → look_up", "  writer: ← check")]
    assert nested == sorted(nested)


def test_run_shows_no_advertisement_of_a_dependency(played: Played) -> None:
    # As at a keyboard of a coding agent, where pydantic-ai prints its banner even into a pipe.
    shown = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_VERSION")}
    env = {**shown, "AI_AGENT": "acme", "TEAM_MODEL_URL": played.server.openai_url}
    done = forking.run(["pegboard", "run", *ASK], cwd=TEAM, env=env, address=forked())
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 0
    # Our own warnings say so, e.g. that an observer is slow on a busy machine.
    assert [line for line in lines if not ("→" in line or "←" in line or line.startswith("warning: "))] == []


def test_run_ends_with_one_document_as_json_and_with_its_code_when_it_fails(played: Played) -> None:
    played.play = lambda _: ModelFailure(429, retry_after_s=600)
    code, out, err = command(played, "run", *ASK)
    assert (code, out, "rate_limited" in err) == (1, "", True)
    code, out, _ = command(played, "run", *ASK, "--json")
    assert (code, json.loads(out)["status"], json.loads(out)["error"]["kind"]) == (1, "failed", "rate_limited")
    code, _, err = command(played, "run", "leed", "Hello")
    assert (code, "Did you mean 'lead'?" in err) == (2, True)
    code, _, err = command(played, "run", "lead", "Hello", "--context", "[1]")
    assert (code, "a JSON object is needed" in err) == (2, True)


def test_ctrl_c_ends_a_run_and_leaves_the_model(played: Played, tmp_path: Path) -> None:
    hold = Hold()
    played.play = lambda _: ["Half", hold, "whole"]
    before = len(played.server.left)
    with (tmp_path / "out").open("wb") as out:
        env = {**os.environ, "TEAM_MODEL_URL": played.server.openai_url}
        files = (out.fileno(), out.fileno(), out.fileno())
        process = forking.fork(["pegboard", "run", *ASK], files=files, cwd=TEAM, env=env, address=forked())
        assert hold.reached.wait(60)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    played.server.wait_until(lambda server: len(server.left) == before + 1)
    assert "Traceback" not in (tmp_path / "out").read_text()


# ---- HTTP


async def run_over_http(served: Server, accept: str, **body: object) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=60) as client:
        headers = {"accept": accept}
        return await client.post(f"{served.url}/v1/agents/lead/run", json=body, headers=headers)


async def test_over_http_the_answer_comes_at_once_or_after_its_events(served: Server) -> None:
    asked: dict[str, object] = {"query": "Write about Acme.", "context": {"company": "Acme"}}
    answer = await run_over_http(served, "application/json", **asked)
    assert (answer.status_code, answer.json()["status"], answer.json()["output"]) == (200, "completed", SAID)
    streamed = await run_over_http(served, "text/event-stream", **asked)
    events = [event async for event in heard(streamed)]
    assert "".join(event.data["text"] for event in events if event.name == "text") == f"I ask both. {SAID}"
    assert (events[-1].name, events[-1].data["output"]) == ("result", SAID)
    names = [event.name for event in events]
    assert (names.count("on_tool_call"), names.count("on_tool_result")) == (2, 2)
    assert names.count("on_sub_agent_start") == names.count("on_sub_agent_end") == 3
    called = [
        (event.data["payload"].get("agent", "lead"), event.data["payload"].get("tool", event.data["tool"]))
        for event in events if event.name in ("on_tool_call", "on_sub_agent_tool_call")
    ]  # fmt: skip
    assert sorted(called) == sorted(CALLS)


def rows_of(served: Server) -> list[dict[str, Any]]:
    path = served.said.parent / "audit.jsonl"
    return [json.loads(line)["row"] for line in path.read_text().splitlines()] if path.exists() else []


async def test_a_run_over_http_has_an_audit_row_with_the_request_of_its_calls(served: Server) -> None:
    def of_lead() -> list[dict[str, Any]]:
        return [row for row in rows_of(served) if row.get("name") == "agent.lead" and row.get("event") is None]

    await run_over_http(served, "application/json", query="Write about Acme.", context={"company": "Acme"})
    async with httpx2.AsyncClient(timeout=60) as client:
        await client.post(f"{served.url}/v1/agents/lead/run?profile=quiet", json={"query": "Write."})
    async with asyncio.timeout(PATIENCE_S):
        while (rows := of_lead())[-1:] == [] or rows[-1]["profile"] != "quiet":
            await asyncio.sleep(0.05)
    # Before them are the rows of the other tests of this server.
    *_, ran, refused = rows
    assert (ran["tool"], ran["outcome"], ran["door"], ran["profile"]) == ("agent.lead", "ok", "http", "all")
    assert ran["costs"]["tokens"] > 0
    assert (refused["outcome"], refused["profile"], "tool" in refused) == ("not_found", "quiet", False)
    joined = [row["name"] for row in rows_of(served) if row.get("request_id") == ran["request_id"]]
    assert sorted(set(joined)) == ["agent.lead", "check", "draft", "look_up", "research"]


async def test_a_client_that_leaves_cancels_the_run_and_its_request_to_the_model(
    served: Server, played: Played
) -> None:
    hold = Hold()
    played.play = lambda request: PLAY(request) if "lead" in request.system else ["Half", hold]
    before, asked_before = len(played.server.left), len(played.server.requests)
    asking = asyncio.create_task(
        run_over_http(served, "text/event-stream", query="Write.", context={"company": "Acme"})
    )
    # The lead has asked, and both of those that it runs.
    await asyncio.to_thread(played.server.wait_until, lambda server: len(server.requests) == asked_before + 3)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    # Those of both sub-agents.
    await asyncio.to_thread(played.server.wait_until, lambda server: len(server.left) == before + 2)


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_over_http_a_failed_run_is_a_problem_with_its_status(served: Server, played: Played, accept: str) -> None:
    played.play = lambda _: ["Half", ModelFailure(500)]
    answer = await run_over_http(served, accept, query="Write.", context={"company": "Acme"})
    if accept == "application/json":
        problem = answer.json()
        assert (answer.status_code, problem["kind"]) == (502, problem["kind"])
    else:
        events = [event async for event in heard(answer)]
        assert [event.name for event in events] == ["text", "problem"]
        problem = events[-1].data
    assert (problem["status"], problem["runStatus"], problem["agent"]) == (502, "failed", "lead")


async def test_who_may_not_run_an_agent_reads_what_one_reads_who_asks_for_none(served: Server, played: Played) -> None:
    before = len(played.server.requests)
    async with httpx2.AsyncClient(timeout=60) as client:
        hidden = await client.post(f"{served.url}/v1/agents/lead/run?profile=quiet", json={"query": "Write."})
        absent = await client.post(f"{served.url}/v1/agents/nobody/run?profile=quiet", json={"query": "Write."})
        for body in ({}, {"query": ""}, {"query": 1}, {"query": "x", "context": 1}, {"query": "x", "more": 1}):
            assert (await client.post(f"{served.url}/v1/agents/lead/run", json=body)).status_code == 422
        assert (await client.get(f"{served.url}/v1/agents/lead/run")).status_code == 405
        narrow = await client.post(f"{served.url}/v1/agents/lead/run?profile=narrow", json={"query": "Write."})
        taken = {"query": "x" * (AGENT_QUERY_CHARS + 1)}, {"query": "x", "sessionId": "s" * (AGENT_SESSION_CHARS + 1)}
        for body in (*taken, {"query": "x", "sessionId": ""}):
            assert (await client.post(f"{served.url}/v1/agents/lead/run", json=body)).status_code == 422
    assert (hidden.status_code, absent.status_code, narrow.status_code) == (404, 404, 404)
    assert narrow.json() == hidden.json()
    assert hidden.json()["detail"].replace("lead", "nobody") == absent.json()["detail"]
    assert len(played.server.requests) == before


async def test_a_profile_of_some_groups_runs_the_agents_alone_that_its_tools_run(served: Server) -> None:
    async with httpx2.AsyncClient(timeout=60) as client:

        async def status(agent: str, profile: str) -> tuple[int, str]:
            body = {"query": "Write.", "context": {"company": "Acme"}}
            answer = await client.post(f"{served.url}/v1/agents/{agent}/run?profile={profile}", json=body)
            return answer.status_code, answer.json().get("detail", "").replace(agent, "nobody")

        # `ask_team`, which runs the lead, is in the group `core`; the others are the lead's own.
        assert await status("lead", "team") == (200, "")
        absent = await status("nobody", "team")
        assert absent[0] == 404
        for agent, profile in (("writer", "team"), ("researcher", "team"), ("lead", "other")):
            assert await status(agent, profile) == absent
        assert await status("researcher", "all") == (200, "")


async def test_what_a_profile_denies_stays_denied_to_the_agents_below(served: Server, played: Played) -> None:
    before = len(played.server.requests)
    async with httpx2.AsyncClient(timeout=60) as client:
        await client.post(
            f"{served.url}/v1/agents/lead/run?profile=careful",
            json={"query": "Write.", "context": {"company": "Acme"}, "sessionId": "careful"},
        )
    asked = [request for request in played.server.requests[before:] if "You research" in request.system]
    assert asked
    assert all(request.tools == () for request in asked)
    assert "40 people" not in str([request.body for request in asked])


# ---- MCP


async def test_over_mcp_the_team_is_a_tool_whose_children_are_told_as_progress(served: Server) -> None:
    from mcp import Client

    told: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with Client(f"{served.url}/mcp") as client:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == ["ask_team"]
        result = await client.call_tool("ask_team", {"company": "Globex"}, progress_callback=on_progress)
    assert "Globex: 9,000 people" in str(result.content)
    told = [line.strip() for line in told]
    assert told.count("researcher: calls look_up") == told.count("researcher: look_up answered") == 2
    told = [line.strip() for line in told]
    assert told.count("researcher: completed") == 2
    assert told[0] == "lead: started"
    assert told.index("writer: calls check") < told.index("writer: completed") < told.index("lead: completed")


async def test_a_model_that_calls_what_it_may_not_gets_no_answer_from_it(served: Server, played: Played) -> None:
    def play(request: Any) -> Any:
        if not request.outcomes:
            return CallsTool("look_up", {"company": "Acme"})
        return ["No luck: ", *(outcome.text for outcome in request.outcomes)]

    played.play = play
    asked: dict[str, object] = {"query": "Write.", "context": {"company": "Acme"}}
    answer = (await run_over_http(served, "application/json", **asked)).json()
    assert (answer["status"], "No luck" in answer["output"], "40 people" in answer["output"]) == (
        "completed",
        True,
        False,
    )
