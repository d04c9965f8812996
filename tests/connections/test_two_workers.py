"""Two workers with a bus: what a person does in one counts in the other at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pegboard import ToolContext, http_app, load_catalog
from pegboard.config.reload import Reloader
from pegboard.connections.connection_required import ConnectionRequiredError
from tests.connections.agreeing import ANN, connect
from tests.connections.test_auth_config import ENV, written
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import McpUpstream
from tests.limits.server import redis_server
from tests.timing import PATIENCE_S


async def until(is_true: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_true():
            await asyncio.sleep(0.01)


def subscribers(client: Any) -> list[tuple[bytes, int]]:
    """Return the channels that workers listen to, and how many do."""
    return client.pubsub_numsub(*client.pubsub_channels())


async def test_a_disconnection_counts_at_once_in_another_worker_and_ends_its_session(tmp_path: Path) -> None:
    with redis_server(tmp_path) as redis:
        async with ToyIssuer().running() as issuer, McpUpstream(issuer).running() as mcp, AsyncExitStack() as stack:
            auth = {"mode": "user", "issuer": issuer.url}
            tool: dict[str, Any] = {
                "name": "mail", "type": "mcp", "mcp": {"transport": "http", "url": mcp.resource}, "auth": auth,
            }  # fmt: skip
            path, workers = written(tmp_path, tool), list[Any]()
            for _ in range(2):
                catalog, config = load_catalog(path, env=ENV)
                app = http_app(catalog, config=config, keys=(b"k" * 32,), bus=redis.uri)
                await stack.enter_async_context(app.router.lifespan_context(app))
                workers.append((catalog, config))
            [(one, _), (two, config)] = workers
            await until(lambda: any(count == 2 for _, count in subscribers(redis.client)))
            for is_reloaded in (False, True):
                if is_reloaded:
                    written(tmp_path, {**tool, "rate_limit": "100/60s"})
                    reloader = Reloader(path, ENV, two, config=config)
                    assert await reloader.reload(), reloader.problems
                # Without news the other worker would use what it keeps for an hour.
                two.connections._tokens._kept_s = 7_200.0
                news = list[Any]()
                two.connections.subscribe(lambda *change, news=news: news.append(change))
                made = await connect(one.connections, issuer, ANN)
                # News of the connection that come later would end the session again.
                await until(lambda news=news: bool(news))
                view = await two.aview(ToolContext(user_id="ann", space_id="acme"))
                await view.call("mail__connect", {})
                await two.connections.token(ANN, "mail")
                source = two.registry.sources["mail"]
                assert len([*source.sessions.of("mail")]) == 1
                await one.connections.disconnect(made.id)
                await until(lambda source=source: not [*source.sessions.of("mail")])
                with pytest.raises(ConnectionRequiredError):
                    await two.connections.token(ANN, "mail")
