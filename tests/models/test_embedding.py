"""What fills the port Embedder: rows that can be compared, whoever made them, and a file that spares asking twice."""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pegboard.model.error import CallError
from pegboard.model.secret import Secret
from pegboard.models.embedding.cache import CachedEmbedder
from pegboard.models.embedding.hashing import HashingEmbedder
from pegboard.models.embedding.openai_embedder import OpenAIEmbedder
from pegboard.models.embedding.thread import EmbeddingThread
from pegboard.models.embedding.vectors import embedded
from tests.builtin.web import Asked, Site, as_json
from tests.timing import PATIENCE_S

KEY = "CANARY-key-embeddings"


class Model:
    """An endpoint that speaks OpenAI's embeddings: a text's row is its length and its number of spaces."""

    def __init__(self, dimension: int = 2) -> None:
        self.dimension = dimension
        self.batches: list[list[str]] = []

    def __call__(self, asked: Asked) -> bytes:
        texts = asked.json["input"]
        self.batches.append(texts)
        rows = [[float(len(text)), float(text.count(" ")), *[0.0] * self.dimension][: self.dimension] for text in texts]
        data = [{"index": place, "embedding": row} for place, row in enumerate(rows)]
        # In any order, as the wire form allows.
        return as_json({"object": "list", "model": asked.json["model"], "data": data[::-1]})


class Rows:
    """An embedder that returns what it was given, and counts."""

    model_id = "rows"
    dimension: int | None = None

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[list[str]] = []

    async def embed(self, texts: Sequence[str]) -> Any:
        self.asked.append(list(texts))
        return self.answers.pop(0)


async def test_an_openai_endpoint_is_asked_in_batches_and_its_rows_are_of_length_one() -> None:
    model = Model()
    site = Site(model)
    async with site.server() as server:
        embedder = OpenAIEmbedder(name="small", base_url=f"{server.url}/v1/", api_key=Secret(KEY))
        rows = await embedder.embed(["abc", "a b c", *(f"text {n}" for n in range(98))])
    assert [len(batch) for batch in model.batches] == [64, 36]
    assert (site.asked[0].target, site.asked[0].headers["authorization"]) == ("/v1/embeddings", f"Bearer {KEY}")
    assert site.asked[0].json["encoding_format"] == "float"
    assert (rows.shape, rows.dtype, embedder.dimension) == ((100, 2), np.float32, 2)
    assert rows[0].tolist() == [1.0, 0.0]
    assert np.allclose(rows[1], np.array([5, 2]) / np.sqrt(29))
    assert embedder.model_id == f"{server.url}/v1/small"
    assert KEY not in repr(embedder)


async def test_a_whole_batch_of_long_rows_is_read() -> None:
    async with Site(Model(dimension=3_072)).server() as server:
        rows = await OpenAIEmbedder(name="large", base_url=f"{server.url}/v1/").embed(["abc"] * 64)
    assert rows.shape == (64, 3_072)


async def test_a_dimension_that_was_asked_for_must_be_kept_to() -> None:
    site = Site(Model(dimension=3))
    async with site.server() as server:
        embedder = OpenAIEmbedder(name="small", base_url=server.url, dimension=4)
        with pytest.raises(ValueError, match=r"shape \(1, 3\), not \(1, 4\)"):
            await embedder.embed(["a"])
        assert site.asked[0].json["dimensions"] == 4
        assert embedder.model_id.endswith("/small/4")


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        [{"embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 7, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": [], "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": None}],
        [{"index": 0, "embedding": "AACAPw=="}, {"index": 1, "embedding": "AACAPw=="}],
        [{"index": 0, "embedding": [[1.0]]}, {"index": 1, "embedding": [[1.0]]}],
        [{"index": 0, "embedding": []}, {"index": 1, "embedding": []}],
    ],
)
async def test_an_endpoint_that_answers_something_else_is_refused_in_words(data: Any) -> None:
    async with Site(lambda _: as_json({"data": data})).server() as server:
        with pytest.raises((CallError, ValueError), match=r"embedding model|embedder"):
            await OpenAIEmbedder(name="m", base_url=server.url).embed(["a", "b"])


async def test_what_an_endpoint_repeats_of_the_key_is_not_passed_on() -> None:
    async with Site(lambda _: as_json({"error": f"bad key {KEY}"}, status="500 Oops")).server() as server:
        with pytest.raises(CallError) as caught:
            await OpenAIEmbedder(name="m", base_url=server.url, api_key=Secret(KEY)).embed(["a"])
    assert KEY not in str(caught.value)


