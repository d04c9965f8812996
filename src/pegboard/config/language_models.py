"""Language models: create the language models of a config."""

from __future__ import annotations

from collections.abc import Mapping

from pegboard.catalog import Catalog
from pegboard.config.build_context import BuildContext
from pegboard.config.config import Config
from pegboard.config.forms.model_form import ModelForm
from pegboard.config.model_specs import model_spec
from pegboard.core.ports import Model
from pegboard.egress.destinations import only_host_of
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret
from pegboard.models.language_models import base_url_of
from pegboard.models.openai_compatible import ChatModel
from pegboard.models.text_model import TextModel

# These providers work without the packages that agents need.
_SPEAK_CHAT = ("openai", "openai_compatible")


def models_of(build: BuildContext) -> Mapping[str, Model]:
    """Return the models by name; problems are reported at their place."""
    models: dict[str, Model] = {}
    for name, declared in build.config.models.items():
        try:
            models[name], key = _model_with_key(declared.value, build.config)
        except DefinitionError as error:
            build.refused(error, declared.at)
            continue
        if key is not None:
            build.catalog.add_secrets(key)
    return models


def model_named(name: str, catalog: Catalog, config: Config) -> Model:
    """Return one model of a config. Its key is redacted in all output of the catalog from now on.

    Raises:
        DefinitionError: its base URL is not an http or https URL.
    """
    model, key = _model_with_key(config.models[name].value, config)
    if key is not None:
        catalog.add_secrets(key)
    return model


def _model_with_key(form: ModelForm | str, config: Config) -> tuple[Model, Secret | None]:
    spec = model_spec(form, config)
    only_host_of(base_url_of(spec))
    if spec.provider in _SPEAK_CHAT:
        chat = ChatModel(name=spec.name, base_url=base_url_of(spec), api_key=spec.api_key, timeout_s=spec.timeout_s)
        return chat, chat.api_key
    return TextModel(spec=spec), spec.api_key
