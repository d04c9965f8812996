"""The shared security cases of component mcp_stdio, each against a real process that misbehaves."""

import asyncio
import json
import logging
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pegboard import Catalog
from pegboard.model.result import ToolResult
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.supervised_source import McpSource
from tests.timing import PATIENCE_S, Clock, is_within, running_clock
from tests.upstream_mcp.parts import EVIL, is_broken, on_stdio, processes_with, running, until, view_of


def evil(*options: str, **said: Any) -> ServerSettings:
    return on_stdio(EVIL, *options, trust="any", **said)


def kind_of(result: ToolResult) -> str:
    return "ok" if result.error is None else result.error.kind


async def timed(call: Any, clock: Clock = time.monotonic) -> tuple[ToolResult, float]:
    began = clock()
    return await call, clock() - began


async def test_std_01_no_shell_reads_the_command(tmp_path: Path) -> None:
    target = tmp_path / "pwned"
    for command in (f"touch {target} && true", f"sh -c 'touch {target}'"):
        async with running(ServerSettings(name="up", transport="stdio", command=command)) as (_, source):
            assert source.state().status == "unreachable"
    said = ["; id", "$(id)", "`id`", f"> {target}"]
    show = f"import sys, pathlib; pathlib.Path({str(tmp_path / 'args')!r}).write_text('\\n'.join(sys.argv[1:]))"
    settings = ServerSettings(name="up", transport="stdio", command=sys.executable, args=("-c", show, *said))
    async with running(settings):
        pass
    assert (tmp_path / "args").read_text().splitlines() == said
    assert not target.exists()


async def test_std_03_and_04_a_server_gets_a_clean_environment_and_three_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL"):
        monkeypatch.setenv(name, "leak")
    report = tmp_path / "report"
    show = (
        "import json, os, pathlib; fds = os.listdir('/proc/self/fd'); "
        f"pathlib.Path({str(report)!r}).write_text(json.dumps([sorted(os.environ), len(fds)]))"
    )
    settings = ServerSettings(
        name="up", transport="stdio", command=sys.executable, args=("-c", show), env={"MINE": "yes"}
    )
    async with running(settings):
        pass
    names, descriptors = json.loads(report.read_text())
    allowed = {"PATH", "HOME", "LANG", "TERM", "USER", "SHELL", "LOGNAME", "MINE", "LC_CTYPE"}
    assert set(names) <= allowed
    assert "MINE" in names
    assert descriptors <= 4  # 0, 1, 2 and the one that lists them


@pytest.mark.parametrize("option", ["call=stderr", "start=stderr"])
async def test_std_05_a_flood_on_stderr_stops_nothing(option: str) -> None:
    async with running(evil(option)) as (catalog, _):
        result, took_s = await timed(view_of(catalog).call("up__echo", {"text": "hi"}))
        assert (result.text, is_within(took_s, 5)) == ("hi", True)


