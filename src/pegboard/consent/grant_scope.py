"""Grant scope: the arguments that a grant fixes, leaves open or forbids, as a schema and in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pegboard.consent.limits import CONSENT_GRANT_CALLS, CONSENT_GRANT_S
from pegboard.core.consent_text import shown_arguments, shown_name
from pegboard.model.consent import Consent, Grant, Parameters
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

_PLAIN = frozenset({"type", "properties", "required"})
_CLOSED_PLAIN = _PLAIN | {"additionalProperties"}
_WRAPPED = _PLAIN - {"required"} | {"additionalProperties", "allOf"}
GRANT_TEXT_CHARS = 4_000  # characters of fixed values that the text of a grant shows; a longer one is refused


def parameters_of(input_schema: Mapping[str, JSONValue]) -> Parameters:
    """Return the arguments that a tool takes, by its input schema."""
    properties, required = input_schema.get("properties"), input_schema.get("required")
    schemas = properties if is_object(properties) else {}
    return Parameters(
        names=tuple(schemas),
        required=tuple(name for name in required if isinstance(name, str)) if is_list(required) else (),
        defaults={
            name: schema["default"] for name, schema in schemas.items() if is_object(schema) and "default" in schema
        },
    )


def check_span(span_s: float) -> None:
    """Refuse a time that no consent can last.

    Raises:
        ValueError: it is not positive, or too long.
    """
    if not 0 < span_s <= CONSENT_GRANT_S:
        raise ValueError(f"A consent lasts more than nothing and at most {CONSENT_GRANT_S / 86_400:.0f} days.")


def matching_of(where: Mapping[str, JSONValue]) -> dict[str, JSONValue]:
    """Return the schema of arguments with these values under these keys, and any other keys."""
    return {
        "type": "object",
        "properties": {name: {"const": value} for name, value in where.items()},
        "required": list(where),
    }


def grant_for(
    question: Consent,
    *,
    calls: int,
    lasts_s: float,
    where: Mapping[str, JSONValue] | None = None,
    same: Collection[str] = (),
    any: Collection[str] = (),  # noqa: A002 - the word of the command line and the HTTP API
    any_other: bool = False,
) -> Grant:
    """Return a grant for the caller of a question; pass it to `SqlConsents.grant` with the id of the question.

    `grant_text` says what it allows and what it leaves open, for the person who decides.

    Args:
        question: an open question.
        calls: how many calls it allows.
        lasts_s: for how many seconds.
        where: arguments and the value that each must have.
        same: arguments that must have the value of the question.
        any: arguments that may have any value.
        any_other: whether all other arguments may have any value. Otherwise they are absent or have their default.

    Raises:
        ValueError: no call could match, or the question does not have an argument of `same`.
    """
    asked = question.arguments or {}
    unknown = [name for name in same if name not in asked]
    if unknown:
        why = "were too long to store" if question.arguments is None else f"have no {shown_name(unknown[0])}"
        raise ValueError(f"The arguments of the question {why}. Give the value (--where NAME=VALUE, `where`).")
    fixed = {**{name: asked[name] for name in same}, **(where or {})}
    grant = Grant(
        tool=question.tool, definition_hash=question.definition_hash, calls=calls, lasts_s=lasts_s,
        matching=matching_of(fixed), any=tuple(any), any_other=any_other, parameters=question.parameters,
        user_id=question.user_id, space_id=question.space_id, credential=question.credential,
    )  # fmt: skip
    closed_matching(grant)
    return grant


def closed_matching(grant: Grant) -> dict[str, JSONValue]:
    """Return the schema that the arguments of the calls must fit: `matching`, and nothing that it does not name.

    Raises:
        ValueError: no call could fit it, there are no calls or too many, or it lasts too long.
    """
    check_span(grant.lasts_s)
    if not 1 <= grant.calls <= CONSENT_GRANT_CALLS:
        raise ValueError(f"A grant is for 1 to {CONSENT_GRANT_CALLS:,} calls, not {grant.calls:,}.")
    matching, parameters = dict(grant.matching), grant.parameters or Parameters()
    if grant.any_other:
        return matching
    named = _properties(matching)
    opened: JSON = {name: {} for name in grant.any if name not in named}
    # Calls reach the grant with the defaults of the tool filled in.
    usual: JSON = {
        name: {"const": value}
        for name, value in parameters.defaults.items()
        if name not in named and name not in opened
    }
    missing = [name for name in parameters.required if name not in named and name not in opened and name not in usual]
    if missing:
        raise ValueError(
            f"No call could use this grant: every call of {grant.tool!r} has {_listed(missing)}, which the grant does "
            "not name. Give its value (--where NAME=VALUE, `where`), allow any value (--any NAME, `any`), or leave all "
            "other arguments open (--any-other, `any_other`)."
        )
    if matching.keys() <= _PLAIN:
        return {**matching, "type": "object", "properties": {**named, **opened, **usual}, "additionalProperties": False}
    # The outer schema alone says which names there may be, so that no rule inside can open it again.
    names: JSON = {**{name: {} for name in named}, **opened, **usual}
    return {"type": "object", "allOf": [matching], "properties": names, "additionalProperties": False}


def grant_text(grant: Grant) -> str:
    """Return the text of a grant for the person who gives it: the calls it allows, and the arguments it leaves open.

    Raises:
        ValueError: no call could fit it, or the text would be too long to read.
    """
    matching = closed_matching(grant)
    parts = (("user", grant.user_id), ("space", grant.space_id), ("credential", grant.credential))
    caller = ", ".join(f"{label} {shown_name(value)}" for label, value in parts if value) or "an unknown caller"
    calls = "1 call" if grant.calls == 1 else f"{grant.calls:,} calls"
    scope = scope_text(matching, parameters=grant.parameters)
    return f"Allow up to {calls} of {shown_name(grant.tool)} by {caller} without asking. {scope}"


def scope_text(
    matching: Mapping[str, JSONValue],
    *,
    parameters: Parameters | None = None,
    max_chars: int | None = GRANT_TEXT_CHARS,
) -> str:
    """Return in words which arguments the schema of a grant fixes, and which it leaves open.

    Raises:
        ValueError: one of its values is longer than `max_chars`.
    """
    named, required = _properties(matching), matching.get("required")
    fixed, usual, rules = dict[str, JSONValue](), dict[str, JSONValue](), list[JSONValue]()
    for name, schema in named.items():
        if not (is_object(schema) and list(schema) == ["const"]):
            continue
        (fixed if is_list(required) and name in required else usual)[name] = schema["const"]
    if not matching.keys() <= _CLOSED_PLAIN or any(name not in fixed | usual and named[name] != {} for name in named):
        inner = matching.get("allOf")
        rules = inner if is_list(inner) and matching.keys() <= _WRAPPED else [dict(matching)]
    parts = [f"Fixed: {shown_arguments(fixed, max_chars=max_chars)}."] if fixed else []
    parts += [
        f"Arguments fit this JSON Schema: {shown_arguments(rule, max_chars=max_chars)}."
        for rule in rules
        if is_object(rule)
    ]
    opened = open_arguments(matching)
    if opened is None:
        others = [name for name in (parameters or Parameters()).names if name not in named]
        parts.append(f"OPEN: any value of every other argument{f', such as {_listed(others)}' if others else ''}.")
    elif opened:
        parts.append(f"OPEN: any value of {_listed(opened)}.")
    if opened is not None:
        defaults = f", except the defaults {shown_arguments(usual, max_chars=max_chars)}" if usual else ""
        parts.append(f"No other argument is allowed{defaults}.")
    return " ".join(parts)


def open_arguments(matching: Mapping[str, JSONValue]) -> list[str] | None:
    """Return the arguments that a grant leaves open by name; `None` if it leaves open all that it does not name."""
    if matching.get("additionalProperties") is not False:
        return None
    inner = matching.get("allOf")
    ruled = {name for rule in (inner if is_list(inner) else ()) if is_object(rule) for name in _properties(rule)}
    return [name for name, schema in _properties(matching).items() if schema == {} and name not in ruled]


def _properties(schema: Mapping[str, JSONValue]) -> JSON:
    declared = schema.get("properties")
    return declared if is_object(declared) else {}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(shown_name, names))
