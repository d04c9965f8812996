"""The benches run; what they measure is no matter for a test."""

import asyncio
import json
import re
import shutil
from importlib import import_module
from importlib.util import find_spec
from math import isfinite

import pytest

from bench import http, imports, instructions, path, processes, why
from bench.__main__ import BENCHES, RESULTS, DidNotRunError, measured, parts_of, table, with_part
from bench.measure import BRIEF, THOROUGH, Row, Spread

# These start dozens of processes.
HEAVY = ("http", "imports", "stdio")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.soak] if name in HEAVY else [])
        for name in BENCHES
        if find_spec(f"bench.{name}")
    ],
)
def test_a_bench_measures_pegboard_against_a_floor_it_must_hold(name):
    rows = import_module(f"bench.{name}").run(BRIEF)
    held = [row for row in rows if row.hold is not None]
    assert held
    # A row may hold the difference of two times, which is below zero where the machine was busy.
    assert all(isfinite(row.ratio.low) and isfinite(row.seconds.median) for row in held)
    assert len(list(table(rows))) == len(rows) + 2


def test_the_server_that_is_measured_answers_what_it_is_sent():
    with http.serving(http.OURS) as server:
        assert json.loads(server.ask(http.CALL))["result"]["isError"] is False
        server.send(http.LIST, 8)


def test_importing_the_package_brings_in_no_heavy_one():
    with processes.starter() as start:
        assert imports.loaded(start) == []


@pytest.mark.parametrize(
    ("median", "verdict"), [(0.5, "PASS, reach met"), (0.51, "PASS"), (1.0, "PASS"), (1.01, "short")]
)
def test_the_verdict_compares_the_median_with_what_is_to_be_held(median, verdict):
    spread = Spread(low=0.0, median=median, high=9.0)
    row = Row(what="ours", against="floor", seconds=spread, ratio=spread, hold=1.0, reach=0.5)
    assert row.verdict == verdict


def test_a_spread_is_the_median_and_the_quartiles():
    assert Spread.of([1.0, 2.0, 3.0, 4.0, 5.0]) == Spread(low=2.0, median=3.0, high=4.0)


@pytest.fixture(scope="module")
def warm_paths():
    return asyncio.run(path.paths())


def test_the_path_of_a_warm_request_begins_at_the_app_and_ends_with_its_bytes(warm_paths):
    for name, entries in warm_paths.items():
        assert entries[0].file == "server/app.py"
        # After its bytes its place is given back.
        assert any(entry.file == "server/whole_answer.py" for entry in entries[-3:])
        lines = list(path.report(name, entries, brief=False))
        assert lines[0].startswith(f"{name}: {len(entries)} functions entered")
        assert sum(":" in line for line in lines[1:-2]) == len(entries)


@pytest.mark.parametrize("request_name", ["tools/call", "tools/list"])
def test_a_warm_request_asks_nothing_twice(warm_paths, request_name):
    assert path.asked_again(warm_paths[request_name]) == []


def test_a_question_is_asked_again_if_its_values_are_the_very_same():
    one, equal = [1], [1]
    asked = [
        path.Entry(file="core/schema.py", name="copied", line=3, arguments=(value,)) for value in (one, equal, one)
    ]
    assert path.asked_again(asked) == [asked[2]]
    assert path.asked_again(asked)[0] is asked[2]


def test_what_is_told_to_draw_again_and_gives_something_else_was_no_question():
    drawn = [
        path.Entry(file="core/identifiers.py", name="new_id", line=13, arguments=(), answer=answer)
        for answer in ("a", "b", "a")
    ]
    assert path.asked_again(drawn) == [drawn[2]]


def test_a_part_is_written_in_its_place_and_what_was_measured_of_the_others_stays():
    old = "# What\n\nWords.\n\n## Calls: one.\n\n| a | 1 |\n\n## Lists: two.\n\n| b | 2 |\n"
    new = with_part(old, ["", "## Calls: one, anew.", "", "| a | 3 |"])
    assert parts_of(new) == {"Calls": "## Calls: one, anew.\n\n| a | 3 |\n", "Lists": "## Lists: two.\n\n| b | 2 |\n"}
    assert list(parts_of(with_part(new, ["", "## Why: three.", "", "| c | 4 |"]))) == ["Calls", "Lists", "Why"]
    assert with_part(new, ["", "## Calls: one, anew.", "", "| a | 3 |"]) == new


def test_what_is_written_reads_as_parts_that_each_say_when_they_were_measured():
    parts = parts_of(RESULTS.read_text(encoding="utf-8"))
    assert {"Calls", "HTTP"} <= parts.keys()
    assert all(re.search(r"^\* 20\d\d-\d\d-\d\d", part, re.MULTILINE) for part in parts.values())


def test_a_bench_that_takes_too_long_is_ended_and_has_no_figures(monkeypatch):
    def run(_effort):
        while True:
            pass

    monkeypatch.setattr(why, "run", run)
    with pytest.raises(DidNotRunError, match="why: TimeoutError: not over after 1 s"):
        measured("why", BRIEF, within_s=1)


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind counts them")
def test_instructions_are_counted_and_hardly_differ_between_two_runs():
    first, second = (
        {row.what: row for row in instructions.counted(THOROUGH, ("requests", "in-process"))} for _ in range(2)
    )
    assert first.keys() == second.keys()
    assert first["tools/call"].count > (first["tools/call"].echo or 0) > 0
    assert all(abs(row.count / second[what].count - 1) < 0.02 for what, row in first.items())


def test_without_valgrind_instructions_are_skipped_with_a_line_that_says_so(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert list(instructions.lines(BRIEF)) == ["Skipped: valgrind is not installed (`apt-get install valgrind`)."]


@pytest.mark.parametrize(("count", "verdict"), [(200, "PASS"), (201, "short")])
def test_a_count_is_held_against_the_echo_and_the_baseline(count, verdict):
    by_echo = instructions.Counted(what="a", count=count, echo=100, hold=2.0)
    by_change = instructions.Counted(what="a", count=count, change_hold=1.0)
    assert list(by_echo.cells(None)) == ["a", str(count), f"{count / 100:.2f}×", "≤ 2×", "", "", "", verdict]
    assert list(by_change.cells(200))[-1] == verdict
