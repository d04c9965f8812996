"""SQL statement: a query with its limits, and its result as JSON."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct, field

from pegboard.model.error import CallError
from pegboard.model.json_types import JSONValue, is_list, is_object

_SAFE_INTEGER = 2**63


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of one query; `max_bytes` counts the rows as JSON."""

    max_rows: int
    timeout_s: float
    max_bytes: int


class Query(Struct, frozen=True, kw_only=True):
    """One statement; `params` is a list, a mapping, or `None`.

    `allow_superuser`, `allow_functions` and `deciding_tables` are for PostgreSQL only; a writing query must not be able
    to change the last, each of which has a column name. `only_functions` are the allowed SQLite functions, if not all
    harmless ones are.
    """

    text: str
    params: Sequence[JSONValue] | Mapping[str, JSONValue] | None
    read_only: bool
    limits: Limits
    allow_superuser: bool = False
    allow_functions: frozenset[str] = frozenset()
    deciding_tables: frozenset[tuple[str, str]] = frozenset()
    only_functions: frozenset[str] | None = None
    started_s: float = field(default_factory=time.monotonic)

    @property
    def until_s(self) -> float:
        """The deadline, on the monotonic clock."""
        return self.started_s + self.limits.timeout_s

    def left_s(self) -> float:
        """Return the remaining time."""
        return max(self.until_s - time.monotonic(), 0.0)

    def too_slow(self) -> CallError:
        text = f"The query did not finish within {self.limits.timeout_s:g} s and was stopped. Ask for less."
        return CallError("timeout", text, outcome_unknown=False)


class Answer(Struct, frozen=True, kw_only=True):
    """The rows of a query, as JSON values; `affected_rows` is `None` if there are rows."""

    columns: Sequence[str] = ()
    rows: Sequence[Sequence[JSONValue]] = ()
    truncated: bool = False
    affected_rows: int | None = None


def collected(columns: Sequence[str], rows: Iterable[Sequence[Any]], limits: Limits) -> Answer:
    """Fetch rows one by one until one of the limits is reached."""
    fetched: list[list[JSONValue]] = []
    size = 0
    for row in rows:
        values = [plain(value) for value in row]
        size += sum([_size(value) for value in values]) + 2
        if len(fetched) >= limits.max_rows or size > limits.max_bytes:
            return Answer(columns=columns, rows=fetched, truncated=True)
        fetched.append(values)
    return Answer(columns=columns, rows=fetched)


def plain(value: Any) -> JSONValue:
    """Return a database value as JSON: numbers outside of JSON's range as text, bytes as base64."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int):
        return value if -_SAFE_INTEGER <= value < _SAFE_INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(cast("Any", value))).decode()
    if is_object(value):
        return {str(key): plain(item) for key, item in value.items()}
    if is_list(value) or isinstance(value, tuple | set | frozenset):
        return [plain(item) for item in cast("Iterable[Any]", value)]
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if callable(isoformat) else str(value)


def _size(value: JSONValue) -> int:
    if isinstance(value, str):
        # A character that JSON escapes takes up to six bytes.
        return len(value) + 3 if value.isascii() and value.isprintable() else len(value) * 6 + 3
    if is_object(value):
        return sum([_size(key) + _size(item) for key, item in value.items()]) + 2
    if is_list(value):
        return sum([_size(item) for item in value]) + 2
    return 21


def read_only_refusal(reason: str) -> CallError:
    """Return the error for a statement that would do more than read."""
    return CallError("read_only", f"The statement is refused: {reason}. Use one SELECT statement.")


def one_statement_only() -> CallError:
    """Return the error for a text with several statements."""
    text = "Only one statement can be run at once. Send the others in separate calls."
    return CallError("read_only", text)
