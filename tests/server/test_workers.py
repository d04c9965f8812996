"""Workers: several processes on one socket, as `pegboard serve --workers` runs them."""

import asyncio
import json
import os
import signal
import socket
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pegboard import Catalog, RateLimit
from pegboard.limits.memory import MemoryLimitStore
from pegboard.model.record import replace
from pegboard.model.tool import Annotations
from pegboard.server.worker_checks import count_for_all, counted_in_memory
from tests import forking
from tests.config.project import Project
from tests.core.parts import ANN, FakeSource, foreign, kind_of
from tests.limits.server import redis_server
from tests.server.doors import JSON_HEADERS, META, VERSION, answer_of, post
from tests.server.processes import Server, serving
from tests.sizes import IS_SOAK

REVISION = "2025-11-25"
CONFIG = """\
name: many
tools:
  - {name: who, type: internal, handler: "python:mine:who"}
  - {name: hold, type: internal, handler: "python:mine:hold"}
  - {name: ask, type: internal, handler: "python:mine:ask"}
  - {name: note, type: internal, handler: "python:mine:note"}
  - {name: much, type: internal, handler: "python:mine:much"}
"""
MODULE = """
import asyncio, os
from pathlib import Path
from pegboard import CallContext

HERE = Path(__file__).parent

async def who(ctx: CallContext) -> dict:
    return {"pid": os.getpid(), "session": ctx.session_id}

async def ask(ctx: CallContext) -> str:
    return str(await ctx.client.elicit("Name?"))

async def note(name: str) -> str:
    with (HERE / "notes").open("a") as notes:
        notes.write(f"{name} ")
    return name

async def much() -> str:
    await note("much")
    return "x" * 950_000

async def hold(name: str) -> int:
    (HERE / f"began-{name}-{os.getpid()}").touch()
    while not (HERE / "go").exists():
        await asyncio.sleep(0.01)
    return os.getpid()
"""

# A worker leaves a connection to one that has fewer for 10 ms, which is less than that one may wait for the processor.
SHARING = """
from pegboard.server import listener
listener.ACCEPT_LATER_TIMES = 60_000
"""


@asynccontextmanager
async def many(folder: Path, *options: str, config: str = CONFIG, module: str = MODULE) -> AsyncGenerator[Server]:
    Project(folder).write(config, mine=module)
    async with serving(folder, "--workers", "2", *options) as server:
        yield server


async def who(url: str, session: dict[str, str] | None = None) -> dict[str, Any]:
    """Ask, by a new connection, which worker answers."""
    async with httpx2.AsyncClient(base_url=url, verify=False, timeout=60) as client:
        if session is None:
            answer = answer_of(await post(client, "tools/call", {"name": "who", "arguments": {}}))
        else:
            sent = {"jsonrpc": "2.0", "id": os.urandom(4).hex(), "method": "tools/call", "params": {"name": "who"}}
            answer = answer_of(await client.post("/mcp", headers={**JSON_HEADERS, **session}, json=sent))
        return answer["result"]["structuredContent"]


async def pids(url: str, count: int = 2, *, without: int = 0) -> set[int]:
    """Return the workers that answer, when there are so many."""
    found: set[int] = set()
    async with asyncio.timeout(60):
        while len(found - {without}) < count:
            found |= {answer["pid"] for answer in await asyncio.gather(*(who(url) for _ in range(8)))}
    return found - {without}


async def until(holds: Any) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # It may end between these two, also after its file was opened.
        return not Path("/proc").exists() or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


async def test_a_session_goes_on_at_whichever_worker_answers_and_is_the_same_there(tmp_path: Path) -> None:
    async with many(tmp_path) as server:
        await pids(server.url)
        params = {
            "protocolVersion": REVISION,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "c", "version": "1"},
        }
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        async with httpx2.AsyncClient(base_url=server.url, verify=False) as client:
            begun = await client.post("/mcp", headers=JSON_HEADERS, json=hello)
        session = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": REVISION}
        told: list[dict[str, Any]] = []
        async with asyncio.timeout(60):
            while len({answer["pid"] for answer in told}) < 2:
                told += await asyncio.gather(*(who(server.url, session) for _ in range(8)))
        assert len({answer["session"] for answer in told}) == 1
        assert server.said.read_text().count("Serving MCP on") == 1
        # Nothing connects these two: what needs that says so, at once and with the line to add.
        line = 'server: {bus: "redis://HOST:PORT"}'
        assert "note: without `server: {bus:" in server.said.read_text()
        async with httpx2.AsyncClient(base_url=server.url, verify=False) as client:
            sent = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "ask"}}
            asked = answer_of(await client.post("/mcp", headers={**JSON_HEADERS, **session}, json=sent))["result"]
            assert (asked["isError"], line in asked["content"][0]["text"]) == (True, True)
            result = {"jsonrpc": "2.0", "id": f"pegboard-{'0' * 16}-x", "result": {"action": "accept", "content": {}}}
            strays = [
                await client.post("/mcp", headers={**JSON_HEADERS, **session}, json=result),
                await client.get("/v1/events"),
                await client.post("/v1/calls/x/cancel"),
            ]
            events = {**session, "accept": "text/event-stream", "last-event-id": f"p{'0' * 16}-1"}
            strays.append(await client.get("/mcp", headers=events))
        assert [
            (
                stray.status_code,
                line in stray.json().get("detail", stray.text)
                if stray.headers["content-type"] == "application/problem+json"
                else "server: {bus:" in stray.text,
            )
            for stray in strays
        ] == [(503, True)] * 4


