"""Framed texts: streams of events and of lines in every spelling, saved ones, and reference readers of both."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import NamedTuple

OURS, TOKEN = 7, "t7"
ANSWER = {"jsonrpc": "2.0", "id": OURS, "result": {"text": "für 😀 \u2028 x"}}
OTHERS = [
    {"jsonrpc": "2.0", "id": 8, "result": {"text": "another's"}},
    {"jsonrpc": "2.0", "id": "7", "result": {"text": "another's"}},
    {"jsonrpc": "2.0", "id": True, "result": {"text": "another's"}},
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "t8", "progress": 1}},
]
TAKEN = [
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": TOKEN, "progress": 1}},
    {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "é\x0b\x85\u2029"}},
    {"jsonrpc": "2.0", "id": 1, "method": "ping"},
]
JUNK = ["", "{", "[1]", "null", '"text"', '{"id": 7', "data", "\ufeff{}", "é", "\x00", "event: message", ":"]
EXTRAS = [": comment", "event: message", "event:other", "id: 5", "id", "retry: 10", "retry: x", "odd", "data"]
ENDS = ["\n", "\r\n", "\r"]


class Event(NamedTuple):
    """One server-sent event."""

    name: str
    data: str


def events_of(raw: bytes) -> list[Event]:
    """Read a stream of events as the standard says (HTML, 9.2.6), all of it at once."""
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    # What follows the last end of a line is not a line, and what follows the last empty line is not an event.
    events, name, data, has_data = list[Event](), "", list[str](), False
    for line in text.split("\n")[:-1]:
        if not line:
            if has_data:
                events.append(Event(name or "message", "\n".join(data)))
            name, data, has_data = "", [], False
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
            has_data = True
    return events


def lines_of(raw: bytes) -> list[bytes]:
    """Read lines as the stdio transport has them: newlines end them, and what a program wrote last counts."""
    lines = [line.removesuffix(b"\r") for line in raw.split(b"\n")]
    return lines if lines[-1] else lines[:-1]


def pieces(raw: bytes, rng: random.Random) -> list[bytes]:
    """Cut a stream anywhere: within a character, within an end of line, byte by byte, or not at all."""
    if rng.random() < 0.2:
        return [raw[place : place + 1] for place in range(len(raw))]
    cuts = sorted({0, len(raw), *(rng.randrange(len(raw) + 1) for _ in range(rng.randrange(12)))})
    # A piece may be empty.
    return [raw[first:last] for first, last in zip(cuts, [*cuts[1:], len(raw)], strict=True)]


def _message(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.25:
        return json.dumps(ANSWER, ensure_ascii=rng.random() < 0.5)
    if kind < 0.8:
        return json.dumps(rng.choice([*OTHERS, *TAKEN]), ensure_ascii=rng.random() < 0.5)
    return rng.choice(JUNK)


def random_events(rng: random.Random) -> bytes:
    """Return a stream of events, whose lines end in every way."""
    return "".join(_event_text(rng)).encode() + rng.choice([b"", b"", b"data: cut", b"data: \xc3", b"\r", b"\xff\n\n"])


def _event_text(rng: random.Random) -> Iterator[str]:
    usual = rng.choice(ENDS)
    yield rng.choice(["", "", "", "\ufeff", "\n", ": hello\n\n"])
    for _ in range(rng.randrange(1, 7)):
        lines = list[str]()
        message = _message(rng)
        # A message may stand on several lines, wherever JSON has room.
        parts = message.replace(", ", ", \n").split("\n") if rng.random() < 0.3 else [message]
        lines += [f"data:{rng.choice(['', ' '])}{part}" for part in parts]
        for extra in EXTRAS:
            if rng.random() < 0.08:
                lines.insert(rng.randrange(len(lines) + 1), extra)
        for line in lines:
            yield line + (usual if rng.random() < 0.9 else rng.choice(ENDS))
        yield usual if rng.random() < 0.95 else ""


def random_lines(rng: random.Random) -> bytes:
    """Return what a program may write to stdout: messages, and whatever else it says."""
    out = b""
    for _ in range(rng.randrange(1, 9)):
        line = _message(rng).encode()
        if rng.random() < 0.1:
            line = line[: rng.randrange(len(line) + 1)]
        out += line + rng.choice([b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b"\r\r\n", b"\n \n", b"\r"])
    return out + rng.choice([b"", b"", json.dumps(ANSWER).encode(), b"\xc3"])


_ANSWER = json.dumps(ANSWER, ensure_ascii=False).encode()
# What was found by hand or by an earlier run.
EVENTS: list[bytes] = [
    b"data: " + _ANSWER + b"\n\n",
    b"data: " + _ANSWER + b"\r\n\r\n",
    b"data: " + _ANSWER + b"\r\r",
    b"data: " + _ANSWER + b"\n\r\n",
    b"\xef\xbb\xbfdata: " + _ANSWER + b"\n\n",
    b"\xef\xbb\xbf\xef\xbb\xbfdata: " + _ANSWER + b"\n\n",
    b": ping\r\n\r\nevent: message\r\nid: 1\r\nretry: 5\r\ndata:" + _ANSWER + b"\r\n\r\n",
    b"data: " + _ANSWER + b"\n\ndata: " + _ANSWER + b"\n\n",
    b"data: " + _ANSWER,
    b"data: " + _ANSWER + b"\n",
    b"data: " + _ANSWER + b"\r",
    b'data: {"jsonrpc":"2.0",\ndata: "id":7,\ndata: "result":{}}\n\n',
    b"data\ndata\n\ndata: " + _ANSWER + b"\n\n",
    b"event: endpoint\ndata: /elsewhere\n\n",
    b"retry: 99999999999999999999\ndata: " + _ANSWER + b"\n\n",
    b"id: \x00\ndata: " + _ANSWER + b"\n\n",
    b"data: \xff\xfe\n\ndata: " + _ANSWER + b"\n\n",
    b"",
    b"\n\n\n",
]
LINES: list[bytes] = [
    _ANSWER + b"\n",
    _ANSWER + b"\r\n",
    _ANSWER,
    _ANSWER + b"\n" + _ANSWER + b"\n",
    b"\xef\xbb\xbf" + _ANSWER + b"\n",
    b"Starting...\n" + _ANSWER + b"\n\xf0\x9f\n",
    _ANSWER[:20] + b"\n" + _ANSWER[20:] + b"\n" + _ANSWER + b"\n",
    _ANSWER + b"\r" + _ANSWER + b"\n" + _ANSWER + b"\n",
    b"\n\n\r\n \n" + _ANSWER + b"\n",
    b"\r" + _ANSWER + b"\r[1]\n",
    b"\x00" + _ANSWER + b"\n" + _ANSWER + b"\x00\n",
    b"[" + _ANSWER + b"]\n" + _ANSWER + b"\n",
    b"Content-Length: 10\r\n\r\n" + _ANSWER + b"\n",
    b"",
]
