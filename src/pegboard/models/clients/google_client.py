"""Google client: models of Gemini's generateContent API."""

from __future__ import annotations

import httpx2  # noqa: TID251 - the SDK takes its client; ours is made by egress
from pydantic_ai.models import Model
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.settings import ModelSettings


def gemini_model(name: str, base_url: str, key: str, client: httpx2.AsyncClient, settings: ModelSettings) -> Model:
    """Return a model of the Gemini API."""
    provider = GoogleProvider(base_url=base_url, api_key=key, http_client=client)
    return GoogleModel(name, provider=provider, settings=settings)