async def test_a_worker_that_is_killed_loses_its_own_calls_alone_and_another_takes_its_place(tmp_path: Path) -> None:
    async with many(tmp_path, module=SHARING + MODULE) as server:
        await pids(server.url)
        async with httpx2.AsyncClient(base_url=server.url, verify=False, timeout=60) as client:
            held = [
                asyncio.create_task(post(client, "tools/call", {"name": "hold", "arguments": {"name": str(number)}}))
                for number in range(30)
            ]
            await until(lambda: len(list(tmp_path.glob("began-*"))) == len(held))
            began = Counter(int(file.name.rpartition("-")[2]) for file in tmp_path.glob("began-*"))
            # Connections that come together are shared, so that each worker has something to lose.
            assert len(began) == 2
            assert min(began.values()) >= len(held) * 0.35, began
            killed = min(began, key=lambda pid: began[pid])
            os.kill(killed, signal.SIGKILL)
            await until(lambda: "was ended by SIGKILL" in server.said.read_text())
            (tmp_path / "go").touch()
            answers = await asyncio.gather(*held, return_exceptions=True)
        lost = [answer for answer in answers if isinstance(answer, Exception)]
        kept = [answer_of(answer)["result"] for answer in answers if not isinstance(answer, BaseException)]
        assert (len(lost), len(kept)) == (began[killed], len(held) - began[killed])
        assert {int(result["content"][0]["text"]) for result in kept} <= began.keys() - {killed}
        assert killed not in await pids(server.url, without=killed)


async def counters(url: str, before: dict[str, float] | None = None) -> dict[str, float]:
    """Return every counter, once all workers tell theirs; none may be less than before, and none be gone."""
    async with asyncio.timeout(60), httpx2.AsyncClient(base_url=url, verify=False, timeout=60) as client:
        while "pegboard_metrics_partial 0.0" not in (answer := await client.get("/metrics")).text:
            assert answer.status_code == 200
    found: dict[str, float] = {}
    is_counter = False
    for line in answer.text.splitlines():
        if line.startswith("# TYPE"):
            is_counter = line.endswith((" counter", " histogram"))
        elif is_counter and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    assert {name: value for name, value in (before or {}).items() if found.get(name, -1.0) < value} == {}
    return found


async def test_no_counter_goes_back_whichever_worker_ends(tmp_path: Path) -> None:
    with redis_server(tmp_path) as redis:
        async with many(tmp_path, config=f'{CONFIG}server: {{bus: "{redis.uri}"}}\n') as server:
            calls = 'pegboard_calls_total{outcome="ok",tool="who"}'
            now = before = await pids(server.url)
            seen = await counters(server.url)
            # Which worker was asked is chance: both end, one after the other.
            for killed in now:
                os.kill(killed, signal.SIGKILL)
                before = await pids(server.url, without=killed)
                counted = await counters(server.url, seen)
                assert counted[calls] > seen[calls] > 0
                seen = counted
            os.kill(server.pid, signal.SIGHUP)
            await until(lambda: not any(map(is_alive, before)))
            await counters(server.url, seen)


async def test_a_hangup_replaces_the_workers_with_what_the_files_say_now_and_no_call_is_lost(tmp_path: Path) -> None:
    async with many(tmp_path) as server:
        before, is_over, told = await pids(server.url), asyncio.Event(), list[int]()

        async def ask_on() -> None:
            while not is_over.is_set():
                told.append((await who(server.url))["pid"])

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(ask_on())
            (tmp_path / "mine.py").write_text(MODULE.replace("os.getpid(), ", "-os.getpid(), "))
            os.kill(server.pid, signal.SIGHUP)
            await until(lambda: len({pid for pid in told if pid < 0}) == 2 and not any(map(is_alive, before)))
            is_over.set()
        assert {pid for pid in told if pid > 0} <= before
        # What would not start takes nobody's place.
        (tmp_path / "mine.py").write_text("raise RuntimeError('not today')")
        now = {-pid for pid in told if pid < 0}
        os.kill(server.pid, signal.SIGHUP)
        await until(lambda: "config_reload_refused" in server.said.read_text())
        assert {-pid for pid in await pids(server.url)} == now
        # One that dies now is started again and again, each time later; the other answers.
        os.kill(next(iter(now)), signal.SIGKILL)
        await until(lambda: "takes its place in" in server.said.read_text())
        assert (await who(server.url))["pid"] == -(now - {next(iter(now))}).pop()


