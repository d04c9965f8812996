"""Run the benches and write what they found into RESULTS.md.

python -m bench                 all of them
python -m bench calls imports   some, printed and not written
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import distributions, version
from pathlib import Path

from bench.measure import BRIEF, THOROUGH, Effort, Row, Spread

BENCHES = ("calls", "builtins", "lists", "why", "imports", "stdio", "http")
# Starts six servers and more, or reads documents that only some have: too much for a test.
ALONE = ("clients", "proxy", "openapi", "search", "confidence", "documents", "document_scale")
PACKAGES = ("pegboard", "mcp", "fastmcp", "pydantic", "orjson", "jsonschema-rs", "cyclopts")
RESULTS = Path(__file__).with_name("RESULTS.md")
HEAD = """\
# What Pegboard costs

Written by `make bench`. Ratios of processor time within one interleaved run: each line is divided, round by round, by
the floor it names; median, and quartiles in brackets. `hold` is the ratio that must not be passed, `reach` the one to
aim for; lines without them stand beside, measured in the same run. `short` means that the figure is not held yet.
"""


def machine() -> Iterator[str]:
    """Yield a line each on date, machine and versions."""
    yield f"* {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
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


def measured(name: str, effort: Effort) -> Iterator[str]:
    """Run one bench and yield its part of the results, which opens with the bench's own words."""
    bench = import_module(f"bench.{name}")
    title, _, words = (bench.__doc__ or name).strip().partition("\n")
    yield from ("", f"## {title}", "", words.strip(), "")
    try:
        # What is judged by more than a time brings a table of its own.
        yield from bench.lines(effort) if hasattr(bench, "lines") else table(bench.run(effort))
    except (AssertionError, EOFError, OSError, RuntimeError) as error:
        # One that cannot run takes no figure of the others with it.
        yield f"Did not run: {type(error).__name__}: {error}"


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Run the benches; all of them write RESULTS.md."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES + ALONE)}; without any, all")
    parser.add_argument("--brief", action="store_true", help="a few repetitions: to see that it runs, not to measure")
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHES + ALONE)
    if unknown:
        parser.error(
            f"no bench {sorted(unknown)}; there are {', '.join(BENCHES + ALONE)}. bench.discovery is run by itself."
        )
    wanted = options.names or [name for name in BENCHES + ALONE if importlib.util.find_spec(f"bench.{name}")]
    lines = [HEAD, *machine()]
    for name in wanted:
        for line in measured(name, BRIEF if options.brief else THOROUGH):
            lines.append(line)
            print(line, flush=True)
    if not options.names and not options.brief:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print("\nWritten to bench/RESULTS.md")
    if any(line.startswith("Did not run") for line in lines):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
