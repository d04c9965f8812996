"""Runbooks: the pages of docs/howto/outages, whose texts of log lines, metrics and alerts come from real outages.

With `PEGBOARD_WRITE_RUNBOOKS=1` the outage tests write what they see into build/outages, and
`python -m tests.operate.runbooks` puts that into the pages and the table of docs/howto/outages.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.operate.outages import OTHER_WAYS, OUTAGES, Outage
from tests.operate.world import Seen

ROOT = Path(__file__).parents[2]
PAGES, INDEX, WRITTEN = ROOT / "docs/howto/outages", ROOT / "docs/howto/outages.md", ROOT / "build/outages"
IS_WRITING = bool(os.environ.get("PEGBOARD_WRITE_RUNBOOKS"))
SEEN, OVER, TABLE, WAYS = "seen", "over", "table", "ways"
"""The parts of pages that are written by a run."""


class Told(Struct, frozen=True, kw_only=True):
    """What was seen while a part was away, and after it was back."""

    away: Seen
    back: Seen


def lines_of(seen: Seen) -> dict[str, tuple[str, ...]]:
    """Return what is seen, by channel."""
    served = seen.served
    return {
        "`pegboard doctor`": seen.doctor,
        "`/readyz`": (served.readyz,),
        "`/metrics`": served.metrics,
        "log": served.log,
        "alert": served.alerts,
        "a call": (served.call,),
    }


def write_down(name: str, told: Told) -> None:
    """Write what was seen to build/outages, if that is asked for."""
    if IS_WRITING:
        WRITTEN.mkdir(parents=True, exist_ok=True)
        (WRITTEN / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(told)))


def check_page(name: str, told: Told) -> None:
    """Check that the page of an outage shows what was seen; in each channel at least one of the lines."""
    if IS_WRITING:
        write_down(name, told)
        return
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    for seen in (told.away, told.back):
        for channel, lines in lines_of(seen).items():
            assert not lines or any(line in page for line in lines), (channel, lines)


def _shown(seen: Seen) -> str:
    parts: list[str] = []
    for channel, lines in lines_of(seen).items():
        if channel == "`pegboard doctor`" and not lines:
            parts.append("* `pegboard doctor` shows no row that asks you to do something.\n")
        elif lines:
            fenced = "".join(f"  {line}\n" for line in lines)
            parts.append(f"* {channel}:\n\n  ```text\n{fenced}  ```\n")
    return "\n".join(parts)


def _row(name: str, outage: Outage, told: Told) -> str:
    away, back = told.away, told.back
    served = away.served
    cells = (
        f"[{outage.title}](outages/{name}.md)",
        _code(map(_short, away.doctor)),
        f"`{served.readyz[:3]}`",
        _code(line.removesuffix(".0") if line.startswith("pegboard") else line[:3] for line in served.metrics),
        # What every part has, or else the event of this one.
        _code({_short(line.partition(": ")[2]) for line in served.log if "part_lost" in line} or
              {_short(line.partition(": ")[2]) for line in served.log[:1]}),
        _code({line.partition(" ")[0] for line in served.alerts}),
        _code([_short(served.call)]),
        f"{away.served_s:.0f} s, {back.served_s:.0f} s",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _short(text: str) -> str:
    """Return what a line begins with, without what differs from case to case."""
    return text.partition(" | ")[0].partition(": ")[0].partition(" (")[0]


def _code(texts: Iterable[str]) -> str:
    return "<br>".join(f"`{text}`" for text in sorted(set(texts))) or "–"


def _replaced(page: Path, part: str, block: str) -> None:
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {part}: begin -->\n", f"<!-- {part}: end -->\n"
    before, _, rest = text.partition(begin)
    page.write_text(f"{before}{begin}{block}{end}{rest.partition(end)[2]}", encoding="utf-8")


def main(names: Sequence[str] = tuple(OUTAGES)) -> None:
    """Write what the tests saw into the pages."""
    told = {name: msgspec.json.decode((WRITTEN / f"{name}.json").read_bytes(), type=Told) for name in names}
    for name, each in told.items():
        _replaced(PAGES / f"{name}.md", SEEN, _shown(each.away))
        _replaced(PAGES / f"{name}.md", OVER, _shown(each.back))
    heads = ("What is down", "`doctor`", "`/readyz`", "`/metrics`", "log", "alert", "a call", "reported (down, back)")
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    table += [_row(name, OUTAGES[name], each) for name, each in told.items()]
    _replaced(INDEX, TABLE, "\n".join(table) + "\n")
    heads = ("Part", "it is", "`doctor`", "in", "`/readyz`", "log, metrics and alert in", "recovery in")
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, way in OTHER_WAYS:
        each = msgspec.json.decode((WRITTEN / f"{name}-{way}.json").read_bytes(), type=Told)
        cells = (
            f"[{OUTAGES[name].title}](outages/{name}.md)", way, _code(map(_short, each.away.doctor)),
            f"{each.away.doctor_s:.0f} s", f"`{each.away.served.readyz[:3]}`", f"{each.away.served_s:.0f} s",
            f"{each.back.served_s:.0f} s",
        )  # fmt: skip
        table.append(f"| {' | '.join(cells)} |")
    _replaced(INDEX, WAYS, "\n".join(table) + "\n")


if __name__ == "__main__":
    main()
