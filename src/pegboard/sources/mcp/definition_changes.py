"""Definition changes: classifies the differences between two definitions of a tool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.sources.foreign_text import as_drawn, has_hidden
from pegboard.sources.mcp.lock_file import canonical

Change = Literal[
    "cosmetic", "widened", "narrowed", "new_required", "annotation_flip", "imperative_text", "hidden_text",
    "look_alike", "new", "gone", "meta",
]  # fmt: skip
_PROSE = frozenset({"description", "title", "$comment", "examples"})
# Phrases in a description that steer the model rather than describe the tool.
_IMPERATIVE = re.compile(
    r"<\s*(important|system|instructions?|admin)\b|\b(ignore|disregard|forget|override)\b.{0,40}\b(previous|prior|above|"
    r"all|other|instructions?|rules?)\b|\b(do not|don't|never|without)\b.{0,40}\b(tell|mention|inform|show|reveal|ask)|"
    r"\b(before|after|instead of|whenever|always|first)\b.{0,40}\b(us(e|ing)|call(ing)?|invok(e|ing)|read(ing)?|"
    r"send(ing)?|run(ning)?)\b|\byou (must|should|have to|need to|are)\b|\b(must|always) (be )?(call|use|read|send|"
    r"includ|pass|forward)|\b(system prompt|api[ _-]?keys?|credentials?|passwords?|id_rsa)\b|"
    r"\.(ssh|env|aws|netrc)\b|\bmcp\.json\b|"
    r"\b(forward|bcc|exfiltrate|upload|post) (it|this|them|all|the|every|a copy)\b",
    re.IGNORECASE | re.DOTALL,
)
_CONFUSABLE = str.maketrans({"0": "o", "1": "l", "i": "l", "5": "s", "8": "b", "2": "z", "|": "l"})


def classify(old: JSON, new: JSON) -> tuple[Change, ...]:
    """Return the changes from an accepted definition to another; empty if they are equivalent."""
    if canonical(old) == canonical(new):
        return ()
    changes: list[Change] = []
    accepted = set(_texts(old))
    fresh = [text for text in _texts(new) if text not in accepted]
    if any(map(has_hidden, fresh)):
        changes.append("hidden_text")
    if any(_IMPERATIVE.search(text) for text in fresh):
        changes.append("imperative_text")
    if _hints(old) != _hints(new):
        changes.append("annotation_flip")
    if canonical(old.get("_meta")) != canonical(new.get("_meta")):
        changes.append("meta")
    for key in ("inputSchema", "outputSchema"):
        changes.extend(_schema_changes(old.get(key), new.get(key)))
    return tuple(dict.fromkeys(changes)) or ("cosmetic",)


def skeleton(name: str) -> str:
    """Return the visual shape of a name: without case and separators, lookalikes replaced.

    Names with the same skeleton can be confused.
    """
    plain = as_drawn(name).casefold().translate(_CONFUSABLE).replace("rn", "m").replace("vv", "w")
    return "".join(filter(str.isalpha, plain)) or plain


def _hints(definition: JSON) -> dict[str, Any]:
    annotations: JSON = definition.get("annotations", {})
    return {key: value for key, value in annotations.items() if key != "title"}


def _texts(value: JSONValue) -> Iterator[str]:
    if is_object(value):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif is_list(value):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value


def _schema_changes(old: JSONValue, new: JSONValue) -> Iterator[Change]:
    """Yield how the set of accepted values changed, ignoring prose."""
    before, after = _rules(old), _rules(new)
    if before == after:
        return
    if any(after[spot] - before.get(spot, frozenset()) for spot in after if spot[-1:] == ("required",)):
        yield "new_required"
        return
    allows = frozenset({"properties", "enum", "type", "anyOf", "oneOf"})
    lost = any(before[spot] - after.get(spot, frozenset()) for spot in before if spot[-1] in allows)
    yield "narrowed" if lost else "widened"


def _rules(schema: JSONValue, at: tuple[str, ...] = ()) -> dict[tuple[str, ...], frozenset[str]]:
    """Return a schema as flat sets by path: the members of its lists, the names of its objects, its values."""
    rules: dict[tuple[str, ...], frozenset[str]] = {}
    if is_object(schema):
        rules[(*at, "properties")] = frozenset(schema) if at[-1:] == ("properties",) else frozenset()
        for key, inner in schema.items():
            if at[-1:] != ("properties",) and key in _PROSE and not is_object(inner):
                continue
            rules.update(_rules(inner, (*at, key)))
    elif is_list(schema):
        rules[at] = frozenset(str(canonical(inner)) for inner in schema)
    else:
        rules[at or ("",)] = frozenset({str(schema)})
    return rules
