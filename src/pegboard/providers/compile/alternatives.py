"""Alternatives: rewrites `anyOf` and `oneOf`, and finds the alternative of a value on its way back.

At the root most targets require a single object, so alternatives are merged there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pegboard.core.schema import compile_schema
from pegboard.model.json_types import JSON, JSONValue, is_object
from pegboard.providers.compile.merging import merged
from pegboard.providers.compile.nodes import Compiler, Node, Place, Restore, is_impossible
from pegboard.providers.compile.scalars import kinds_of

# The keywords of an alternative that only says which properties belong together.
_ONLY_TOGETHER = frozenset({"required", "not", "title", "description", "type"})


def alternatives(compiler: Compiler, core: JSON, place: Place) -> tuple[str, list[JSONValue], JSON]:
    """Return the keyword of a union, its alternatives, and the rest of the schema."""
    keyword = "anyOf" if "anyOf" in core else "oneOf"
    base = {key: value for key, value in core.items() if key not in ("anyOf", "oneOf")}
    if "anyOf" in core and "oneOf" in core:
        compiler.lose(place, "oneOf", "widened", "'oneOf' next to 'anyOf' is left out")
    possible = [item for item in core[keyword] if not is_impossible(item)]
    if not possible:
        compiler.lose(place, keyword, "widened", "none of its alternatives can be met")
    return keyword, possible or [{}], base


def only_together(branches: list[JSONValue], base: JSON) -> bool:
    """Tell whether the alternatives only say which properties must be given together."""
    return "properties" in base and all(is_object(item) and set(item) <= _ONLY_TOGETHER for item in branches)


def together(compiler: Compiler, keyword: str, branches: list[JSONValue], place: Place, notes: list[str]) -> None:
    """Drop such alternatives; the notes say which properties belong together."""
    groups = [" and ".join(item.get("required") or ()) for item in branches]
    if any(groups):
        notes.append(f"needed: {' or '.join(group or 'none of these' for group in groups)}")
    compiler.lose(place, keyword, "widened", "which properties must be given together is said in the description only")


def _branches(
    compiler: Compiler, branches: list[JSONValue], keyword: str, base: JSON, place: Place, *, is_exact: bool
) -> list[Node]:
    """Return the nodes of the alternatives, each with the rest of the schema; without duplicates unless exact."""
    nodes: list[Node] = []
    for number, branch in enumerate(branches):
        spot = place.at(keyword, number)
        node = compiler.node(_with_base(compiler, base, branch, spot) if base else branch, spot)
        if is_exact or all(known.schema != node.schema for known in nodes):
            nodes.append(node)
    return nodes


def _with_base(compiler: Compiler, base: JSON, branch: JSONValue, place: Place) -> JSON:
    own, _ = compiler.flat(branch if is_object(branch) else {}, place)
    return merged(base, own, lambda key: compiler.lose(place, key, "widened", _UNMERGED.format(key)))


_UNMERGED = "two {!r} cannot be said at once; the first one is"


def union_node(compiler: Compiler, core: JSON, place: Place, definitions: Callable[[], JSON]) -> Node:
    """Return the node for `anyOf` or `oneOf`; a value that fits several alternatives uses the first."""
    keyword, branches, base = alternatives(compiler, core, place)
    is_exact = keyword == "oneOf" and compiler.dialect.keywords is None
    if keyword == "oneOf" and not is_exact and not _are_apart(compiler, branches, place):
        compiler.lose(place, keyword, "widened", "more than one alternative may fit, where exactly one must")
    nodes = _branches(compiler, branches, keyword, base, place, is_exact=is_exact)
    if len(nodes) == 1:
        return nodes[0]
    schema = {"oneOf" if is_exact else "anyOf": [node.schema for node in nodes]}
    return Node(schema, chooser(nodes, definitions))


def _are_apart(compiler: Compiler, branches: list[JSONValue], place: Place) -> bool:
    """Tell whether the types of the alternatives rule out that a value fits two of them."""
    seen: set[str] = set()
    for branch in branches:
        kinds = kinds_of(compiler.flat(branch, place)[0]) if is_object(branch) else []
        kinds = ["number" if kind == "integer" else kind for kind in kinds]
        if not kinds or seen & set(kinds):
            return False
        seen.update(kinds)
    return True


def chooser(nodes: list[Node], definitions: Callable[[], JSON]) -> Restore | None:
    """Return a function that converts a value back by the first alternative that it fits."""
    if all(node.restore is None for node in nodes):
        return None
    judges: list[Callable[[Any], bool]] = []

    def restore(value: JSONValue) -> JSONValue:
        if not judges:
            judges.extend(_judge(node, definitions()) for node in nodes)
        for node, fits in zip(nodes, judges, strict=True):
            if fits(value):
                return value if node.restore is None else node.restore(value)
        return value

    return restore


def _judge(node: Node, definitions: JSON) -> Callable[[Any], bool]:
    # A node may be circular, so it is validated with all definitions.
    return compile_schema({**node.schema, **({"$defs": definitions} if definitions else {})}).is_valid


# ---------------------------------------------------------------- at the root


def one_object(compiler: Compiler, core: JSON, place: Place, notes: list[str]) -> JSON:
    """Return the schema of the arguments as a single object, with alternatives merged."""
    if "anyOf" in core or "oneOf" in core:
        keyword, branches, base = alternatives(compiler, core, place)
        if only_together(branches, base):
            together(compiler, keyword, branches, place, notes)
            core = base
        else:
            core = _laid_over(compiler, keyword, branches, base, place)
    if "enum" in core:
        compiler.lose(place, "enum", "widened", "not every combination of arguments is accepted")
    schema = {key: value for key, value in core.items() if key != "enum"}
    return {**schema, "type": "object"}


def _laid_over(compiler: Compiler, keyword: str, branches: list[JSONValue], base: JSON, place: Place) -> JSON:
    """Return one object with the properties of all alternatives; only properties that all require are required."""
    shapes: list[JSON] = []
    for number, branch in enumerate(branches):
        spot = place.at(keyword, number)
        own, _ = compiler.flat(branch, spot) if is_object(branch) else ({}, spot)
        whole = merged(
            base, own, lambda key: compiler.lose(place, key, "widened", f"{key!r} of an alternative is left out")
        )
        if whole.get("type", "object") != "object":
            compiler.lose(spot, "type", "narrowed", "an alternative that is not an object cannot be given")
            continue
        shapes.append(whole)
    compiler.lose(place, keyword, "widened", "properties of different alternatives may be given together")
    kinds_of_property: dict[str, list[JSONValue]] = {}
    for shape in shapes:
        properties: JSON = shape.get("properties") or {}
        for name, inner in properties.items():
            known = kinds_of_property.setdefault(name, [])
            if inner not in known:
                known.append(inner)
    always: list[set[str]] = [set(shape.get("required") or ()) for shape in shapes]
    required = [name for name in kinds_of_property if always and all(name in names for names in always)]
    is_closed = all(shape.get("additionalProperties", shape.get("unevaluatedProperties")) is False for shape in shapes)
    dropped = {"properties", "required", "additionalProperties", "unevaluatedProperties"}
    schema = {key: value for key, value in base.items() if key not in dropped}
    schema["properties"] = {
        name: kinds[0] if len(kinds) == 1 else {"anyOf": kinds} for name, kinds in kinds_of_property.items()
    }
    if required:
        schema["required"] = required
    if shapes and is_closed:
        schema["additionalProperties"] = False
    return schema
