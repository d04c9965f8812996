"""Sandbox: runs one Python function in a child process with limits."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import sys
from pathlib import Path
from typing import Any, cast

from pegboard.egress.process import Process, launch
from pegboard.model.bounds import MIB
from pegboard.model.error import CallError

SANDBOX_MEMORY_BYTES = 256 * MIB  # bytes of memory of a child that runs one function, by default
SANDBOX_OUTPUT_BYTES = 1 * MIB  # bytes of the child's result
SANDBOX_START_S = 4.0  # seconds for the child to start on a busy machine

_CHILD = Path(__file__).with_name("sandbox_child.py")


class SandboxError(CallError):
    """The function in the child raised an exception. `type_name` is its class, `text` its message."""

    def __init__(self, call: str, *, type_name: str, text: str) -> None:
        super().__init__("tool_error", f"{call!r} failed: {type_name}: {text}")
        self.type_name = type_name
        self.text = text


async def run_sandboxed(
    call: str,
    argument: Any,
    *,
    payload: bytes | None = None,
    timeout_s: float,
    memory_bytes: int = SANDBOX_MEMORY_BYTES,
    output_bytes: int = SANDBOX_OUTPUT_BYTES,
) -> Any:
    """Call `module:function` with a JSON value in a new Python process, and return its JSON result.

    The child has a clean environment, our `sys.path`, no right to write files, and limits on memory, CPU time and
    descriptors. A `payload` is passed as second argument. The child and its descendants are killed when the time is
    over, when the result is too large, and when the caller is cancelled.

    Raises:
        SandboxError: the function raised an exception.
        CallError: timeout; result_too_large; tool_error if the child used too much memory or died.
    """
    request = {
        "call": call,
        "argument": argument,
        "has_payload": payload is not None,
        "path": import_path(),
        "limits": {
            "RLIMIT_AS": memory_bytes,
            "RLIMIT_CPU": math.ceil(timeout_s) + 1,
            "RLIMIT_FSIZE": 0,
            "RLIMIT_NOFILE": 64,
            "RLIMIT_CORE": 0,
        },
    }
    # -I: no PYTHON* variables, no user site; -B: no byte code files.
    child = await launch(sys.executable, ["-I", "-B", str(_CHILD)], line_bytes=output_bytes)
    try:
        async with asyncio.timeout(timeout_s):
            line = await _ask(child, json.dumps(request).encode() + b"\n" + (payload or b""))
            status = 0 if line is not None else await child.exited()
    except TimeoutError:
        raise CallError("timeout", f"{call!r} did not finish within {timeout_s:g} s. Give it less to do.") from None
    except CallError as exc:
        if exc.error.kind != "protocol_error":
            raise
        text = f"{call!r} answered with more than {output_bytes} bytes. Ask for less."
        raise CallError("result_too_large", text) from None
    finally:
        await child.stop(grace_s=0)
    if line is None:
        raise _died(call, status, memory_bytes)
    return _value(call, line, memory_bytes)


def import_path() -> list[str]:
    """Return our import path with absolute entries, since the child runs in another folder."""
    return [str(Path(entry).absolute()) for entry in sys.path]


async def _ask(child: Process, message: bytes) -> bytes | None:
    try:
        await child.write(message)
    except CallError:
        # It died while reading; its earlier output and exit status tell more.
        return await child.read_line()
    child.close_stdin()
    return await child.read_line()


def _value(call: str, line: bytes, memory_bytes: int) -> Any:
    try:
        answer = cast("dict[str, Any]", json.loads(line))
    except (ValueError, RecursionError):
        text = f"{call!r} broke off in the middle of its answer. Give it less to do."
        raise CallError("tool_error", text) from None
    if "value" in answer:
        return answer["value"]
    if answer["failure"] == "memory":
        raise _out_of_memory(call, memory_bytes)
    raise SandboxError(call, type_name=answer["type"], text=answer["message"])


def _died(call: str, status: int, memory_bytes: int) -> CallError:
    if status == -signal.SIGXCPU:
        return CallError("timeout", f"{call!r} used up its CPU time. Give it less to do.")
    if status in (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT):
        return _out_of_memory(call, memory_bytes)
    return CallError("tool_error", f"{call!r} ended with status {status} and no answer.")


def _out_of_memory(call: str, memory_bytes: int) -> CallError:
    text = f"{call!r} died or needed more than {memory_bytes} bytes of memory. Give it less to do."
    return CallError("tool_error", text)
