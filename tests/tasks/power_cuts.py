"""Power cuts for the tests of stores: what a disk may hold after one, of what a process wrote and had flushed."""

from __future__ import annotations

import asyncio
import os
import random
import struct
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pegboard import CallContext, CallError, Catalog, Tasks, ToolContext, ToolResult
from pegboard.consent.postgres_store import PostgresConsents
from pegboard.consent.sql_records import ConsentStateError, SqlConsents
from pegboard.consent.sqlite_store import SqliteConsents

STEPS = ("fetch", "check", "load")
SECTOR_BYTES = 512
_HEAD = struct.Struct("=QQQQ")


class Act(NamedTuple):
    """One record of `write_log.c`."""

    what: str
    name: str
    offset: int
    data: bytes


def acts_of(log: Path, folder: Path) -> Iterator[Act]:
    """Yield what was written down, in order; names are those within the folder."""
    raw, at = log.read_bytes(), 0
    while at < len(raw):
        what, name_bytes, offset, data_bytes = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        name = raw[at : at + name_bytes].decode()
        at += name_bytes
        yield Act(chr(what), os.path.relpath(name, folder), offset, raw[at : at + data_bytes])
        at += data_bytes


@dataclass
class _File:
    """One file of the disk: what is on it for sure, and what was written since."""

    content: bytearray = field(default_factory=bytearray)
    pending: list[Act] = field(default_factory=list[Act])
    is_unlinked: bool = False

    def flush(self) -> None:
        for act in self.pending:
            self.apply(act, len(act.data))
        self.pending = []

    def apply(self, act: Act, length: int) -> None:
        end = act.offset if act.what == "t" else act.offset + length
        if len(self.content) < end:
            self.content.extend(bytes(end - len(self.content)))
        if act.what == "t":
            del self.content[end:]
        else:
            self.content[act.offset : end] = act.data[:length]

    def cut(self, chance: random.Random) -> bytes:
        """Return what may be left: of what was not flushed each write is there, is not, or is there in part."""
        left = _File(bytearray(self.content))
        for act in self.pending:
            length = chance.choice(
                (0, len(act.data), chance.randrange(len(act.data) + 1) // SECTOR_BYTES * SECTOR_BYTES)
            )
            if act.what == "t" and length == 0 and chance.random() < 0.5:
                continue
            if act.what == "t" or length:
                left.apply(act, length)
        return bytes(left.content)


def disk_after(acts: list[Act], chance: random.Random) -> dict[str, bytes]:
    """Return the files that the disk may have where the power goes after these acts."""
    files: dict[str, _File] = {}
    for act in acts:
        match act.what:
            case "s" if act.name == ".":
                # Flushing a folder makes sure of what was taken out of it.
                files = {name: file for name, file in files.items() if not file.is_unlinked}
            case "s":
                files.setdefault(act.name, _File()).flush()
            case "u":
                files.setdefault(act.name, _File()).is_unlinked = True
            case "c":
                files[act.name] = _File()
            case _:
                files.setdefault(act.name, _File()).pending.append(act)
    return {name: file.cut(chance) for name, file in files.items() if not (file.is_unlinked and chance.random() < 0.5)}


# ---------------------------------------------------------------- what is acknowledged


ANN = ToolContext(user_id="ann", space_id="s1", budget=None)


def store_of(where: Path | str) -> SqlConsents:
    """Return the consents of a folder, or of a PostgreSQL."""
    return SqliteConsents(where / "consents.db") if isinstance(where, Path) else PostgresConsents(where)


def catalog_in(where: Path | str, acknowledge: list[str] | Path) -> Catalog:
    """Return a catalog with tasks and consents; what it has done stands in the list or the file."""

    def say(*words: object) -> None:
        line = " ".join(map(str, words))
        if isinstance(acknowledge, list):
            acknowledge.append(line)
            return
        with acknowledge.open("ab", buffering=0) as file:
            file.write(f"{line}\n".encode())

    tasks = Tasks(f"sqlite:{where}/tasks.db" if isinstance(where, Path) else where)
    catalog = Catalog("power", consent_store=store_of(where), tasks=tasks)

    @catalog.tool(task="required")
    async def load_orders(ctx: CallContext, name: str) -> str:
        """Load orders in three steps."""
        for step in STEPS:
            value = await ctx.step(step, lambda ctx: ctx.step_key, ctx)
            say("step", name, step, value)
        return name

    @catalog.tool(consent="always")
    async def pay(number: int) -> str:
        """Pay somebody."""
        say("ran", number)
        return "paid"

    return catalog


async def work(where: Path | str, acknowledged: Path, *, rounds: int) -> None:
    """File tasks and questions, decide, and use what was decided; say each as soon as it was acknowledged.

    What the store could not do while it was away is tried again.
    """

    def say(*words: object) -> None:
        with acknowledged.open("ab", buffering=0) as file:
            file.write((" ".join(map(str, words)) + "\n").encode())

    async def called(name: str, number: int | str) -> ToolResult:
        while True:
            result = await catalog.view(ANN).call(name, {"name" if name == "load_orders" else "number": number})
            if result.error is None or result.error.kind != "storage_unavailable":
                return result
            await asyncio.sleep(0.02)  # another process starts it again

    async def done(act: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await act()
            except (OSError, CallError, ConsentStateError):
                await asyncio.sleep(0.02)  # as above
            else:
                return

    catalog, store = catalog_in(where, acknowledged), store_of(where)
    for number in range(rounds):
        begun = await called("load_orders", f"t{number}")
        assert begun.task_id is not None, begun
        say("task", f"t{number}", begun.task_id)
        asked = await called("pay", number)
        assert asked.error is not None
        consent_id = str(asked.error.details["consent_id"])
        say("asked", number, consent_id)
        try:
            await store.decide(consent_id, is_yes=number % 4 != 3, decided_by="test")
            say("decided", number, consent_id)
        except ConnectionError:
            # It may be decided or not: what comes of it is not looked at.
            continue
        if number % 2 == 0 and not (await called("pay", number)).is_error:
            say("used", number, consent_id)
        await done(partial(catalog.tasks.result, begun.task_id, ANN, timeout_s=60))
        say("ended", f"t{number}", begun.task_id)
    say("over")
    os._exit(0)


def run(folder: str, rounds: int) -> None:
    """Be the process that the power is taken from."""
    asyncio.run(work(Path(folder), Path(folder, "acknowledged"), rounds=rounds))


def run_on(url: str, acknowledged: Path) -> None:
    """Be a process whose PostgreSQL is cut off, again and again, until it is killed."""
    asyncio.run(work(url, acknowledged, rounds=1_000_000))
