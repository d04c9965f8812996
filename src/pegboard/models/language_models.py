"""Language models: the models of specs, with one guarded client per endpoint and event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from weakref import WeakKeyDictionary

from msgspec import Struct

from pegboard.lazy import LazyModule
from pegboard.model.agent import ModelProvider, ModelSpec
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.secret import Secret

if TYPE_CHECKING:
    import httpx2  # noqa: TID251 - the type of what egress makes
    from pydantic_ai.models import Model

    from pegboard.egress import api_transport
    from pegboard.models.clients import anthropic_client, google_client, model_request, openai_client
else:
    api_transport = LazyModule("pegboard.egress.api_transport")
    model_request = LazyModule("pegboard.models.clients.model_request")
    anthropic_client = LazyModule("pegboard.models.clients.anthropic_client")
    google_client = LazyModule("pegboard.models.clients.google_client")
    openai_client = LazyModule("pegboard.models.clients.openai_client")

_Clients: TypeAlias = "dict[tuple[str, float], httpx2.AsyncClient]"

# A local endpoint needs no key, but its client must send one.
_NO_KEY = "none"


class _Endpoint(Struct, frozen=True, kw_only=True):
    """A provider's default endpoint, and the environment variables for its key."""

    base_url: str
    variables: tuple[str, ...]


_ENDPOINTS: Mapping[ModelProvider, _Endpoint] = {
    "openai": _Endpoint(base_url="https://api.openai.com/v1", variables=("OPENAI_API_KEY",)),
    "anthropic": _Endpoint(base_url="https://api.anthropic.com", variables=("ANTHROPIC_API_KEY",)),
    "google": _Endpoint(
        base_url="https://generativelanguage.googleapis.com", variables=("GEMINI_API_KEY", "GOOGLE_API_KEY")
    ),
}


class LanguageModels:
    """Creates the models of specs. Models of one endpoint share its connections, separately for each event loop.

    Created with the catalog; `close` closes the connections of the current event loop.

    Args:
        key_of: returns the value of an environment variable, for a spec without a key.
    """

    def __init__(self, key_of: Callable[[str], Secret | None]) -> None:
        self._key_of = key_of
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Clients] = WeakKeyDictionary()

    def model(self, spec: ModelSpec) -> Model:
        """Return the model of a spec, for the running event loop; implements the port `ModelFactory`.

        Raises:
            CallError: upstream_auth, there is no key.
            DefinitionError: it has no base URL, or one that is not an http or https URL.
        """
        base_url, key = base_url_of(spec), self._key(spec)
        clients = self._loops.setdefault(asyncio.get_running_loop(), {})
        client = clients.get((base_url, spec.timeout_s))
        if client is None:
            client = api_transport.api_client(base_url, timeout_s=spec.timeout_s)
            clients[base_url, spec.timeout_s] = client
        # The client sends a request once; `retries` repeats it, within the budget and deadline of a run.
        settings = {**spec.parameters, "max_retries": 0}
        return _maker(spec)(spec.name, base_url, key, client, cast("Any", settings))

    def load(self, spec: ModelSpec) -> None:
        """Import the packages of a model, which takes a second or two; call it in a thread."""
        _maker(spec)

    async def complete(self, spec: ModelSpec, prompt: str) -> str:
        """Return a model's text answer to a prompt.

        Raises:
            CallError: upstream_auth, rate_limited, upstream_unavailable, upstream_error, protocol_error, timeout,
                result_too_large.
        """
        return await model_request.answered(self.model(spec), prompt, spec)

    async def close(self) -> None:
        """Close the connections of this event loop."""
        for client in self._loops.pop(asyncio.get_running_loop(), {}).values():
            await client.aclose()

    def _key(self, spec: ModelSpec) -> str:
        if spec.api_key is not None:
            return spec.api_key.reveal()
        if spec.base_url is not None:
            # A key from the environment is only sent to its own provider.
            return _NO_KEY
        variables = _ENDPOINTS[spec.provider].variables
        key = next(filter(None, map(self._key_of, variables)), None)
        if key is None:
            text = f"There is no key for the language model {spec.name!r} of {spec.provider}."
            raise CallError("upstream_auth", text, hint=f"Set {variables[0]}, or `api_key` of the model.")
        return key.reveal()


def has_endpoint(spec: ModelSpec) -> bool:
    """Tell whether a model has a URL. A config requires one; Python code that makes its own models may omit it."""
    return spec.base_url is not None or spec.provider in _ENDPOINTS


def base_url_of(spec: ModelSpec) -> str:
    """Return the base URL of a model.

    Raises:
        DefinitionError: it has none, and its provider has no default.
    """
    if not has_endpoint(spec):
        raise DefinitionError(f"The model {spec.name!r} of {spec.provider!r} has no `base_url`. Set one.")
    return spec.base_url or _ENDPOINTS[spec.provider].base_url


def _maker(spec: ModelSpec) -> Callable[..., Model]:
    match spec.provider:
        case "anthropic":
            return anthropic_client.messages_model
        case "google":
            return google_client.gemini_model
        case "openai" if spec.base_url is None:
            return openai_client.responses_model
        case _:
            # Replacements of OpenAI's endpoint support chat completions; other APIs are uncertain.
            return openai_client.chat_model
