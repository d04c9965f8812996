"""Fastembed model: find the files of a local ONNX model, load it, and fetch it when the operator says so.

Loading never reaches for the network: only `fetch` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal

import fastembed
import numpy as np
import orjson
from fastembed.common.model_description import DenseModelDescription, ModelSource, PoolingType
from loguru import logger

from pegboard.core.names import nearest
from pegboard.model.bounds import KIB
from pegboard.models.embedding.vectors import Vectors
from pegboard.models.limits import LISTED_LINE_CHARS

EMBED_FILE_SAMPLES = 32  # of each file of a model, by which it is told from another
EMBED_FILE_SAMPLE_BYTES = 64 * KIB  # and of each of them
EMBED_MODEL_FILES = 1_000  # that are looked at for it

Pooling = Literal["mean", "cls", "last_token", "none"]
_POOLINGS: Final = {
    "mean": PoolingType.MEAN, "cls": PoolingType.CLS, "last_token": PoolingType.LAST_TOKEN,
    "none": PoolingType.DISABLED,
}  # fmt: skip
# Where programs that export models put it, the likeliest first.
_MODEL_FILES: Final = ("model.onnx", "onnx/model.onnx", "model_optimized.onnx", "onnx/model_quantized.onnx")
# What tells one model from another: not the words beside it.
_OF_MODEL: Final = frozenset(
    {".onnx", ".onnx_data", ".data", ".json", ".txt", ".model", ".bin", ".safetensors", ".npy"}
)
_registering = Lock()
# It writes to standard error what the errors here say.
logger.disable("fastembed")


class LoadedModel:
    """A model in memory. One thread asks it at a time.

    `mark` tells its files from those of every other model: whoever exchanges them has another model.
    """

    def __init__(self, model: fastembed.TextEmbedding, files: Path) -> None:
        self._model = model
        self.mark = _mark_of(files)

    def embed(self, texts: Sequence[str]) -> list[Vectors]:
        """Return one row a text."""
        return [np.asarray(row, dtype=np.float32) for row in self._model.embed(list(texts), batch_size=len(texts))]


def load_listed(name: str, folder: Path, *, path: Path | None, threads: int) -> LoadedModel:
    """Load a model that fastembed lists, from the folder that `fetch` fills, or from one with its files.

    Raises:
        LookupError: fastembed lists no such model.
        FileNotFoundError: its files are not there.
        Exception: whatever the libraries say of files that hold no model.
    """
    known = _listed(name)
    files = path or _fetched(known, folder)
    if files is None or not (files / known.model_file).is_file():
        where = repr(str(files or folder))
        raise FileNotFoundError(
            f"The model {name!r} is not in {where}. `pegboard workspace fetch-model` fills that folder, here or on a"
            " machine with a network from which it is copied."
        )
    return _loaded(known.model, files, threads)


def load_folder(files: Path, *, pooling: Pooling | None, threads: int) -> LoadedModel:
    """Load a model that is in a folder with its tokenizer, whichever it is.

    Raises:
        FileNotFoundError: there is no model, or no tokenizer.
        Exception: whatever the libraries say of files that hold no model.
    """
    there = next((each for each in _MODEL_FILES if (files / each).is_file()), None)
    missing = [each for each in ("tokenizer.json", "tokenizer_config.json") if not (files / each).is_file()]
    if there is None or missing:
        what = " and ".join([*([] if there else [f"none of {', '.join(_MODEL_FILES)}"]), *(f"no {m}" for m in missing)])
        raise FileNotFoundError(f"The folder {str(files)!r} has {what}. Export a model with its tokenizer into it.")
    pooled = pooling or _pooling_of(files)
    # Fastembed knows models by names, for the whole process; the dimension is what the first answer shows.
    name = f"pegboard:{files}:{there}:{pooled}"
    with _registering:
        if all(each["model"] != name for each in fastembed.TextEmbedding.list_supported_models()):
            fastembed.TextEmbedding.add_custom_model(
                name, pooling=_POOLINGS[pooled], normalization=True, sources=ModelSource(hf=name), dim=1,
                model_file=there,
            )  # fmt: skip
    return _loaded(name, files, threads)


def fetch(name: str, folder: Path) -> Path:
    """Download a model that fastembed lists into a folder, or what is missing of it; return where its files are.

    Raises:
        LookupError: fastembed lists no such model.
        ConnectionError: it could not be downloaded.
    """
    known = _listed(name)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if known.sources.hf:
            fastembed.TextEmbedding.download_files_from_huggingface(
                known.sources.hf, str(folder), [known.model_file, *known.additional_files]
            )
        files = fastembed.TextEmbedding.download_model(known, str(folder), retries=1)
    except Exception as error:  # noqa: BLE001 - boundary: the libraries below have errors of their own for a network
        raise ConnectionError(
            f"The model {name!r} could not be downloaded ({type(error).__name__}: {str(error)[:LISTED_LINE_CHARS]})."
            f" Is this machine online? Otherwise run this where there is a network, and copy {str(folder)!r} here."
        ) from None
    return Path(files)


def _loaded(name: str, files: Path, threads: int) -> LoadedModel:
    model = fastembed.TextEmbedding(
        name, cache_dir=str(files), specific_model_path=str(files), local_files_only=True, threads=threads
    )
    return LoadedModel(model, files)


def _listed(name: str) -> DenseModelDescription:
    listed = fastembed.TextEmbedding.list_supported_models()
    for each in listed:
        if each["model"].lower() == name.lower():
            fields: dict[str, Any] = {**each, "sources": ModelSource(**each["sources"])}
            return DenseModelDescription(**fields)
    names = [each["model"] for each in listed]
    known = nearest(name, names, label="Models")
    raise LookupError(f"fastembed lists no model {name!r}.{known} A folder with any other one is named by `path`.")


def _fetched(known: DenseModelDescription, folder: Path) -> Path | None:
    """Return where the files of a model are in a folder that `fetch` filled; `None` where they are not."""
    try:
        return Path(fastembed.TextEmbedding.download_model(known, str(folder), local_files_only=True))
    except ValueError:
        return None


def _pooling_of(files: Path) -> Pooling:
    """Return how the vectors of words become one, as sentence-transformers says it beside the models it exports."""
    file = files / "1_Pooling" / "config.json"
    declared: Any = {}
    if file.is_file():
        declared = orjson.loads(file.read_bytes())  # raw: the operator's own file, in a folder of their config
    if declared.get("pooling_mode_cls_token") or declared.get("pooling_mode") == "cls":
        return "cls"
    if declared.get("pooling_mode_lasttoken") or declared.get("pooling_mode") == "lasttoken":
        return "last_token"
    return "mean"


def _mark_of(files: Path) -> str:
    """Return what tells the files of a model from those of another: names, sizes, and samples of what is in them."""
    mark = sha256()
    telling = (each for each in files.rglob("*") if each.suffix in _OF_MODEL and each.is_file())
    for file in sorted(islice(telling, EMBED_MODEL_FILES)):
        size_bytes = file.stat().st_size
        mark.update(f"{file.relative_to(files).as_posix()}:{size_bytes}\0".encode())
        with file.open("rb") as opened:  # raw: the operator's own file, in a folder of their config
            for number in range(EMBED_FILE_SAMPLES):
                opened.seek(size_bytes * number // EMBED_FILE_SAMPLES)
                mark.update(opened.read(EMBED_FILE_SAMPLE_BYTES))
    return mark.hexdigest()[:16]
