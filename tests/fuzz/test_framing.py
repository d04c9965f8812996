"""Framing: what an upstream says means the same wherever the network or a pipe cuts it."""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import httpx2
import pytest
from mcp.shared.message import SessionMessage

from pegboard.core.json_reader import read_answer
from pegboard.egress.process_pipes import ProcessPipes
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.error import CallError
from pegboard.sources.mcp import http_transport
from pegboard.sources.mcp.answer_filter import AnswerFilter, OneAnswer, SentRequest, unreadable_answer
from pegboard.sources.mcp.evidence import Evidence
from pegboard.sources.mcp.http_transport import MCP_EVENT_BYTES, CappedEvents
from pegboard.sources.mcp.stdio_transport import StdioTraffic, _read
from tests.fuzz.framed_texts import (
    EVENTS,
    LINES,
    OURS,
    TOKEN,
    Event,
    events_of,
    lines_of,
    pieces,
    random_events,
    random_lines,
)  # fmt: skip
from tests.fuzz.seeds import inputs
from tests.upstream_mcp.parts import on_stdio

IN_CI = {"events": 400, "lines": 150, "sizes": 60}
Cut = list[bytes]


def cuts(saved: list[bytes], made: Any, count: int, *, fresh: bool) -> Iterator[tuple[bytes, Cut]]:
    """Yield streams with the pieces that they come in: the saved ones cut at every place, and made ones anywhere."""
    for raw in saved:
        yield raw, [raw[place : place + 1] for place in range(len(raw))]
        yield from ((raw, [raw[:place], raw[place:]]) for place in range(len(raw) + 1))
    for _, rng in inputs(count, fresh=fresh):
        raw = made(rng)
        yield raw, pieces(raw, rng)


class Pieces(httpx2.AsyncByteStream):
    """A body that comes in these pieces."""

    def __init__(self, cut: Cut) -> None:
        self._cut = cut

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._cut:
            yield piece

    async def aclose(self) -> None:
        pass


def expected_events(raw: bytes) -> list[Event]:
    """Return the events that reach us: what is ours, once; what cannot be read, as an error in its place."""
    expectation, kept = OneAnswer(SentRequest(request_id=OURS, progress_token=TOKEN)), list[Event]()
    # A return that ends the stream ends the event as well, for the library that reads events.
    for event in events_of(raw + b"\r" if raw.endswith(b"\r") else raw):
        if event.name != "message" or not event.data:
            kept.append(event)
            continue
        try:
            message = read_answer(event.data.encode())
        except ValueError:
            message = None
        if not isinstance(message, dict):
            kept.append(Event("message", expectation.instead_of_unreadable(event.data.encode()).decode()))
        else:
            kept.append(event if expectation.takes(message) else Event("message", ""))
    return [event for event in kept if event.data]


async def heard_events(cut: Cut) -> list[Event]:
    request = httpx2.Request("POST", "http://up.example/mcp")
    # A charset of its own changes nothing: events are UTF-8.
    heads = {"content-type": "text/event-stream; charset=utf-16"}
    response = httpx2.Response(200, headers=heads, stream=Pieces(cut), request=request)
    expectation = OneAnswer(SentRequest(request_id=OURS, progress_token=TOKEN))
    answers = AnswerFilter(response, expectation, max_event_bytes=1_000_000, bounds=DEFAULT_BOUNDS)
    written = b"".join([part async for part in answers])
    return [event for event in events_of(written) if event.data]


@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.soak)])
async def test_events_mean_the_same_wherever_the_stream_is_cut(fresh: bool) -> None:
    for raw, cut in cuts(EVENTS, random_events, IN_CI["events"], fresh=fresh):
        heard = await heard_events(cut)
        assert heard == expected_events(raw), (raw, cut)
        answers = [message for event in heard if (message := _answer(event)) is not None]
        assert len([one for one in answers if "result" in one]) <= 1, (raw, cut)
        assert {one["id"] for one in answers} <= {OURS}, (raw, cut)


def _answer(event: Event) -> dict[str, Any] | None:
    if event.name != "message":
        return None
    message = json.loads(event.data)
    return message if isinstance(message, dict) and "method" not in message else None


class Program:
    """What `_read` wants of a program, over a real pipe that is written to piece by piece."""

    def __init__(self, pipes: ProcessPipes) -> None:
        self._pipes = pipes

    async def lines(self) -> AsyncIterator[bytes]:
        while (line := await self._pipes.read_line()) is not None:
            yield line

    async def ended(self, *, within_s: float) -> int | None:
        return 0


