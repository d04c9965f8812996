"""A reload of the config keeps the connection of every server that is still reached in the same way."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pegboard import Catalog
from pegboard.config import load_catalog
from pegboard.config.reload import Reloader
from pegboard.sources.mcp.lock_file import LockFile
from tests.upstream_mcp.parts import EVIL, PLAIN, processes_with, start_of, until, view_of


def written(folder: Path, *servers: dict[str, Any]) -> Path:
    path = folder / "pegboard.yaml"
    path.write_text(json.dumps({"tools": list(servers)}, indent=1))
    return path


def server(name: str, *args: str, script: Path = PLAIN, **said: Any) -> dict[str, Any]:
    command, *words = start_of(script, *args)
    mcp = {"transport": "stdio", "command": command, "args": words, "trust": "any"}
    return {"name": name, "type": "mcp", "mcp": {**mcp, **said.pop("mcp", {})}, **said}


@asynccontextmanager
async def reloading(path: Path) -> AsyncGenerator[tuple[Catalog, Reloader]]:
    catalog, config = load_catalog(path, env={})
    reloader = Reloader(path, {}, catalog, config=config, interval_s=0.01)
    await catalog.start()
    try:
        for source in catalog.registry.sources.values():
            await source.listed()  # type: ignore[attr-defined]
        yield catalog, reloader
    finally:
        await catalog.close(grace_s=0)


async def pid(catalog: Catalog, tool: str) -> str:
    return (await view_of(catalog).call(tool, {})).text


async def test_a_server_whose_settings_stay_is_not_started_anew(tmp_path: Path) -> None:
    async with reloading(written(tmp_path, server("up"))) as (catalog, reloader):
        before = await pid(catalog, "up__pid")
        slow = asyncio.create_task(view_of(catalog).call("up__slow", {"seconds": 0.5}))
        written(tmp_path, server("other", script=EVIL), server("up"))
        assert await reloader.reload()
        await until(lambda: "other__echo" in view_of(catalog).names())
        assert await pid(catalog, "up__pid") == before
        assert (await slow).text == "done"
        seen: list[int] = []
        catalog.subscribe(lambda: seen.append(1))
        assert not (await view_of(catalog).call("up__grow", {})).is_error
        await until(lambda: seen)


async def test_names_groups_and_selection_change_on_the_same_connection(tmp_path: Path) -> None:
    async with reloading(written(tmp_path, server("up", mcp={"tools": {"skip": ["add"]}}))) as (catalog, reloader):
        before = await pid(catalog, "up__pid")
        assert "up__add" not in view_of(catalog).names()
        tools = {"skip": ["fail"], "rename": {"pid": "number"}}
        written(tmp_path, server("up", groups=["work"], mcp={"tools": tools}))
        assert await reloader.reload()
        assert "up__fail" not in view_of(catalog).names()
        assert await pid(catalog, "up__number") == before
        await until(lambda: "up__add" in view_of(catalog).names())
        assert {entry.spec.groups for entry in view_of(catalog).tools()} == {("work",)}


async def test_a_server_that_is_reached_otherwise_is_started_anew_and_the_old_one_ends(tmp_path: Path) -> None:
    word = f"mark={tmp_path.name}"
    async with reloading(written(tmp_path, server("up", word))) as (catalog, reloader):
        before = await pid(catalog, "up__pid")
        # Both with words of this test alone: other tests may run the same server now.
        written(tmp_path, server("up", f"next-{word}"))
        assert await reloader.reload()
        assert await pid(catalog, "up__pid") != before
        await until(lambda: not processes_with(f" {word}"))
        assert processes_with(f" next-{word}")
        written(tmp_path)
        assert await reloader.reload()
        assert view_of(catalog).names() == []
        await until(lambda: not processes_with(word))


async def test_what_the_lock_accepts_counts_without_a_restart(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    old: dict[str, Any] = {"name": "read", "description": "Read.", "inputSchema": {"type": "object"}}
    new = {**old, "description": "Read it all."}
    tools.write_text(json.dumps([new]))
    LockFile(tmp_path / "pegboard.lock").accept("up", {"read": old})
    async with reloading(written(tmp_path, server("up", f"tools={tools}", script=EVIL, mcp={"trust": "pinned"}))) as (
        catalog,
        reloader,
    ):
        watching = asyncio.create_task(reloader.run())
        refused = await view_of(catalog).call("up__read", {})
        assert refused.error is not None
        assert refused.error.kind == "needs_review"
        LockFile(tmp_path / "pegboard.lock").accept("up", {"read": new})
        await until(lambda: not catalog.registry.sources["up"].state().changed)
        assert not (await view_of(catalog).call("up__read", {})).is_error
        watching.cancel()
