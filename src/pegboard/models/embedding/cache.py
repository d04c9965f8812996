"""Cache: vectors in a file, so that what was read once is not paid for again after a restart."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3  # noqa: TID251 - a database of ours, not a file that somebody names
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from pegboard.core.ports import Embedder
from pegboard.models.embedding.vectors import Vectors, embedded, loaded

EMBED_CACHE_ROWS = 200_000  # vectors that one file keeps
EMBED_CACHE_BUSY_S = 1.0  # that a search waits for the file, before it does without

log = logging.getLogger("pegboard")

_TABLE = "create table if not exists vectors (mark blob primary key, row blob not null)"
# The oldest go first, a tenth at a time; `rowid` tells the order they came in.
_FORGET = "delete from vectors where rowid <= (select max(rowid) from vectors) - ?"


class CachedEmbedder:
    """An embedder that remembers what it was asked, by text and model; fills the port `Embedder`.

    The file is opened for each question and holds nothing in between, so that processes may share it. One that is
    broken, locked or gone is passed over, and said once in the log: then the model is asked as if there were none.
    Only marks of the texts stand in it, not the texts.
    """

    def __init__(self, embedder: Embedder, path: Path, *, max_rows: int = EMBED_CACHE_ROWS) -> None:
        self._embedder, self._path, self._max_rows = embedder, path, max_rows
        self._was_said = False

    @property
    def model_id(self) -> str:
        """That of the embedder behind it."""
        return self._embedder.model_id

    @property
    def dimension(self) -> int | None:
        """That of the embedder behind it."""
        return self._embedder.dimension

    async def load(self) -> None:
        """Wait until the embedder behind it has its model; the name by which rows are kept says which it is.

        Raises:
            Exception: whatever the embedder raises.
        """
        await loaded(self._embedder)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row of length 1 a text; the embedder is asked for those that are not known, once each.

        Raises:
            Exception: whatever the embedder raises.
        """
        await self.load()
        model = self.model_id.encode()
        marks = {text: hashlib.sha256(model + b"\0" + text.encode(errors="replace")).digest() for text in texts}
        rows = await asyncio.to_thread(self._read, marks)
        fresh = [text for text in marks if text not in rows]
        vectors = await embedded(fresh, self._embedder)
        # Of an earlier dimension of the same name: a model that was exchanged behind its address.
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
            with closing(self._connect()) as connection:
                for text, mark in marks.items():
                    row = connection.execute("select row from vectors where mark = ?", (mark,)).fetchone()
                    vector = np.frombuffer(row[0], dtype=np.float32) if row is not None else None
                    if vector is not None and np.isfinite(vector).all():
                        rows[text] = vector
        except (sqlite3.Error, OSError, ValueError) as error:
            self._say(error)
        return rows if len({len(row) for row in rows.values()}) == 1 else {}

    def _write(self, rows: Mapping[bytes, Vectors]) -> None:
        try:
            with closing(self._connect()) as connection, connection:
                connection.executemany(
                    "insert or replace into vectors (mark, row) values (?, ?)",
                    [(mark, np.ascontiguousarray(row, dtype=np.float32).tobytes()) for mark, row in rows.items()],
                )
                if connection.execute("select count(*) from vectors").fetchone()[0] > self._max_rows:
                    connection.execute(_FORGET, (self._max_rows * 9 // 10,))
        except (sqlite3.Error, OSError) as error:
            self._say(error)

    def _connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=EMBED_CACHE_BUSY_S)
        connection.execute(_TABLE)
        return connection

    def _say(self, error: Exception) -> None:
        if not self._was_said:
            self._was_said = True
            log.warning("The cache of vectors %r is passed over: %s.", str(self._path), error)
