"""Connection: what the statements of the store need of a database, whichever it is.

Statements are written once. Their placeholders are `?`, or `?1` where one value stands in several places. What the
databases say differently is in a `Dialect`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray


class Rows(Protocol):
    """What a statement gives, read as it is asked for."""

    def __iter__(self) -> Iterator[Any]: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Dialect(Struct, frozen=True, kw_only=True):
    """What one database says in words of its own.

    `first_name` is the first name of the path `{path}`. `has_metadata` says that a document has, by a name, the only
    value of a JSON array: two placeholders. `lock` ends a SELECT of a row that only one writer may use at a time.
    `likeness` is the cosine of `vectors.vector` and `{vector}`, and `vector_value` a placeholder for a vector.
    `near_settings` is what a transaction says before it asks an index of vectors; empty where there are none.
    """

    first_name: str
    has_metadata: str
    lock: str
    likeness: str
    vector_value: str
    near_settings: str = ""


class Connection(Protocol):
    """A connection in a transaction; one thread uses it."""

    @property
    def dialect(self) -> Dialect: ...

    def execute(self, statement: str, bindings: Sequence[Any] = ..., /) -> Rows: ...

    def scan(self, statement: str, bindings: Sequence[Any] = ..., /) -> Iterator[Any]:
        """Yield the rows of a statement without having all of them in memory."""
        ...

    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], /) -> None:
        """Insert many rows in few steps."""
        ...

    def next_numbers(self, table: str, count: int, /) -> Sequence[int]:
        """Return numbers, rising, that no row of a table has, nor any that is inserted meanwhile."""
        ...

    def as_vector(self, vector: NDArray[np.float32], /) -> Any:
        """Return a vector as the database takes it."""
        ...
