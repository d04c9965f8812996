"""Soak: many calls at once, a mix of all that goes wrong, and a network that fails; `make soak` takes longer.

The observers are counters in the tools, the process table, and the payload that each caller gets.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from pegboard import Bounds, CallError, Catalog, http_app
from pegboard.config import load_catalog
from pegboard.config.reload import Reloader
from pegboard.model.record import replace
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.supervised_source import McpSource
from tests.core.parts import ANN, kind_of
from tests.server.doors import served
from tests.sizes import IS_SOAK
from tests.upstream_mcp.parts import until, view_of

KIB = 1024
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Return the memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


async def test_soak_02_thousands_of_calls_in_flight_all_end_and_take_little() -> None:
    count = 10_000 if IS_SOAK else 300
    catalog, gate, entered = Catalog(bounds=Bounds(calls_in_flight=count)), asyncio.Event(), 0

    @catalog.tool
    async def hold() -> str:
        nonlocal entered
        entered += 1
        await gate.wait()
        return "ok"

    view = catalog.view(ANN)
    assert kind_of(await asyncio.wait_for(_opened(view.call("hold"), gate), 60)) == "ok"
    gate.clear()
    entered, before = 0, resident()
    calls = [asyncio.create_task(view.call("hold")) for _ in range(count)]
    await until(lambda: entered == count)
    used = resident() - before
    gate.set()
    assert Counter(kind_of(each) for each in await asyncio.gather(*calls)) == {"ok": count}
    assert used <= count * 40 * KIB, f"{used / count / KIB:.1f} KiB for each call"


async def _opened(call: Any, gate: asyncio.Event) -> Any:
    gate.set()
    return await call


class Ends:
    """Counts how often each call was told to begin and to end."""

    def __init__(self) -> None:
        self.begun, self.ended = Counter[str](), Counter[str]()

    def on_tool_call(self, event: Any) -> None:
        self.begun[event.call_id] += 1

    def on_tool_result(self, event: Any) -> None:
        self.ended[event.call_id] += 1


def _load() -> tuple[int, int, int]:
    """Return how many tasks, threads and file descriptors there are."""
    return len(asyncio.all_tasks()), threading.active_count(), len(os.listdir("/proc/self/fd"))


async def test_soak_01_a_mix_of_ends_leaves_nothing_behind_while_the_config_changes(tmp_path: Path) -> None:
    rounds, config = (2_000 if IS_SOAK else 4), tmp_path / "pegboard.yaml"
    config.write_text("limits: {tool_timeout_s: 5}\n")
    catalog, settings = load_catalog(config, env={})
    reloader, ends, dice, kinds = (
        Reloader(config, {}, catalog, config=settings),
        Ends(),
        random.Random(1),
        Counter[str](),
    )
    catalog.observe(ends)

    @catalog.tool(name="work", timeout_s=60)
    async def work(ends_as: str, number: int) -> int:
        if ends_as == "tool_error":
            raise CallError("tool_error", f"No account {number}.")
        if ends_as in ("cancelled", "timeout"):
            await asyncio.sleep(3_600)
        return number

    @catalog.tool(name="late", timeout_s=0.05)
    async def late() -> None:
        await asyncio.sleep(3_600)

    async def one(number: int) -> None:
        ends_as = dice.choices(["ok", "tool_error", "cancelled", "timeout"], [63, 30, 5, 2])[0]
        # Another user each, so that nobody is refused for repeating what fails.
        view = catalog.view(replace(ANN, user_id=f"user {number % 50}"))
        args = {"ends_as": ends_as, "number": number}
        calling = asyncio.create_task(view.call("late") if ends_as == "timeout" else view.call("work", args))
        if ends_as == "cancelled":
            await asyncio.sleep(0)
            calling.cancel()
        with suppress(asyncio.CancelledError):
            result = await calling
            assert kind_of(result) == ends_as
            assert ends_as != "ok" or result.structured == number
        kinds[ends_as] += 1

    loads, memory = list[tuple[int, int, int]](), list[int]()
    for at in range(rounds):
        config.write_text(f"limits: {{tool_timeout_s: {5 + at % 7}}}\n")
        reloading = asyncio.create_task(reloader.reload())
        await asyncio.gather(*(one(at * 100 + number) for number in range(100)))
        await reloading
        loads.append(_load())
        memory.append(resident())
        assert ends.ended == ends.begun
        assert set(ends.ended.values()) == {1}
        ends.begun.clear()
        ends.ended.clear()
    assert set(kinds) == {"ok", "tool_error", "cancelled", "timeout"}
    for first, last in zip(loads[1], loads[-1], strict=True):
        assert abs(first - last) <= 2, loads[-1]
    if IS_SOAK:
        warm = rounds // 10
        assert memory[-1] - memory[warm] < (rounds - warm) / 1_000 * KIB * KIB, memory[:: rounds // 20]


DECK = (*["none"] * 6, "late", "reset", "half", "corrupt", "slow", "silent")


@asynccontextmanager
async def troubled(port: int, dice: random.Random) -> AsyncGenerator[tuple[str, Counter[str]]]:
    """Run a network before a server: each piece of an answer meets a fault, or none. Gives its address."""
    met, tasks = Counter[str](), set[asyncio.Task[None]]()
    # Dealt, not thrown: a slow machine opens few connections, and these meet most faults all the same.
    dealt: list[str] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(OSError, asyncio.CancelledError):
            there, towards = await asyncio.open_connection("127.0.0.1", port)
            sending = asyncio.create_task(_piped(reader, towards))
            try:
                while data := await there.read(1 << 16):
                    if not dealt:
                        dealt.extend(dice.sample(DECK, len(DECK)))
                    fault = dealt.pop()
                    if fault != "none":
                        met[fault] += 1
                        data = await _with_fault(fault, data, writer, dice)
                    writer.write(data)
                    await writer.drain()
            finally:
                sending.cancel()
                towards.close()
                writer.close()
                tasks.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", met
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()


async def _piped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


async def _with_fault(fault: str, data: bytes, writer: asyncio.StreamWriter, dice: random.Random) -> bytes:
    """Return what goes on of an answer, or end the connection."""
    place = dice.randrange(len(data))
    match fault:
        case "late":
            await asyncio.sleep(dice.uniform(0, 0.4))
        case "corrupt":
            # No letter of UTF-8: a flipped bit that makes another digit is for TLS to find.
            return data[:place] + b"\xff" + data[place + 1 :]
        case "slow":
            for at in range(0, len(data), 64):
                writer.write(data[at : at + 64])
                await asyncio.sleep(0.005)
            return b""
        case "silent":
            await asyncio.sleep(3_600)
        case "reset":
            writer.write(data[:place])
            writer.transport.abort()
            raise OSError
        case _:
            writer.write(data[:place])
            raise OSError
    return data


DEFINITE = {"ok", "timeout", "upstream_lost", "upstream_unavailable", "upstream_error", "protocol_error"}


async def test_soak_03_behind_a_network_that_fails_each_call_has_one_definite_answer_and_its_own() -> None:
    rounds, size = (100 if IS_SOAK else 2), (100 if IS_SOAK else 20)
    behind, kinds, dice = Catalog("behind"), Counter[str](), random.Random(3)

    @behind.tool(read_only=True)
    async def tool(number: int) -> dict[str, int]:
        """Say the tool's number again."""
        return {"tool": number}

    async with served(http_app(behind)) as url, troubled(int(url.rpartition(":")[2]), dice) as (through, met):
        catalog = Catalog(bounds=Bounds(calls_per_request=1_000_000))
        source = McpSource(
            ServerSettings(name="up", transport="http", url=f"{through}/mcp", trust="any", timeout_s=0.5)
        )
        catalog.add_source(source)
        await catalog.start()
        try:
            await until(lambda: "up__tool" in view_of(catalog).names())

            async def one(number: int) -> None:
                async with asyncio.timeout(60):
                    result = await catalog.view(replace(ANN, user_id=f"user {number}")).call(
                        "up__tool", {"number": number}
                    )
                kinds[kind_of(result)] += 1
                assert result.is_error or result.structured == {"tool": number}

            for at in range(rounds):
                await asyncio.gather(*(one(at * size + number) for number in range(size)))
                await until(lambda: source.state().status == "ok")
        finally:
            await catalog.close()
    assert set(kinds) <= DEFINITE, kinds
    assert sum(kinds.values()) == rounds * size
    assert kinds["ok"] > 0
    assert len(met) >= 5, met
