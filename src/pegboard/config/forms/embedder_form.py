"""Embedder form: what turns texts into vectors, of tools and of documents."""

from __future__ import annotations

from typing import Literal

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


class EmbedderForm(Form):
    """What turns texts into vectors, whose cosine says how alike their meanings are."""

    type: Literal["openai", "hashing"] = Field(
        description="openai: a model behind an endpoint that speaks OpenAI's embeddings. hashing: no model; texts with "
        "the same words are alike, for trying things out."
    )
    model: Maybe[FilledText] = Field(None, description="What the endpoint calls the model.")
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

    @model_validator(mode="after")
    def _fits_its_type(self) -> EmbedderForm:
        if self.type == "openai" and self.model is None:
            raise definition_error("an embedder of type openai needs `model`")
        if self.type == "hashing" and (strange := {"model", "base_url", "api_key", "cache"} & self.model_fields_set):
            raise definition_error(f"an embedder of type hashing takes no `{min(strange)}`")
        return self
