"""Run the benches and write what they found into RESULTS.md.

python -m bench                         all of them, one after the other, each within its time
python -m bench --write http clients    some; what was written of the others stays
python -m bench calls imports           some, printed and not written
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import re
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import distributions, version
from pathlib import Path

from bench.measure import BRIEF, THOROUGH, Effort, Row, Spread

BENCHES = ("calls", "audit", "builtins", "lists", "why", "imports", "stdio", "http")
# Starts six servers and more, or reads documents that only some have: too much for a test.
ALONE = (
    "instructions",
    "agents",
    "clients",
    "credentials",
    "connections",
    "capacity",
    "scale",
    "proxy",
    "openapi",
    "search",
    "confidence",
    "documents",
    "document_quality",
    "document_scale",
)
PACKAGES = ("pegboard", "mcp", "fastmcp", "pydantic", "orjson", "jsonschema-rs", "cyclopts")
PART_S = 900
"""The seconds that one bench may take."""
RESULTS = Path(__file__).with_name("RESULTS.md")
HEAD = """\
# What Pegboard costs

Written by `make bench`. Ratios of processor time within one interleaved run: each line is divided, round by round, by
the floor it names; median, and quartiles in brackets. `hold` is the ratio that must not be passed, `reach` the one to
aim for; lines without them stand beside, measured in the same run. `short` means that the figure is not held yet.

Each part says when and how it was measured: `make bench PART=http` measures one anew. `load` is the machine's own
figure at its begin and end, beside its cores; where it is far above their number others were at work, which makes
whatever is much code dearer than it is.
"""


def machine() -> Iterator[str]:
    """Yield a line each on machine and versions."""
    yield f"* {processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"
    yield f"* {platform.python_implementation()} {platform.python_version()}, " + ", ".join(
        f"{package} {version(package)}" for package in PACKAGES if is_installed(package)
    )


def is_installed(package: str) -> bool:
    """Tell whether there is such a package; the peers are in the benches' own environment only (`make bench`)."""
    return next(iter(distributions(name=package)), None) is not None


def processor() -> str:
    try:
        listed = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    models = (line.partition(":")[2].strip() for line in listed.splitlines() if line.startswith("model name"))
    return next(models, platform.machine())


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield "| what | median | against | ratio | hold | reach | |"
    yield "|---|---:|---|---:|---:|---:|---|"
    for row in rows:
        shown = duration if row.is_time_held else "{:g}×".format
        bounds = ("" if bound is None else f"≤ {shown(bound)}" for bound in (row.hold, row.reach))
        cells = (row.what, duration(row.seconds.median), row.against, ratio(row.ratio), *bounds, row.verdict)
        yield "| " + " | ".join(cells) + " |"


def ratio(spread: Spread) -> str:
    return f"{spread.median:.3g}× ({spread.low:.3g}–{spread.high:.3g})"


def duration(seconds: float) -> str:
    """Return seconds in the unit that fits; ratios count, this is for orientation."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def measured(name: str, effort: Effort, *, within_s: int = PART_S, only: Sequence[str] = ()) -> list[str]:
    """Run one bench and return its part of the results, which opens with the bench's own words.

    Raises:
        DidNotRunError: it cannot run here, or takes too long.
    """
    bench = import_module(f"bench.{name}")
    title, _, words = (bench.__doc__ or name).strip().partition("\n")
    began, before = time.monotonic(), os.getloadavg()[0]
    try:
        with at_most(within_s):
            # What is judged by more than a time brings a table of its own.
            made = bench.lines(effort, only) if only else bench.lines(effort) if hasattr(bench, "lines") else None
            found = list(table(bench.run(effort)) if made is None else made)
    except (AssertionError, EOFError, OSError, RuntimeError) as error:
        raise DidNotRunError(f"{name}: {type(error).__name__}: {error}") from error
    took_s, after = time.monotonic() - began, os.getloadavg()[0]
    at = f"* {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {took_s:.0f} s, load {before:.1f} to {after:.1f}"
    at += f": {', '.join(only)}" * bool(only)
    return ["", f"## {title}", "", words.strip(), "", at, *machine(), "", *found]


class DidNotRunError(Exception):
    """A bench has no figures: what it needs is not there, or it takes too long."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Stop the block after this time, wherever it is; servers that it started end with it."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"not over after {seconds} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def parts_of(results: str) -> dict[str, str]:
    """Return the parts of a file of results by their first word, in their order."""
    _, *parts = re.split(r"^## ", results, flags=re.MULTILINE)
    return {part.partition(":")[0]: f"## {part.rstrip()}\n" for part in parts}


def with_part(results: str, lines: Sequence[str]) -> str:
    """Return a file of results with one part anew: in the place of the one before, or else at the end."""
    parts = {**parts_of(results), **parts_of("\n".join(lines))}
    return "\n".join((HEAD, *parts.values()))


def with_rows(results: str, lines: Sequence[str]) -> str:
    """Return a file of results with some rows of one part anew; its other rows stay, and when those were measured."""
    name = next(iter(parts_of("\n".join(lines))))
    anew = {_first_cell(line) for line in lines if line.startswith("| ")}
    of_before = parts_of(results).get(name, "").splitlines()
    whens = [line for line in of_before if re.match(r"\* 20\d\d-", line)]
    rows = [
        line for line in of_before if line.startswith("| ") and line.partition("|")[2].partition("|")[0] not in anew
    ]
    place = next(place for place, line in enumerate(lines) if line.startswith("* ")) + 1
    return with_part(results, [*lines[:place], *whens, *lines[place:], *rows])


def _first_cell(row: str) -> str:
    return row.split("|")[1]


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Run the benches; all of them write RESULTS.md."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES + ALONE)}; without any, all")
    parser.add_argument("--brief", action="store_true", help="a few repetitions: to see that it runs, not to measure")
    parser.add_argument("--write", action="store_true", help="write those that are named into RESULTS.md, too")
    parser.add_argument(
        "--within", type=int, default=PART_S, metavar="SECONDS", help=f"the longest that one may take; {PART_S} s"
    )
    parser.add_argument("--only", nargs="*", default=(), metavar="PIECE", help="these pieces of one that has such")
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHES + ALONE)
    if unknown:
        parser.error(
            f"no bench {sorted(unknown)}; there are {', '.join(BENCHES + ALONE)}. bench.discovery is run by itself."
        )
    wanted = options.names or [name for name in BENCHES + ALONE if importlib.util.find_spec(f"bench.{name}")]
    missing: list[str] = []
    for name in wanted:
        try:
            effort = BRIEF if options.brief else THOROUGH
            lines = measured(name, effort, within_s=options.within, only=options.only)
        except DidNotRunError as error:
            # It takes no figure of the others with it, nor its own of before.
            missing.append(f"Did not run: {error}")
            print(missing[-1], flush=True)
            continue
        print("\n".join(lines), flush=True)
        if not options.brief and (options.write or not options.names):
            # At once: whatever becomes of those that follow, this one is measured.
            write = with_rows if options.only else with_part
            RESULTS.write_text(write(RESULTS.read_text(encoding="utf-8"), lines), encoding="utf-8")
            print(f"\nWritten to bench/RESULTS.md: {name}")
    if missing:
        raise SystemExit("\n".join(missing))


if __name__ == "__main__":
    main()
