"""Tools that are registered while a config is served reach its clients, and outlive a reload."""

import asyncio
import logging
import sys
import threading
from collections.abc import Generator

import pytest
from mcp import Client

from pegboard import Catalog, ToolContext, default_catalog, http_app
from pegboard.config.reload import Reloader
from pegboard.testing import isolated_catalog
from tests.config.project import Project
from tests.server.doors import served
from tests.server.test_changes import Heard

MINE = '''
from pegboard import default_catalog

@default_catalog.predicate
def is_on(ctx) -> bool:
    return True

@default_catalog.tool
def grow(name: str) -> str:
    """Make a tool of this name."""
    @default_catalog.tool(name=name)
    def made(text: str) -> str:
        """Give back a text, with the name of the tool."""
        return f"{name} {text}"
    return "made"

@default_catalog.tool
async def grow_conditional(name: str, available: str) -> str:
    """Make a tool that is there when a predicate says so."""
    if available == "is_late":
        @default_catalog.predicate
        def is_late(ctx) -> bool:
            return True
    default_catalog.tool(name=name, available=available)(lambda: "on")
    return "made"
'''
CONFIG = "python: [mine]\nprofiles: {default: {}}\n"
ANN = ToolContext(user_id="ann")


@pytest.fixture(autouse=True)
def own_default() -> Generator[Catalog]:
    with isolated_catalog() as own:
        yield own


def names(catalog: Catalog) -> list[str]:
    return catalog.view(ANN, profile="default").names()


async def test_clients_hear_of_a_tool_that_a_tool_registers_and_call_it(project: Project, own_default: Catalog) -> None:
    catalog, config = project.write(CONFIG, mine=MINE).load()
    heard = Heard()
    async with served(http_app(catalog, config=config)) as url:
        async with Client(f"{url}/mcp", mode="legacy", message_handler=heard) as client:
            for number in range(100):
                # The client opens its stream beside its first requests; what is told before that is not heard.
                await client.call_tool("grow", {"name": f"late_{number}"})
                try:
                    await asyncio.wait_for(heard.something.wait(), 0.1)
                    break
                except TimeoutError:
                    continue
            assert "late_0" in {tool.name for tool in (await client.list_tools()).tools}
            assert (await client.call_tool("late_0", {"text": "hi"})).content[0].text == "late_0 hi"  # type: ignore[union-attr]
    assert heard.methods[0] == "notifications/tools/list_changed"
    # Served no longer: what is registered now is nobody's but the module's own.
    default_catalog.tool(name="after")(lambda: "x")
    assert "after" not in names(catalog)
    assert own_default.view(ANN).names() == ["after"]


async def test_what_was_registered_outlives_a_reload_unless_the_files_declare_it(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    catalog, config = project.write(CONFIG, mine=MINE).load()
    reloader = Reloader(project.path, {}, catalog, config=config)
    await catalog.start()
    try:
        for name in ("kept", "both"):
            await catalog.view(ANN).call("grow", {"name": name})
        for name, available in (("mine_too", "is_late"), ("gone", "is_on")):
            await catalog.view(ANN).call("grow_conditional", {"name": name, "available": available})
        before = names(catalog)
        assert {"kept", "both", "mine_too", "gone"} <= set(before)
        for _ in range(2):
            assert await reloader.reload()
            assert set(names(catalog)) == set(before)
        theirs = "\n@default_catalog.tool\ndef both() -> str:\n    return 'of the file'\n"
        project.write(CONFIG, mine=MINE.replace("is_on(ctx)", "is_off(ctx)") + theirs)
        with caplog.at_level(logging.WARNING, "pegboard"):
            assert await reloader.reload()
        assert set(names(catalog)) == set(before) - {"gone"}
        assert (await catalog.view(ANN).call("both")).text == "of the file"
        assert (await catalog.view(ANN).call("kept", {"text": "x"})).text == "kept x"
        said = caplog.text
        assert "'main.both' was registered while it ran; the files declare it now, and theirs counts." in said
        assert "'main.gone' was registered while it ran, and no longer fits the files" in said
        assert "is_on" in said
    finally:
        await catalog.close()


async def test_a_registration_during_a_reload_reaches_the_catalog_that_is_served(project: Project) -> None:
    catalog, config = project.write(CONFIG, mine=MINE).load()
    reloader = Reloader(project.path, {}, catalog, config=config)
    reached, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def gate() -> None:
        loop.call_soon_threadsafe(reached.set)
        assert go_on.wait(30)

    sys.modules["run_time_gate"] = type(sys)("run_time_gate")
    vars(sys.modules["run_time_gate"])["gate"] = gate
    await catalog.start()
    try:
        project.write(CONFIG, mine=MINE + "\nimport run_time_gate\nrun_time_gate.gate()\n")
        reload = asyncio.create_task(reloader.reload())
        await reached.wait()
        await catalog.view(ANN).call("grow", {"name": "meanwhile"})
        assert "meanwhile" in names(catalog)
        go_on.set()
        assert await reload
        assert "meanwhile" in names(catalog)
    finally:
        go_on.set()
        del sys.modules["run_time_gate"]
        await catalog.close()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_after_several_were_served_the_default_is_its_own_again_in_whatever_order_they_end(
    project: Project, own_default: Catalog, order: tuple[int, int]
) -> None:
    served = [project.write(CONFIG, mine=MINE).load()[0] for _ in range(2)]
    for catalog in served:
        await catalog.start()
    default_catalog.tool(name="late")(lambda: "x")
    assert ["late" in names(catalog) for catalog in served] == [False, True]
    first, last = order
    await served[first].close()
    assert default_catalog.runtime is served[last].runtime
    await served[last].close()
    assert default_catalog.runtime is own_default.runtime


async def test_a_catalog_of_python_never_stands_for_the_default(own_default: Catalog) -> None:
    catalog = Catalog()
    await catalog.start()
    default_catalog.tool(name="mine")(lambda: "x")
    await catalog.close()
    assert (catalog.view(ANN).names(), own_default.view(ANN).names()) == ([], ["mine"])
