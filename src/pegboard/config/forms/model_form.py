"""Model form: a language model, under `models:` of a config or in the file of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from pegboard.config.forms.agent_words import KEY_VARIABLES
from pegboard.config.forms.value_types import (
    Anything,
    ConcealedText,
    FilledText,
    Form,
    Maybe,
    PositiveNumber,
    RetriesForm,
    Text,
    definition_error,
)


class ModelForm(Form):
    """A language model of a provider, or of an endpoint with OpenAI's chat completions API."""

    provider: Literal["openai", "anthropic", "google", "openai_compatible"] = Field(
        description="The provider of the model; `openai_compatible` needs a base_url."
    )
    name: FilledText = Field(description="The provider's name for the model.")
    base_url: Maybe[FilledText] = Field(
        None, description="The URL of the endpoint, such as http://127.0.0.1:8000/v1. Default: the provider's."
    )
    api_key: Maybe[ConcealedText] = Field(
        None, description="The API key. Default without `base_url`: the provider's environment variable."
    )
    parameters: Mapping[Text, Anything] = Field(
        default_factory=dict[str, Any], description="Settings for each request, such as temperature and max_tokens."
    )
    timeout_seconds: PositiveNumber = Field(60.0, description="The time limit of one answer, in seconds.")
    retries: RetriesForm = Field(
        default_factory=lambda: RetriesForm.model_validate({}), description="Retries of failed requests: `{max: 2}`."
    )

    @model_validator(mode="after")
    def _says_where(self) -> ModelForm:
        if self.provider == "openai_compatible" and self.base_url is None:
            raise definition_error("openai_compatible needs `base_url`")
        return self


def key_variable(model: ModelForm | str | None) -> str | None:
    """Return the environment variable of a model's API key; `None` if the model has a key or needs none.

    Keys from the environment are only sent to their own provider, so a model with a `base_url` has no variable.
    """
    if isinstance(model, ModelForm):
        needs_key = model.api_key is None and model.base_url is None
        return KEY_VARIABLES.get(model.provider) if needs_key else None
    return KEY_VARIABLES.get((model or "").partition(":")[0])
