"""Gemini: what a function declaration may say in `parametersJsonSchema`.

Source: Gemini API reference, `FunctionDeclaration` (name) and the JSON Schema keywords listed for
`responseJsonSchema`, which "Cyclic references … may only be used within non-required properties" is of too.
"""

import re
from collections.abc import Iterator
from typing import Any

from tests.providers.checkers.walking import dangling, not_2020, schemas

TAKEN = set(
    "$id $defs $ref $anchor type format title description enum items prefixItems minItems maxItems minimum maximum "
    "anyOf oneOf properties additionalProperties required propertyOrdering".split()
)


def gemini_faults(tool: Any) -> list[str]:
    schema = tool["parametersJsonSchema"]
    found = [f"unknown key {key}" for key in tool if key not in {"name", "description", "parametersJsonSchema"}]
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", tool["name"]):
        found.append(f"name {tool['name']!r}")
    if schema.get("type") != "object":
        found.append("the schema must describe an object")
    found.extend(not_2020(schema))
    for way, item, _ in schemas(schema):
        found.extend(f"{way}: keyword {key}" for key in item if key not in TAKEN)
        if "$ref" in item and any(not key.startswith("$") for key in item):
            found.append(f"{way}: $ref with siblings")
        if any(isinstance(value, bool) or not isinstance(value, str | int | float) for value in item.get("enum", [])):
            found.append(f"{way}: enum of other than text and numbers")
    if not any("#/$defs/" not in ref and ref != "#" for ref in _refs(schema)):
        found.extend(dangling(schema))
        found.extend(_cycles(schema))
    return found


def _refs(schema: Any) -> list[str]:
    return [item["$ref"] for _, item, _ in schemas(schema) if "$ref" in item]


def _cycles(schema: Any) -> Iterator[str]:
    """Yield the definitions that contain themselves through nothing but required properties."""
    definitions = schema.get("$defs", {})
    needs = {name: set(_needed(inner)) for name, inner in definitions.items()}
    for name in definitions:
        seen: set[str] = set()
        stack = list(needs[name])
        while stack:
            step = stack.pop()
            if step == name:
                yield f"{name} must contain itself"
                break
            if step not in seen:
                seen.add(step)
                stack.extend(needs.get(step, ()))


def _needed(item: Any) -> Iterator[str]:
    if not isinstance(item, dict):
        return
    if "$ref" in item:
        yield item["$ref"].removeprefix("#/$defs/")
    for key in item.get("required", []):
        yield from _needed(item.get("properties", {}).get(key))
    for key in ("items", "additionalProperties"):
        yield from _needed(item.get(key))
    for key in ("anyOf", "oneOf", "prefixItems"):
        for inner in item.get(key, []):
            yield from _needed(inner)
