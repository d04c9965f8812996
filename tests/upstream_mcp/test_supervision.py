"""What happens to the tools of a server that comes and goes."""

import asyncio
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pegboard import CallError, Catalog
from pegboard.core.view import View
from pegboard.sources.mcp import backoff, connection, supervised_source
from pegboard.sources.mcp.backoff import Backoff, RefreshThrottle
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.supervised_source import McpSource
from tests.ports import free_port
from tests.timing import PATIENCE_S, is_within
from tests.upstream_mcp.parts import EVIL, http_server, on_stdio, processes_of, processes_with, running, until, view_of


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_waits_double_up_to_thirty_seconds_and_the_breaker_opens_at_five() -> None:
    clock = Clock()
    backoff = Backoff(clock)
    waits: list[float] = []
    for _ in range(4):
        backoff.started()
        backoff.failed(lived_s=0.0)
        waits.append(round(backoff.wait_s, 3))
    assert waits == [0.2, 0.4, 0.8, 1.6]
    assert not backoff.is_open
    backoff.failed(lived_s=0.0)
    assert (backoff.is_open, backoff.wait_s) == (True, 30.0)
    clock.now = 61.0
    assert not backoff.is_open
    backoff.failed(lived_s=20.0)
    assert round(backoff.wait_s, 3) == 0.2


def test_a_call_may_start_an_attempt_once_a_second() -> None:
    clock = Clock()
    backoff = Backoff(clock)
    backoff.started()
    clock.now = 0.9
    assert not backoff.may_try_now()
    clock.now = 1.0
    assert backoff.may_try_now()


