"""Shapes: argument schemas of every kind that a provider is known to stumble over."""

from functools import reduce
from typing import Any

OBJECT: dict[str, Any] = {"type": "object"}
TEXT: dict[str, Any] = {"type": "string"}
TREE = {
    "type": "object",
    "properties": {"name": TEXT, "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
    "required": ["name"],
}


def of(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": properties, **more}
    return {**made, "required": list(required)} if required else made


PAIR = [TEXT, {"type": "integer"}]
CONDITIONS = {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "not": {"required": ["z"]}}
SHAPES: dict[str, dict[str, Any]] = {
    "nothing": OBJECT,
    "anything": {},
    "open": {"type": "object", "additionalProperties": True},
    "open beside": of({"a": TEXT}, "a", additionalProperties={"type": "integer"}),
    "closed": of({"a": TEXT}, "a", additionalProperties=False),
    "optional": of({"a": TEXT, "b": {"type": "integer", "default": 5}, "c": {"type": "boolean"}}, "a"),
    "optional null": of(
        {"a": {"anyOf": [TEXT, {"type": "null"}], "default": None}, "b": {"type": ["integer", "null"]}}
    ),
    "optional enum": of({"a": {"enum": ["x", "y"]}, "b": {"enum": ["x", None, 3]}, "c": {"const": "k"}}),
    "booleans listed": of({"a": {"enum": [True]}, "b": {"enum": [True, False]}, "c": {"const": None}}, "a", "b"),
    "objects listed": of({"a": {"enum": [{"x": 1}, [1, 2], "t"]}}, "a"),
    "many types": of({"a": {"type": ["string", "integer", "array", "null"], "minimum": 3, "minLength": 2}}, "a"),
    "untyped": of({"a": {}, "b": {"description": "whatever"}, "c": True}, "a", "b"),
    "untyped object": of({"a": {"properties": {"x": TEXT}}, "b": {"items": TEXT}, "c": {"minimum": 3}}),
    "map": of({"a": {"type": "object", "additionalProperties": {"type": "integer"}}, "b": OBJECT}, "a", "b"),
    "map of maps": of({"a": {"type": "object", "additionalProperties": {"type": "object"}}}, "a"),
    "map of objects": of({"a": {"type": "object", "additionalProperties": of({"x": TEXT})}}),
    "pattern keys": of({"a": {"type": "object", "patternProperties": {"^x": TEXT}, "additionalProperties": False}}),
    "list of anything": of({"a": {"type": "array"}, "b": {"type": "array", "items": {}}}, "a"),
    "pair": of({"a": {"type": "array", "prefixItems": PAIR, "items": False, "minItems": 2}}, "a"),
    "loose pair": of({"a": {"type": "array", "prefixItems": PAIR}}, "a"),
    "at least one of a pair": of(
        {"a": {"type": "array", "prefixItems": [TEXT, {"type": "array"}], "minItems": 1, "maxItems": 2}}
    ),
    "bounds": of(
        {
            "a": {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 9, "multipleOf": 2},
            "b": {"type": "number", "exclusiveMinimum": 0.5},
            "c": {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^[a-z ]*$"},
            "d": {"type": "array", "items": TEXT, "minItems": 1, "uniqueItems": True},
            "e": {"type": "object", "minProperties": 1},
        },
        "a",
    ),
    "look-around": of({"a": {"type": "string", "pattern": "^(?!x).*$"}}, "a"),
    "formats": of({name: {"type": "string", "format": name} for name in ("date", "uri", "blob", "uuid")}),
    "shared": of(
        {"a": {"$ref": "#/$defs/Place"}, "b": {"$ref": "#/$defs/Place", "description": "Where to."}},
        "a",
        **{"$defs": {"Place": of({"city": TEXT, "zip": {"type": "string", "minLength": 4}}, "city")}},
    ),
    "older definitions": of(
        {"a": {"$ref": "#/definitions/x~1y"}}, "a", definitions={"x/y": {"type": "integer"}}
    ),
    "tree": of({"root": {"$ref": "#/$defs/Tree"}}, "root", **{"$defs": {"Tree": TREE}}),
    "tree that never ends": of(
        {"root": {"$ref": "#/$defs/Tree"}}, "root", **{"$defs": {"Tree": {**TREE, "required": ["name", "children"]}}}
    ),
    "itself": of({"deeper": {"$ref": "#"}, "value": {"type": "integer"}}),
    "every part": of({"a": {"allOf": [of({"x": TEXT}, "x"), of({"y": {"type": "integer"}}, "y")]}}, "a"),
    "parts at odds": of({"a": {"allOf": [{"type": "string"}, {"type": "integer"}]}}, "a"),
    "one of": of({"a": {"oneOf": [TEXT, {"type": "integer"}, of({"x": TEXT}, "x")]}}, "a"),
    "one of objects": of(
        {"a": {"oneOf": [of({"kind": {"const": "p"}, "p": TEXT}, "kind"), of({"kind": {"const": "q"}}, "kind")]}}, "a"
    ),
    "union beside": of({"a": {"type": "object", "properties": {"x": TEXT}, "anyOf": [of({"y": TEXT}, "y"), OBJECT]}}),
    "root one of": {"type": "object", "oneOf": [of({"a": TEXT}, "a"), of({"b": {"type": "integer"}}, "b")]},
    "root needs one": of({"a": TEXT, "b": TEXT}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
    "root parts": {"allOf": [of({"a": TEXT}, "a"), of({"b": TEXT})]},
    "root ref": {"$ref": "#/$defs/Args", "$defs": {"Args": of({"a": TEXT}, "a")}},
    "conditions": of({"a": TEXT, "b": TEXT}, **CONDITIONS),
    "odd keys": of({"a b": TEXT, "ü": {"type": "integer"}, "x" * 80: TEXT, "$ok.-": TEXT}, "a b"),
    "required but undeclared": of({"a": TEXT}, "a", "b", additionalProperties=True),
    "deep": reduce(lambda inner, _: of({"a": inner}), range(14), of({"a": TEXT, "b": OBJECT})),
    "long enum": of({"a": {"enum": [f"value number {number:05}" + "x" * 60 for number in range(300)]}}, "a"),
    "many values": of({f"p{part}": {"enum": [f"{part}-{number}" for number in range(300)]} for part in range(4)}),
    "words": of({"a": {"type": "string", "title": "A", "examples": ["x"], "deprecated": True, "x-own": {"k": 1}}}),
}  # fmt: skip