async def heard_lines(cut: Cut, *, line_bytes: int = 100_000) -> tuple[list[Any], StdioTraffic]:
    pipes = ProcessPipes("up", line_bytes=line_bytes, stderr_bytes=10)
    ends = [os.pipe() for _ in range(3)]
    stdout, stderr = (os.fdopen(reading_end, "rb", 0) for reading_end, _ in ends[1:])
    await pipes.attach(os.fdopen(ends[0][1], "wb", 0), stdout, stderr)
    traffic, evidence = StdioTraffic(), Evidence(on_stdio())
    traffic.awaited.ids.update({OURS})
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](1_000)
    reading = asyncio.create_task(_read(Program(pipes), incoming, traffic, evidence, "up"))  # type: ignore[arg-type] - as much of a program as it takes
    for piece in cut:
        os.write(ends[1][1], piece)
        await asyncio.sleep(0)
    os.close(ends[1][1])
    await reading
    messages = [message async for message in received]
    for descriptor in (ends[0][0], ends[2][1]):
        os.close(descriptor)
    pipes.close_stdin()
    await pipes.close()
    received.close()
    return [json.loads(one.message.model_dump_json(exclude_unset=True)) for one in messages], traffic  # type: ignore[union-attr]


def _is_whole_answer(line: str) -> bool:
    """Tell whether an unreadable line begins as the answer that is awaited does, and closes what it opens."""
    depth, is_text, is_escaped = 0, False, False
    for letter in line:
        if is_escaped:
            is_escaped = False
        elif letter == "\\":
            is_escaped = True
        elif letter == '"':
            is_text = not is_text
        elif not is_text:
            depth += {"{": 1, "}": -1}.get(letter, 0)
    return depth == 0 and line.lstrip(" \t\r\n").startswith(
        ('{"jsonrpc": "2.0", "id": 7, "result"', '{"jsonrpc": "2.0", "id": 7, "error"')
    )


def expected_lines(raw: bytes) -> list[Any]:
    """Return the messages among the lines that somebody waits for: the answer once, requests and notifications."""
    kept, is_open = list[Any](), True
    for line in lines_of(raw):
        try:
            message = read_answer(line)
        except ValueError:
            if not is_open or not _is_whole_answer(line.decode("utf-8", "replace")):
                continue
            is_open, message = False, json.loads(unreadable_answer(OURS))
            kept.append(message)
            continue
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            continue
        if "method" not in message:
            if not is_open or message.get("id") != OURS or type(message.get("id")) is not int:
                continue
            is_open = False
        elif message["method"] == "notifications/progress":
            continue  # passed on no faster than its clock says, which other tests look at
        kept.append(message)
    return kept


@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.soak)])
async def test_lines_mean_the_same_wherever_the_pipe_is_cut(fresh: bool) -> None:
    rng = random.Random(1)
    for number, (raw, cut) in enumerate(cuts(LINES, random_lines, IN_CI["lines"], fresh=fresh)):
        if not fresh and len(cut) == 2 and number % 23:
            continue  # pipes cost more than streams in memory: of the single cuts some
        heard, _ = await heard_lines(cut)
        seen = [message for message in heard if message.get("method") != "notifications/progress"]
        assert seen == expected_lines(raw), (raw, cut)
    long = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"' + b"x" * 300 + b'"}}\n'
    for _ in range(10):
        raw = LINES[0] + long + LINES[0]
        heard, traffic = await heard_lines(pieces(raw, rng), line_bytes=200)
        assert (len(heard), "a line of more than 200 bytes" in traffic.fault) == (1, True), traffic


@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.soak)])
async def test_many_small_events_never_count_as_a_large_one(fresh: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cap = 200
    assert cap < MCP_EVENT_BYTES
    monkeypatch.setattr(http_transport, "MCP_EVENT_BYTES", cap)
    for _, rng in inputs(IN_CI["sizes"], fresh=fresh):
        end = rng.choice(["\n", "\r\n", "\r"])
        events = [f"data: {'é' * rng.randrange(40)}{end}{end}" for _ in range(rng.randrange(1, 30))]
        too_large = rng.random() < 0.3
        if too_large:
            events.insert(rng.randrange(len(events) + 1), f"data: {'x' * rng.randrange(2 * cap, 4 * cap)}{end}{end}")
        raw = "".join(events).encode()
        cut, lost = pieces(raw, rng), list[CallError]()
        heard = b""
        try:
            async for piece in CappedEvents(Pieces(cut), "up", lost.append):
                heard += piece
        except CallError:
            assert too_large, (raw, cut)
            assert raw.startswith(heard)
            assert len(lost) == 1
        else:
            assert not too_large, (raw, cut)
            assert (heard, lost) == (raw, [])
