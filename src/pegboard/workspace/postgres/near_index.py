"""Near index: approximate vector indexes for large spaces, and the measurement of their recall.

Up to some size all passages of a scope are compared, which is exact. A larger space has its own HNSW index of its own
rows, so other spaces' passages neither displace its passages nor appear in its results. An index is used only if a
measurement on the space's own vectors shows sufficient recall.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from pegboard.workspace.store.connection import Connection
from pegboard.workspace.store.embedding import embedder_of
from pegboard.workspace.store.near import NearIndex, read_near_index, setting_of

NEAR_INDEX_CANDIDATES = 400  # candidates that an index examines
NEAR_INDEX_RECALL = 0.95  # the share of the ten nearest that an index must find to be used
NEAR_INDEX_PROBES = 20  # questions of the measurement
NEAR_INDEX_GROWTH = 2  # an insufficient index is built again after the space has grown by this factor
NEAR_INDEX_DIMENSIONS = 2_000  # the largest dimension of an index: pgvector's own limit
NEAR_INDEX_MEMORY_MIB = 256  # MiB of server memory for building an index

_LOCK: Final = 1_735_140_913  # our advisory lock for building one index at a time
_NEAREST: Final = 10  # hits of a search used to judge an index


def build_near_indexes(db: Connection, *, exact_passages: int) -> Iterator[NearIndex]:
    """Build and measure missing indexes, outside of a transaction; yield each.

    Processes do not build at the same time; writers continue meanwhile.

    Raises:
        Exception: an index could not be built; an incomplete one is not used.
    """
    mark = embedder_of(db)
    db.execute("select set_config('pegboard.spaces', 'all', false)")
    db.execute("select set_config('maintenance_work_mem', ?, false)", (f"{NEAR_INDEX_MEMORY_MIB}MB",))
    large: list[Any] = db.execute("select n from spaces where chunk_count > ? order by n", (exact_passages,)).fetchall()
    for (space_n,) in large if mark else ():
        if _is_locked(db, "pg_try_advisory_lock", space_n):
            try:
                made = _brought_up(db, int(space_n), str(mark), exact_passages)
                if made is not None:
                    yield made
            finally:
                _is_locked(db, "pg_advisory_unlock", space_n)


def _is_locked(db: Connection, function: str, space_n: int) -> bool:
    row: Any = db.execute(f"select {function}(?, ?)", (_LOCK, space_n)).fetchone()
    return bool(row[0])


def _brought_up(db: Connection, space_n: int, mark: str, exact_passages: int) -> NearIndex | None:
    counted: Any = db.execute(
        "select count(*), min(vector_dims(vector)) from vectors where space_n = ? and vector is not null", (space_n,)
    ).fetchone()
    passages, dimension = int(counted[0]), int(counted[1] or 0)
    known = read_near_index(db, space_n)
    is_known = (
        known is not None and known.mark == mark and (known.is_used or passages < NEAR_INDEX_GROWTH * known.passages)
    )
    if is_known or passages <= exact_passages or not 0 < dimension <= NEAR_INDEX_DIMENSIONS:
        return None
    name = f"vectors_near_{space_n}_{dimension}"
    # An incomplete index is useless and blocks its name.
    db.execute(f"drop index concurrently if exists {name}")
    db.execute(
        f"create index concurrently {name} on vectors using hnsw ((vector::vector({dimension})) vector_ip_ops) "
        f"where space_n = {space_n} and vector_dims(vector) = {dimension}",
    )
    index = NearIndex(space_n=space_n, dimension=dimension, mark=mark, passages=passages, recall=0.0, is_used=True)
    recall = _recall(db, index)
    index = NearIndex(
        space_n=space_n, dimension=dimension, mark=mark, passages=passages, recall=recall,
        is_used=recall >= NEAR_INDEX_RECALL,
    )  # fmt: skip
    db.execute(
        "insert into settings (name, value) values (?, ?) on conflict (name) do update set value = excluded.value",
        (setting_of(space_n), orjson.dumps(index.as_json()).decode()),
    )
    if not index.is_used:
        db.execute(f"drop index concurrently if exists {name}")
    return index


def _recall(db: Connection, index: NearIndex) -> float:
    """Return the share of the true nearest that an index finds, for questions halfway between two passages."""
    for name, value in near_settings():
        db.execute("select set_config(?, ?, false)", (name, value))
    probes: list[Any] = db.execute(
        """
        with drawn as (
            select vector, row_number() over (order by md5(chunk_n::text)) as place from vectors
            where space_n = ? and vector is not null and vector_dims(vector) = ?
        )
        select cast(l2_normalize(one.vector + other.vector) as text) from drawn as one
            join drawn as other on other.place = one.place + ?
        where one.place <= ?
        """,
        (index.space_n, index.dimension, NEAR_INDEX_PROBES, NEAR_INDEX_PROBES),
    ).fetchall()
    shares = [_share(db, index, probe) for (probe,) in probes]
    return sum(shares) / max(1, len(shares))


def _share(db: Connection, index: NearIndex, probe: str) -> float:
    exact = _likenesses(
        db,
        f"select -(vector <#> cast(? as vector)) from vectors where space_n = {index.space_n} and vector is not null "  # noqa: S608 - numbers of ours
        f"and vector_dims(vector) = {index.dimension} order by 1 desc limit {_NEAREST}",
        probe,
    )
    near = _likenesses(
        db,
        f"with question (vector) as materialized (select cast(? as vector)) "  # noqa: S608 - numbers of ours
        f"select likeness from ({index.nearest()}) as near order by likeness desc limit {_NEAREST}",
        probe,
    )
    # Compared by likeness instead of id, since equal passages are interchangeable.
    return sum(each >= exact[-1] - 1e-6 for each in near) / len(exact) if exact else 1.0


def _likenesses(db: Connection, statement: str, probe: str) -> Sequence[float]:
    rows: list[Any] = db.execute(statement, (probe,)).fetchall()
    return [float(value) for (value,) in rows]


def near_settings() -> Iterator[tuple[str, str]]:
    """Yield the settings of a transaction that uses an index."""
    yield "hnsw.ef_search", str(NEAR_INDEX_CANDIDATES)
    yield "hnsw.iterative_scan", "relaxed_order"
