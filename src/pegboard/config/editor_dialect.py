"""Editor dialect: one JSON Schema for every file of a config, in the draft that all editors support."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from pegboard.config.editor_schema import FROM_ENVIRONMENT, polished
from pegboard.config.forms.main_file import HookForm, MainFile
from pegboard.config.kinds import KINDS, Kind
from pegboard.lazy import LazyModule
from pegboard.model.json_types import JSON, is_list, is_object

if TYPE_CHECKING:
    from pegboard.config.forms import agent_form
    from pegboard.sources.builtin import builtins
else:
    agent_form = LazyModule("pegboard.config.forms.agent_form")
    builtins = LazyModule("pegboard.sources.builtin.builtins")

DRAFT_07 = "http://json-schema.org/draft-07/schema#"
_TEMPLATE = "#/definitions/{model}"
_OF_SCHEMAS = frozenset({"properties", "definitions"})
_OF_VALUES = frozenset({"const", "enum", "default", "examples"})


def editor_schema(kinds: Mapping[str, Kind[Any]] = KINDS) -> JSON:
    """Return one JSON Schema of draft-07 for pegboard.yaml, the files that it names, and the files of agents.

    A file with an `apiVersion` is an agent's. If one key decides the form of the others, such as `type:` of a tool, the
    schema checks that key first: an editor then marks the one wrong key, and not every form that it might have been.
    Settings of built-in tools are included if the packages that they need are installed. `kinds` are the types of
    tools, including those of the config's plugins.
    """
    of_agents = (*agent_form.AGENT_FILES, *agent_form.AGENT_SPECS, agent_form.GroupForm, agent_form.SharedToolForm)
    drawn = _Drawn([MainFile, HookForm, *of_agents, *(kind.form for kind in kinds.values())])
    tools = {name: drawn.reference(kind.form) for name, kind in kinds.items()}
    tools["builtin"] = {"allOf": [tools["builtin"], _settings_of_builtins(drawn.definitions)]}
    drawn.definitions["Tool"] = _chosen_by("type", tools)
    tool: JSON = {"$ref": _TEMPLATE.format(model="Tool")}
    drawn.items_of(MainFile, "tools", tool)
    drawn.items_of(MainFile, "hooks", drawn.reference(HookForm))
    # An item with none of the three keys is a tool without a type.
    shared = _if_key("tool", drawn.reference(agent_form.SharedToolForm), tool)
    of_agent = _if_key("type", tool, _if_key("group", drawn.reference(agent_form.GroupForm), shared))
    for form in agent_form.AGENT_SPECS:
        drawn.items_of(form, "tools", of_agent)
    files = {
        drawn.body(form)["properties"]["apiVersion"]["const"]: drawn.reference(form) for form in agent_form.AGENT_FILES
    }
    drawn.definitions["FromEnvironment"] = FROM_ENVIRONMENT
    whole = _if_key("apiVersion", _chosen_by("apiVersion", files), drawn.reference(MainFile))
    return _in_draft_07(polished({"$schema": DRAFT_07, **whole, "definitions": drawn.definitions}))


class _Drawn:
    """The schemas of some forms and their nested forms, each with its own name."""

    def __init__(self, forms: list[type[BaseModel]]) -> None:
        self._references, whole = models_json_schema([(form, "validation") for form in forms], ref_template=_TEMPLATE)
        self.definitions: JSON = whole["$defs"]

    def reference(self, form: type[BaseModel]) -> JSON:
        return dict(self._references[form, "validation"])

    def body(self, form: type[BaseModel]) -> JSON:
        return self.definitions[self.reference(form)["$ref"].rpartition("/")[2]]

    def items_of(self, form: type[BaseModel], key: str, items: JSON) -> None:
        """Set the schema of a list's items, which the form leaves open."""
        self.body(form)["properties"][key]["items"] = items


def _if_key(key: str, then: JSON, otherwise: JSON) -> JSON:
    return {"if": {"required": [key]}, "then": then, "else": otherwise}


def _chosen_by(key: str, forms: Mapping[str, JSON]) -> JSON:
    """Return the schema of a mapping where one key decides the form of the others."""
    cases = [
        {"if": {"properties": {key: {"const": name}}, "required": [key]}, "then": form} for name, form in forms.items()
    ]
    return {"type": "object", "required": [key], "properties": {key: {"enum": list(forms)}}, "allOf": cases}


def _settings_of_builtins(definitions: JSON) -> JSON:
    """Return the schema of `config:` for each built-in tool, and add the forms that it uses to the definitions."""
    cases: list[JSON] = []
    for name in builtins.BUILTINS:
        with suppress(ImportError):
            config = builtins.builtin_kind(name).config.model_json_schema(
                ref_template=_TEMPLATE.format(model=f"{name}_{{model}}")
            )
            definitions.update({f"{name}_{inner}": form for inner, form in config.pop("$defs", {}).items()})
            definitions[f"{name}_config"] = config
            settings = {"properties": {"config": {"$ref": _TEMPLATE.format(model=f"{name}_config")}}}
            cases.append({"if": {"properties": {"name": {"const": name}}, "required": ["name"]}, "then": settings})
    return {"properties": {"name": {"enum": list(builtins.BUILTINS)}}, "allOf": cases}


def _in_draft_07(schema: Any) -> Any:
    """Return a schema with no keyword next to a `$ref`, where draft-07 ignores it."""
    if is_list(schema):
        return [_in_draft_07(item) for item in schema]
    if not is_object(schema):
        return schema
    changed: JSON = {}
    for key, value in schema.items():
        if key == "$ref":
            changed[key] = value.replace("#/$defs/", "#/definitions/")
        elif key in _OF_SCHEMAS:
            changed[key] = {name: _in_draft_07(part) for name, part in value.items()}
        else:
            changed[key] = value if key in _OF_VALUES else _in_draft_07(value)
    if "$ref" in changed and len(changed) > 1:
        return {"allOf": [{"$ref": changed.pop("$ref")}], **changed}
    return changed
