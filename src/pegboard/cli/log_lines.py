"""Log lines: show the log of Pegboard and its server while a command runs, as lines of text or of JSON."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal, cast

from pegboard.cli.terminal import Terminal, json_text
from pegboard.core.safe_text import safe

LogForm = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


class _TextLines(logging.Formatter):
    """Formats a log record as one safe line; tracebacks only when debugging. `is_timed` adds the time."""

    def __init__(self, terminal: Terminal, *, is_timed: bool = False) -> None:
        super().__init__()
        self._terminal, self._is_timed = terminal, is_timed

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        # One line of fields with callers' texts: a line break in a path must not fake another line.
        text = f"{record.levelname.lower()}: {safe(message) if hasattr(record, 'fields') else message}"
        if self._is_timed:
            text = f"{_time(record)} {text}"
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}\n{''.join(traceback.format_exception(record.exc_info[1]))}"
        # On a terminal, each problem of a refused config gets its own line.
        problems: list[dict[str, str]] = getattr(record, "fields", {}).get("problems", [])
        listed = [": ".join(filter(None, problem.values())) for problem in problems]
        text = self._terminal.clean(text)
        if os.environ.get("PEGBOARD_DEBUG"):
            return safe(text.rstrip(), lines=True)
        first, *rest = filter(None, text.splitlines())
        line = safe(f"{first} {rest[-1]}" if rest else first)
        return "\n".join([line, *(f"  {safe(self._terminal.clean(line_below))}" for line_below in listed)])


class _JsonLines(logging.Formatter):
    """Formats a log record as one line of JSON: time, level, logger, message, and its additional fields."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._terminal.clean(record.getMessage()),
            **{name: self._cleaned(value) for name, value in getattr(record, "fields", {}).items()},
        }
        if record.exc_info and record.exc_info[1] is not None:
            lines = traceback.format_exception(record.exc_info[1])
            shown_lines = lines if os.environ.get("PEGBOARD_DEBUG") else lines[-1:]
            line["error"] = self._terminal.clean("".join(shown_lines).strip())
        return json_text(line, indent=False)

    def _cleaned(self, value: object) -> object:
        match value:
            case str():
                return self._terminal.clean(value)
            case list():
                return [self._cleaned(item) for item in cast("list[object]", value)]
            case dict():
                return {name: self._cleaned(item) for name, item in cast("dict[str, object]", value).items()}
            case _:
                return value


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@contextmanager
def logging_to(terminal: Terminal) -> Generator[None]:
    """Show Pegboard's warnings on the terminal while a command runs."""
    handler = logging.StreamHandler(terminal.err)
    handler.setFormatter(_TextLines(terminal))
    handler.setLevel(logging.WARNING)
    terminal.log = handler
    log = logging.getLogger("pegboard")
    level = log.level
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def log_as(terminal: Terminal, form: LogForm, level: LogLevel) -> None:
    """Log from this level on, in this format, until the command ends."""
    assert terminal.log is not None
    terminal.log.setFormatter(_JsonLines(terminal) if form == "json" else _TextLines(terminal, is_timed=True))
    terminal.log.setLevel(level.upper())
    logging.getLogger("pegboard").setLevel(level.upper())


def tell(terminal: Terminal, message: str, **fields: object) -> None:
    """Log a line at any level, such as the address of a server."""
    record = logging.makeLogRecord(
        {"name": "pegboard.serve", "levelno": logging.INFO, "levelname": "INFO", "msg": message, "fields": fields}
    )
    assert terminal.log is not None
    terminal.log.emit(record)
