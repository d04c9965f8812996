"""Language models: the language models of a config, ready to be asked."""

from __future__ import annotations

from collections.abc import Mapping

from pegboard.config.build_context import BuildContext
from pegboard.config.model_specs import model_spec
from pegboard.core.ports import Model
from pegboard.egress.destinations import only_host_of
from pegboard.model.agent import ModelSpec
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret
from pegboard.models.language_models import base_url_of
from pegboard.models.openai_compatible import ChatModel
from pegboard.models.text_model import TextModel

# One text of these is had without the packages that agents need.
_SPEAK_CHAT = ("openai", "openai_compatible")


def models_of(build: BuildContext) -> Mapping[str, Model]:
    """Return the models by name; what is wrong with one is reported at its place."""
    models: dict[str, Model] = {}
    for name, declared in build.config.models.items():
        spec = model_spec(declared.value, build.config)
        try:
            only_host_of(base_url_of(spec))
        except DefinitionError as error:
            build.refused(error, declared.at)
            continue
        model = _chat(spec, build.config.secrets) if spec.provider in _SPEAK_CHAT else TextModel(spec=spec)
        key = model.api_key if isinstance(model, ChatModel) else spec.api_key
        if key is not None:
            build.catalog.add_secrets(key)
        models[name] = model
    return models


def _chat(spec: ModelSpec, secrets: Mapping[str, Secret]) -> ChatModel:
    key = secrets.get("OPENAI_API_KEY") if spec.provider == "openai" else None
    return ChatModel(name=spec.name, base_url=base_url_of(spec), api_key=spec.api_key or key, timeout_s=spec.timeout_s)
