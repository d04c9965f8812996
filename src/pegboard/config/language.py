"""Language: the language models of a config, ready to be asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pegboard.base.errors import DefinitionError
from pegboard.base.loading import Later
from pegboard.base.secrets import Secret
from pegboard.config.models import ModelForm
from pegboard.config.wiring import Wiring
from pegboard.core.ports import Model

if TYPE_CHECKING:
    from pegboard.sources.builtin.chat import ChatModel

# A config without models starts without an HTTP client.
_chat = Later("pegboard.sources.builtin.chat")
_destinations = Later("pegboard.egress.destinations")
_OPENAI = "https://api.openai.com/v1"


def models_of(wiring: Wiring) -> Mapping[str, Model]:
    """Return the models by name; what is wrong with one is reported at its place."""
    found: dict[str, Model] = {}
    for name, declared in wiring.config.models.items():
        model = _model(declared.said, wiring.config.secrets)
        try:
            _destinations.only_there(model.base_url)
        except DefinitionError as error:
            wiring.refused(error, declared.at)
            continue
        if model.api_key is not None:
            wiring.catalog.secrets.append(model.api_key)
        found[name] = model
    return found


def _model(said: ModelForm | str, secrets: Mapping[str, Secret]) -> ChatModel:
    if isinstance(said, str):
        return _chat.ChatModel(name=said.partition(":")[2], base_url=_OPENAI, api_key=secrets.get("OPENAI_API_KEY"))
    key = secrets.get("OPENAI_API_KEY") if said.provider == "openai" else None
    return _chat.ChatModel(
        name=said.name,
        base_url=said.base_url or _OPENAI,
        api_key=Secret(said.api_key) if said.api_key is not None else key,
        timeout_s=said.timeout_seconds,
    )
