"""Sandbox: child processes that run our functions on foreign bytes, each with limits, and killed when it fails."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from pegboard.egress.process import Process, launch
from pegboard.model.bounds import MIB
from pegboard.model.error import CallError

SANDBOX_MEMORY_BYTES = 256 * MIB  # bytes of memory of a child, by default
SANDBOX_OUTPUT_BYTES = 1 * MIB  # bytes of one result, by default
SANDBOX_START_S = 4.0  # seconds for a child to start on a busy machine
SANDBOX_CHILD_CALLS = 200  # calls until a child is replaced
SANDBOX_CHILD_BYTES = 64 * MIB  # payload bytes until a child is replaced

_CHILD = Path(__file__).with_name("sandbox_child.py")


class SandboxError(CallError):
    """The function in the child raised an exception. `type_name` is its class, `text` its message."""

    def __init__(self, *, type_name: str, text: str) -> None:
        super().__init__("tool_error", f"{type_name}: {text}")
        self.type_name = type_name
        self.text = text


async def run_sandboxed(
    function: str,
    argument: Any,
    payload: bytes = b"",
    *,
    timeout_s: float,
    memory_bytes: int = SANDBOX_MEMORY_BYTES,
    output_bytes: int = SANDBOX_OUTPUT_BYTES,
) -> Any:
    """Call `module:function(argument, payload)` in a child that does nothing else, and return its JSON result.

    Raises:
        CallError: see `SandboxPool.call`.
    """
    pool = SandboxPool(children=1, timeout_s=timeout_s, memory_bytes=memory_bytes, output_bytes=output_bytes)
    async with pool:
        return await pool.call(function, argument, payload)


def _import_path() -> list[str]:
    """Return our import path with absolute entries, since the child runs in another folder."""
    return [str(Path(entry).absolute()) for entry in sys.path]


@dataclass(kw_only=True, slots=True)
class _Child:
    """One child and its work so far; memory leaked by its calls ends with it."""

    process: Process
    calls: int = 0
    payload_bytes: int = 0

    @property
    def is_worn(self) -> bool:
        return self.calls >= SANDBOX_CHILD_CALLS or self.payload_bytes >= SANDBOX_CHILD_BYTES


@dataclass(kw_only=True)
class SandboxPool:
    """Children that run many calls, in one event loop.

    A child starts with the first call that finds none idle, and ends with the block: `async with SandboxPool(…)`. It
    has a clean environment, our import path, no right to write files, and limits on memory and descriptors. A child
    that dies, is too slow or raises anything but `expected` is killed with all its descendants; the next call gets a
    new one.

    Args:
        children: the most children.
        expected: the name of the exception that a function raises to refuse its bytes; the child continues after it.
        env: variables for the children.
        folders: where else the children look for modules, after our own import path.
    """

    children: int
    timeout_s: float
    memory_bytes: int = SANDBOX_MEMORY_BYTES
    output_bytes: int = SANDBOX_OUTPUT_BYTES
    expected: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    folders: tuple[str, ...] = ()
    _idle: list[_Child] = field(default_factory=list[_Child], init=False)

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.children)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        idle, self._idle = self._idle, []
        stopping = asyncio.gather(*(child.process.stop(grace_s=0) for child in idle))
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            # A caller that is cancelled now must not leave children behind.
            await stopping
            raise

    async def call(self, function: str, argument: Any, payload: bytes) -> Any:
        """Call `module:function(argument, payload)` in a child, and return its JSON result.

        The texts of the errors have `it` as their subject, since only the caller knows what it asked for.

        Raises:
            SandboxError: the function raised an exception.
            CallError: timeout; result_too_large; tool_error if the child used too much memory or died.
        """
        async with self._places:
            child = self._idle.pop() if self._idle else _Child(process=await self._launch())
            goes_on = False
            try:
                async with asyncio.timeout(self.timeout_s):
                    answer = await self._ask(child, function, argument, payload)
                goes_on = "value" in answer or answer.get("type") == self.expected
            except TimeoutError:
                text = f"it did not finish within {self.timeout_s:g} s"
                raise CallError("timeout", text, outcome_unknown=False) from None
            finally:
                if goes_on and not child.is_worn:
                    self._idle.append(child)
                else:
                    await child.process.stop(grace_s=0)
        return self._value(answer)

    async def _launch(self) -> Process:
        # -I: no PYTHON* variables, no user site; -B: no byte code files.
        process = await launch(sys.executable, ["-I", "-B", str(_CHILD)], env=self.env, line_bytes=self.output_bytes)
        setup = {
            "path": [*_import_path(), *self.folders],
            "limits": {
                "RLIMIT_AS": self.memory_bytes,
                "RLIMIT_FSIZE": 0,
                "RLIMIT_NOFILE": 64,
                "RLIMIT_CORE": 0,
            },
        }
        with suppress(CallError):
            # If it died already, the first call reports that.
            await process.write(json.dumps(setup).encode() + b"\n")
        return process

    async def _ask(self, child: _Child, function: str, argument: Any, payload: bytes) -> dict[str, Any]:
        child.calls += 1
        child.payload_bytes += len(payload)
        request = {"call": function, "argument": argument, "size": len(payload)}
        try:
            with suppress(CallError):
                # It may die while reading; its earlier output and exit status tell more.
                await child.process.write(json.dumps(request).encode() + b"\n" + payload)
            line = await child.process.read_line()
        except CallError as error:
            if error.error.kind != "protocol_error":
                raise
            raise CallError("result_too_large", f"its result has more than {self.output_bytes} bytes") from None
        if line is None:
            raise self._died(await child.process.exited())
        try:
            return cast("dict[str, Any]", json.loads(line))
        except ValueError:
            raise CallError("tool_error", "it broke off in the middle of its answer") from None

    def _value(self, answer: dict[str, Any]) -> Any:
        if "value" in answer:
            return answer["value"]
        if answer["failure"] == "memory":
            raise self._out_of_memory()
        raise SandboxError(type_name=answer["type"], text=answer["message"])

    def _died(self, status: int) -> CallError:
        if status in (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS):
            return self._out_of_memory()
        return CallError("tool_error", f"it ended with status {status} and no answer")

    def _out_of_memory(self) -> CallError:
        return CallError("tool_error", f"it died or needed more than {self.memory_bytes >> 20} MiB of memory")
