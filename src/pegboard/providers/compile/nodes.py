"""Nodes: a rewritten schema together with the conversion of its values back to the original."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from pegboard.core.json_reader import parse_json
from pegboard.core.schema import json_path
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.providers.dialect import Dialect, Effect

Restore = Callable[[Any], Any]


class Node(Struct):
    """A rewritten schema. `restore` converts a matching value back; `None` if no conversion is needed.

    It leaves unexpected values unchanged: they are validated against the tool's own schema anyway.
    """

    schema: JSON
    restore: Restore | None = None


class Place(NamedTuple):
    """The place in the tool's own schema, the references followed so far, and the depth in the rewritten one."""

    steps: tuple[str | int, ...] = ()
    trail: tuple[str, ...] = ()
    depth: int = 0

    @property
    def path(self) -> str:
        return json_path([*self.steps])

    def at(self, *steps: str | int) -> Place:
        """Return the place some steps further in, at the same depth of values."""
        return self._replace(steps=(*self.steps, *steps))

    def inside(self, *steps: str | int) -> Place:
        """Return the place of a value inside this one."""
        return self._replace(steps=(*self.steps, *steps), depth=self.depth + 1)


class Compiler(Protocol):
    """The compiler as seen by the functions that rewrite parts of a schema; see `SchemaCompiler`."""

    dialect: Dialect

    def node(self, schema: JSONValue, place: Place) -> Node:
        """Return the rewritten schema for one place."""
        ...

    def flat(self, schema: JSON, place: Place) -> tuple[JSON, Place]:
        """Return the schema with `$ref` and `allOf` at its top resolved, and the place with the references followed."""
        ...

    def lose(self, place: Place, rule: str, effect: Effect, text: str) -> None:
        """Record a rule that cannot be expressed."""
        ...


def nullable(node: Node) -> Node:
    """Return the node that accepts null as well."""
    schema = node.schema
    kind = schema.get("type")
    if "anyOf" in schema:
        if {"type": "null"} in schema["anyOf"]:
            return node
        return Node({**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}, node.restore)
    if isinstance(kind, str) and kind != "null":
        listed = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
        return Node({**schema, "type": [kind, "null"], **listed}, node.restore)
    if kind == "null" or (isinstance(kind, list) and "null" in kind):
        return node
    return Node({"anyOf": [schema, {"type": "null"}]}, node.restore)


def is_impossible(schema: JSONValue) -> bool:
    """Tell whether a schema matches nothing: `false`, or `{"not": {}}`, which zod uses for forbidden properties."""
    if not is_object(schema):
        return schema is False
    unions = (schema.get("anyOf"), schema.get("oneOf"))
    return schema.get("not") in ({}, True) or any(is_list(union) and all(map(is_impossible, union)) for union in unions)


def takes_null(schema: JSON) -> bool:
    """Tell whether a rewritten schema accepts null."""
    kind = schema.get("type")
    return kind == "null" or (isinstance(kind, list) and "null" in kind) or {"type": "null"} in schema.get("anyOf", ())


def as_text(what: str) -> Node:
    """Return the node for a value written as JSON text, because the target cannot describe it."""
    return Node({"type": "string", "description": f"{what}, written as JSON text."}, read_text)


def read_text(value: JSONValue) -> JSONValue:
    """Return the value of a JSON text; text that is not JSON is returned unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value)
    except CallError:
        return value


def written(value: JSONValue) -> str:
    """Return a value as compact JSON text, equal for equal values."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
