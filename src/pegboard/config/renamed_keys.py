"""Renamed keys: read the former name of a config key for two minor versions, with a warning.

To rename a key, change it in its form and add a row here. A test fails when a row is due to be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from pegboard.config.yaml.problems import Report
from pegboard.config.yaml.tree import At, Items, Node, Table
from pegboard.model.error import Problem
from pegboard.model.record import replace

LIFE_MINORS = 2  # versions that read a former name: the one that renamed it, and the next


class RenamedKey(Struct, frozen=True, kw_only=True):
    """The new name of a key, and the version `(major, minor)` that renamed it."""

    name: str
    since: tuple[int, int]

    @property
    def until(self) -> tuple[int, int]:
        """The first version that refuses the former name."""
        major, minor = self.since
        return major, minor + LIFE_MINORS


# By the path of the former key in its file; `*` matches an index or a chosen name.
RENAMED_KEYS: Mapping[str, RenamedKey] = {"tasks.ttl_s": RenamedKey(name="ttl_seconds", since=(0, 1))}


def renamed(root: Table, report: Report) -> tuple[Table, list[Problem]]:
    """Return a file with its keys under their new names, and a warning for each that had its former name.

    A key with both names is reported: we cannot know which value was meant.
    """
    node: Node = root
    warnings: list[Problem] = []
    for path, key in RENAMED_KEYS.items():
        *steps, former = path.split(".")
        node = _renamed_below(At(node), steps, former, key, warnings, report)
    return (node if isinstance(node, Table) else root), warnings


def _renamed_below(
    at: At, steps: Sequence[str], former: str, key: RenamedKey, warnings: list[Problem], report: Report
) -> Node:
    """Return the node at a place, with the key renamed in the tables that `steps` lead to."""
    node = at.node
    if steps:

        def below(step: str | int) -> Node:
            return _renamed_below(at / step, steps[1:], former, key, warnings, report)

        if isinstance(node, Items):
            return replace(node, items=tuple(map(below, range(len(node.items))))) if steps[0] == "*" else node
        if isinstance(node, Table):
            chosen = [name for name in node.items if steps[0] in ("*", name)]
            return replace(node, items={**node.items, **{name: below(name) for name in chosen}})
        return node
    if not isinstance(node, Table) or former not in node.items:
        return node
    if key.name in node.items:
        text = f"{former!r} is the former name of {key.name!r}, which is there too; remove one"
        report.add((at / former).problem(text, at_key=True))
        return replace(node, items={name: inner for name, inner in node.items.items() if name != former})
    text = f"{former!r} is now called {key.name!r}; Pegboard {'.'.join(map(str, key.until))} refuses the former name"
    warnings.append((at / former).problem(text, at_key=True))
    names = {name: key.name if name == former else name for name in node.items}
    return replace(
        node,
        items={names[name]: inner for name, inner in node.items.items()},
        keys={names[name]: mark for name, mark in node.keys.items()},
    )