def test_what_never_stops_is_done_every_five_seconds_and_what_rests_at_once() -> None:
    clock = Clock()
    clock.now = 100.0
    throttle = RefreshThrottle(clock)
    waits: list[float] = []
    for _ in range(10):
        waits.append(round(throttle.wait_s(), 3))
        clock.now += waits[-1]
    assert waits == [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    clock.now += 6.1
    assert throttle.wait_s() == 0.0


async def test_a_server_that_announces_changes_without_end_is_listed_ever_more_seldom(tmp_path: Path) -> None:
    log = tmp_path / "log"
    began = time.monotonic()
    async with running(on_stdio(EVIL, "changes=50", f"log={log}", trust="any")) as (catalog, _):
        await until(lambda: log.read_text().count("tools/list") >= 6, within_s=PATIENCE_S)
        assert time.monotonic() - began > 0.05 + 0.1 + 0.2 + 0.4
        assert (await view_of(catalog).call("up__echo", {"text": "hi"})).text == "hi"


async def test_a_server_that_falls_silent_is_replaced_once_nobody_waits_for_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    settings = on_stdio(EVIL, f"log={log}", trust="any", timeout_s=0.5, own={"timeout_s": 0.3})
    async with running(settings) as (catalog, source):
        view = view_of(catalog)
        await until_answered(view)
        (first,) = processes_of(log)
        os.kill(first, signal.SIGSTOP)
        assert (await view.call("up__echo", {"text": "hi"})).error.kind == "timeout"  # type: ignore[union-attr]
        await until(lambda: source.state().status != "ok", within_s=PATIENCE_S)
        assert "did not answer in time" in source.state().reason
        await until_answered(view)
        assert first not in processes_of(log)
    assert processes_of(log) == []


async def until_answered(view: View) -> None:
    """Wait until the server answers a call within its time limit, which a busy machine may miss once."""
    async with asyncio.timeout(PATIENCE_S):
        while (await view.call("up__echo", {"text": "hi"})).is_error:
            await asyncio.sleep(0.01)


async def test_nothing_is_left_of_a_stubborn_server_that_is_being_replaced_at_the_end(tmp_path: Path) -> None:
    log, seconds = tmp_path / "log", f"4{os.getpid()}.25"
    settings = on_stdio(EVIL, f"log={log}", f"stubborn={seconds}", trust="any", timeout_s=0.5)
    async with running(settings) as (_, source):
        for process in processes_of(log):
            os.kill(process, signal.SIGSTOP)
        source._request_refresh()
        await until(lambda: source.state().status != "ok", within_s=PATIENCE_S)
    assert (processes_of(log), processes_with(seconds)) == ([], [])


async def test_a_stopped_program_counts_as_unreachable_until_it_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log, stopping = _pings_soon(monkeypatch, tmp_path, within_s=PATIENCE_S), list[int]()
    ping = connection.Connection.ping

    async def ping_stopped(self: connection.Connection) -> None:
        if stopping:
            os.kill(stopping.pop(), signal.SIGSTOP)
            _probe_within(monkeypatch, 0.5)
        await ping(self)

    # Only pings of the stopped program have half a second: a busy machine may need longer for the others.
    monkeypatch.setattr(connection.Connection, "ping", ping_stopped)
    async with running(on_stdio(EVIL, f"log={log}", trust="any")) as (catalog, source):
        await until(lambda: "ping" in log.read_text())
        (process,) = processes_of(log)
        stopping.append(process)
        await until(lambda: source.state().status == "unreachable")
        text = "The MCP server 'up' does not answer: it is connected, but did not answer within 0.5 s."
        assert (source.state().reason, source.state().is_up) == (text, True)
        assert len(view_of(catalog).names()) == 3
        _probe_within(monkeypatch, PATIENCE_S)
        os.kill(process, signal.SIGCONT)
        await until(lambda: source.state().status == "ok")
        assert processes_of(log) == [process]
    assert [record.getMessage() for record in caplog.records if "up" in record.getMessage()] == [
        f"MCP server 'up': {text}", "MCP server 'up' works again.",
    ]  # fmt: skip


async def test_a_program_that_answers_lists_but_no_pings_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = _pings_soon(monkeypatch, tmp_path, within_s=0.5)
    async with running(on_stdio(EVIL, f"log={log}", "pings=ignored", trust="any")) as (_, source):
        await until(lambda: "works again" in caplog.text)
        await until(lambda: not [task for task in asyncio.all_tasks() if task.get_name() == "mcp-watch-up"])
        assert source.state().status == "ok"


def _pings_soon(monkeypatch: pytest.MonkeyPatch, folder: Path, *, within_s: float) -> Path:
    monkeypatch.setattr(supervised_source, "MCP_PING_S", 0.05)
    _probe_within(monkeypatch, within_s)
    return folder / "log"


def _probe_within(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    for module in (supervised_source, connection):
        monkeypatch.setattr(module, "PROBE_S", seconds)


async def test_a_refresh_lists_anew_at_once_and_says_when_the_server_is_away(tmp_path: Path) -> None:
    tools, word = tmp_path / "tools.json", f"mark-{time.monotonic_ns()}"
    definition = {"name": "first", "inputSchema": {"type": "object"}}
    tools.write_text(json.dumps([definition]))
    async with running(on_stdio(EVIL, f"tools={tools}", f"mark={word}", trust="any")) as (catalog, source):
        assert view_of(catalog).names() == ["up__first"]
        tools.write_text(json.dumps([definition | {"name": "second"}]))
        await source.refresh()
        assert view_of(catalog).names() == ["up__second"]
        object.__setattr__(source.settings, "command", "/nowhere/at/all")
        _kill(word)
        await until(lambda: source.state().status != "ok")
        with pytest.raises(CallError) as away:
            await source.refresh()
    assert away.value.error.kind == "upstream_unavailable"


async def test_the_tools_stay_listed_for_the_grace_period_and_are_hidden_after_it() -> None:
    told: list[bool] = []
    settings, clock = on_stdio(EVIL, "call=die", trust="any", grace_s=1.0), Clock()
    catalog, source = Catalog(), McpSource(settings, clock=clock)
    catalog.add_source(source)
    await catalog.start()
    await source.settled()
    await source.resources_listed()
    try:
        # From now on nothing but the end of the grace period is announced: the timer does not ask this clock.
        catalog.subscribe(lambda: told.append(source.state().is_up))
        view = view_of(catalog)
        object.__setattr__(source.settings, "command", "/nowhere/at/all")
        assert (await view.call("up__echo", {"text": "x"})).error.kind == "upstream_lost"  # type: ignore[union-attr]
        await until(lambda: source.state().status == "unreachable")
        assert source.state().is_up
        assert len(view_of(catalog).names()) == 3
        assert (await view.call("up__echo", {"text": "x"})).error.kind == "upstream_unavailable"  # type: ignore[union-attr]
        clock.now = 1.0
        assert not source.state().is_up
        assert view_of(catalog).names() == []
        assert view_of(catalog).why("up.echo").code == "source"
        await until(lambda: bool(told))
        object.__setattr__(source.settings, "command", on_stdio().command)
        source._wake.set()
        await until(lambda: len(view_of(catalog).names()) == 3)
    finally:
        await catalog.close(grace_s=0)


async def test_kills_with_ten_calls_in_flight_leave_nothing_behind() -> None:
    word = f"mark-{time.monotonic_ns()}"
    before = len(asyncio.all_tasks())
    async with running(on_stdio(EVIL, "call=hang", f"mark={word}", trust="any")) as (catalog, source):
        view = view_of(catalog)
        for _ in range(4):
            async with asyncio.timeout(60):
                while source._connection is None or source._connection.is_lost:
                    await asyncio.sleep(0.01)
            source._backoff._failures.clear()
            calls = [asyncio.create_task(view.call("up__write", {"text": "x"})) for _ in range(10)]
            await until(lambda: len(source._connection._in_flight) == 10)
            began = time.monotonic()
            _kill(word)
            ended = await asyncio.gather(*calls)
            assert is_within(time.monotonic() - began, 1.0)
            assert {result.error.kind for result in ended if result.error} == {"upstream_lost"}
    assert processes_with(word) == []
    await until(lambda: len(asyncio.all_tasks()) <= before)


def _kill(word: str) -> None:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # others come and go meanwhile
            if word in (folder / "cmdline").read_text(errors="replace"):
                os.kill(int(folder.name), signal.SIGKILL)


async def test_an_evil_server_among_others_changes_nothing_for_them() -> None:
    calm = [on_stdio(EVIL, name=f"calm{number}", trust="any") for number in range(4)]
    async with running(*calm, on_stdio(EVIL, "call=hang", name="evil", trust="any")) as (catalog, _):
        view = view_of(catalog)
        stuck = [asyncio.create_task(view.call("evil__echo", {"text": "x"})) for _ in range(20)]
        for number in range(4):
            began = time.monotonic()
            assert (await view.call(f"calm{number}__echo", {"text": "hi"})).text == "hi"
            assert is_within(time.monotonic() - began, 0.5)
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)


async def test_an_http_server_that_was_never_there_is_connected_to_once_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "MCP_FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(backoff, "MCP_LONGEST_RETRY_S", 3_600.0)
    monkeypatch.setattr(supervised_source, "MCP_HTTP_PING_S", 0.02)
    accepts_connections, knocks = supervised_source.mcp_connection.accepts_connections, []

    async def counted(settings: ServerSettings) -> bool:
        knocks.append(await accepts_connections(settings))
        return knocks[-1]

    monkeypatch.setattr(supervised_source.mcp_connection, "accepts_connections", counted)
    port = free_port()
    async with running(ServerSettings(name="up", transport="http", url=f"http://127.0.0.1:{port}/mcp")) as (_, source):
        await until(lambda: source.state().fault is not None and source.state().fault.retry_after_s > 60)
        await until(lambda: False in knocks)
        async with http_server("http", port):
            await until(source.entries)
