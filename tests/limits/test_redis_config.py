"""`rate_limits.store`: counts of a configured catalog on a real Redis."""

import asyncio
import sys
from pathlib import Path

from pegboard import Catalog
from pegboard.config import context_for
from pegboard.config.reload import Reloader
from pegboard.extras import install_command
from tests.config.project import Project
from tests.core.parts import kind_of
from tests.limits.server import RedisServer
from tests.timing import PATIENCE_S

TEXT = """
name: shop
limits: {limit_store_s: 60}
rate_limits: {store: "${REDIS_URL}", default: 2/60s}
tools: [{name: f, type: internal, handler: "python:mine:f"}]
"""
MODULE = "async def f() -> str:\n    return 'done'\n"


def test_two_catalogs_of_one_config_share_their_counts(server: RedisServer, tmp_path: Path) -> None:
    project = Project(tmp_path, {"REDIS_URL": server.uri}).write(TEXT, mine=MODULE)

    async def calls(catalog: Catalog) -> list[str]:
        ctx = context_for(project.load()[1], user="ann")
        return [kind_of(await catalog.view(ctx).call("f")) for _ in range(2)]

    async def both() -> list[str]:
        catalogs = [project.catalog() for _ in range(2)]
        kinds = [kind for catalog in catalogs for kind in await calls(catalog)]
        for catalog in catalogs:
            await catalog.executor.ports.limits.close()  # pyright: ignore[reportAttributeAccessIssue] - what the URI brought
        return kinds

    assert asyncio.run(both()) == ["ok", "ok", "rate_limited", "rate_limited"]
    assert server.client.keys() == [b'pegboard:shop:["caller","main.f",null,"ann",null]']


async def test_a_reload_closes_the_connection_to_the_store_that_it_replaces(
    server: RedisServer, tmp_path: Path
) -> None:
    project = Project(tmp_path, {"REDIS_URL": server.uri}).write(TEXT, mine=MODULE)
    catalog, config = project.load()
    reloader = Reloader(project.path, project.env, catalog, config=config)
    view = catalog.view(context_for(config, user="ann"))

    def connections() -> set[str]:
        return {each["id"] for each in server.client.client_list()} - {str(server.client.client_id())}

    assert kind_of(await view.call("f")) == "ok"
    (former,) = connections()
    # Otherwise the garbage collector could end it.
    store = catalog.executor.ports.limits
    project.write(TEXT.replace("${REDIS_URL}", f"{server.uri}/1"), mine=MODULE)
    assert await reloader.reload()
    assert kind_of(await catalog.view(context_for(config, user="ann")).call("f")) == "ok"
    async with asyncio.timeout(PATIENCE_S):
        while former in connections():
            await asyncio.sleep(0.02)
    assert catalog.executor.ports.limits is not store
    assert len(connections()) == 1
    await catalog.close()


def test_a_uri_that_cannot_be_used_is_refused_where_it_stands(tmp_path: Path) -> None:
    project = Project(tmp_path).write("rate_limits:\n  store: http://localhost\n")
    assert project.said() == [
        "pegboard.yaml:2:10: rate_limits.store: 'http://' leads to no store for limits; write redis://host:port, "
        "or rediss, redis+unix or valkey instead of redis"
    ]


def test_a_missing_package_is_named_with_what_to_install(tmp_path: Path) -> None:
    project = Project(tmp_path).write("rate_limits:\n  store: redis://localhost\n")
    blocked = "import sys; sys.modules['limits'] = None\n"
    code = f"{blocked}from pegboard.cli import main\nsys.exit(main(['check', '--config', {str(project.path)!r}]))"
    out = asyncio.run(_stdout(sys.executable, "-c", code))
    assert "pegboard.yaml:2:10: rate_limits.store: needs the package 'limits" in out
    assert f"run `{install_command('redis')}`" in out


async def _stdout(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return out.decode()
