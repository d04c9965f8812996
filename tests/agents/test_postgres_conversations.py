"""Conversations in PostgreSQL: of their own session alone, the last turns, and a store that is away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pegboard import DefinitionError
from pegboard.agents.conversations import SessionKey, SqlConversations, conversations_of
from pegboard.storage.store_uri import StoreUri
from tests.agents.files import agent_file, faults, load
from tests.agents.team import asked, playing

# Threads of others start while it runs, which tracing cannot follow.
pytestmark = pytest.mark.slow


def conversations(url: str) -> SqlConversations:
    return conversations_of(StoreUri.parse(url, folder=Path()))


async def test_turns_are_kept_by_agent_user_space_and_session(postgres_url: str) -> None:
    stores = [conversations(postgres_url) for _ in range(2)]
    keys = [
        SessionKey("a", None, None, "s"), SessionKey("a", "", None, "s"), SessionKey("a", None, "", "s"),
        SessionKey("b", None, None, "s"), SessionKey("a", None, None, "t"), SessionKey("a", None, None, "s\0"),
        SessionKey("a", None, None, "s\\0"), SessionKey("a", "x'; drop table pegboard_agent_turns; --", None, "s"),
    ]  # fmt: skip
    await asyncio.gather(*(store.append(key, repr(key).encode(), keep=9) for key in keys for store in stores))
    for key in keys:
        assert await stores[0].turns(key, last=9) == [repr(key).encode()] * 2
    for number in range(4):
        await stores[number % 2].append(keys[0], b"\0%d" % number, keep=3)
    assert await stores[1].turns(keys[0], last=9) == [b"\x001", b"\x002", b"\x003"]
    assert await stores[1].turns(keys[0], last=1) == [b"\x003"]


async def test_a_config_names_it_by_its_url_and_two_processes_go_on_with_one_session(
    tmp_path: Path, postgres_url: str
) -> None:
    files = {
        "pegboard.yaml": "files: [agents/*.yaml]\nagents: {store: '${STORE}'}\n", "agents/a.yaml": agent_file("a", ""),
    }  # fmt: skip
    seen: dict[str, list[tuple[list, object]]] = {}
    for query in ("one", "two"):
        catalog = load(tmp_path, files, env={"STORE": postgres_url})
        catalog.runtime.agents.make_model = playing({"a": ["ok"]}, seen=seen)
        assert (await catalog.agents.run("a", query, session_id="x")).output == "ok"
        await catalog.close()
    assert asked(seen["a"][-1][0]) == ["one", "two"]


async def test_a_store_that_is_away_fails_the_run_with_its_kind_and_tells_nothing_of_where_it_is(
    tmp_path: Path,
) -> None:
    away = "postgresql://ann:hunter22@127.0.0.1:1/db"
    with pytest.raises(ConnectionError, match="did not answer") as caught:
        await conversations(away).turns(SessionKey("a", None, None, "s"), last=1)
    assert "hunter22" not in str(caught.value)
    with pytest.raises(DefinitionError):
        conversations("postgresql://[")
    files = {"agents/a.yaml": agent_file("a", "")}
    for store, said in (("redis://x", "kind 'redis' is unknown"), ("sqlite:./no/such/c.db", "there is no folder")):
        [told] = faults(tmp_path, {**files, "pegboard.yaml": f"files: [agents/*.yaml]\nagents: {{store: '{store}'}}\n"})
        assert said in told
    catalog = load(tmp_path, {**files, "pegboard.yaml": f"files: [agents/*.yaml]\nagents: {{store: '{away}'}}\n"})
    catalog.runtime.agents.make_model = playing({"a": ["ok"]})
    result = await catalog.agents.run("a", "go", session_id="x")
    assert result.error is not None
    assert (result.status, result.error.kind, result.usage.requests) == ("failed", "storage_unavailable", 0)
    await catalog.close()
