"""Path: the functions that a warm request enters, in order, from the ASGI app to the bytes of its answer.

python -m bench.path            one tools/call and one tools/list, in this process
python -m bench.path --brief    the counts only

It shows what a reader has to follow and what is asked twice; it measures no time. `sys.setprofile` sees each function
entered, and each step of a coroutine; a coroutine that goes on is not counted again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from inspect import CO_VARARGS, CO_VARKEYWORDS
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from bench.http import CALL, LIST, bench_catalog
from pegboard import http_app

PACKAGE = str(Path(sys.modules["pegboard"].__file__ or "").parent) + "/"
WARM = 20
ASKS_FOR_THE_SNAPSHOT = ("core/registry.py", "snapshot")


@dataclass(kw_only=True, slots=True)
class Entry:
    """One function entered: its file within the package, its name and line.

    `arguments` are the very objects that it was given; they are held, so that no other gets the identity of one.
    """

    file: str
    name: str
    line: int
    arguments: tuple[object, ...] = field(compare=False, repr=False)
    answer: object = field(default=None, compare=False, repr=False)
    """What it gave in the end."""

    @property
    def question(self) -> tuple[object, ...]:
        """What was asked: the function, and its arguments by identity."""
        return (self.file, self.name, self.line, *map(id, self.arguments))


class Recorder:
    """Takes down each function of the package as it is entered."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        # Frames are held, so that no other frame gets the identity of one that is over.
        self._seen: dict[int, tuple[FrameType, Entry | None]] = {}

    def __call__(self, frame: FrameType, event: str, value: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return
        if id(frame) in self._seen:
            entry = self._seen[id(frame)][1]
            if event == "return" and entry is not None:
                entry.answer = value
            return
        if event != "call":
            return
        self._seen[id(frame)] = (frame, None)
        # What a comprehension or a lambda does belongs to the function around it.
        if not code.co_name.startswith("<"):
            file = code.co_filename.removeprefix(PACKAGE)
            arguments = tuple([frame.f_locals.get(name) for name in code.co_varnames[: _taken(code)]])
            entry = Entry(file=file, name=code.co_qualname, line=code.co_firstlineno, arguments=arguments)
            self.entries.append(entry)
            self._seen[id(frame)] = (frame, entry)


def _taken(code: CodeType) -> int:
    """Return how many arguments a function takes, those that gather the rest among them."""
    gathering = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return code.co_argcount + code.co_kwonlyargcount + gathering


def asked_again(entries: list[Entry]) -> list[Entry]:
    """Return the entries that ask what another before them has asked, and are answered the same.

    The same is the same function, of the very same values. What answers otherwise each time, as who draws an id does,
    was not asked but told to do something.
    """
    answers: dict[tuple[object, ...], list[object]] = {}
    again: list[Entry] = []
    for entry in entries:
        before = answers.setdefault(entry.question, [])
        if any(entry.answer is one or entry.answer == one for one in before):
            again.append(entry)
        before.append(entry.answer)
    return again


async def path_of(app: Any, request: bytes) -> list[Entry]:
    """Return the functions that one warm request enters; the app has been started."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line.partition(b": ") for line in head.split(b"\r\n")[1:]]
    headers = [(name.lower(), value) for name, _, value in lines]
    for _ in range(WARM):
        await _send(app, headers, body)
    recorder = Recorder()
    sys.setprofile(recorder)
    try:
        await _send(app, headers, body)
    finally:
        sys.setprofile(None)
    return recorder.entries


async def _send(app: Any, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    scope = {
        "type": "http", "method": "POST", "path": "/mcp", "raw_path": b"/mcp", "query_string": b"", "root_path": "",
        "headers": list(headers), "server": ("127.0.0.1", 8420), "client": ("127.0.0.1", 1), "scheme": "http",
        "http_version": "1.1", "asgi": {"version": "3.0", "spec_version": "2.3"}, "state": {},
    }  # fmt: skip
    status = 0

    whole = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not whole:
            # The client stays. A call that takes a while on a busy machine waits here for it to leave.
            await asyncio.Event().wait()
        return whole.pop()

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    await app(scope, receive, send)
    assert status == 200, status


def report(name: str, entries: list[Entry], *, brief: bool) -> Iterator[str]:
    """Yield the lines on one request."""
    files = [entry.file for entry in entries]
    changes = sum(one != other for one, other in pairwise(files))
    asked = sum((entry.file, entry.name.rpartition(".")[2]) == ASKS_FOR_THE_SNAPSHOT for entry in entries)
    yield (
        f"{name}: {len(entries)} functions entered, {len(set(files))} files, {changes} changes of file, "
        f"{asked} calls of the registry's snapshot"
    )
    if brief:
        return
    previous = ""
    for entry in entries:
        yield f"  {entry.file if entry.file != previous else '':40} {entry.name}:{entry.line}"
        previous = entry.file
    counts = Counter((entry.file, entry.name, entry.line) for entry in entries)
    repeated = [(name, count) for (_, name, _), count in counts.most_common() if count > 1]
    yield "  more than once: " + ", ".join(f"{name} {count}" for name, count in repeated)
    yield "  of the same values: " + (", ".join(dict.fromkeys(entry.name for entry in asked_again(entries))) or "none")


async def paths() -> dict[str, list[Entry]]:
    """Return the way of a warm call and of a warm list."""
    app = http_app(bench_catalog(10))
    async with app.router.lifespan_context(app):
        return {"tools/call": await path_of(app, CALL), "tools/list": await path_of(app, LIST)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.path", description=__doc__)
    parser.add_argument("--brief", action="store_true", help="print the counts only")
    brief: bool = parser.parse_args().brief
    for name, entries in asyncio.run(paths()).items():
        print(*report(name, entries, brief=brief), sep="\n")


if __name__ == "__main__":
    main()
