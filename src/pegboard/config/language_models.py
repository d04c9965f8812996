"""Language models: the language models of a config, ready to be asked."""

from __future__ import annotations

from collections.abc import Mapping

from pegboard.config.build_context import BuildContext
from pegboard.config.forms.main_file import ModelForm
from pegboard.core.ports import Model
from pegboard.egress.destinations import only_host_of
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret
from pegboard.models.openai_compatible import ChatModel

# A config without models starts without an HTTP client.
_OPENAI = "https://api.openai.com/v1"


def models_of(build: BuildContext) -> Mapping[str, Model]:
    """Return the models by name; what is wrong with one is reported at its place."""
    models: dict[str, Model] = {}
    for name, declared in build.config.models.items():
        model = _model(declared.value, build.config.secrets)
        try:
            only_host_of(model.base_url)
        except DefinitionError as error:
            build.refused(error, declared.at)
            continue
        if model.api_key is not None:
            build.catalog.add_secrets(model.api_key)
        models[name] = model
    return models


def _model(form: ModelForm | str, secrets: Mapping[str, Secret]) -> ChatModel:
    if isinstance(form, str):
        return ChatModel(name=form.partition(":")[2], base_url=_OPENAI, api_key=secrets.get("OPENAI_API_KEY"))
    key = secrets.get("OPENAI_API_KEY") if form.provider == "openai" else None
    return ChatModel(
        name=form.name,
        base_url=form.base_url or _OPENAI,
        api_key=Secret(form.api_key) if form.api_key is not None else key,
        timeout_s=form.timeout_seconds,
    )
