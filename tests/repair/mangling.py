"""Mangling: right arguments, and how models get them slightly wrong."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

TEXT = {"type": "string"}
INTEGER = {"type": "integer"}
PLACE = {"type": "object", "properties": {"city": TEXT, "zip_code": INTEGER}, "required": ["city"]}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "user_id": INTEGER,
        "ratio": {"type": "number"},
        "is_open": {"type": "boolean"},
        "tags": {"type": "array", "items": TEXT},
        "numbers": {"type": "array", "items": INTEGER},
        "place": PLACE,
        "places": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
        "status": {"enum": ["open", "in_progress", "Closed"]},
        "level": {"enum": [1, 2, 3]},
        "maybe": {"anyOf": [INTEGER, {"type": "null"}]},
        "either": {"oneOf": [INTEGER, PLACE]},
        "flags": {"type": "object", "additionalProperties": {"type": "boolean"}},
    },
    "required": ["user_id", "tags"],
    "additionalProperties": False,
    "$defs": {"Place": PLACE},
}
BASES: list[dict[str, Any]] = [
    {"user_id": 7, "tags": ["a"]},
    {"user_id": 0, "tags": ["new"], "ratio": 1.5, "is_open": True, "status": "in_progress"},
    {"user_id": -3, "tags": ["x y"], "numbers": [4], "place": {"city": "Ulm", "zip_code": 89073}},
    {"user_id": 12, "tags": ["a", "b"], "numbers": [1, 2, 3], "places": [{"city": "Bonn"}], "level": 2},
    {"user_id": 5, "tags": ["q"], "maybe": 4, "flags": {"a": True, "b": False}, "status": "Closed"},
    {"user_id": 6, "tags": ["r"], "either": {"city": "Jena", "zip_code": 7743}, "is_open": False, "ratio": 2},
    {"user_id": 8, "tags": ["s"], "either": 3, "places": [{"city": "Köln", "zip_code": 50667}, {"city": "Trier"}]},
    {"user_id": 9, "tags": ["t", "u", "v"], "status": "open", "place": {"city": "Kiel"}, "flags": {"c": True}},
]


class Mangled(NamedTuple):
    how: str
    args: Any
    meant: dict[str, Any]


def _places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*way, key), item
        yield from _places(item, (*way, key))


def _with(args: Any, way: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(args)
    spot = made
    for step in way[:-1]:
        spot = spot[step]
    spot[way[-1]] = value
    return made


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


IN_PLACE: dict[str, tuple[Callable[[Any], bool], Callable[[Any], Any]]] = {
    "number in text": (_is_number, str),
    "number in text with blanks": (_is_number, lambda value: f" {value} "),
    "boolean in text": (lambda value: isinstance(value, bool), lambda value: json.dumps(value)),
    "boolean as Python writes it": (lambda value: isinstance(value, bool), str),
    "JSON in text": (lambda value: isinstance(value, dict | list), json.dumps),
    "JSON in a code fence": (
        lambda value: isinstance(value, dict | list),
        lambda value: f"```json\n{json.dumps(value)}\n```",
    ),
    "single value": (lambda value: isinstance(value, list) and len(value) == 1, lambda value: value[0]),
    "everything in text": (
        lambda value: isinstance(value, dict) and "city" in value,
        lambda value: json.dumps({key: str(item) for key, item in value.items()}),
    ),
}


def _whole(args: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "whole in text", json.dumps(args)
    yield "whole in a code fence", f"```json\n{json.dumps(args)}\n```"
    yield "whole in bytes in a code fence", f"```\n{json.dumps(args)}\n```\n".encode()
    yield "whole in text in text", json.dumps(json.dumps(args)).encode()
    yield "key in camelCase", {"userId": args["user_id"], **{k: v for k, v in args.items() if k != "user_id"}}
    yield "key in capitals", {"USER-ID" if k == "user_id" else k: v for k, v in args.items()}
    yield "key without its s", {"tag" if k == "tags" else k: v for k, v in args.items()}
    yield "alias of another case", {"Account" if k == "user_id" else k: v for k, v in args.items()}
    absent = [key for key in ("ratio", "is_open", "numbers", "place", "status") if key not in args]
    yield "null for what is not given", {**args, absent[0]: None}
    yield "null for several", {**args, **dict.fromkeys(absent)}
    if "status" in args:
        yield "capitals", {**args, "status": args["status"].upper()}
        yield "blanks and capitals", {**args, "status": f" {args['status'].replace('_', ' ').title()} "}


def mangled() -> list[Mangled]:
    """Return more than 300 of them."""
    found: list[Mangled] = []
    for base in BASES:
        single = [
            (way[0], Mangled(how, _with(base, way, change(value)), base))
            for way, value in _places(base)
            for how, (applies, change) in IN_PLACE.items()
            if applies(value)
        ]
        found.extend(case for _, case in single)
        for number, (key, case) in enumerate(single):
            for other_key, other in single[number + 1 :: 3]:
                if key != other_key:
                    found.append(Mangled("two at once", {**case.args, other_key: other.args[other_key]}, base))
        found.extend(Mangled(how, args, base) for how, args in _whole(base))
        twice = {key: str(value) if _is_number(value) else value for key, value in base.items()}
        found.append(Mangled("all numbers", {**twice, "tags": json.dumps(base["tags"])}, base))
    return found
