"""OpenAI: a model behind an endpoint with OpenAI's embeddings API, which most model servers support."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pegboard.egress.connections import Resolve, system_resolve
from pegboard.egress.credential_redaction import CredentialRedactor
from pegboard.egress.destinations import only_host_of
from pegboard.egress.http import GuardedClient
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_list, is_object
from pegboard.model.secret import Secret
from pegboard.models.embedding.vectors import Vectors, unit_rows
from pegboard.models.limits import EMBED_BATCH
from pegboard.models.openai_compatible import bearer, posted

_WHO = "The embedding model"


@dataclass(kw_only=True, slots=True)
class OpenAIEmbedder:
    """Implements the port `Embedder`. The operator sets `base_url`, so it may be private.

    `dimension` is sent if it is set, and otherwise read from the first answer. `timeout_s` is for one request; each
    request has up to 64 texts.
    """

    name: str
    base_url: str
    api_key: Secret | None = None
    dimension: int | None = None
    timeout_s: float = 30.0
    resolve: Resolve = field(default=system_resolve, repr=False)
    _is_asked_for: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._is_asked_for = self.dimension is not None

    @property
    def model_id(self) -> str:
        """The model's address and name, and the dimension if one is set."""
        asked = f"/{self.dimension}" if self._is_asked_for else ""
        return f"{self.base_url.rstrip('/')}/{self.name}{asked}"

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row of length 1 per text.

        Raises:
            CallError: upstream_auth, rate_limited, upstream_unavailable, upstream_error, protocol_error, timeout.
            ValueError: a wrong number or dimension of rows.
        """
        try:
            async with GuardedClient(
                only_host_of(self.base_url), headers=bearer(self.api_key), resolve=self.resolve
            ) as client:
                rows: list[Any] = []
                for start in range(0, len(texts), EMBED_BATCH):
                    rows += await self._embedded(client, texts[start : start + EMBED_BATCH])
        except CallError as exc:
            secrets = (self.api_key,) if self.api_key else ()
            raise CredentialRedactor(secrets).error(exc) from None
        vectors = unit_rows(rows, count=len(texts), dimension=self.dimension, model_id=self.name)
        self.dimension = vectors.shape[1]
        return vectors

    async def _embedded(self, client: GuardedClient, texts: Sequence[str]) -> list[Any]:
        body: JSON = {"model": self.name, "input": list(texts), "encoding_format": "float"}
        if self._is_asked_for:
            body["dimensions"] = self.dimension
        answer = await posted(client, self.base_url, "embeddings", body, self.timeout_s, who=_WHO)
        data = answer.get("data") if is_object(answer) else None
        rows: dict[int, Any] = {}
        for place, item in enumerate(data if is_list(data) else ()):
            if is_object(item) and isinstance(number := item.get("index", place), int):
                rows[number] = item.get("embedding")
        if rows.keys() != set(range(len(texts))):
            raise CallError(
                "protocol_error",
                f"{_WHO} answered {len(rows)} of {len(texts)} texts, or in an unknown format. Check the endpoint.",
            )
        return [rows[place] for place in range(len(texts))]
