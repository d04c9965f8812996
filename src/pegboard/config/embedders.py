"""Embedders: create the embedders of a config."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.config.config import Config, Declared
from pegboard.config.forms.embedder_form import EmbedderForm
from pegboard.config.yaml.problems import Report
from pegboard.core.ports import Embedder
from pegboard.egress.destinations import only_host_of
from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret

if TYPE_CHECKING:
    from pegboard.models.embedding import cache, fastembed_embedder, hashing, openai_embedder, static_embedder
else:
    cache = LazyModule("pegboard.models.embedding.cache")
    fastembed_embedder = LazyModule("pegboard.models.embedding.fastembed_embedder")
    hashing = LazyModule("pegboard.models.embedding.hashing")
    openai_embedder = LazyModule("pegboard.models.embedding.openai_embedder")
    static_embedder = LazyModule("pegboard.models.embedding.static_embedder")

OPENAI_URL = "https://api.openai.com/v1"


def embedder_of(config: Config, report: Report) -> Embedder | None:
    """Return the embedder of tool search; problems are reported at their place."""
    if config.embedder is None:
        return None
    embedder = _new_embedder(config.embedder, config, report)
    if embedder is None or config.embedder.value.type in ("hashing", "static"):
        return embedder
    return cache.CachedEmbedder(embedder, config.path.absolute().parent / config.embedder.value.cache)


def passage_embedder_of(config: Config, report: Report) -> Embedder | None:
    """Return the embedder of documents, whose vectors are stored with them; problems are reported at their place."""
    return None if config.passage_embedder is None else _new_embedder(config.passage_embedder, config, report)


def _new_embedder(declared: Declared[EmbedderForm], config: Config, report: Report) -> Embedder | None:
    form = declared.value
    if form.type == "hashing":
        return hashing.HashingEmbedder(dimension=form.dimension) if form.dimension else hashing.HashingEmbedder()
    if form.type == "static":
        if find_spec("wordllama") is None:
            report.add((declared.at / "type").problem(needs_package("wordllama", "static")))
            return None
        return static_embedder.StaticEmbedder()
    if form.type == "fastembed":
        if find_spec("fastembed") is None:
            report.add((declared.at / "type").problem(needs_package("fastembed", "embeddings")))
            return None
        return fastembed_of(form, config)
    base_url = form.base_url or OPENAI_URL
    try:
        only_host_of(base_url)
    except DefinitionError as error:
        report.add(declared.at.problem(str(error)))
        return None
    return openai_embedder.OpenAIEmbedder(
        name=form.model or "",
        base_url=base_url,
        api_key=_key_of(form, config),
        dimension=form.dimension,
        timeout_s=form.timeout_seconds,
    )


def fastembed_of(form: EmbedderForm, config: Config) -> fastembed_embedder.FastembedEmbedder:
    """Return the embedder for a form of type fastembed; its folders are relative to the config."""
    folder = config.path.absolute().parent
    return fastembed_embedder.FastembedEmbedder(
        form.model or "",
        folder=folder / form.folder,
        path=None if form.path is None else folder / form.path,
        pooling=form.pooling,
        threads=form.threads,
    )


def keys_of(config: Config) -> Iterator[Secret]:
    """Yield the keys of the embedders, which must be redacted."""
    for declared in (config.embedder, config.passage_embedder):
        if declared is not None and (key := _key_of(declared.value, config)) is not None:
            yield key


def _key_of(form: EmbedderForm, config: Config) -> Secret | None:
    if form.api_key is not None:
        return Secret(form.api_key)
    return config.secrets.get("OPENAI_API_KEY") if form.base_url is None else None


def embedder_named(named: str) -> Embedder:
    """Return an embedder by its type, `static` or `hashing`, or by the folder of an ONNX model.

    Raises:
        DefinitionError: there is no such type or folder, or a package is missing.
    """
    if named == "hashing":
        return hashing.HashingEmbedder()
    if named == "static":
        return static_embedder.StaticEmbedder()
    folder = Path(named)
    if not folder.is_dir():
        raise DefinitionError("there is no such embedder; give `static`, `hashing`, or a folder with an ONNX model")
    if find_spec("fastembed") is None:
        raise DefinitionError(needs_package("fastembed", "embeddings"))
    return fastembed_embedder.FastembedEmbedder(path=folder)
