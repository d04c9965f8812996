"""`catalog.start()` waits for the tools of its sources, up to a deadline, and names the sources without tools."""

import asyncio
import logging

import pytest

from pegboard import Catalog, ToolContext
from pegboard.core.declarations import PrivateSource
from pegboard.sources.mcp.supervised_source import McpSource
from tests.core.parts import FakeSource, slow
from tests.upstream_mcp.parts import EVIL, on_stdio


async def test_the_tools_of_an_mcp_server_are_there_once_the_catalog_is_entered() -> None:
    catalog = Catalog()
    catalog.add_source(McpSource(on_stdio(EVIL, trust="any")))
    async with catalog as started:
        assert started is catalog
        assert "up__echo" in catalog.view(ToolContext()).names()
    assert catalog.executor.closing


async def test_a_server_that_hangs_is_named_after_the_deadline_and_its_neighbour_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    catalog = Catalog()
    calm = slow("calm")
    calm.arrives.set()
    catalog.add_source(slow("hung"))
    catalog.add_source(calm)
    with caplog.at_level(logging.WARNING, "pegboard"):
        await catalog.start(wait_s=0.05)
    assert caplog.messages == [
        "Started without the tools of 'hung', which is still connecting after 0.05 s. They are added when it answers."
    ]
    assert catalog.view(ToolContext()).names() == ["calm__read"]
    await catalog.close(grace_s=0)


async def test_a_server_that_fails_is_named_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    catalog = Catalog()
    settings = on_stdio(EVIL, trust="any")
    object.__setattr__(settings, "command", "/nowhere/at/all")
    catalog.add_source(McpSource(settings))
    async with catalog:
        assert catalog.view(ToolContext()).names() == []
    (text,) = [text for text in caplog.messages if text.startswith("Started without")]
    assert "the tools of 'up', which is unreachable: " in text


async def test_a_lazy_server_and_a_start_that_does_not_wait_need_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    catalog = Catalog()
    catalog.add_source(McpSource(on_stdio(EVIL, "start=hang", trust="any", start="lazy")))
    await catalog.start()
    catalog.add_source(slow("hung"))
    await catalog.start(wait_s=0)
    assert [text for text in caplog.messages if text.startswith("Started without")] == []
    await catalog.close(grace_s=0)


async def test_the_private_sources_of_an_agent_are_waited_for() -> None:
    catalog = Catalog()
    own, fast = slow("own"), FakeSource(name="fast")
    catalog.registry.add_source(PrivateSource(own, "agent.own"))
    catalog.registry.add_source(PrivateSource(fast, "agent.fast"))
    starting = asyncio.create_task(catalog.start())
    await asyncio.sleep(0)
    assert not starting.done()
    own.arrives.set()
    await starting
    assert [entry.qualified_id for entry in own.entries()] == ["own.read"]
    await catalog.close(grace_s=0)


async def test_a_mirrored_server_is_waited_for() -> None:
    catalog = Catalog()
    source = slow("git")
    catalog.mirror(source=source)
    starting = asyncio.create_task(catalog.start())
    await asyncio.sleep(0)
    assert not starting.done()
    source.arrives.set()
    await starting
    assert "mcp__git__read" in catalog.view(ToolContext()).names()
    await catalog.close(grace_s=0)
