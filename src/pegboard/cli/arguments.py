"""Arguments: convert the words of a command line to arguments by the schema of a tool."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import orjson

from pegboard.cli.command_error import CommandError
from pegboard.core.json_reader import fault_of, parse_json, read_answer
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.tool import ToolSpec

CLI_REF_STEPS = 32  # references followed in a row in the schema of one parameter


def read_arguments(pairs: Sequence[str], text: str | None, *, spec: ToolSpec | None) -> JSON | bytes:
    """Return the arguments of a call; JSON text without other arguments stays text, for the call to parse.

    Args:
        pairs: `key=value`, read by the type in the schema, and `key:=json`. They override `text`.
        text: a JSON object, `@file` or `-` for standard input.
        spec: the tool's; without one every value is a string.

    Raises:
        CommandError: a word of another form, invalid JSON or JSON that is not an object, a duplicate key.
    """
    base = ("{}" if text is None else _read_text(text)).encode("utf-8", "surrogatepass")
    if not pairs:
        _object(base, _loosely)
        return base
    whole = _object(base, _parsed)
    arguments: JSON = {}
    for pair in pairs:
        key, value, is_list_item = _read_pair(pair, spec)
        if key in arguments and is_list_item:
            arguments[key] = [*arguments[key], *value]
        elif key in arguments:
            raise CommandError(f"{key!r} is given twice, and is not a list.")
        else:
            arguments[key] = value
    return {**whole, **arguments}


def _read_text(text: str) -> str:
    try:
        if text == "-":
            return sys.stdin.read()
        if text.startswith("@"):
            return Path(text[1:]).read_text(encoding="utf-8")  # raw: the operator's file, named on the command line
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--args {text!r} cannot be read: {error}.") from None
    return text


def _parsed(text: str | bytes) -> JSONValue:
    """Parse JSON as strictly as a request; `ValueError` says what is wrong."""
    try:
        return parse_json(text)
    except CallError as error:
        raise ValueError(fault_of(error)) from None


def _loosely(text: bytes) -> JSONValue:
    """Parse JSON that the call will check; here it only has to be an object."""
    try:
        return orjson.loads(text)
    except ValueError:
        # orjson refuses integers of 309 digits.
        return read_answer(text)


def _object(text: bytes, read: Callable[[bytes], JSONValue]) -> JSON:
    try:
        value = read(text)
    except ValueError as error:
        raise CommandError(f'--args cannot be read: {error}. Write for example --args \'{{"text": "a b"}}\'.') from None
    if not isinstance(value, dict):
        raise CommandError(f'--args needs a JSON object, such as {{"text": "a b"}}; this is a {type(value).__name__}.')
    return value  # pyright: ignore[reportUnknownVariableType] - keys of a JSON object are strings


def _read_pair(pair: str, spec: ToolSpec | None) -> tuple[str, JSONValue, bool]:
    """Return key, value, and whether it is one item of a list whose key may be repeated."""
    key, separator, value = pair.partition("=")
    if not separator or not key.rstrip(":"):
        names = list(_object_or_empty(spec.input_schema.get("properties"))) if spec else []
        known = f" {spec.name!r} takes {', '.join(names)}." if spec and names else ""
        raise CommandError(f"{pair!r} is not an argument. Write key=value, key:=JSON, or --args JSON.{known}")
    if key.endswith(":"):
        try:
            return key[:-1], _parsed(value), False
        except ValueError as error:
            raise CommandError(f"{pair!r}: what follows := cannot be read: {error}. Use = for plain text.") from None
    root: JSON = {} if spec is None else spec.input_schema
    name = key if spec is None else spec.aliases.get(key, key)
    declared = _object_or_empty(root.get("properties")).get(name)
    types = _types(declared, root)
    read = _typed(value, types)
    if "array" in types and "string" not in types and not isinstance(read, list):
        item: JSONValue = _typed(value, _types(_resolved(declared, root).get("items"), root))
        return key, [item], True
    return key, read, False  # pyright: ignore[reportUnknownVariableType] - JSON, narrowed above


def _typed(text: str, types: frozenset[str]) -> JSONValue:
    """Return the value that `text` spells in one of the types; otherwise the text, which the call will check."""
    if "string" in types or not types:
        return text
    fits = {
        "integer": True,
        "number": True,
        "boolean": text in ("true", "false"),
        "null": text == "null",
        "object": text.startswith("{"),
        "array": text.startswith("["),
    }
    if not any(fits.get(name) for name in types):
        return text
    try:
        value = _parsed(text)
    except ValueError:
        return text
    return value if _type_of(value) in types or (isinstance(value, int) and "number" in types) else text


def _object_or_empty(value: JSONValue) -> JSON:
    return cast("JSON", value) if isinstance(value, dict) else {}


def _resolved(schema: JSONValue, root: JSON) -> JSON:
    """Return a schema with its local `$ref` followed; empty if it leads nowhere."""
    resolved = _object_or_empty(schema)
    for _ in range(CLI_REF_STEPS):
        ref = resolved.get("$ref")
        if not isinstance(ref, str) or not ref.startswith("#/"):
            return resolved
        resolved = root
        for step in ref[2:].split("/"):
            resolved = _object_or_empty(resolved.get(step.replace("~1", "/").replace("~0", "~")))
    return {}


def _types(schema: JSONValue, root: JSON, *, depth: int = 0) -> frozenset[str]:
    """Return the JSON types that a property may have; empty if the schema does not say."""
    resolved = _resolved(schema, root)
    named = resolved.get("type")
    if isinstance(named, str):
        return frozenset({named})
    if named:
        return frozenset(named)
    values = resolved.get("enum") or ([resolved["const"]] if "const" in resolved else [])
    if values:
        return frozenset(_type_of(value) for value in values)
    if depth >= CLI_REF_STEPS:
        return frozenset()
    options = [item for key in ("anyOf", "oneOf", "allOf") for item in resolved.get(key, ())]
    return frozenset(name for option in options for name in _types(option, root, depth=depth + 1))


def _type_of(value: JSONValue) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "null"
