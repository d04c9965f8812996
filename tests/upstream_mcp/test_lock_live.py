"""The lock in front of a running server: what it changed does not run, what it only put in another order does."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from pegboard.model.json_types import JSON
from pegboard.sources.mcp.lock_file import LockFile
from pegboard.sources.mcp.server_settings import ServerSettings
from tests.security.test_mcp_http_client import evil_http
from tests.upstream_mcp.parts import EVIL, free_port, on_stdio, running, view_of
from tests.upstream_mcp.test_lock import CHANGES, LOOK_ALIKES, READ, SEND, shuffled

MAIL = {"to": "ann", "kind": "plain"}


def kind_of(result: Any) -> str:
    return "ok" if result.error is None else result.error.kind


async def test_sixty_changes_each_keep_calls_of_that_tool_from_the_server_and_of_no_other(tmp_path: Path) -> None:
    assert len(CHANGES) + len(LOOK_ALIKES) >= 60
    tools, log, dice = tmp_path / "tools.json", tmp_path / "log", random.Random(4)

    async def offer(*definitions: JSON) -> None:
        tools.write_text(json.dumps(definitions))
        await source.refresh()

    tools.write_text(json.dumps([SEND, READ]))
    settings = on_stdio(EVIL, f"tools={tools}", f"log={log}")
    async with running(settings, lock=LockFile(tmp_path / "pegboard.lock")) as (catalog, source):
        view = view_of(catalog)
        pinned = view.export("mcp")
        for definition, _ in CHANGES:
            await offer(definition, READ)
            assert kind_of(await view.call("up__send_email", MAIL)) == "needs_review"
            assert kind_of(await view.call("up__read_file", {})) == "ok"
            assert view.export("mcp") == pinned
            await offer(shuffled(SEND, dice), READ)
            assert kind_of(await view.call("up__send_email", MAIL)) == "ok"
        for name in LOOK_ALIKES:
            await offer({**READ, "name": name}, READ, SEND)
            # One that differs by case alone has no name of its own, and is left out.
            (held,) = source.reviewed.hidden or [left_out.name for left_out in source.rejected]
            assert held == name
            assert kind_of(await view.call(source.qualified(name), {})) == "not_found"
            assert view.export("mcp") == pinned
    # Of each change the server saw the read, and the mail once it said the same again.
    assert log.read_text().count("tools/call") == 2 * len(CHANGES)


async def reconnect(times: int, folder: Path) -> None:
    tools, dice, port = folder / "tools.json", random.Random(9), free_port()
    offered: list[JSON] = [SEND, READ, {**READ, "name": "list_files"}]
    tools.write_text(json.dumps(offered))
    lock = LockFile(folder / "pegboard.lock")
    lock.accept("up", {definition["name"]: definition for definition in offered})
    settings = ServerSettings(name="up", transport="http", url=f"http://127.0.0.1:{port}/mcp", trust="pinned")
    async with evil_http(port, f"tools={tools}", f"log={folder / 'log'}"):
        async with running(settings, lock=lock) as (catalog, source):
            view = view_of(catalog)
            before = view.export_bytes("mcp")
            for _ in range(times):
                await source.stop()
                tools.write_text(json.dumps(shuffled(offered, dice)))
                await source.start()
                await source.settled()
                state = source.state()
                assert (state.status, state.quarantined, state.changed) == ("ok", frozenset(), frozenset())
                assert view.export_bytes("mcp") == before
            assert (await view.call("up__send_email", MAIL)).error is None
        assert (folder / "log").read_text().count("initialize") >= times
    assert dict(LockFile(lock.path).pins("up")) == {definition["name"]: definition for definition in offered}


async def test_reconnects_with_another_order_of_keys_and_lists_raise_no_alarm(tmp_path: Path) -> None:
    await reconnect(25, tmp_path)


@pytest.mark.soak
async def test_five_hundred_reconnects_raise_no_alarm(tmp_path: Path) -> None:
    await reconnect(500, tmp_path)
