"""A large space has an index of its vectors on PostgreSQL, which finds what comparing them one by one does."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import psycopg
import pytest

from pegboard.model.document import DocumentFilters, DocumentScope
from pegboard.workspace.postgres.postgres_store import PostgresDocumentStore
from tests.timing import PATIENCE_S
from tests.workspace.library import Library, in_space
from tests.workspace.postgres_databases import Databases

LARGE, SMALL, EXACT = 400, 60, 300
DIMENSION = 24
DRAWN = np.random.default_rng(5).standard_normal((6, DIMENSION))


class Mixed:
    """A model whose texts lie where six directions mix, as those of real models lie in few directions."""

    def __init__(self, model_id: str = "mixed", *, dimension: int = DIMENSION) -> None:
        self.model_id, self.dimension = model_id, dimension

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        rows = [_dice(f"{self.model_id}{text}").standard_normal(6) @ DRAWN for text in texts]
        return [[*row, *[0.0] * self.dimension][: self.dimension] for row in rows]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    # A search on a busy machine would not wait for the thread of an embedder.
    monkeypatch.setattr("pegboard.workspace.passage_embedder.EMBED_WAIT_S", PATIENCE_S)


def _dice(text: str) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))


@pytest.fixture(scope="module")
def url(databases: Databases) -> str:
    """A database with a large and a small space, embedded, without an index; for all of these tests."""
    url = databases.empty()

    async def fill() -> None:
        library = Library(url, embedder=Mixed())
        await library.add("large", "notes", {f"n{n}.txt": f"Note {n} of the large space." for n in range(LARGE)})
        await library.add("small", "notes", {f"n{n}.txt": f"CANARY {n} of the small space." for n in range(SMALL)})
        for space in ("large", "small"):
            await library.store.embed_missing(library.store.operator_scope(space), space)
        library.store.close()

    asyncio.run(fill())
    return url


@pytest.fixture
def copy(databases: Databases, url: str) -> str:
    return databases.copy_of(url)


def store_in(url: str, embedder: Any = None) -> PostgresDocumentStore:
    return PostgresDocumentStore(url, embedder=embedder or Mixed(), exact_passages=EXACT)


async def nearest(store: PostgresDocumentStore, spaces: Sequence[str], query: str, **more: Any) -> list[str]:
    scope = DocumentScope(user="ann", spaces=tuple(spaces))
    found = await store.search(scope, query, limit=10, **{"mode": "vector", **more})
    assert found["mode_used"] == more.get("mode", "vector")
    return [f"{hit['document_id']} {hit['score']:.5f}" for hit in found["hits"]]


def indexes_of(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        named = "select indexname from pg_indexes where indexname like 'vectors\\_near%'"
        return [name for (name,) in connection.execute(named)]


async def test_the_index_gives_what_comparing_gives_for_every_scope_and_mode(copy: str) -> None:
    store = store_in(copy)
    questions = [f"What of question {n}, note {n}?" for n in range(12)]
    scopes = (["large"], ["large", "small"], ["small"])
    exact = [
        await nearest(store, scope, q, mode=m) for scope in scopes for q in questions for m in ("vector", "hybrid")
    ]
    [made] = await store.index_vectors()
    assert (made.passages, made.is_used, made.recall >= 0.95) == (LARGE, True, True)
    assert indexes_of(copy) == [f"vectors_near_{made.space_n}_{DIMENSION}"]
    found = [
        await nearest(store, scope, q, mode=m) for scope in scopes for q in questions for m in ("vector", "hybrid")
    ]
    shared = [len({*a} & {*b}) / len(a) for a, b in zip(exact, found, strict=True)]
    assert min(shared) >= 0.7
    assert sum(shared) / len(shared) >= 0.95
    # It is made once.
    assert await store.index_vectors() == []
    store.close()


async def test_no_passage_of_another_space_comes_through_the_index_nor_shapes_what_it_gives(copy: str) -> None:
    library = Library(copy, embedder=Mixed())
    store = store_in(copy)
    await store.index_vectors()
    before = await nearest(store, ["large"], "CANARY 7 of the small space.")
    assert await nearest(store, ["small"], "CANARY 7 of the small space.")
    # Many that are nearer than all of one's own, in another space.
    await library.add("small", "notes", {f"more{n}.txt": f"CANARY 7 of the small space.{' ' * n}" for n in range(40)})
    await store.embed_missing(store.operator_scope("small"), "small")
    assert await nearest(store, ["large"], "CANARY 7 of the small space.") == before
    scope = DocumentScope(user="ann", spaces=("large",))
    found = await store.search(scope, "CANARY", mode="vector", limit=50)
    store.close()
    library.store.close()
    assert "CANARY" not in str(found)
    assert len(found["hits"]) == 50


async def test_what_is_written_and_removed_after_it_was_made_is_found_and_gone(copy: str) -> None:
    store = store_in(copy)
    await store.index_vectors()
    library = Library(copy, embedder=Mixed())
    await library.add("large", "later", {"new.txt": "A note that came later."})
    await store.embed_missing(store.operator_scope("large"), "large")
    assert (await nearest(store, ["large"], "new\nA note that came later."))[0].endswith(" 1.00000")
    await store.remove_source(store.operator_scope("large"), "large", "later")
    assert not (await nearest(store, ["large"], "new\nA note that came later."))[0].endswith(" 1.00000")
    # With a filter all are compared, however few pass it.
    scope = DocumentScope(user="ann", spaces=("large",))
    [one] = (await library.call("find_by_name", in_space("large"), pattern="n399.txt"))["items"]
    found = await store.search(
        scope, "anything", mode="vector", limit=10, filters=DocumentFilters(document_ids=(one["document_id"],))
    )
    store.close()
    library.store.close()
    assert {hit["document_id"] for hit in found["hits"]} <= {one["document_id"]}


async def test_another_embedder_of_another_length_is_taken_and_gets_an_index_of_its_own(copy: str) -> None:
    store = store_in(copy)
    [first] = await store.index_vectors()
    store.close()
    store = store_in(copy, Mixed("other", dimension=DIMENSION - 4))
    for space in ("large", "small"):
        await store.embed_missing(store.operator_scope(space), space)
    exact = await nearest(store, ["large"], "What of the others?")
    [second] = await store.index_vectors()
    assert (first.dimension, second.dimension, second.is_used) == (DIMENSION, DIMENSION - 4, True)
    assert await nearest(store, ["large"], "What of the others?") == exact
    store.close()


async def test_an_index_that_finds_too_few_is_not_used_and_not_made_again(
    copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pegboard.workspace.postgres.near_index.NEAR_INDEX_RECALL", 1.1)
    store = store_in(copy)
    exact = await nearest(store, ["large"], "What of it?")
    [made] = await store.index_vectors()
    assert not made.is_used
    assert indexes_of(copy) == []
    assert await nearest(store, ["large"], "What of it?") == exact
    assert await store.index_vectors() == []
    store.close()