@pytest.fixture
def waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call wait longer for the next connection: a program starts within a second on an idle machine alone."""
    monkeypatch.setattr("pegboard.sources.mcp.supervised_source.MCP_CALL_WAITS_S", 60)


@pytest.mark.usefixtures("waits_long")
async def test_std_06_each_call_in_flight_ends_when_the_server_dies_and_the_next_works(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with running(evil("call=die_once", f"log={log}")) as (catalog, _):
        view = view_of(catalog)
        ended = await asyncio.gather(*(timed(view.call("up__write", {"text": str(n)})) for n in range(100)))
        assert {kind_of(result) for result, _ in ended} == {"upstream_lost"}
        assert all(result.error is not None and result.error.outcome_unknown for result, _ in ended)
        assert is_within(max(took_s for _, took_s in ended), 1.0)
        again, took_s = await timed(view.call("up__write", {"text": "after"}))
        assert (again.text, is_within(took_s, 1.5)) == ("after", True)
    written = [line for line in log.read_text().splitlines() if line.startswith("wrote")]
    assert len(written) == len(set(written))


@pytest.mark.usefixtures("waits_long")
async def test_std_06_a_trusted_read_is_tried_once_more(tmp_path: Path) -> None:
    settings = evil("call=die_once", f"log={tmp_path / 'log'}", trust_annotations=True)
    async with running(settings) as (catalog, _):
        assert (await view_of(catalog).call("up__read", {"text": "again"})).text == "again"


async def test_std_06_without_trust_a_read_is_not_repeated(tmp_path: Path) -> None:
    async with running(evil("call=die_once", f"log={tmp_path / 'log'}")) as (catalog, _):
        assert kind_of(await view_of(catalog).call("up__read", {"text": "again"})) == "upstream_lost"


async def test_std_07_a_crash_loop_opens_the_breaker_and_costs_next_to_nothing_until_it_is_mended(
    tmp_path: Path,
) -> None:
    sound = tmp_path / "sound"
    sound.touch()
    starts = tmp_path / "starts"
    start = f"echo >> {starts}; test -e {sound} && exec {sys.executable} {EVIL} call=die; exit 1"
    settings = ServerSettings(name="up", transport="stdio", command="sh", args=("-c", start), trust="any")
    async with running(settings, on_stdio(EVIL, name="calm", trust="any")) as (catalog, (source, _)):
        view = view_of(catalog)
        sound.unlink()
        assert kind_of(await view.call("up__echo", {"text": "x"})) == "upstream_lost"
        async with asyncio.timeout(PATIENCE_S):
            while not is_broken(result := await view.call("up__echo", {"text": "x"})):
                assert kind_of(result) == "upstream_unavailable"
        assert source.state().status == "unreachable"
        began, before = time.monotonic(), starts.stat().st_size
        refused, answered = list[float](), list[float]()
        with running_clock() as clock:
            for count in range(100):
                answered.append((await timed(view.call("calm__echo", {"text": "x"}), clock))[1])
                result, took_s = await timed(view.call("up__echo", {"text": "x"}), clock)
                assert result.error is not None
                assert (result.error.kind, result.error.retryable) == ("upstream_unavailable", True)
                assert result.error.retry_after_s is not None
                assert "it ended the connection" in result.text
                refused.append(took_s)
                await asyncio.sleep(began + count * 0.02 - time.monotonic())
        # A refusal waits for nothing: it takes no longer than an answer of a server that is well.
        assert statistics.median(refused) < statistics.median(answered)
        assert sum(refused) < 2 * sum(answered)
        # Nor do calls start the server again: only the clock does, once a second at most and ever more seldom.
        assert starts.stat().st_size - before <= 1 + time.monotonic() - began
        sound.touch()
        mended = time.monotonic()
        async with asyncio.timeout(60):
            while source.state().status != "ok":
                await view.call("up__read", {"text": "x"})
                await asyncio.sleep(0.02)
        assert is_within(time.monotonic() - mended, 3)


@pytest.mark.soak
async def test_std_07_a_server_that_is_mended_is_found_again_though_nobody_calls_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="pegboard")
    sound = tmp_path / "sound"
    start = f"test -e {sound} && exec {sys.executable} {EVIL}; exit 1"
    settings = ServerSettings(name="up", transport="stdio", command="sh", args=("-c", start), trust="any")
    async with running(settings) as (_, source):
        await until(lambda: "Next attempt in 30.0 s." in caplog.text, within_s=60)
        sound.touch()
        await until(lambda: source.state().status == "ok", within_s=60)


async def test_std_08_a_stubborn_server_and_its_children_are_gone_after_the_end() -> None:
    seconds = f"3{os.getpid()}.75"
    async with running(evil(f"stubborn={seconds}")) as (catalog, _):
        assert (await view_of(catalog).call("up__echo", {"text": "hi"})).text == "hi"
        # A program that has just been started shows its command line a moment later.
        await until(lambda: len(processes_with(seconds)) >= 4)
    assert processes_with(seconds) == []


@pytest.mark.parametrize("options", [("call=garbage",), ("start=garbage",)])
async def test_std_11_garbage_among_the_messages_is_skipped_and_counted(options: tuple[str, ...]) -> None:
    async with running(evil(*options)) as (catalog, source):
        assert (await view_of(catalog).call("up__echo", {"text": "hi"})).text == "hi"
        assert source._connection.traffic.bad_lines >= 2


async def test_std_11_garbage_without_end_closes_the_connection() -> None:
    async with running(evil("call=flood_garbage")) as (catalog, _):
        result = await view_of(catalog).call("up__echo", {"text": "hi"})
        assert kind_of(result) == "upstream_lost"
        assert "1000 lines" in result.text


@pytest.mark.parametrize(
    ("kind", "text"), [("double", "hi"), ("foreign", "hi"), ("string_id", None), ("null_id", None)]
)
async def test_std_12_a_reply_reaches_the_call_that_it_answers_and_no_other(kind: str, text: str | None) -> None:
    # Only what never answers is waited out; a busy machine may take its time for the rest.
    timeout_s = 0.5 if text is None else PATIENCE_S
    async with running(evil(f"call={kind}", own={"timeout_s": timeout_s})) as (catalog, source):
        view = view_of(catalog)
        first = await view.call("up__echo", {"text": "hi"})
        second = await view.call("up__echo", {"text": "there"})
        if text is None:
            assert (kind_of(first), kind_of(second)) == ("timeout", "timeout")
        else:
            assert (first.text, second.text) == ("hi", "there")
        await until(lambda: source._connection.traffic.stray_replies + source._connection.traffic.bad_lines >= 2)


async def test_std_12_a_late_reply_to_a_call_that_was_given_up_reaches_nobody(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with running(evil("call=cancelled_id", f"log={log}")) as (catalog, source):
        view = view_of(catalog)
        given_up = asyncio.create_task(view.call("up__write", {"text": "first"}))
        await until(lambda: "wrote first" in log.read_text())
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        await until(lambda: "notifications/cancelled" in log.read_text())
        answers = await asyncio.gather(*(view.call("up__echo", {"text": f"{number}"}) for number in range(5)))
        assert [answer.text for answer in answers] == ["0", "1", "2", "3", "4"]
        assert source._connection.traffic.stray_replies == 5
        assert source.state().status == "ok"


async def test_std_14_a_call_without_a_reply_ends_at_its_deadline_and_the_server_hears_of_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with running(evil("call=hang", f"log={log}", own={"timeout_s": 0.5})) as (catalog, _):
        result, took_s = await timed(view_of(catalog).call("up__echo", {"text": "hi"}))
        assert (kind_of(result), is_within(took_s, 1.0)) == ("timeout", True)
        await until(lambda: "notifications/cancelled" in log.read_text())


async def test_std_16_a_flood_of_progress_is_thinned_out() -> None:
    told: list[object] = []

    class Watching:
        def on_progress(self, event: object) -> None:
            told.append(event)

    async with running(evil("call=progress"), on_stdio(EVIL, name="calm", trust="any")) as (catalog, (source, _)):
        view = view_of(catalog, callbacks=Watching())
        flood = asyncio.create_task(timed(view.call("up__echo", {"text": "hi"})))
        slowest = 0.0
        while not flood.done():
            _, took_s = await timed(view.call("calm__echo", {"text": "x"}))
            slowest = max(slowest, took_s)
        result, took_s = flood.result()
        assert result.text == "hi"
        assert len(told) <= 10 * took_s + 2
        assert is_within(slowest, 0.5)
        # Most of it went no further than the line that it came in.
        assert source._connection.traffic.progress_dropped > 90_000


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("huge", "result_too_large"),
        ("blocks", "result_too_large"),
        ("no_result", "protocol_error"),
        ("deep", "protocol_error"),
        ("nan", "protocol_error"),
        ("drip", "ok"),
    ],
)
async def test_a_result_that_is_none_is_an_error_of_that_call_alone(kind: str, outcome: str) -> None:
    async with running(evil(f"call={kind}", own={"timeout_s": PATIENCE_S})) as (catalog, source):
        assert kind_of(await view_of(catalog).call("up__echo", {"text": "hi"})) == outcome
        assert source.state().status == "ok"


async def test_a_line_without_end_closes_the_connection() -> None:
    async with running(evil("call=line")) as (catalog, _):
        assert kind_of(await view_of(catalog).call("up__echo", {"text": "hi"})) == "upstream_lost"


async def test_a_server_that_hangs_at_the_start_delays_nothing_else() -> None:
    hung = ServerSettings(name="hung", transport="stdio", command=sys.executable, args=(str(EVIL), "start=hang"))
    catalog, calm = Catalog(), McpSource(on_stdio(EVIL, name="calm", trust="any"))
    stuck = McpSource(hung)
    catalog.add_source(stuck)
    catalog.add_source(calm)
    with running_clock() as clock:
        began = clock()
        await catalog.start(wait_s=0)
        assert is_within(clock() - began, 0.1)
    try:
        await calm.settled()
        assert view_of(catalog).names() == ["calm__echo", "calm__write", "calm__read"]
        assert (stuck.state().status, calm.state().status) == ("connecting", "ok")
    finally:
        await catalog.close(grace_s=0)
