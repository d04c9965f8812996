"""Near: records which spaces have a vector index that is good enough to be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import asdict

from pegboard.model.json_types import JSON
from pegboard.workspace.store.connection import Connection

SEARCH_FUSED_PASSAGES = 200  # passages ranked by words, and by vectors, before both are combined


class NearIndex(Struct, frozen=True, kw_only=True):
    """A vector index of one space: its embedder, its number of passages, and its measured recall.

    An index with insufficient recall is recorded, so that it is neither used nor built again and again.
    """

    space_n: int
    dimension: int
    mark: str
    passages: int
    recall: float
    is_used: bool

    def as_json(self) -> JSON:
        """Return its stored form."""
        return asdict(self)

    def nearest(self) -> str:
        """Return the statement for the passages nearest to `question.vector`, with their likeness.

        Its ordering and conditions are exactly those of the index, so that PostgreSQL uses it.
        """
        return (
            "select vectors.chunk_n as n, -(vectors.vector <#> (select vector from question)) as likeness "  # noqa: S608 - numbers of ours
            f"from vectors where vectors.space_n = {self.space_n} and vector_dims(vectors.vector) = {self.dimension} "
            f"order by (vectors.vector::vector({self.dimension})) <#> (select vector from question) "
            f"limit {SEARCH_FUSED_PASSAGES}"
        )


def setting_of(space_n: int) -> str:
    """Return the name of a space's index in `settings`."""
    return f"near:{space_n}"


def read_near_index(db: Connection, space_n: int) -> NearIndex | None:
    """Return the recorded index of a space."""
    return next(iter(near_indexes(db, [space_n]).values()), None)


def near_indexes(db: Connection, spaces: Sequence[int]) -> Mapping[int, NearIndex]:
    """Return the recorded indexes of some spaces."""
    named = ",".join("?" * len(spaces))
    rows: list[Any] = db.execute(
        f"select value from settings where name in ({named or 'null'})",  # noqa: S608 - question marks
        [setting_of(each) for each in spaces],
    ).fetchall()
    indexes = [NearIndex(**orjson.loads(value)) for (value,) in rows]
    return {each.space_n: each for each in indexes}
