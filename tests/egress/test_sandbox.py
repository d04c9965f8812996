"""The sandbox: it answers, or it is ended in time with everything it started."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from pegboard.egress.sandbox import SandboxError, run_sandboxed
from pegboard.model.error import CallError
from tests.timing import PATIENCE_S, is_within

STRAYS = "tests.egress.strays:"
SLEEPER_S = f"61.{os.getpid()}"  # so that a test in another process finds its own


async def failure(name: str, argument: Any = None, *, timeout_s: float = PATIENCE_S, **options: Any) -> CallError:
    with pytest.raises(CallError) as caught:
        await run_sandboxed(STRAYS + name, argument, timeout_s=timeout_s, **options)
    return caught.value


async def test_a_value_goes_in_and_a_value_comes_out() -> None:
    assert (
        await run_sandboxed(STRAYS + "double", {"a": [1, "\u00e9"]}, timeout_s=PATIENCE_S) == [{"a": [1, "\u00e9"]}] * 2
    )


async def test_bytes_go_in_beside_the_argument() -> None:
    answer = await run_sandboxed(STRAYS + "size", "pdf", b"\n\0" * 500_000, timeout_s=PATIENCE_S)
    assert answer == {"argument": "pdf", "bytes": 1_000_000}


async def test_what_the_function_raises_is_told_by_name_and_message() -> None:
    exc = await failure("fail", "missing")
    assert isinstance(exc, SandboxError)
    assert (exc.error.kind, exc.type_name, exc.text) == ("tool_error", "KeyError", "'missing'")
    assert isinstance(await failure("unanswerable"), SandboxError)
    assert isinstance(await failure("no_such_function"), SandboxError)


async def test_a_child_that_does_not_end_is_killed_at_its_time_with_what_it_started() -> None:
    started = asyncio.get_running_loop().time()
    exc = await failure("hang_with_child", SLEEPER_S, timeout_s=0.5)
    assert exc.error.kind == "timeout"
    assert is_within(asyncio.get_running_loop().time() - started, 1.5)
    assert _sleepers() == []


async def test_a_cancelled_caller_leaves_no_child() -> None:
    task = asyncio.create_task(run_sandboxed(STRAYS + "hang_with_child", SLEEPER_S, timeout_s=PATIENCE_S))
    async with asyncio.timeout(PATIENCE_S):
        while not _sleepers():
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert _sleepers() == []


async def test_a_child_that_breaks_off_is_a_definite_error() -> None:
    assert (await failure("half_an_answer")).error.kind == "tool_error"


async def test_the_child_sees_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "CANARY")
    assert "CANARY" not in (await run_sandboxed(STRAYS + "environment", None, timeout_s=PATIENCE_S)).values()


def _sleepers() -> list[str]:
    found = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _read(path) == f"sleep\0{SLEEPER_S}\0".encode()]
    return [str(path) for path in found]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
