"""Tools of type client: the host hears of a call, and does the work itself."""

import asyncio
from typing import Any

import pytest
from mcp import Client
from mcp_types import ElicitResult

from pegboard import ToolResult, http_app
from pegboard.config import context_for
from tests.config.project import Project
from tests.core.parts import Recorder
from tests.server.doors import served

SHOW = """\
tools:
  - name: show_map
    type: client
    description: Show a place on the map
    parameters: {{place: {{type: string, required: true}}}}
    {keys}
"""


async def call(project: Project, keys: str, observer: Any = None, **who: Any) -> ToolResult:
    view = project.write(SHOW.format(keys=keys)).view(user="ann", **who)
    return await view.call("show_map", {"place": "Ulm"}, callbacks=observer)


async def test_a_call_is_announced_to_the_host_and_ok_at_once(project: Project) -> None:
    observer = Recorder()
    result = await call(project, "wait: false", observer)
    assert result.structured == {"ok": True}
    assert observer.types() == ["on_tool_call", "on_progress", "on_tool_result"]
    assert observer.events[1].payload == {"client_tool": "show_map", "arguments": {"place": "Ulm"}, "wait": False}
    assert observer.events[1].call_id == observer.events[0].call_id


async def test_a_refused_call_is_not_announced(project: Project) -> None:
    observer = Recorder()
    assert (await call(project, "consent: always", observer)).error is not None
    assert observer.types() == ["on_tool_call", "on_tool_result"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_hosts_answer_is_the_result(project: Project, is_async: bool) -> None:
    heard: list[Any] = []

    def run(ctx: Any, name: str, arguments: dict[str, Any]) -> Any:
        heard.append((ctx.user_id, name, arguments))
        return {"shown": arguments["place"]}

    async def run_later(*told: Any) -> Any:
        await asyncio.sleep(0)
        return run(*told)

    observer = Recorder()
    result = await call(project, "wait: true", observer, services={"client_tools": run_later if is_async else run})
    assert (result.structured, heard) == ({"shown": "Ulm"}, [("ann", "show_map", {"place": "Ulm"})])
    assert observer.events[1].payload["wait"] is True


async def test_an_answer_that_does_not_come_ends_in_time(project: Project) -> None:
    async def never(*told: Any) -> None:
        await asyncio.Event().wait()

    result = await call(project, "wait: true\n    timeout_seconds: 0.05", services={"client_tools": never})
    assert result.error is not None
    assert (result.error.kind, result.error.outcome_unknown) == ("timeout", True)


async def test_an_answer_is_held_against_what_was_promised(project: Project) -> None:
    keys = "wait: true\n    output: {type: object, required: [shown]}"
    values = [{"shown": 1}, {}]
    host = {"client_tools": lambda *_: values.pop(0)}
    results = [await call(project, keys, services=host) for _ in range(2)]
    assert [result.error and result.error.kind for result in results] == [None, "output_invalid"]


async def test_with_nobody_to_answer_the_model_hears_so(project: Project) -> None:
    result = await call(project, "wait: true")
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == ("upstream_unavailable", False)
    assert "there is none that answers" in result.error.message


async def test_over_mcp_the_client_is_asked(project: Project) -> None:
    project.write(SHOW.format(keys="wait: true\n    output: {type: object, properties: {shown: {type: boolean}}}"))
    catalog, config = project.load()
    asked: list[str] = []

    async def answer(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"shown": True})

    async with served(http_app(catalog, config=lambda visit: context_for(config, user="ann"))) as url:
        async with Client(f"{url}/mcp", elicitation_callback=answer) as client:
            result = await client.call_tool("show_map", {"place": "Ulm"})
        async with Client(f"{url}/mcp") as mute:
            refused = await mute.call_tool("show_map", {"place": "Ulm"})
    assert result.structured_content == {"shown": True}
    assert asked == ['show_map: Show a place on the map. With: {"place": "Ulm"}. What is the result?']
    assert refused.is_error


def test_an_output_without_waiting_is_refused(project: Project) -> None:
    project.write(SHOW.format(keys="output: {type: object}"))
    assert project.said() == [
        'pegboard.yaml:6:13: tools[0].output: without `wait: true` the result is {"ok": true}. Remove `output`, or wait'
    ]
    project.write(SHOW.format(keys="wait: maybe"))
    assert project.said() == ['pegboard.yaml:6:11: tools[0].wait: expected true or false, not "maybe"']
