"""Anthropic: what the messages API refuses in a tool.

Sources: the guide "Tool use" (name, input_schema) and the messages of `invalid_request_error` for `tools.N.custom`.
"""

import re
from typing import Any

from tests.providers.checkers.walking import not_2020, schemas


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
