"""Static embedder: the mean of word vectors that come with a package; no model runs, and nothing is downloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError
from pegboard.models.embedding.vectors import Vectors, unit_rows

if TYPE_CHECKING:
    import safetensors.numpy as safetensors_numpy
    import tokenizers
else:
    safetensors_numpy = LazyModule("safetensors.numpy")
    tokenizers = LazyModule("tokenizers")

STATIC_TURN_TEXTS = 256  # texts that are read before another caller's turn
_PACKAGE: Final = "wordllama"
_VECTORS, _TOKENIZER = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"
_DIMENSION: Final = 256


class _Words(NamedTuple):
    tokenizer: Any
    vectors: Vectors


class StaticEmbedder:
    """English word vectors of the package wordllama, averaged over a text; implements the port `Embedder`.

    A text takes a tenth of a millisecond. Only the files of the package are read; its code is not run.

    Raises:
        DefinitionError: the package is missing.
    """

    dimension: int | None = _DIMENSION

    def __init__(self) -> None:
        spec = find_spec(_PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise DefinitionError(f"an embedder of type static {needs_package(_PACKAGE, 'static')}")
        self._folder = Path(spec.submodule_search_locations[0])
        self.model_id = f"static/{_PACKAGE}-{version(_PACKAGE)}"

    async def load(self) -> None:
        """Read the files; otherwise that happens on first use.

        Raises:
            OSError: they are missing.
            Exception: the libraries' errors for damaged files.
        """
        _words(self._folder)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row of length 1 per text; zeros for one without a word.

        Raises:
            Exception: as `load`.
        """
        words, rows = _words(self._folder), list[Vectors]()
        for start in range(0, len(texts), STATIC_TURN_TEXTS):
            read: list[Any] = words.tokenizer.encode_batch(
                list(texts[start : start + STATIC_TURN_TEXTS]), add_special_tokens=False
            )
            rows += [_mean(words.vectors, each.ids) for each in read]
            await asyncio.sleep(0)
        return unit_rows(rows, count=len(texts), dimension=_DIMENSION, model_id=self.model_id)


def _mean(vectors: Vectors, ids: Sequence[int]) -> Vectors:
    return vectors[ids].mean(axis=0, dtype=np.float32) if ids else np.zeros(_DIMENSION, dtype=np.float32)


@cache
def _words(folder: Path) -> _Words:
    files: Any = safetensors_numpy  # partly untyped
    tables: dict[str, Any] = files.load_file(folder / _VECTORS)
    [vectors] = tables.values()
    return _Words(tokenizers.Tokenizer.from_file(str(folder / _TOKENIZER)), vectors)
