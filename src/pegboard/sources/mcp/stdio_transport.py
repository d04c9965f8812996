"""Stdio transport: MCP messages over stdin and stdout of a program that we launch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import mcp_types as types
import orjson
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.json_reader import TooManyValuesError, check_message_count, envelope_of, read_counted
from pegboard.egress.process import Process, launch
from pegboard.egress.process_tree import PROGRAM_ID
from pegboard.model.bounds import DEFAULT_BOUNDS, Bounds
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_object
from pegboard.sources.mcp.answer_filter import (
    TOO_MANY_VALUES,
    UNREADABLE,
    OpenRequests,
    is_two_messages,
    unreadable_answer,
)
from pegboard.sources.mcp.evidence import Evidence
from pegboard.sources.mcp.server_settings import ServerSettings, revealed
from pegboard.sources.mcp.turns import between_readings

MCP_PROGRESS_S = 0.1  # seconds between two forwarded progress messages
MCP_MESSAGES_IN_HAND = 16  # messages read from a program that the SDK has not yet taken
MCP_BAD_LINES = 1_000  # consecutive invalid lines until a program is given up
MCP_PROGRESSING_CALLS = 1_000  # calls of one program whose last progress is remembered
MCP_EXIT_WAIT_S = 1.0  # seconds for a program to exit after it closed its stdout

log = logging.getLogger("pegboard")
Messages = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@dataclass(kw_only=True, slots=True)
class StdioTraffic:
    """Counts dropped messages on stdout, and tracks the open requests."""

    bad_lines: int = 0
    stray_replies: int = 0
    progress_dropped: int = 0
    fault: str = ""
    awaited: OpenRequests = field(default_factory=OpenRequests)
    bounds: Bounds = DEFAULT_BOUNDS


@asynccontextmanager
async def open_stdio(settings: ServerSettings, traffic: StdioTraffic, evidence: Evidence) -> AsyncGenerator[Messages]:
    """Start the server's program; yield its messages and the queue for ours. The program ends with the block.

    Raises:
        CallError: `upstream_unavailable`, if it cannot be started.
    """
    bounds = settings.bounds
    process = await launch(
        settings.command,
        settings.args,
        env=revealed(settings.env) | ({PROGRAM_ID: settings.program_id} if settings.program_id else {}),
        cwd=settings.cwd,
        line_bytes=bounds.message_line_bytes,
        stderr_bytes=bounds.stderr_ring_bytes,
    )
    evidence.stderr = lambda: process.stderr_tail
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](MCP_MESSAGES_IN_HAND)
    sending, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    reading = asyncio.create_task(
        _read(process, incoming, traffic, evidence, settings.name), name=f"mcp-read-{settings.name}"
    )
    writing = asyncio.create_task(_write(process, outgoing, traffic, reading), name=f"mcp-write-{settings.name}")
    tasks = (reading, writing)
    try:
        yield received, sending
    finally:
        for task in tasks:
            task.cancel()
        for stream in (incoming, received, sending, outgoing):
            stream.close()
        try:
            # An exited program needs no grace; its descendants are killed at once.
            await process.stop(grace_s=2.0 if process.returncode is None else 0.0)
        except asyncio.CancelledError:
            # The caller is leaving, so no task may be left running.
            await process.stop(grace_s=0.0)
            raise
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(
    process: Process,
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    traffic: StdioTraffic,
    evidence: Evidence,
    name: str,
) -> None:
    """Forward the messages among the lines until stdout ends."""
    bad_in_a_row = 0
    progressed = BoundedCache[Any, float](max_entries=MCP_PROGRESSING_CALLS)
    try:
        async for line in process.lines():
            await between_readings(line)
            is_read = _is_within(line, traffic)
            await between_readings(line)
            try:
                message = _message(line, traffic, progressed, is_read=is_read)
            except (ValueError, ValidationError):
                traffic.bad_lines += bool(line.strip())
                evidence.on_bad_line(line)
                bad_in_a_row += 1
                if bad_in_a_row > MCP_BAD_LINES:
                    traffic.fault = f"it wrote more than {MCP_BAD_LINES} lines in a row that are not messages"
                    return
                continue
            bad_in_a_row = 0
            evidence.on_message()
            await between_readings(line)
            if message is not None:
                await incoming.send(SessionMessage(message))
        # Read the exit status before anybody learns of the end.
        evidence.on_exit(await process.ended(within_s=MCP_EXIT_WAIT_S))
        traffic.fault = f"it ended the connection: {evidence.ending}"
    except CallError as error:
        traffic.fault = error.error.message
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        log.debug("MCP server %r: its messages are no longer read", name)
    finally:
        incoming.close()


def _is_within(line: bytes, traffic: StdioTraffic) -> bool:
    """Tell whether a line has an acceptable number of values."""
    try:
        check_message_count(line, bounds=traffic.bounds)
    except TooManyValuesError:
        return False
    return True


def _message(
    line: bytes, traffic: StdioTraffic, progressed: BoundedCache[Any, float], *, is_read: bool
) -> types.JSONRPCMessage | None:
    """Return the message in a line; `None` if nobody waits for it. With `is_read=False` it has too many values.

    Raises:
        ValueError: the line is not JSON.
        ValidationError: it is not a message.
    """
    try:
        raw = read_counted(line, bounds=traffic.bounds) if is_read else None
        if is_object(raw) and is_two_messages(raw):
            raise ValueError("two messages in one")
    except ValueError:
        raw = _instead_of_unreadable(line, traffic, UNREADABLE)
    if not is_read:
        raw = _instead_of_unreadable(line, traffic, TOO_MANY_VALUES)
    if is_object(raw):
        if raw.get("method") == "notifications/progress" and not _is_due(raw, progressed):
            traffic.progress_dropped += 1
            return None
        if not traffic.awaited.takes(raw):
            traffic.stray_replies += 1
            return None
    return types.jsonrpc_message_adapter.validate_python(raw, by_name=False)


def _instead_of_unreadable(line: bytes, traffic: StdioTraffic, fault: str) -> JSON:
    """Return an error answer that replaces an unreadable one.

    Raises:
        ValueError: nobody waits for it.
    """
    envelope = envelope_of(line)
    if envelope is None or not envelope.is_answer or not traffic.awaited.has(envelope.id):
        raise ValueError("it is not a message")
    traffic.bad_lines += 1
    return orjson.loads(unreadable_answer(envelope.id, fault))


def _is_due(notification: dict[str, Any], progressed: BoundedCache[Any, float]) -> bool:
    params: Any = notification.get("params")
    token = cast("dict[str, Any]", params).get("progressToken") if isinstance(params, dict) else None
    if not isinstance(token, int | str):
        return False
    now = time.monotonic()
    if now - progressed.get(token, -1.0) < MCP_PROGRESS_S:
        return False
    progressed.remember(token, now)
    return True


async def _write(
    process: Process,
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    traffic: StdioTraffic,
    reading: asyncio.Task[None],
) -> None:
    """Send our messages, one per line."""
    with suppress(CallError):
        async for sent in outgoing:
            message = sent.message
            if isinstance(message, types.JSONRPCRequest):
                traffic.awaited.ids.add(message.id)
            elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
                traffic.awaited.close((message.params or {}).get("requestId"))
            line = message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.write(line.encode() + b"\n")
    # A program that reads no input has usually exited: stdout then ends, and the reason is known.
    await asyncio.wait([reading], timeout=MCP_EXIT_WAIT_S)
    outgoing.close()
