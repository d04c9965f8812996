"""OpenAI-compatible: a language model behind an endpoint with OpenAI's chat completions API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from pegboard.egress.connections import Resolve, system_resolve
from pegboard.egress.credential_redaction import CredentialRedactor
from pegboard.egress.destinations import only_host_of
from pegboard.egress.http import GuardedClient
from pegboard.egress.responses import check_status, json_of
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_list, is_object
from pegboard.model.secret import Secret

_WHO = "The language model"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatModel:
    """A model that completes text; implements the port `Model`. The operator sets `base_url`, so it may be private."""

    name: str
    base_url: str
    api_key: Secret | None = None
    timeout_s: float = 60.0
    resolve: Resolve = field(default=system_resolve, repr=False)

    async def complete(self, prompt: str, *, max_words: int) -> str:
        """Return the model's answer to the prompt.

        Raises:
            CallError: upstream_auth, rate_limited, upstream_unavailable, upstream_error, protocol_error, timeout.
        """
        try:
            return await self._answer(prompt)
        except CallError as exc:
            secrets = (self.api_key,) if self.api_key else ()
            raise CredentialRedactor(secrets).error(exc) from None

    async def _answer(self, prompt: str) -> str:
        body = {"model": self.name, "messages": [{"role": "user", "content": prompt}]}
        headers = bearer(self.api_key)
        async with GuardedClient(only_host_of(self.base_url), headers=headers, resolve=self.resolve) as client:
            return _text(await posted(client, self.base_url, "chat/completions", body, self.timeout_s, who=_WHO))


def bearer(api_key: Secret | None) -> dict[str, str]:
    """Return the authorization header for a key."""
    return {"authorization": f"Bearer {api_key.reveal()}"} if api_key else {}


async def posted(client: GuardedClient, base_url: str, path: str, body: JSON, timeout_s: float, *, who: str) -> Any:
    """Send JSON to an endpoint and return its JSON response.

    Raises:
        CallError: upstream_auth, rate_limited, upstream_unavailable, upstream_error, protocol_error, timeout.
    """
    response = await client.request(
        "POST",
        f"{base_url.rstrip('/')}/{path}",
        headers={"content-type": "application/json"},
        body=orjson.dumps(body),
        timeout_s=timeout_s,
    )
    check_status(response, who)
    return json_of(response, who)


def _text(answer: Any) -> str:
    choices = answer.get("choices") if is_object(answer) else None
    first = choices[0] if is_list(choices) and choices else None
    message = first.get("message") if is_object(first) else None
    content = message.get("content") if is_object(message) else None
    if not isinstance(content, str):
        raise CallError("protocol_error", f"{_WHO} answered in an unknown format. Check the endpoint.")
    return content
