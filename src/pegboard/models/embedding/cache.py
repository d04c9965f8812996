"""Cache: stores vectors in a file, so that texts are not embedded again after a restart."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from pegboard.core.ports import Embedder
from pegboard.models.embedding.cache_table import SCHEMA
from pegboard.models.embedding.vectors import Vectors, embedded, loaded
from pegboard.storage.sqlite_file import SqliteFile
from pegboard.storage.store_schema import StoreConnection

EMBED_CACHE_ROWS = 200_000  # vectors in one file
EMBED_CACHE_BUSY_S = 1.0  # seconds that a search waits for the locked file before it continues without

log = logging.getLogger("pegboard")

# Delete the oldest tenth; `rowid` gives the order of insertion.
_FORGET = "delete from vectors where rowid <= (select max(rowid) from vectors) - :keep"


class CachedEmbedder:
    """An embedder that stores vectors by text and model; implements the port `Embedder`.

    The file is opened for each request and not kept open, so that processes may share it. A broken, locked or missing
    file is skipped, and logged once; then the model is called as without a cache. The file contains digests of the
    texts, not the texts.
    """

    def __init__(self, embedder: Embedder, path: Path, *, max_rows: int = EMBED_CACHE_ROWS) -> None:
        self._embedder, self._path, self._max_rows = embedder, path, max_rows
        self._was_said = False

    @property
    def model_id(self) -> str:
        """The model id of the wrapped embedder."""
        return self._embedder.model_id

    @property
    def dimension(self) -> int | None:
        """The dimension of the wrapped embedder."""
        return self._embedder.dimension

    async def load(self) -> None:
        """Wait until the wrapped embedder has loaded its model, which determines the key of the rows.

        Raises:
            Exception: any exception of the embedder.
        """
        await loaded(self._embedder)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row of length 1 per text; the embedder is called once for each unknown text.

        Raises:
            Exception: any exception of the embedder.
        """
        await self.load()
        model = self.model_id.encode()
        marks = {text: hashlib.sha256(model + b"\0" + text.encode(errors="replace")).digest() for text in texts}
        rows = await asyncio.to_thread(self._read, marks)
        fresh = [text for text in marks if text not in rows]
        vectors = await embedded(fresh, self._embedder)
        # Rows of an earlier dimension under the same name: the model at this address was replaced.
        if fresh and any(len(row) != vectors.shape[1] for row in rows.values()):
            rows, fresh = {}, list(marks)
            vectors = await embedded(fresh, self._embedder)
        if fresh:
            fresh_rows = dict(zip(fresh, vectors, strict=True))
            await asyncio.to_thread(self._write, {marks[text]: row for text, row in fresh_rows.items()})
            rows |= fresh_rows
        return np.stack([rows[text] for text in texts]) if texts else vectors

    def _read(self, marks: Mapping[str, bytes]) -> dict[str, Vectors]:
        rows: dict[str, Vectors] = {}
        try:
            with self._transaction() as connection:
                for text, mark in marks.items():
                    for (row,) in connection("select row from vectors where mark = :mark", mark=mark):
                        vector = np.frombuffer(row, dtype=np.float32)
                        if np.isfinite(vector).all():
                            rows[text] = vector
        except (OSError, ValueError) as error:
            self._say(error)
        return rows if len({len(row) for row in rows.values()}) == 1 else {}

    def _write(self, rows: Mapping[bytes, Vectors]) -> None:
        try:
            with self._transaction() as connection:
                for mark, row in rows.items():
                    blob = np.ascontiguousarray(row, dtype=np.float32).tobytes()
                    connection("insert or replace into vectors (mark, row) values (:mark, :row)", mark=mark, row=blob)
                if connection("select count(*) from vectors")[0][0] > self._max_rows:
                    connection(_FORGET, keep=self._max_rows * 9 // 10)
        except OSError as error:
            self._say(error)

    def _transaction(self) -> AbstractContextManager[StoreConnection]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return SqliteFile(self._path, SCHEMA, busy_s=EMBED_CACHE_BUSY_S).transaction()

    def _say(self, error: Exception) -> None:
        if not self._was_said:
            self._was_said = True
            log.warning("The cache of vectors %r is passed over: %s.", str(self._path), error)
