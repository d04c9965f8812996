"""Embedders: what a config names to turn texts into vectors, ready to be asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pegboard.config.config import Config
from pegboard.config.forms.main_file import EmbedderForm
from pegboard.config.yaml.problems import Report
from pegboard.core.ports import Embedder
from pegboard.egress.destinations import only_host_of
from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret

if TYPE_CHECKING:
    from pegboard.models.embedding import cache, hashing, openai_embedder
else:
    cache = LazyModule("pegboard.models.embedding.cache")
    hashing = LazyModule("pegboard.models.embedding.hashing")
    openai_embedder = LazyModule("pegboard.models.embedding.openai_embedder")

_OPENAI = "https://api.openai.com/v1"


def embedder_of(config: Config, report: Report) -> Embedder | None:
    """Return the embedder of tool search; what is wrong with it is reported at its place."""
    if config.embedder is None:
        return None
    form = config.embedder.value
    if form.type == "hashing":
        return hashing.HashingEmbedder(dimension=form.dimension) if form.dimension else hashing.HashingEmbedder()
    base_url = form.base_url or _OPENAI
    try:
        only_host_of(base_url)
    except DefinitionError as error:
        report.add(config.embedder.at.problem(str(error)))
        return None
    asked = openai_embedder.OpenAIEmbedder(
        name=form.model or "",
        base_url=base_url,
        api_key=_key_of(form, config),
        dimension=form.dimension,
        timeout_s=form.timeout_seconds,
    )
    return cache.CachedEmbedder(asked, config.path.absolute().parent / form.cache)


def keys_of(config: Config) -> Iterator[Secret]:
    """Yield the key of the embedder, which no output may show."""
    if config.embedder is not None and (key := _key_of(config.embedder.value, config)) is not None:
        yield key


def _key_of(form: EmbedderForm, config: Config) -> Secret | None:
    if form.api_key is not None:
        return Secret(form.api_key)
    return config.secrets.get("OPENAI_API_KEY") if form.base_url is None else None
