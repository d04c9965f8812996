"""Near: which spaces have an index of their vectors that is good enough to be asked instead of comparing all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import asdict

from pegboard.model.json_types import JSON
from pegboard.workspace.store.connection import Connection

SEARCH_FUSED_PASSAGES = 200  # ranked by words, and by vectors, before the two are one


class NearIndex(Struct, frozen=True, kw_only=True):
    """An index of the vectors of one space: of which embedder, of how many passages, and what share it finds of the
    ten nearest. One that finds too few is remembered, so that it is not made again and again, and not used.
    """

    space_n: int
    dimension: int
    mark: str
    passages: int
    recall: float
    is_used: bool

    def as_json(self) -> JSON:
        """Return it as it is kept."""
        return asdict(self)

    def nearest(self) -> str:
        """Return the statement that gives the passages nearest to `question.vector`, with their likeness.

        The ordering and the conditions are those of the index, word for word, so that it is used.
        """
        return (
            "select vectors.chunk_n as n, -(vectors.vector <#> (select vector from question)) as likeness "  # noqa: S608 - numbers of ours
            f"from vectors where vectors.space_n = {self.space_n} and vector_dims(vectors.vector) = {self.dimension} "
            f"order by (vectors.vector::vector({self.dimension})) <#> (select vector from question) "
            f"limit {SEARCH_FUSED_PASSAGES}"
        )


def setting_of(space_n: int) -> str:
    """Return under which name of `settings` the index of a space is told of."""
    return f"near:{space_n}"


def read_near_index(db: Connection, space_n: int) -> NearIndex | None:
    """Return what is known of the index of a space."""
    return next(iter(near_indexes(db, [space_n]).values()), None)


def near_indexes(db: Connection, spaces: Sequence[int]) -> Mapping[int, NearIndex]:
    """Return what is known of the indexes of some spaces."""
    named = ",".join("?" * len(spaces))
    rows: list[Any] = db.execute(
        f"select value from settings where name in ({named or 'null'})",  # noqa: S608 - question marks
        [setting_of(each) for each in spaces],
    ).fetchall()
    indexes = [NearIndex(**orjson.loads(value)) for (value,) in rows]
    return {each.space_n: each for each in indexes}
