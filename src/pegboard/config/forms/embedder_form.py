"""Embedder form: the embedders of tools and of documents."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field, model_validator

from pegboard.config.forms.value_types import (
    ConcealedText,
    FilledText,
    Form,
    Maybe,
    PositiveNumber,
    PositiveWhole,
    definition_error,
)

_KEYS: Final = {
    "openai": {"model", "base_url", "api_key", "dimension", "timeout_seconds", "cache"},
    "fastembed": {"model", "folder", "path", "pooling", "threads", "cache"},
    "static": set[str](),
    "hashing": {"dimension", "timeout_seconds"},
}


class EmbedderForm(Form):
    """An embedder converts texts to vectors. Texts with a similar meaning have similar vectors."""

    type: Literal["openai", "fastembed", "static", "hashing"] = Field(
        description=(
            "openai: a model behind an endpoint with OpenAI's embeddings API. fastembed: a local ONNX model; needs "
            "the extra `embeddings`. static: English word vectors that come with the extra `static`; nothing is "
            "downloaded. hashing: no model; compares only the words of texts, for experiments."
        )
    )
    model: Maybe[FilledText] = Field(
        None,
        description=(
            "The model's name at the endpoint; or a model that fastembed lists, such as `BAAI/bge-small-en-v1.5`, "
            "which `pegboard workspace fetch-model` downloads."
        ),
    )
    base_url: Maybe[FilledText] = Field(
        None, description="The URL of the endpoint, such as http://127.0.0.1:11434/v1. Default: OpenAI's."
    )
    api_key: Maybe[ConcealedText] = Field(
        None, description="The API key. Default without `base_url`: the environment variable OPENAI_API_KEY."
    )
    dimension: Maybe[PositiveWhole] = Field(
        None, description="The number of dimensions of a vector. Default: the model's."
    )
    timeout_seconds: PositiveNumber = Field(30.0, description="The time limit of one request, in seconds.")
    cache: FilledText = Field(
        ".pegboard-embeddings.sqlite", description="The file that caches a model's vectors, relative to this config."
    )

    folder: FilledText = Field(
        ".pegboard-models", description="The folder of downloaded fastembed models, relative to this config."
    )
    path: Maybe[FilledText] = Field(
        None,
        description=(
            "A folder with the files of any model that fastembed can run (`model.onnx`, `tokenizer.json`, "
            "`tokenizer_config.json`), relative to this config. Nothing is downloaded."
        ),
    )
    pooling: Maybe[Literal["mean", "cls", "last_token", "none"]] = Field(
        None,
        description="How the vectors of words are combined; only with `path`. Default: the setting in that folder.",
    )
    threads: Maybe[PositiveWhole] = Field(
        None,
        description="The number of CPU cores fastembed may use for one request. Default: half of the machine's cores.",
    )

    @model_validator(mode="after")
    def _fits_its_type(self) -> EmbedderForm:
        if self.type == "openai" and self.model is None:
            raise definition_error("an embedder of type openai needs `model`")
        if self.type == "fastembed" and self.model is None and self.path is None:
            raise definition_error("an embedder of type fastembed needs `model` or `path`")
        if self.pooling is not None and self.model is not None:
            raise definition_error("`pooling` is for a model that `path` alone names; of a listed one it is known")
        if strange := self.model_fields_set - {"type"} - _KEYS[self.type]:
            raise definition_error(f"an embedder of type {self.type} takes no `{min(strange)}`")
        return self
