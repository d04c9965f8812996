"""Descriptions: moves rules into the description if a target has no keyword for them."""

from __future__ import annotations

from pegboard.model.json_types import JSON, JSONValue, is_list
from pegboard.providers.compile.nodes import Compiler, Node, Place, written
from pegboard.providers.dialect import is_annotation

RULE_CHARS = 200  # characters of a rule that is moved into the description

_WORDS = {
    "default": "default: {}",
    "example": "for example {}",
    "examples": "for example {}",
    "format": "format: {}",
    "pattern": "must match {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "uniqueItems": "no item twice",
    "minProperties": "at least {} keys",
    "maxProperties": "at most {} keys",
    "enum": "one of {}",
    "readOnly": "read only",
    "writeOnly": "write only",
    "deprecated": "deprecated",
}
# The formats that are validated; others are annotations.
_JUDGED_FORMATS = frozenset(
    "date date-time time duration email hostname idn-email idn-hostname ipv4 ipv6 iri iri-reference json-pointer regex "
    "relative-json-pointer uri uri-reference uri-template uuid".split()
)
_FLAGS = frozenset({"uniqueItems", "readOnly", "writeOnly", "deprecated", "nullable"})
_SILENT = frozenset({"$schema", "$comment", "$id", "$anchor", "$defs", "definitions"})


def _in_words(keyword: str, value: JSONValue) -> str:
    """Return a keyword and its value in words; empty if words would not help."""
    form = _WORDS.get(keyword, "")
    if keyword == "examples" and is_list(value) and value:
        value = value[0]
    text = form.format(value if isinstance(value, str) and keyword in ("format", "pattern") else written(value))
    return "" if len(text) > RULE_CHARS else text


def described(node: Node, words: JSON, notes: list[str]) -> Node:
    """Return the node with title and description, followed by the notes."""
    own = words.get("description")
    text = own if isinstance(own, str) else ""
    inner = node.schema.get("description", "")
    if inner and inner != text:
        text = f"{text} {inner}".strip()
    if notes:
        text = f"{text} ({'; '.join(notes)})".strip()
    schema = {key: value for key, value in node.schema.items() if key != "description"}
    shown = {"title": words["title"]} if isinstance(words.get("title"), str) else {}
    return Node({**schema, **shown, **({"description": text} if text else {})}, node.restore)


def drop(compiler: Compiler, place: Place, keyword: str, value: JSONValue, notes: list[str]) -> None:
    """Drop one keyword: describe it in the notes, and record it in the losses."""
    if keyword in _SILENT or (value is False and keyword in _FLAGS):
        return
    text = _in_words(keyword, value)
    if text:
        notes.append(text)
    only_tells = is_annotation(keyword) or (keyword == "format" and value not in _JUDGED_FORMATS)
    how = "said in the description" if text else "left out"
    compiler.lose(place, keyword, "reworded" if only_tells else "widened", f"{keyword!r} is not supported; {how}")
