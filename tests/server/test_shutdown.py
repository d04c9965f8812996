"""Shutdown: a signal lets calls end, tells the rest, and the process always ends with zero."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

from tests import forking
from tests.server.doors import call, post
from tests.server.processes import serving
from tests.timing import PATIENCE_S, within

SERVER = """
import asyncio, sys, time
from pathlib import Path
from pegboard import Catalog, Profile
from pegboard import run_http

catalog = Catalog()

@catalog.tool(groups="core")
async def wait(s: float) -> str:
    "Wait."
    print("began", flush=True)
    await asyncio.sleep(s)
    return "waited"

@catalog.tool(groups="core")
async def held(gate: str) -> str:
    "Wait for a file."
    print("began", flush=True)
    while not Path(gate).exists():
        await asyncio.sleep(0.01)
    return "waited"

@catalog.tool(groups="core")
def stuck() -> str:
    "Never come back."
    print("began", flush=True)
    time.sleep(600)
    return "done"

catalog.profile(Profile(name="chat", include=("core",)))

def ready(address):
    print(address, flush=True)

run_http(catalog, port=0, on_ready=ready, grace_s=float(sys.argv[1]))
print("after", flush=True)
"""


@pytest.fixture
async def server(tmp_path: Path) -> Any:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    started: list[asyncio.subprocess.Process] = []

    async def start(grace_s: float) -> tuple[asyncio.subprocess.Process, str]:
        process = await asyncio.create_subprocess_exec(
            *forking.started("python", str(path), str(grace_s)), stdout=asyncio.subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        address = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
        return process, address.removesuffix("/mcp")

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def began(process: Any, count: int) -> None:
    """Wait until so many calls run."""
    for _ in range(count):
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"began\n"


async def refused(url: str) -> None:
    """Wait until the server takes no more connections."""
    host, _, port = url.removeprefix("http://").partition(":")
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except OSError:
                return
            writer.close()
            await asyncio.sleep(0.01)


async def test_a_signal_lets_calls_end_tells_the_rest_and_leaves_with_zero(server: Any, tmp_path: Path) -> None:
    # Longer than either process may stand still: the gate opens only once the server has begun to end.
    process, url = await server(5.0)
    gate = tmp_path / "gate"
    async with httpx2.AsyncClient(base_url=url) as client:
        short = [asyncio.create_task(call(client, "held", {"gate": str(gate)})) for _ in range(10)]
        long = [asyncio.create_task(call(client, "wait", {"s": 20})) for _ in range(10)]
        await began(process, 20)
        process.send_signal(signal.SIGTERM)
        await refused(url)
        gate.touch()
        ended = [answer["result"]["content"][0]["text"] for answer in await asyncio.gather(*short)]
        told = [answer["result"]["_meta"]["pegboard/error"] for answer in await asyncio.gather(*long)]
    assert ended == ["waited"] * 10
    assert {(error["kind"], error["outcome_unknown"]) for error in told} == {("shutting_down", True)}
    assert await asyncio.wait_for(process.wait(), 60) == 0
    assert await process.stdout.read() == b"after\n"


async def test_it_takes_no_more_connections_while_it_drains(server: Any, tmp_path: Path) -> None:
    process, url = await server(PATIENCE_S)
    gate = tmp_path / "gate"
    async with httpx2.AsyncClient(base_url=url) as client:
        assert (await client.get("/readyz")).status_code == 200
        running = asyncio.create_task(call(client, "held", {"gate": str(gate)}))
        await began(process, 1)
        process.send_signal(signal.SIGTERM)
        await refused(url)
        gate.touch()
        assert (await running)["result"]["isError"] is False
    assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_a_second_signal_ends_it_at_once(server: Any) -> None:
    process, url = await server(30.0)
    async with httpx2.AsyncClient(base_url=url) as client:
        running = asyncio.create_task(call(client, "wait", {"s": 20}))
        await began(process, 1)
        process.send_signal(signal.SIGTERM)
        await refused(url)
        process.send_signal(signal.SIGTERM)
        # Its calls would take 20 s, and their grace 30.
        with within(2):
            assert await asyncio.wait_for(process.wait(), 60) == 0
        await asyncio.gather(running, return_exceptions=True)


async def test_open_streams_and_stuck_threads_do_not_hold_it(server: Any) -> None:
    process, url = await server(0.3)
    async with httpx2.AsyncClient(base_url=url) as client:
        stuck = asyncio.create_task(call(client, "stuck"))
        listening = asyncio.create_task(
            post(client, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        )
        async with Client(f"{url}/mcp", mode="legacy") as earlier:
            await earlier.list_tools()
            await began(process, 1)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 60) == 0
        assert (await stuck)["result"]["_meta"]["pegboard/error"]["kind"] == "shutting_down"
        assert "subscriptionId" in (await listening).text


async def test_an_address_that_is_taken_is_an_error_and_not_a_hang(server: Any, tmp_path: Path) -> None:
    _, url = await server(1.0)
    path = tmp_path / "second.py"
    path.write_text(SERVER.replace("port=0", f"port={url.rpartition(':')[2]}"))
    process = await asyncio.create_subprocess_exec(
        *forking.started("python", str(path), "1"), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert b"OSError" in err


async def test_a_connection_outlives_the_silence_that_clients_allow_themselves(tmp_path: Path) -> None:
    # httpx keeps a connection for 5 s; a server that closes it at that very moment loses the request on its way.
    (tmp_path / "pegboard.yaml").write_text("tools: [{name: datetime_now, type: builtin}]\n")
    async with serving(tmp_path) as server:
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        request = f"GET /healthz HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
        for pause_s in (0.1, 6):
            with pytest.raises(TimeoutError):
                # Nothing comes in the silence, its end neither.
                await asyncio.wait_for(reader.read(1), pause_s)
            writer.write(request)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
            assert head.startswith(b"HTTP/1.1 200")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.partition(b":")[2]))
        writer.close()
