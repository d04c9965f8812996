"""Embedder form: what turns texts into vectors, of tools and of documents."""

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
    "hashing": {"dimension", "timeout_seconds"},
}


class EmbedderForm(Form):
    """What turns texts into vectors, whose cosine says how alike their meanings are."""

    type: Literal["openai", "fastembed", "hashing"] = Field(
        description="openai: a model behind an endpoint that speaks OpenAI's embeddings. fastembed: an ONNX model in "
        "files of this machine, by the extra `embeddings`. hashing: no model; texts with the same words are alike, "
        "for trying things out."
    )
    model: Maybe[FilledText] = Field(
        None,
        description="What the endpoint calls the model; or one that fastembed lists, such as `BAAI/bge-small-en-v1.5`, "
        "which `pegboard workspace fetch-model` downloads.",
    )
    base_url: Maybe[FilledText] = Field(
        None, description="Where the endpoint is, such as http://127.0.0.1:11434/v1; OpenAI's without it."
    )
    api_key: Maybe[ConcealedText] = Field(
        None, description="The key; without `base_url` OPENAI_API_KEY of the environment is taken where it is missing."
    )
    dimension: Maybe[PositiveWhole] = Field(None, description="How long a vector is; the model's own choice without.")
    timeout_seconds: PositiveNumber = Field(30.0, description="How long one request may take, in seconds.")
    cache: FilledText = Field(
        ".pegboard-embeddings.sqlite", description="The file that keeps the vectors of a model, beside this config."
    )

    folder: FilledText = Field(
        ".pegboard-models", description="Where the models of fastembed are, as fetched, beside this config."
    )
    path: Maybe[FilledText] = Field(
        None,
        description="A folder with the files of a model for fastembed (`model.onnx`, `tokenizer.json`, "
        "`tokenizer_config.json`), beside this config: then nothing is fetched, and it may be any model.",
    )
    pooling: Maybe[Literal["mean", "cls", "last_token", "none"]] = Field(
        None, description="How the vectors of words become one, with `path` alone; what that folder says without it."
    )
    threads: Maybe[PositiveWhole] = Field(
        None, description="Cores that one question to fastembed may use; half of the machine's without."
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
