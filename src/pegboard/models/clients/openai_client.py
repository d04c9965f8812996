"""OpenAI client: models of OpenAI's responses API, and of any endpoint with its chat completions API."""

from __future__ import annotations

import httpx2  # noqa: TID251 - the SDK takes its client; ours is made by egress
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings


def responses_model(name: str, base_url: str, key: str, client: httpx2.AsyncClient, settings: ModelSettings) -> Model:
    """Return a model of OpenAI's own API."""
    provider = OpenAIProvider(base_url=base_url, api_key=key, http_client=client)
    return OpenAIResponsesModel(name, provider=provider, settings=settings)


def chat_model(name: str, base_url: str, key: str, client: httpx2.AsyncClient, settings: ModelSettings) -> Model:
    """Return a model of an endpoint with the chat completions API."""
    provider = OpenAIProvider(base_url=base_url, api_key=key, http_client=client)
    return OpenAIChatModel(name, provider=provider, settings=settings)
