"""Terminal: the only place that writes. Nothing that comes from outside reaches a screen as more than letters."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from msgspec import Struct, field

from pegboard.cli.problem_text import problem_text
from pegboard.cli.safe_text import UNSAFE, safe
from pegboard.core.json_text import json_bytes
from pegboard.core.redaction import Redactor
from pegboard.lazy import LazyModule
from pegboard.model.error import Problem
from pegboard.model.json_types import JSONValue
from pegboard.model.secret import Secret

# Tables and colours are for people; `--json`, `serve` and `init` do without.
if TYPE_CHECKING:
    from rich import box, console, table
    from rich import text as rich_text
else:
    box = LazyModule("rich.box")
    console = LazyModule("rich.console")
    table = LazyModule("rich.table")
    rich_text = LazyModule("rich.text")

CLI_SHOWN_CHARS = 160  # of the arguments or the result of a call that an agent makes, in its line

WIDTH_WITHOUT_TERMINAL = 120


def json_text(value: JSONValue, *, indent: bool = True) -> str:
    """Return JSON that means `value` and is safe on a terminal: what `safe` would spell out is a JSON escape."""
    return UNSAFE.sub(_json_escaped, json_bytes(value, default=str, indent=indent, any_keys=True).decode())


def _json_escaped(match: re.Match[str]) -> str:
    # The line breaks of indentation are not in the class, those inside of strings orjson has escaped already.
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


class Column(Struct, frozen=True, kw_only=True):
    """A column of a table: its head, and how its cells look. Ids are never folded, so that they can be copied."""

    head: str
    style: str = ""
    is_id: bool = False


class UnwritableError(Exception):
    """What a command answers has no place to go: the disk is full, or the reader has left."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"The answer could not be written: {cause.strerror or cause}.")
        self.is_reader_gone = isinstance(cause, BrokenPipeError)


@contextmanager
def _told_if_unwritable() -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise UnwritableError(error) from error


class _Nowhere(io.StringIO):
    """Takes everything and keeps nothing. It holds no file that somebody would have to close."""

    def write(self, text: str) -> int:
        return len(text)


def _shows_colours(stream: TextIO) -> bool:
    """Tell whether colours are wanted, as https://no-color.org and rich have it."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


class Terminal(Struct, kw_only=True):
    """Where a command writes: its answer to `out`, everything else to `err`, without the `secrets` in use."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    secrets: Callable[[], Iterable[Secret]] = tuple
    log: logging.Handler | None = None
    """What writes the log of the command."""

    def __post_init__(self) -> None:
        for stream in (self.out, self.err):
            # A terminal that cannot show a character must not end the command.
            reconfigure: Any = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")

    def clean(self, text: str) -> str:
        """Return what was not made to be shown, a traceback or a line of a log, without the secrets in use."""
        return Redactor(self.secrets()).text(text)

    def json(self, value: JSONValue) -> None:
        """Write one JSON document."""
        self._write(json_text(value) + "\n")

    def say(self, text: str) -> None:
        """Write plain lines of the answer."""
        self._write(safe(text, lines=True) + "\n")

    def stream(self, text: str) -> None:
        """Write a piece of the answer, at once and as it is."""
        self._write(safe(text, lines=True))
        self.flush()

    def note(self, text: str) -> None:
        """Write plain lines beside the answer, after what has been said of it so far."""
        self.flush()
        # Where it cannot be said there is nobody to say so to; the exit code still tells.
        with suppress(OSError, ValueError):
            self.err.write(safe(self.clean(text), lines=True) + "\n")
            self.err.flush()

    def say_problems(self, problems: Iterable[Problem], *, label: str = "") -> None:
        """Write faults of a declaration as part of the answer, each with its line of the file."""
        text = problem_text(problems, label=label, is_coloured=_shows_colours(self.out))
        self._write(text)

    def note_problems(self, problems: Iterable[Problem]) -> None:
        """Write faults of a declaration beside the answer, each with its line of the file."""
        self.flush()
        # What they show of a file is without secrets, as they are; and cleaned once more.
        text = self.clean(problem_text(problems, is_coloured=_shows_colours(self.err)))
        with suppress(OSError, ValueError):
            self.err.write(text)
            self.err.flush()

    def flush(self) -> None:
        """Have everything that was written so far arrive.

        Raises:
            UnwritableError: it cannot.
        """
        with _told_if_unwritable():
            self.out.flush()

    def abandon(self) -> None:
        """Write no more of the answer. What waits unwritten is dropped, or Python would complain of it at exit."""
        with suppress(OSError):
            self.out.close()
        self.out = _Nowhere()

    def _write(self, text: str) -> None:
        with _told_if_unwritable():
            self.out.write(text)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
        """Write a table as wide as the terminal; a cell that is too long goes on below, never lost."""
        grid = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        cells = [[safe(cell) for cell in row] for row in rows]
        for place, column in enumerate(columns):
            whole = max((len(row[place]) for row in cells), default=0) if column.is_id else None
            grid.add_column(column.head, style=column.style, overflow="fold", min_width=whole, no_wrap=column.is_id)
        for row in cells:
            grid.add_row(*row)
        self._print(grid)

    def pairs(self, rows: Iterable[tuple[str, str]]) -> None:
        """Write names and what they are, one below the other; the text may have several lines."""
        grid = table.Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, text in rows:
            grid.add_row(safe(name), safe(text, lines=True))
        self._print(grid)

    def styled(self, text: str, style: str) -> None:
        """Write a line of the answer in a style, where the terminal has any."""
        self._print(rich_text.Text(safe(text, lines=True), style=style), soft_wrap=True)

    def _print(self, drawn: object, *, soft_wrap: bool = False) -> None:
        width = None if self.out.isatty() or os.environ.get("COLUMNS") else WIDTH_WITHOUT_TERMINAL
        screen = console.Console(file=self.out, width=width, markup=False, emoji=False, highlight=False)
        # It writes an empty text of its own, which a stream without a buffer may refuse.
        with _told_if_unwritable(), screen.capture() as captured:
            screen.print(drawn, soft_wrap=soft_wrap)
        # Tables are padded to their full width; what is copied or piped should not be.
        self._write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
