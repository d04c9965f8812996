"""Model specs: convert the declared language models of a config to the specs that agents and tools use."""

from __future__ import annotations

from collections.abc import Mapping

from pegboard.config.config import Config
from pegboard.config.forms.model_form import ModelForm, key_variable
from pegboard.model.agent import ModelProvider, ModelSpec
from pegboard.model.secret import Secret

PROVIDERS: Mapping[str, ModelProvider] = {
    "openai": "openai", "anthropic": "anthropic", "google": "google", "gemini": "google",
}  # fmt: skip


def model_spec(form: ModelForm | str, config: Config) -> ModelSpec:
    """Return the spec of a declared model."""
    if isinstance(form, str):
        provider, _, name = form.partition(":")
        return ModelSpec(provider=PROVIDERS[provider], name=name, api_key=config.secrets.get(key_variable(form) or ""))
    key = form.api_key
    if key is None:
        key = config.secrets.get(key_variable(form) or "")
    return ModelSpec(
        provider=form.provider,
        name=form.name,
        base_url=form.base_url,
        api_key=None if key is None else Secret(key),
        parameters=form.parameters,
        timeout_s=form.timeout_seconds,
        max_retries=form.retries.max,
    )
