"""Fastembed embedder: a local model, loaded from files on first use, without network access."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.core.after_fork import Threads, leave_to_parent, renew_after_fork
from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError
from pegboard.models.embedding.vectors import Vectors, unit_rows

if TYPE_CHECKING:
    from pegboard.models.embedding import fastembed_model
else:
    fastembed_model = LazyModule("pegboard.models.embedding.fastembed_model")

EMBED_TURN_TEXTS = 8  # texts that a local model reads before another caller's turn


class FastembedEmbedder:
    """A local ONNX model through the package fastembed; implements the port `Embedder`.

    It runs in its own thread, a few texts at a time, so that a query does not wait for a long list. The files are read
    on first use and never downloaded: `pegboard workspace fetch-model` does that.

    Args:
        model: a model that fastembed lists, such as `BAAI/bge-small-en-v1.5`.
        folder: the folder with downloaded models.
        path: a folder with the files of one model; then `model` is optional, and may be any model.
        pooling: how word vectors are combined, if `model` is omitted; by default as the folder declares.
        threads: CPU cores for one request; half of the machine's by default.

    Raises:
        DefinitionError: there is neither `model` nor `path`.
    """

    def __init__(
        self,
        model: str = "",
        *,
        folder: Path = Path(".pegboard-models"),
        path: Path | None = None,
        pooling: fastembed_model.Pooling | None = None,
        threads: int | None = None,
    ) -> None:
        if not model and path is None:
            raise DefinitionError("an embedder of type fastembed needs `model` or `path`")
        self.name, self.folder = model, folder
        self._path = path
        self._pooling: fastembed_model.Pooling | None = pooling
        self._cores = threads or max(1, (os.cpu_count() or 2) // 2)
        self._threads = Threads(1, name="pegboard-fastembed")
        self._model: fastembed_model.LoadedModel | None = None
        self._length: int | None = None
        self._mark = ""
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget the model, whose threads run in the parent."""
        leave_to_parent(self._model)
        self._model = None

    @property
    def model_id(self) -> str:
        """Its name, and after loading a digest of its files."""
        named = f"fastembed/{self.name or str(self._path)}"
        return f"{named}@{self._mark}" if self._mark else named

    @property
    def dimension(self) -> int | None:
        """The dimension of its first answer."""
        return self._length

    async def load(self) -> None:
        """Load the model; otherwise that happens on first use.

        Raises:
            LookupError: fastembed does not list the model.
            FileNotFoundError: its files are missing.
            Exception: the libraries' errors for files without a valid model.
        """
        if self._model is None:
            await asyncio.get_running_loop().run_in_executor(self._threads.executor, self._loaded)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row of length 1 per text.

        Raises:
            Exception: as `load`; ValueError, for a wrong number or form of rows.
        """
        loop, rows = asyncio.get_running_loop(), list[Vectors]()
        for start in range(0, len(texts), EMBED_TURN_TEXTS):
            some = list(texts[start : start + EMBED_TURN_TEXTS])
            rows += await loop.run_in_executor(self._threads.executor, self._read, some)
        vectors = unit_rows(rows, count=len(texts), dimension=self._length, model_id=self.model_id)
        self._length = vectors.shape[1]
        return vectors

    def _read(self, texts: Sequence[str]) -> list[Vectors]:
        return self._loaded().embed(texts)

    def _loaded(self) -> fastembed_model.LoadedModel:
        if self._model is None:
            if self.name:
                model = fastembed_model.load_listed(self.name, self.folder, path=self._path, threads=self._cores)
            else:
                assert self._path is not None
                model = fastembed_model.load_folder(self._path, pooling=self._pooling, threads=self._cores)
            self._model, self._mark = model, model.mark
        return self._model