async def test_a_hangup_during_a_failing_one_is_followed_by_an_attempt_of_its_own(tmp_path: Path) -> None:
    slow = "from pathlib import Path\nimport time\nhere = Path(__file__).parent\n(here / 'began').touch()\n"
    slow += "while not (here / 'fail').exists(): time.sleep(0.01)\nraise RuntimeError('not today')"
    async with many(tmp_path, "--log-format", "json") as server:
        before = await pids(server.url)
        (tmp_path / "mine.py").write_text(slow)
        os.kill(server.pid, signal.SIGHUP)
        await until((tmp_path / "began").exists)
        # The first attempt has read the bad file, and still runs.
        (tmp_path / "mine.py").write_text(MODULE.replace("os.getpid(), ", "-os.getpid(), "))
        os.kill(server.pid, signal.SIGHUP)
        await until(lambda: server.said.read_text().count("workers are replaced") == 2)
        (tmp_path / "fail").touch()
        await until(lambda: not any(map(is_alive, before)))
        after = await pids(server.url)
        assert max(after) < 0
        (refused,) = refusals(server)
        assert (refused["level"], refused["logger"]) == ("error", "pegboard")
        assert ["not today" in problem["message"] for problem in refused["problems"]] == [True]
        assert await healths(server.url) == {"ok"}
        assert await refused_gauges(server.url) == {0.0}
        # A bad file is logged once, and each running worker reports it.
        (tmp_path / "pegboard.yaml").write_text(CONFIG.replace("internal, handler", "intern, handler"))
        os.kill(server.pid, signal.SIGHUP)
        await until(lambda: len(refusals(server)) == 2)
        assert len(refusals(server)[1]["problems"]) == 5
        assert refusals(server)[1]["problems"][0]["where"].endswith("pegboard.yaml:3:23")
        assert await refused_gauges(server.url) == {1.0}
        (told,) = await healths(server.url)
        assert told.startswith("ok, but the last change of the config was refused (5 problems)")
        assert "pegboard.yaml:3:23" in told
        assert await pids(server.url) == after


def refusals(server: Server) -> list[dict[str, Any]]:
    """Return the records of refused reloads; every whole line of the log is one of JSON."""
    records = [json.loads(line) for line in server.said.read_text().rpartition("\n")[0].splitlines()]
    return [record for record in records if record["message"].startswith("config_reload_refused")]


async def refused_gauges(url: str) -> set[float]:
    """Return the gauge of refused configs of each worker; without a bus, each answers with its own figures."""
    gauges: dict[str, float] = {}
    async with asyncio.timeout(60):
        while len(gauges) < 2:
            async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
                lines = (await client.get("/metrics")).text.splitlines()
            values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
            assert (values["pegboard_workers_heard"], values["pegboard_metrics_partial"]) == ("1.0", "1.0")
            (worker,) = {line.partition('worker="')[2].partition('"')[0] for line in lines if 'worker="' in line}
            gauges[worker] = float(values["pegboard_config_refused"])
    return set(gauges.values())


async def healths(url: str) -> set[str]:
    """Return the answers of `/healthz` over several connections, which reach both workers."""
    told: set[str] = set()
    for _ in range(16):
        async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
            told.add((await client.get("/healthz")).text)
    return told


@pytest.mark.soak
async def test_while_workers_are_replaced_no_call_is_lost_or_made_twice_on_connections_that_stay(
    tmp_path: Path,
) -> None:
    async with many(tmp_path) as server:
        is_over, answered = asyncio.Event(), Counter[str]()
        params = {"name": "note", "_meta": META}

        async def ask_on(caller: int) -> None:
            async with httpx2.AsyncClient(base_url=server.url, verify=False, timeout=60) as client:
                for number in count():
                    if is_over.is_set():
                        return
                    answer = await post(client, "tools/call", {**params, "arguments": {"name": f"{caller}-{number}"}})
                    answered[answer_of(answer)["result"]["content"][0]["text"]] += 1

        async with asyncio.TaskGroup() as group:
            for caller in range(6):
                group.create_task(ask_on(caller))
            for _ in range(4):
                before = await pids(server.url)
                os.kill(server.pid, signal.SIGHUP)
                await until(lambda before=before: not any(map(is_alive, before)))
            is_over.set()
        assert len(answered) > 500
        assert Counter((tmp_path / "notes").read_text().split()) == answered


