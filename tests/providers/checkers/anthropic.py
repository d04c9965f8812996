"""Anthropic: what the messages API refuses in a tool.

Sources: the guide "Tool use" (name, input_schema), the messages of `invalid_request_error` for `tools.N.custom`, and
"Structured outputs" (JSON Schema limitations, which strict tools share).
"""

import re
from typing import Any

from tests.providers.checkers.walking import dangling, not_2020, schemas

TAKEN_STRICTLY = set(
    "type properties required additionalProperties items anyOf enum const $ref $defs title description default format "
    "minItems".split()
)
FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}


def anthropic_strict_faults(tool: Any) -> list[str]:
    schema = tool["input_schema"]
    found = anthropic_faults({key: value for key, value in tool.items() if key != "strict"})
    if tool.get("strict") is not True:
        found.append("not strict")
    found.extend(dangling(schema))
    for way, item, _ in schemas(schema):
        found.extend(f"{way}: keyword {key}" for key in item if key not in TAKEN_STRICTLY)
        kind = item.get("type")
        if "object" in (kind if isinstance(kind, list) else [kind]) and item.get("additionalProperties") is not False:
            found.append(f"{way}: additionalProperties must be false")
        if item.get("format") not in {None, *FORMATS}:
            found.append(f"{way}: format {item['format']}")
        if item.get("minItems", 0) not in (0, 1):
            found.append(f"{way}: minItems {item['minItems']}")
        if any(isinstance(value, dict | list) for value in item.get("enum", [])):
            found.append(f"{way}: complex types in an enum")
    found.extend(f"{name} contains itself" for name in schema.get("$defs", {}) if _comes_back(schema, name))
    return found


def _comes_back(schema: Any, name: str) -> bool:
    seen, open_names = set[str](), [name]
    while open_names:
        for _, item, _ in schemas(schema["$defs"][open_names.pop()]):
            inner = item.get("$ref", "").removeprefix("#/$defs/")
            if inner == name:
                return True
            if inner and inner not in seen:
                seen.add(inner)
                open_names.append(inner)
    return False


def anthropic_faults(tool: Any) -> list[str]:
    schema = tool["input_schema"]
    found = [f"unknown key {key}" for key in tool if key not in {"name", "description", "input_schema"}]
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool["name"]):
        found.append(f"name {tool['name']!r}")
    found.extend(not_2020(schema))
    if schema.get("type") != "object":
        found.append("input_schema.type: must be 'object'")
    if {"oneOf", "allOf", "anyOf"} & set(schema):
        found.append("input_schema does not support oneOf, allOf, or anyOf at the top level")
    for way, item, _ in schemas(schema):
        wrong = [key for key in item.get("properties", {}) if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key)]
        found.extend(f"{way}: property key {key!r}" for key in wrong)
    return found
