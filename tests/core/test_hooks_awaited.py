"""Hooks that wait: they are waited for within their second, and end with their call."""

import asyncio
import time
from typing import Any

import pytest

from pegboard import CallError
from tests.core.parts import ANN, Recorder, kind_of, one_tool


async def test_a_required_after_hook_may_choose_the_kind_of_its_refusal() -> None:
    catalog = one_tool()

    @catalog.after(required=True)
    async def _(call: Any, result: Any) -> None:
        await asyncio.sleep(0)
        raise CallError("output_invalid", "It names a person.")

    result = await catalog.view(ANN).call("echo")
    assert (kind_of(result), result.text) == ("output_invalid", "It names a person.")


async def test_a_before_hook_that_waits_shortly_is_waited_for_and_can_be_cancelled() -> None:
    entered = asyncio.Event()

    async def hook(call: Any) -> None:
        await asyncio.sleep(0)
        if call.args.get("hang"):
            entered.set()
            await asyncio.Event().wait()

    catalog, recorder = one_tool(), Recorder()
    catalog.before()(hook)
    assert kind_of(await catalog.view(ANN).call("echo", {"a": 1})) == "ok"
    running = asyncio.create_task(catalog.view(ANN).call("echo", {"hang": True}, callbacks=recorder))
    await entered.wait()
    catalog.cancel(recorder.events[0].call_id)
    result = await running
    assert result.error is not None
    assert (result.error.kind, result.error.outcome_unknown) == ("cancelled", False), "it had not run"


async def test_an_after_hook_can_be_cancelled_with_its_call() -> None:
    entered = asyncio.Event()
    catalog, recorder = one_tool(), Recorder()

    @catalog.after()
    async def _(call: Any, result: Any) -> None:
        entered.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(catalog.view(ANN).call("echo", callbacks=recorder))
    await entered.wait()
    catalog.cancel(recorder.events[0].call_id)
    result = await running
    assert result.error is not None
    assert (result.error.kind, result.error.outcome_unknown) == ("cancelled", True), "the tool had run"
    assert len(recorder.results()) == 1


@pytest.mark.slow
async def test_a_sync_hook_that_takes_more_than_its_second_refuses_the_call() -> None:
    catalog = one_tool()
    catalog.before()(lambda call: time.sleep(1.05))
    assert kind_of(await catalog.view(ANN).call("echo")) == "hook_refused"
