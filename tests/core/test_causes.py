"""What stands behind an error that is raised, and how a sub-agent that was stopped ends."""

import asyncio
from typing import Any

import pytest

from pegboard import CallContext, CallError, Catalog, Secret, ToolContext

CANARY = "cause-canary-1"


class Boom(Exception):
    def __str__(self) -> str:
        raise RuntimeError(CANARY)


def failing(raised: BaseException) -> Any:
    def fail() -> str:
        raise raised

    return fail


async def raised_of(error: BaseException, *, secrets: bool = True) -> CallError:
    catalog = Catalog()
    if secrets:
        catalog.add_secrets(Secret(CANARY))
    catalog.tool(name="t", description="x", inline=True)(failing(error))
    with pytest.raises(CallError) as caught:
        await catalog.view(ToolContext(budget=None)).call("t", {}, raise_errors=True)
    return caught.value


@pytest.mark.parametrize("secrets", [True, False])
async def test_what_a_tool_raised_is_the_cause_of_the_error_that_is_raised(secrets: bool) -> None:
    error = ValueError("the disk is full")
    raised = await raised_of(error, secrets=secrets)
    assert raised.__cause__ is error
    assert "disk" not in str(raised)


async def test_a_cause_with_a_secret_in_it_is_told_without() -> None:
    error = ValueError("login failed")
    error.__cause__ = KeyError(f"no user for {CANARY}")
    cause = (await raised_of(error)).__cause__
    assert isinstance(cause, RuntimeError)
    assert "ValueError: login failed" in str(cause)
    assert "no user for [redacted]" in str(cause)
    assert (cause.__cause__, cause.__context__) == (None, None)


async def test_a_cause_whose_text_cannot_be_had_or_that_is_none_hurts_nobody() -> None:
    assert (await raised_of(Boom())).__cause__ is not None
    assert (await raised_of(CallError("tool_error", "no"))).__cause__ is None
    behind = CallError("tool_error", "no")
    behind.__cause__ = OSError("gone")
    assert (await raised_of(behind)).__cause__ is behind.__cause__


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (None, "completed"),
        (ValueError("x"), "failed"),
        (TimeoutError(), "timeout"),
        (CallError("timeout", "late"), "timeout"),
        (CallError("budget_exceeded", "dear"), "budget_exceeded"),
        (CallError("tool_error", "no"), "failed"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
async def test_the_end_of_a_sub_agent_says_how_it_ended(raised: BaseException | None, status: str) -> None:
    catalog, ends = Catalog(), list[Any]()

    @catalog.tool()
    async def parent(ctx: CallContext) -> str:
        async with ctx.sub_agent("child"):
            if raised is not None:
                raise raised
        return "done"

    class Heard:
        def on_sub_agent_end(self, event: Any) -> None:
            ends.append((event.payload["status"], event.ok))

    await catalog.view(ToolContext(budget=None)).call("parent", {}, callbacks=Heard())
    assert ends == [(status, status == "completed")]


async def test_a_sub_agent_whose_call_is_cancelled_from_outside_is_cancelled() -> None:
    catalog, ends, began = Catalog(), list[str](), asyncio.Event()

    @catalog.tool()
    async def parent(ctx: CallContext) -> str:
        async with ctx.sub_agent("child"):
            began.set()
            await asyncio.Event().wait()
        return "done"

    class Heard:
        def on_tool_call(self, event: Any) -> None:
            self.call_id = event.call_id

        def on_sub_agent_end(self, event: Any) -> None:
            ends.append(event.payload["status"])

    heard = Heard()
    call = asyncio.create_task(catalog.view(ToolContext(budget=None)).call("parent", {}, callbacks=heard))
    await began.wait()
    catalog.cancel(heard.call_id)
    result = await call
    assert (result.error and result.error.kind, ends) == ("cancelled", ["cancelled"])


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.model.attempts.STEP_FIRST_RETRY_S", 0.0)


async def stepped(*outcomes: object, retries: int) -> tuple[Any, int]:
    """Return the result of a call whose one step meets these outcomes in turn, and how often it ran."""
    catalog, left = Catalog(), list(outcomes)

    async def work(*args: object) -> object:
        outcome = left.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    @catalog.tool()
    async def t(ctx: CallContext) -> str:
        return str(await ctx.step("work", work if retries % 2 else lambda: work(), retries=retries))

    return await catalog.view(ToolContext(budget=None)).call("t", {}), len(outcomes) - len(left)


@pytest.mark.usefixtures("at_once")
async def test_a_step_is_tried_again_as_often_as_it_says_and_not_where_it_was_for_good() -> None:
    away = CallError("upstream_unavailable", "away")
    result, runs = await stepped(ValueError("1"), away, "done", retries=2)
    assert (result.text, runs) == ("done", 3)
    result, runs = await stepped(OSError("1"), OSError("2"), "done", retries=1)
    assert (result.is_error, runs) == (True, 2)
    result, runs = await stepped(OSError("1"), "done", retries=0)
    assert (result.is_error, runs) == (True, 1)
    result, runs = await stepped(CallError("consent_declined", "no"), "done", retries=3)
    assert (result.error and result.error.kind, runs) == ("consent_declined", 1)
    result, runs = await stepped(asyncio.CancelledError(), "done", retries=3)
    assert (result.error and result.error.kind, runs) == ("cancelled", 1)
    result, runs = await stepped("done", retries=-1)
    assert (result.is_error, runs) == (True, 0)


async def test_the_waits_of_a_step_end_with_its_call() -> None:
    catalog, runs = Catalog(), list[int]()

    def work() -> None:
        runs.append(1)
        raise OSError("away")

    @catalog.tool(timeout_s=0.05)
    async def t(ctx: CallContext) -> None:
        await ctx.step("work", work, retries=1_000_000)

    result = await catalog.view(ToolContext(budget=None)).call("t", {})
    assert result.error is not None
    assert result.error.kind == "timeout"
    assert len(runs) < 10
