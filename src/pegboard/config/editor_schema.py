"""Editor schema: the JSON Schema of pegboard.yaml, for editors; generated from the models that validate it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from pegboard.config.forms.main_file import HookForm, MainFile
from pegboard.config.kinds import KINDS, Kind
from pegboard.lazy import LazyModule
from pegboard.model.json_types import JSON, is_list, is_object

if TYPE_CHECKING:
    from pegboard.config.forms import agent_form
else:
    agent_form = LazyModule("pegboard.config.forms.agent_form")

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TITLE = "pegboard.yaml"
AGENT_TITLE = "An agent of Pegboard"
_TITLES = frozenset({TITLE, AGENT_TITLE})
FROM_ENVIRONMENT: JSON = {
    "type": "string",
    "pattern": r"\$\{([A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?|file:[^{}]+)\}",
    "description": "A value from the environment: ${NAME}, or ${NAME:-default}; or a file's: ${file:PATH}.",
}
# Types that are not text, but may come from the environment, where everything is text.
_TYPED = frozenset({"integer", "number", "boolean"})


def json_schema(kinds: Mapping[str, Kind[Any]] = KINDS) -> JSON:
    """Return the JSON Schema 2020-12 of pegboard.yaml, with every key described.

    `kinds` are the types of its tools, including those of plugins.
    """
    forms = [MainFile, HookForm, *(kind.form for kind in kinds.values())]
    drawn, whole = models_json_schema([(form, "validation") for form in forms], ref_template="#/$defs/{model}")
    definitions: JSON = whole["$defs"]
    main = definitions.pop(MainFile.__name__)
    tools = [_of_type(name, drawn[kind.form, "validation"]) for name, kind in kinds.items()]
    main["properties"]["tools"]["items"] = {"oneOf": tools}
    main["properties"]["hooks"]["items"] = drawn[HookForm, "validation"]
    definitions["FromEnvironment"] = FROM_ENVIRONMENT
    schema = {"$schema": DIALECT, "title": TITLE, **main, "$defs": definitions}
    return polished(schema)


def agent_schema(kinds: Mapping[str, Kind[Any]] = KINDS) -> JSON:
    """Return the JSON Schema 2020-12 of an agent file of either `apiVersion`, with every key described."""
    forms = [
        *agent_form.AGENT_FILES,
        agent_form.GroupForm,
        agent_form.SharedToolForm,
        *(kind.form for kind in kinds.values()),
    ]
    drawn, whole = models_json_schema([(form, "validation") for form in forms], ref_template="#/$defs/{model}")
    definitions: JSON = whole["$defs"]
    tools = [_of_type(name, drawn[kind.form, "validation"]) for name, kind in kinds.items()]
    tools += [drawn[agent_form.GroupForm, "validation"], drawn[agent_form.SharedToolForm, "validation"]]
    for form in agent_form.AGENT_SPECS:
        definitions[form.__name__]["properties"]["tools"]["items"] = {"oneOf": tools}
    definitions["FromEnvironment"] = FROM_ENVIRONMENT
    whole_file = {"oneOf": [drawn[form, "validation"] for form in agent_form.AGENT_FILES]}
    return polished({"$schema": DIALECT, "title": AGENT_TITLE, **whole_file, "$defs": definitions})


def _of_type(name: str, reference: JSON) -> JSON:
    return {"properties": {"type": {"const": name}}, **reference}


def polished(schema: Any) -> Any:
    """Return a part of the schema without generated titles, and with `${NAME}` allowed for typed values."""
    if is_list(schema):
        return [polished(item) for item in schema]
    if not is_object(schema):
        return schema
    shown = {key: _polished_key(key, value) for key, value in schema.items() if key != "title" or value in _TITLES}
    if "patternProperties" in shown:
        shown.setdefault("additionalProperties", False)
    if shown.get("default", ...) is None:
        shown = _without_null(shown)
    is_choice = shown.get("type") == "string" and shown.keys() & {"enum", "pattern"}
    if shown == FROM_ENVIRONMENT or not (is_choice or shown.get("type") in _TYPED):
        return shown
    words = {key: shown.pop(key) for key in ("description", "default") if key in shown}
    return {"anyOf": [shown, {"$ref": "#/$defs/FromEnvironment"}], **words}


def _polished_key(key: str, value: Any) -> Any:
    if key in ("properties", "$defs", "definitions"):
        return {name: polished(inner) for name, inner in value.items()}
    # Keys do not come from the environment.
    return value if key == "propertyNames" else polished(value)


def _without_null(schema: JSON) -> JSON:
    """Return the schema of an optional key: if it is present, it has a value."""
    alternatives = [item for item in schema.get("anyOf", []) if item != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    if len(alternatives) == 1:
        return {**alternatives[0], **rest}
    return {**rest, "anyOf": alternatives} if alternatives else rest
