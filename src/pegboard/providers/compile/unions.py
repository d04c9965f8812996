"""Unions: alternatives, and which of them a value was meant as on its way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pegboard.core.schema import compile_schema
from pegboard.model.json_types import JSON, JSONValue, is_object
from pegboard.providers.compile.merging import merged
from pegboard.providers.compile.nodes import Node, Place, Restore, Work
from pegboard.providers.compile.scalars import kinds_of

# What an alternative may say and still only tell which properties belong together.
_ONLY_TOGETHER = frozenset({"required", "not", "title", "description", "type"})


def alternatives(work: Work, core: JSON, place: Place) -> tuple[str, list[JSONValue], JSON]:
    """Return the keyword of a union, its alternatives, and what is said beside it."""
    keyword = "anyOf" if "anyOf" in core else "oneOf"
    base = {key: value for key, value in core.items() if key not in ("anyOf", "oneOf")}
    if "anyOf" in core and "oneOf" in core:
        work.lose(place, "oneOf", "widened", "'oneOf' beside 'anyOf' is left out")
    return keyword, [item for item in core[keyword] if item is not False], base


def only_together(branches: list[JSONValue], base: JSON) -> bool:
    """Tell whether the alternatives only say which properties must be given together."""
    return "properties" in base and all(is_object(item) and set(item) <= _ONLY_TOGETHER for item in branches)


def together(work: Work, keyword: str, branches: list[JSONValue], place: Place, notes: list[str]) -> None:
    """Give up such alternatives: into the notes which properties belong together."""
    groups = [" and ".join(item.get("required") or ()) for item in branches]
    if any(groups):
        notes.append(f"needed: {' or '.join(group or 'none of these' for group in groups)}")
    work.lose(place, keyword, "widened", "which properties must be given together is said in the description only")


def _branches(
    work: Work, branches: list[JSONValue], keyword: str, base: JSON, place: Place, *, is_exact: bool
) -> list[Node]:
    """Return the nodes of the alternatives, each with what is said beside the union; equal ones once unless exact."""
    nodes: list[Node] = []
    for number, branch in enumerate(branches):
        spot = place.at(keyword, number)
        node = work.node(_beside(work, base, branch, spot) if base else branch, spot)
        if is_exact or all(known.schema != node.schema for known in nodes):
            nodes.append(node)
    return nodes


def _beside(work: Work, base: JSON, branch: JSONValue, place: Place) -> JSON:
    own, _ = work.flat(branch if is_object(branch) else {}, place)
    return merged(base, own, lambda key: work.lose(place, key, "widened", _UNMERGED.format(key)))


_UNMERGED = "two {!r} cannot be said at once; the first one is"


def union_node(work: Work, core: JSON, place: Place, definitions: Callable[[], JSON]) -> Node:
    """Return the node for `anyOf` or `oneOf`; a value that fits several alternatives is taken for the first."""
    keyword, branches, base = alternatives(work, core, place)
    is_exact = keyword == "oneOf" and work.dialect.keywords is None
    if keyword == "oneOf" and not is_exact and not _are_apart(work, branches, place):
        work.lose(place, keyword, "widened", "more than one alternative may fit, where exactly one must")
    nodes = _branches(work, branches, keyword, base, place, is_exact=is_exact)
    if len(nodes) == 1:
        return nodes[0]
    made = {"oneOf" if is_exact else "anyOf": [node.schema for node in nodes]}
    return Node(made, chooser(nodes, definitions))


def _are_apart(work: Work, branches: list[JSONValue], place: Place) -> bool:
    """Tell whether no value fits two alternatives, as far as their types say."""
    seen: set[str] = set()
    for branch in branches:
        kinds = kinds_of(work.flat(branch, place)[0]) if is_object(branch) else []
        kinds = ["number" if kind == "integer" else kind for kind in kinds]
        if not kinds or seen & set(kinds):
            return False
        seen.update(kinds)
    return True


def chooser(nodes: list[Node], definitions: Callable[[], JSON]) -> Restore | None:
    """Return what takes a value back by the way of the first alternative that it fits."""
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
    # A node may be circular, so it is judged with all definitions beside it.
    return compile_schema({**node.schema, **({"$defs": definitions} if definitions else {})}).is_valid
