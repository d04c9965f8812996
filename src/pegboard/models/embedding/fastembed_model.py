"""Fastembed model: finds, loads and downloads the files of a local ONNX model.

Only `fetch` uses the network, when the operator calls it.
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

EMBED_FILE_SAMPLES = 32  # samples of each model file in the digest that identifies a model
EMBED_FILE_SAMPLE_BYTES = 64 * KIB  # bytes of each sample
EMBED_MODEL_FILES = 1_000  # files of a model that are examined

Pooling = Literal["mean", "cls", "last_token", "none"]
_POOLINGS: Final = {
    "mean": PoolingType.MEAN, "cls": PoolingType.CLS, "last_token": PoolingType.LAST_TOKEN,
    "none": PoolingType.DISABLED,
}  # fmt: skip
# File names that export programs use, the likeliest first.
_MODEL_FILES: Final = ("model.onnx", "onnx/model.onnx", "model_optimized.onnx", "onnx/model_quantized.onnx")
# The file names that identify a model; documentation is ignored.
_OF_MODEL: Final = frozenset(
    {".onnx", ".onnx_data", ".data", ".json", ".txt", ".model", ".bin", ".safetensors", ".npy"}
)
_registering = Lock()
# fastembed prints to stderr what our errors already say.
logger.disable("fastembed")


class LoadedModel:
    """A loaded model. One thread calls it at a time.

    `mark` is a digest of its files: replaced files count as another model.
    """

    def __init__(self, model: fastembed.TextEmbedding, files: Path) -> None:
        self._model = model
        self.mark = _mark_of(files)

    def embed(self, texts: Sequence[str]) -> list[Vectors]:
        """Return one row per text."""
        return [np.asarray(row, dtype=np.float32) for row in self._model.embed(list(texts), batch_size=len(texts))]


def load_listed(name: str, folder: Path, *, path: Path | None, threads: int) -> LoadedModel:
    """Load a model that fastembed lists, from the download folder or from a folder with its files.

    Raises:
        LookupError: fastembed does not list the model.
        FileNotFoundError: its files are missing.
        Exception: the libraries' errors for files without a valid model.
    """
    known = _listed(name)
    files = path or _fetched(known, folder)
    if files is None or not (files / known.model_file).is_file():
        where = repr(str(files or folder))
        raise FileNotFoundError(
            f"The model {name!r} is not in {where}. `pegboard workspace fetch-model` fills that folder, here or on a"
            " machine with a network and copy it from there."
        )
    return _loaded(known.model, files, threads)


def load_folder(files: Path, *, pooling: Pooling | None, threads: int) -> LoadedModel:
    """Load any model from a folder with its tokenizer.

    Raises:
        FileNotFoundError: the model or the tokenizer is missing.
        Exception: the libraries' errors for files without a valid model.
    """
    there = next((each for each in _MODEL_FILES if (files / each).is_file()), None)
    missing = [each for each in ("tokenizer.json", "tokenizer_config.json") if not (files / each).is_file()]
    if there is None or missing:
        what = " and ".join([*([] if there else [f"none of {', '.join(_MODEL_FILES)}"]), *(f"no {m}" for m in missing)])
        raise FileNotFoundError(f"The folder {str(files)!r} has {what}. Export a model with its tokenizer into it.")
    pooled = pooling or _pooling_of(files)
    # fastembed registers models by name for the whole process; the first answer shows the dimension.
    name = f"pegboard:{files}:{there}:{pooled}"
    with _registering:
        if all(each["model"] != name for each in fastembed.TextEmbedding.list_supported_models()):
            fastembed.TextEmbedding.add_custom_model(
                name, pooling=_POOLINGS[pooled], normalization=True, sources=ModelSource(hf=name), dim=1,
                model_file=there,
            )  # fmt: skip
    return _loaded(name, files, threads)


def fetch(name: str, folder: Path) -> Path:
    """Download a listed model into a folder, or its missing files; return the location of its files.

    Raises:
        LookupError: fastembed does not list the model.
        ConnectionError: the download failed.
    """
    known = _listed(name)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if known.sources.hf:
            fastembed.TextEmbedding.download_files_from_huggingface(
                known.sources.hf, str(folder), [known.model_file, *known.additional_files]
            )
        files = fastembed.TextEmbedding.download_model(known, str(folder), retries=1)
    except Exception as error:  # noqa: BLE001 - boundary: the libraries below have their own errors for a network
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
    """Return the location of a model's files in a download folder; `None` if they are missing."""
    try:
        return Path(fastembed.TextEmbedding.download_model(known, str(folder), local_files_only=True))
    except ValueError:
        return None


def _pooling_of(files: Path) -> Pooling:
    """Return the pooling mode from the metadata that sentence-transformers exports with a model."""
    file = files / "1_Pooling" / "config.json"
    declared: Any = {}
    if file.is_file():
        declared = orjson.loads(file.read_bytes())  # raw: the operator's own file, in a configured folder
    if declared.get("pooling_mode_cls_token") or declared.get("pooling_mode") == "cls":
        return "cls"
    if declared.get("pooling_mode_lasttoken") or declared.get("pooling_mode") == "lasttoken":
        return "last_token"
    return "mean"


def _mark_of(files: Path) -> str:
    """Return a digest that identifies a model: the names, sizes and samples of its files."""
    mark = sha256()
    telling = (each for each in files.rglob("*") if each.suffix in _OF_MODEL and each.is_file())
    for file in sorted(islice(telling, EMBED_MODEL_FILES)):
        size_bytes = file.stat().st_size
        mark.update(f"{file.relative_to(files).as_posix()}:{size_bytes}\0".encode())
        with file.open("rb") as opened:  # raw: the operator's own file, in a configured folder
            for number in range(EMBED_FILE_SAMPLES):
                opened.seek(size_bytes * number // EMBED_FILE_SAMPLES)
                mark.update(opened.read(EMBED_FILE_SAMPLE_BYTES))
    return mark.hexdigest()[:16]
