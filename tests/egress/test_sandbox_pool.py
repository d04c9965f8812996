"""The pool of children: many calls in few of them, and a fresh one after whatever went wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pegboard.egress import sandbox
from pegboard.egress.sandbox import SandboxError, SandboxPool
from pegboard.model.error import CallError

HERE = "tests.egress.test_sandbox_pool"
MEMORY = 256 << 20


class RefusedError(Exception):
    """What the functions below refuse with."""


def tell(argument: Any, payload: bytes) -> Any:
    return {"pid": os.getpid(), "size": len(payload), "argument": argument, "environment": sorted(os.environ)}


def refuse(argument: Any, payload: bytes) -> Any:
    raise RefusedError(f"no {argument}")


def fail(argument: Any, payload: bytes) -> Any:
    raise ValueError("broken")


def loop(argument: Any, payload: bytes) -> Any:
    while True:
        pass


def eat(argument: Any, payload: bytes) -> Any:
    return len(bytearray(MEMORY * 4))


def die(argument: Any, payload: bytes) -> Any:
    os._exit(3)


def talk(argument: Any, payload: bytes) -> Any:
    print("x" * 100_000, flush=True)
    return "y" * int(argument)


def write(argument: Any, payload: bytes) -> Any:
    Path(str(argument)).write_bytes(b"x" * 10)


def pool(children: int = 1) -> SandboxPool:
    return SandboxPool(
        children=children, timeout_s=60.0, memory_bytes=MEMORY, output_bytes=1 << 20, expected="RefusedError"
    )


async def test_one_child_serves_many_calls_with_their_payloads_and_a_clean_environment() -> None:
    async with pool() as calls:
        told = [await calls.call(f"{HERE}:tell", n, b"\n\x00" * n) for n in (0, 1, 50_000)]
        assert len({each["pid"] for each in told}) == 1
        assert [each["size"] for each in told] == [0, 2, 100_000]
        assert not {"PYTHONPATH", "PYTEST_CURRENT_TEST"} & {*told[0]["environment"]}
    assert told[0]["pid"] != os.getpid()


async def test_a_refusal_is_told_and_the_child_goes_on() -> None:
    async with pool() as calls:
        before = (await calls.call(f"{HERE}:tell", 1, b""))["pid"]
        with pytest.raises(SandboxError) as refused:
            await calls.call(f"{HERE}:refuse", "thanks", b"")
        assert (refused.value.type_name, refused.value.text) == ("RefusedError", "no thanks")
        assert (await calls.call(f"{HERE}:tell", 1, b""))["pid"] == before


@pytest.mark.parametrize(
    ("function", "argument", "said"),
    [
        ("fail", 1, "ValueError: broken"),
        ("eat", 1, "needed more than 256 MiB"),
        ("die", 1, "ended with status 3"),
        ("talk", 2 << 20, "more than 1048576 bytes"),
        ("missing", 1, "AttributeError"),
    ],
)
async def test_after_a_fault_the_next_call_has_a_fresh_child(function: str, argument: Any, said: str) -> None:
    async with pool() as calls:
        before = (await calls.call(f"{HERE}:tell", 1, b""))["pid"]
        with pytest.raises(CallError, match=said):
            await calls.call(f"{HERE}:{function}", argument, b"x" * 100_000)
        assert (await calls.call(f"{HERE}:tell", 1, b""))["pid"] != before
        # What a function prints is not taken for its answer.
        assert await calls.call(f"{HERE}:talk", 3, b"") == "yyy"


async def test_a_function_that_hangs_is_killed_at_its_deadline() -> None:
    async with pool() as calls:
        before = (await calls.call(f"{HERE}:tell", 1, b""))["pid"]
        calls.timeout_s = 0.5
        with pytest.raises(CallError) as late:
            await calls.call(f"{HERE}:loop", 1, b"")
        assert late.value.error.kind == "timeout"
        with pytest.raises(ProcessLookupError):
            os.kill(before, 0)


async def test_a_child_is_replaced_when_it_has_done_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "SANDBOX_CHILD_CALLS", 2)
    monkeypatch.setattr(sandbox, "SANDBOX_CHILD_BYTES", 1_000)
    async with pool() as calls:
        by_calls = [(await calls.call(f"{HERE}:tell", 1, b""))["pid"] for _ in range(4)]
        assert by_calls[0] == by_calls[1] != by_calls[2] == by_calls[3]
        by_bytes = [(await calls.call(f"{HERE}:tell", 1, b"x" * 1_000))["pid"] for _ in range(2)]
        assert by_bytes[0] != by_bytes[1]


async def test_a_child_writes_no_file(tmp_path: Path) -> None:
    async with pool() as calls:
        with pytest.raises(CallError):
            await calls.call(f"{HERE}:write", str(tmp_path / "x"), b"")
    assert not (tmp_path / "x").exists() or (tmp_path / "x").stat().st_size == 0
