"""Anthropic client: models of Anthropic's messages API."""

from __future__ import annotations

import httpx2  # noqa: TID251 - the SDK takes its client; ours is made by egress
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.settings import ModelSettings


def messages_model(name: str, base_url: str, key: str, client: httpx2.AsyncClient, settings: ModelSettings) -> Model:
    """Return a model of Anthropic's API."""
    provider = AnthropicProvider(base_url=base_url, api_key=key, http_client=client)
    return AnthropicModel(name, provider=provider, settings=settings)
