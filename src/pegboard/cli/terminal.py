"""Terminal: the only module that writes output. Foreign text is shown as characters only."""

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
from pegboard.core.json_text import json_bytes
from pegboard.core.redaction import Redactor
from pegboard.core.safe_text import UNSAFE, safe
from pegboard.lazy import LazyModule
from pegboard.model.error import Problem
from pegboard.model.json_types import JSONValue
from pegboard.model.secret import Secret

# Tables and colours are for people; `--json`, `serve` and `init` do not need them.
if TYPE_CHECKING:
    from rich import box, console, table
    from rich import text as rich_text
else:
    box = LazyModule("rich.box")
    console = LazyModule("rich.console")
    table = LazyModule("rich.table")
    rich_text = LazyModule("rich.text")

CLI_SHOWN_CHARS = 160  # characters of the arguments or the result of an agent's call, in its line

WIDTH_WITHOUT_TERMINAL = 120


def json_text(value: JSONValue, *, indent: bool = True) -> str:
    """Return JSON that means `value` and is safe on a terminal: unsafe characters become JSON escapes."""
    return UNSAFE.sub(_json_escaped, json_bytes(value, default=str, indent=indent, any_keys=True).decode())


def _json_escaped(match: re.Match[str]) -> str:
    # Indentation uses line breaks only outside strings, and orjson has escaped those in strings already.
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


class Column(Struct, frozen=True, kw_only=True):
    """A column of a table: its head and style. Ids are never wrapped, so that they can be copied."""

    head: str
    style: str = ""
    is_id: bool = False


class UnwritableError(Exception):
    """The output of a command cannot be written: the disk is full, or the reader has gone."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"The answer could not be written: {cause.strerror or cause}.")
        self.is_reader_gone = isinstance(cause, BrokenPipeError)


@contextmanager
def _reports_unwritable() -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise UnwritableError(error) from error


class _Nowhere(io.StringIO):
    """Discards all output. Unlike os.devnull, it needs no closing."""

    def write(self, text: str) -> int:
        return len(text)


def _shows_colours(stream: TextIO) -> bool:
    """Tell whether colours are wanted, by the rules of https://no-color.org and rich."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


class Terminal(Struct, kw_only=True):
    """The output of a command: its answer goes to `out`, everything else to `err`; `secrets` are redacted."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    secrets: Callable[[], Iterable[Secret]] = tuple
    log: logging.Handler | None = None
    """The stream for the log of the command."""

    def __post_init__(self) -> None:
        for stream in (self.out, self.err):
            # A terminal that cannot show a character must not end the command.
            reconfigure: Any = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")

    def clean(self, text: str) -> str:
        """Return text that may contain anything, such as a traceback or a log line, without secrets."""
        return Redactor(self.secrets()).text(text)

    def json(self, value: JSONValue) -> None:
        """Write one JSON document."""
        self._write(json_text(value) + "\n")

    def say(self, text: str) -> None:
        """Write plain lines of the answer."""
        self._write(safe(text, lines=True) + "\n")

    def stream(self, text: str) -> None:
        """Write a piece of the answer immediately and unchanged."""
        self._write(safe(text, lines=True))
        self.flush()

    def note(self, text: str) -> None:
        """Write plain lines to stderr, after the answer so far."""
        self.flush()
        # If stderr is closed nobody reads it; the exit code still tells.
        with suppress(OSError, ValueError):
            self.err.write(safe(self.clean(text), lines=True) + "\n")
            self.err.flush()

    def say_problems(self, problems: Iterable[Problem], *, label: str = "") -> None:
        """Write problems as part of the answer, each with its line of the file."""
        text = problem_text(problems, label=label, is_coloured=_shows_colours(self.out))
        self._write(text)

    def note_problems(self, problems: Iterable[Problem]) -> None:
        """Write problems to stderr, each with its line of the file."""
        self.flush()
        # Their excerpts of files are redacted already; redact the whole again.
        text = self.clean(problem_text(problems, is_coloured=_shows_colours(self.err)))
        with suppress(OSError, ValueError):
            self.err.write(text)
            self.err.flush()

    def flush(self) -> None:
        """Flush all output.

        Raises:
            UnwritableError: it cannot be written.
        """
        with _reports_unwritable():
            self.out.flush()

    def abandon(self) -> None:
        """Stop writing the answer. Buffered output is dropped, or Python would complain about it at exit."""
        with suppress(OSError):
            self.out.close()
        self.out = _Nowhere()

    def _write(self, text: str) -> None:
        with _reports_unwritable():
            self.out.write(text)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
        """Write a table as wide as the terminal; long cells are wrapped, never cut."""
        grid = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        cells = [[safe(cell) for cell in row] for row in rows]
        for place, column in enumerate(columns):
            whole = max((len(row[place]) for row in cells), default=0) if column.is_id else None
            grid.add_column(column.head, style=column.style, overflow="fold", min_width=whole, no_wrap=column.is_id)
        for row in cells:
            grid.add_row(*row)
        self._print(grid)

    def pairs(self, rows: Iterable[tuple[str, str]]) -> None:
        """Write names and their values, one per line; a value may have several lines."""
        grid = table.Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, text in rows:
            grid.add_row(safe(name), safe(text, lines=True))
        self._print(grid)

    def styled(self, text: str, style: str) -> None:
        """Write a line of the answer in a style, if the terminal supports it."""
        self._print(rich_text.Text(safe(text, lines=True), style=style), soft_wrap=True)

    def _print(self, drawn: object, *, soft_wrap: bool = False) -> None:
        width = None if self.out.isatty() or os.environ.get("COLUMNS") else WIDTH_WITHOUT_TERMINAL
        screen = console.Console(file=self.out, width=width, markup=False, emoji=False, highlight=False)
        # Rich writes an empty text, which a stream without a buffer may refuse.
        with _reports_unwritable(), screen.capture() as captured:
            screen.print(drawn, soft_wrap=soft_wrap)
        # Rich pads tables to their full width; remove that for copying and piping.
        self._write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