async def test_who_reads_slowly_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    slow, address = 200 if IS_SOAK else 6, "127.0.0.1"
    notes = tmp_path / "notes"
    notes.touch()
    async with many(tmp_path) as server:
        before = await pids(server.url)
        params = {"name": "much", "arguments": {}, "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        asked = (
            f"POST /mcp HTTP/1.1\r\nHost: {address}\r\nMCP-Protocol-Version: {VERSION}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            "Mcp-Method: tools/call\r\nMcp-Name: much"
            f"\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        ).encode()
        loop, readers = asyncio.get_running_loop(), list[socket.socket]()
        try:
            for _ in range(slow):
                readers.append(reader := socket.socket())
                reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                reader.setblocking(False)
                await loop.sock_connect(reader, (address, int(server.url.rpartition(":")[2])))
                await loop.sock_sendall(reader, asked)
            await until(lambda: len(notes.read_text().split()) == slow)
            # Nothing of their answers was taken, and both workers answer others.
            assert await pids(server.url) == before
            wholes = [b""] * slow
            async with asyncio.timeout(60):
                for place, reader in enumerate(readers):
                    while part := await loop.sock_recv(reader, 1 << 20):
                        wholes[place] += part
            assert all(whole.startswith(b"HTTP/1.1 200") and whole.count(b"x") > 900_000 for whole in wholes)
        finally:
            for reader in readers:
                reader.close()


async def test_the_end_of_the_parent_is_the_end_of_its_workers_and_calls_may_end_before(tmp_path: Path) -> None:
    async with many(tmp_path) as server:
        workers = await pids(server.url)
        async with httpx2.AsyncClient(base_url=server.url, verify=False, timeout=60) as client:
            held = [
                asyncio.create_task(post(client, "tools/call", {"name": "hold", "arguments": {"name": str(number)}}))
                for number in range(6)
            ]
            await until(lambda: len(list(tmp_path.glob("began-*"))) == len(held))
            os.kill(server.pid, signal.SIGTERM)
            (tmp_path / "go").touch()
            results = [answer_of(answer)["result"] for answer in await asyncio.gather(*held)]
        assert not any(result["isError"] for result in results)
        await until(lambda: not any(map(is_alive, (server.pid, *workers))))


async def test_workers_of_a_parent_that_was_killed_end(tmp_path: Path) -> None:
    async with many(tmp_path) as server:
        workers = await pids(server.url)
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: not any(map(is_alive, workers)))


LIMITED = CONFIG + "rate_limits: {default: 10/60s}\n"


@pytest.mark.parametrize(
    ("words", "config", "told"),
    [
        (["2"], LIMITED, 'add `rate_limits: {store: "redis://HOST:PORT"}`'),
        (["2"], CONFIG + "profiles: {chat: {include: [none]}}\n", "unknown group 'none'"),
        (["0"], CONFIG, "--workers 0 is not a number of workers; choose one from 1 to 64."),
        (["2", "--stdio"], CONFIG, "--port and --workers are for HTTP"),
    ],
)
def test_what_cannot_be_served_by_several_is_told_once_and_nothing_is_left(
    words: list[str], config: str, told: str, tmp_path: Path
) -> None:
    Project(tmp_path).write(config, mine=MODULE)
    ended = forking.run(["pegboard", "serve", "--port", "0", "--workers", *words], cwd=tmp_path)
    assert (ended.returncode, ended.stderr.decode().count(told)) == (2, 1), ended.stderr.decode()


def test_windows_says_what_is_missing_and_what_to_do() -> None:
    from pegboard.platforms import windows

    assert windows.NO_WORKERS is not None
    assert "Serve with one worker" in windows.NO_WORKERS


async def test_a_limit_that_comes_after_the_start_is_none_that_each_worker_counts_for_itself() -> None:
    catalog, source = Catalog(), FakeSource(name="git")
    catalog.add_source(source)
    assert counted_in_memory(catalog) is None
    count_for_all(catalog, 2)
    limit = RateLimit(max_calls=1, window_s=60.0)
    push, log = (foreign("git", name) for name in ("push", "log"))
    reading = replace(log.spec, rate_limit=limit, annotations=Annotations(read_only=True))
    source.relist([replace(push, spec=replace(push.spec, rate_limit=limit)), replace(log, spec=reading)])

    async def ends(name: str) -> list[str]:
        return [kind_of(await catalog.view(ANN).call(name)) for _ in range(2)]

    assert await ends("git__push") == ["ratelimit_unavailable"] * 2
    # What changes nothing goes on, as while a store is down; a config that names one is heard.
    assert await ends("git__log") == ["ok", "rate_limited"]
    catalog.executor.swap(catalog.executor.ports.with_limits(None))
    assert await ends("git__push") == ["ratelimit_unavailable"] * 2
    catalog.executor.swap(catalog.executor.ports.with_limits(MemoryLimitStore()))
    assert await ends("git__push") == ["ok", "rate_limited"]