async def test_hashed_texts_are_alike_as_far_as_they_share_words() -> None:
    embedder = HashingEmbedder(dimension=256)
    texts = ["delete a repository", "delete the repository", "天气预报", ""]
    rows = await embedder.embed(texts)
    assert np.array_equal(rows, await HashingEmbedder(dimension=256).embed(texts))
    assert rows[0] @ rows[1] > 0.4 > abs(rows[0] @ rows[2])
    assert np.allclose(np.linalg.norm(rows, axis=1), [1, 1, 1, 0])
    assert (await embedder.embed([])).shape == (0, 256)


@pytest.mark.parametrize(
    "rows", [[[1.0]], [[1.0], ["x"]], [[float("nan")], [1.0]], [[float("inf")], [1.0]], "ab", None, [[1.0], [1.0, 2.0]]]
)
async def test_an_embedder_that_does_not_keep_to_its_port_is_refused(rows: Any) -> None:
    with pytest.raises(ValueError, match="'rows' returned"):
        await embedded(["a", "b"], Rows(rows))


async def test_rows_must_be_as_long_as_those_they_are_compared_with() -> None:
    with pytest.raises(ValueError, match="shape"):
        await embedded(["a"], Rows([[1.0, 2.0]]), dimension=3)
    assert (await embedded([], Rows(), dimension=3)).shape == (0, 3)


async def test_what_was_embedded_once_is_read_from_the_file_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "new" / "vectors.sqlite"
    first = Rows([[3.0, 4.0], [1.0, 0.0]])
    made = await CachedEmbedder(first, path).embed(["a", "b", "a"])
    assert first.asked == [["a", "b"]]
    second = Rows([[0.0, 1.0]])
    again = await CachedEmbedder(second, path).embed(["b", "c", "a"])
    assert second.asked == [["c"]]
    assert np.array_equal(again, np.stack([made[1], np.array([0, 1], dtype=np.float32), made[0]]))
    assert b"secret words" not in path.read_bytes()
    other = Rows([[1.0, 1.0]])
    other.model_id = "another"
    await CachedEmbedder(other, path).embed(["a"])
    assert other.asked == [["a"]], "of another model nothing is taken"


async def test_a_model_that_was_exchanged_for_one_of_another_dimension_is_asked_anew(tmp_path: Path) -> None:
    path = tmp_path / "vectors.sqlite"
    await CachedEmbedder(Rows([[3.0, 4.0]]), path).embed(["a"])
    exchanged = Rows([[1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert (await CachedEmbedder(exchanged, path).embed(["a", "b"])).shape == (2, 3)
    assert (await CachedEmbedder(Rows(), path).embed(["a", "b"])).shape == (2, 3)


async def test_the_file_forgets_the_oldest(tmp_path: Path) -> None:
    path = tmp_path / "vectors.sqlite"
    for n in range(30):
        await CachedEmbedder(Rows([[1.0, float(n)]]), path, max_rows=10).embed([str(n)])
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select count(*) from vectors").fetchone()[0] <= 10
    newest, oldest = Rows(), Rows([[1.0, 0.0]])
    await CachedEmbedder(newest, path).embed(["29"])
    await CachedEmbedder(oldest, path).embed(["0"])
    assert (newest.asked, oldest.asked) == ([], [["0"]])


@pytest.mark.parametrize("broken", ["no database", "a folder", "odd rows"])
async def test_a_broken_file_is_passed_over_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    path = tmp_path / "vectors.sqlite"
    if broken == "no database":
        path.write_bytes(b"These are not rows. " * 100)
    elif broken == "a folder":
        path.mkdir()
    else:
        await CachedEmbedder(Rows([[3.0, 4.0]]), path).embed(["a"])
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("update vectors set row = x'010203'")
    embedder = CachedEmbedder(Rows(*[[[1.0, 0.0]]] * 2), path)
    with caplog.at_level(logging.WARNING, logger="pegboard"):
        assert (await embedder.embed(["a"])).tolist() == [[1.0, 0.0]]
        assert (await embedder.embed(["a"])).tolist() == [[1.0, 0.0]]
    assert len(caplog.records) == 1
    assert "passed over" in caplog.text


def test_what_an_embedder_still_does_is_told_to_end_with_its_thread() -> None:
    thread, begun, told = EmbeddingThread(), threading.Event(), threading.Semaphore(0)

    async def hangs() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.release()
            raise

    thread.start(hangs())
    assert begun.wait(PATIENCE_S)
    # The loop may not even have begun with this one.
    thread.start(hangs())
    del thread
    gc.collect()
    assert told.acquire(timeout=PATIENCE_S)
    assert told.acquire(timeout=PATIENCE_S)
