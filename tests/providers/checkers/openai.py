"""OpenAI: what function calling refuses, and what Structured Outputs refuses besides.

Sources: the guide "Structured Outputs" (supported schemas) and the messages of `invalid_function_parameters`.
"""

import re
from collections.abc import Iterator
from typing import Any

from tests.providers.checkers.walking import dangling, not_2020, schemas

TAKEN = set(
    "type properties required additionalProperties items anyOf enum const $ref $defs title description pattern format "
    "multipleOf maximum exclusiveMaximum minimum exclusiveMinimum minItems maxItems $schema".split()
)
FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}


def openai_faults(tool: Any) -> list[str]:
    function = tool["function"]
    return [*_named(function, {"name", "description", "parameters"}), *_plain(function["parameters"])]


def openai_strict_faults(tool: Any) -> list[str]:
    function = tool["function"]
    found = _named(function, {"name", "description", "parameters", "strict"})
    if function.get("strict") is not True:
        found.append("not strict")
    return [*found, *_plain(function["parameters"]), *_strict(function["parameters"])]


def openai_responses_faults(tool: Any) -> list[str]:
    if tool.get("type") != "function":
        return ["not of type function"]
    return openai_strict_faults({"function": {key: value for key, value in tool.items() if key != "type"}})


def _named(function: Any, known: set[str]) -> list[str]:
    found = [f"unknown key {key}" for key in function if key not in known]
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", function["name"]):
        found.append(f"name {function['name']!r}")
    return found


def _plain(schema: Any) -> Iterator[str]:
    yield from not_2020(schema)
    if schema.get("type") != "object" or {"oneOf", "anyOf", "allOf", "enum", "not"} & set(schema):
        yield "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level"
    if "properties" not in schema:
        yield "object schema missing properties"
    for way, item, _ in schemas(schema):
        kind = item.get("type")
        if "array" in (kind if isinstance(kind, list) else [kind]) and not isinstance(item.get("items"), dict):
            yield f"{way}: array schema missing items"


def _strict(schema: Any) -> Iterator[str]:
    yield from dangling(schema)
    properties = values = chars = 0
    for way, item, depth in schemas(schema):
        yield from (f"{way}: keyword {key}" for key in item if key not in TAKEN)
        if "$ref" in item and set(item) - {"$ref", "$defs"}:
            yield f"{way}: $ref with siblings"
        if not {"type", "$ref", "anyOf"} & set(item):
            yield f"{way}: no type"
        if item.get("format") not in {None, *FORMATS}:
            yield f"{way}: format {item['format']}"
        if re.search(r"\(\?[=!<]", item.get("pattern", "")):
            yield f"{way}: look-around"
        kind = item.get("type")
        if "object" in (kind if isinstance(kind, list) else [kind]):
            if item.get("additionalProperties") is not False:
                yield f"{way}: additionalProperties must be false"
            if set(item.get("required", [])) != set(item.get("properties", {})):
                yield f"{way}: all properties must be required"
        if depth > 10:
            yield f"{way}: nested {depth} deep"
        listed = item.get("enum", [])
        properties += len(item.get("properties", {}))
        values += len(listed)
        chars += sum(len(str(value)) for value in [*listed, *item.get("properties", {}), *item.get("$defs", {})])
        if len(listed) > 250 and sum(len(str(value)) for value in listed) > 15_000:
            yield f"{way}: enum too long"
    if properties > 5_000 or values > 1_000 or chars > 120_000:
        yield f"too large: {properties} properties, {values} enum values, {chars} characters"
