"""Connection: the database interface for the store's statements.

Statements are written once, with the placeholders `?`, or `?1` for a repeated value. A `Dialect` has the differences
between databases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray


class Rows(Protocol):
    """The rows of a statement, read lazily."""

    def __iter__(self) -> Iterator[Any]: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Dialect(Struct, frozen=True, kw_only=True):
    """The differences of one database.

    `first_name` is the first name of the path `{path}`. `has_metadata` tests that a document has, under a name, the
    only value of a JSON array: two placeholders. `lock` ends a SELECT of a row that only one writer may use at a time.
    `likeness` is the cosine of `vectors.vector` and `{vector}`, and `vector_value` a placeholder for a vector.
    `near_settings` are the settings of a transaction that uses a vector index; empty without indexes.
    """

    first_name: str
    has_metadata: str
    lock: str
    likeness: str
    vector_value: str
    near_settings: str = ""


class Connection(Protocol):
    """A connection in a transaction, for one thread."""

    @property
    def dialect(self) -> Dialect: ...

    def execute(self, statement: str, bindings: Sequence[Any] = ..., /) -> Rows: ...

    def scan(self, statement: str, bindings: Sequence[Any] = ..., /) -> Iterator[Any]:
        """Yield the rows of a statement without loading all of them."""
        ...

    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], /) -> None:
        """Insert many rows in few statements."""
        ...

    def next_numbers(self, table: str, count: int, /) -> Sequence[int]:
        """Return ascending numbers that no row of a table has or gets meanwhile."""
        ...

    def as_vector(self, vector: NDArray[np.float32], /) -> Any:
        """Return a vector in the database's form."""
        ...
