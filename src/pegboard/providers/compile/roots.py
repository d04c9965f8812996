"""Roots: the schema of the arguments, which must be one object where alternatives may not stand at the top."""

from __future__ import annotations

from pegboard.model.json_types import JSON, JSONValue, is_object
from pegboard.providers.compile.merging import merged
from pegboard.providers.compile.nodes import Place, Work
from pegboard.providers.compile.unions import alternatives, only_together, together


def one_object(work: Work, core: JSON, place: Place, notes: list[str]) -> JSON:
    """Return the schema of the arguments as that of one object: alternatives are laid over each other."""
    if "anyOf" in core or "oneOf" in core:
        keyword, branches, base = alternatives(work, core, place)
        if only_together(branches, base):
            together(work, keyword, branches, place, notes)
            core = base
        else:
            core = _laid_over(work, keyword, branches, base, place)
    if "enum" in core:
        work.lose(place, "enum", "widened", "not every combination of arguments is accepted")
    made = {key: value for key, value in core.items() if key != "enum"}
    return {**made, "type": "object"}


def _laid_over(work: Work, keyword: str, branches: list[JSONValue], base: JSON, place: Place) -> JSON:
    """Return one object with the properties of all alternatives, of which only what all require is required."""
    shapes: list[JSON] = []
    for number, branch in enumerate(branches):
        spot = place.at(keyword, number)
        own, _ = work.flat(branch, spot) if is_object(branch) else ({}, spot)
        whole = merged(
            base, own, lambda key: work.lose(place, key, "widened", f"{key!r} of an alternative is left out")
        )
        if whole.get("type", "object") != "object":
            work.lose(spot, "type", "narrowed", "an alternative that is no object cannot be given")
            continue
        shapes.append(whole)
    work.lose(place, keyword, "widened", "properties of different alternatives may be given together")
    found: dict[str, list[JSONValue]] = {}
    for shape in shapes:
        properties: JSON = shape.get("properties") or {}
        for name, inner in properties.items():
            known = found.setdefault(name, [])
            if inner not in known:
                known.append(inner)
    always: list[set[str]] = [set(shape.get("required") or ()) for shape in shapes]
    required = [name for name in found if always and all(name in names for names in always)]
    is_closed = all(shape.get("additionalProperties", shape.get("unevaluatedProperties")) is False for shape in shapes)
    dropped = {"properties", "required", "additionalProperties", "unevaluatedProperties"}
    made = {key: value for key, value in base.items() if key not in dropped}
    made["properties"] = {name: kinds[0] if len(kinds) == 1 else {"anyOf": kinds} for name, kinds in found.items()}
    if required:
        made["required"] = required
    if shapes and is_closed:
        made["additionalProperties"] = False
    return made
