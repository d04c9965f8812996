"""Tree: the contents of a YAML file, as nodes with positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from pegboard.core.schema import json_path, shown
from pegboard.model.error import Problem
from pegboard.model.json_types import JSONValue
from pegboard.model.record import replace

EXTENSION = "x-"

Step: TypeAlias = str | int
ScalarValue: TypeAlias = str | int | float | bool | None


class Mark(Struct, frozen=True, gc=False):
    """A position in a file. Line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Scalar(Struct, frozen=True, kw_only=True, gc=False):
    """One value. `text` is its spelling in the file; `is_plain` means unquoted."""

    mark: Mark
    value: ScalarValue
    text: str
    is_plain: bool
    size: int = 1
    depth: int = 1


class Items(Struct, frozen=True, kw_only=True):
    """A list. `size` counts its nodes with all aliases expanded, `depth` its levels."""

    mark: Mark
    items: tuple[Node, ...]
    size: int
    depth: int


class Table(Struct, frozen=True, kw_only=True):
    """A mapping with text keys; `keys` has the position of each key."""

    mark: Mark
    items: Mapping[str, Node]
    keys: Mapping[str, Mark]
    size: int
    depth: int


Node: TypeAlias = Scalar | Items | Table


def plain_value(node: Node) -> JSONValue:
    """Return the values of a tree, without positions."""
    if isinstance(node, Table):
        return {key: plain_value(inner) for key, inner in node.items.items()}
    return [plain_value(inner) for inner in node.items] if isinstance(node, Items) else node.value


def without_extensions(root: Node) -> Node:
    """Return a file without its top-level keys that begin with `x-`: their anchors are used elsewhere, if at all."""
    if not isinstance(root, Table) or not any(key.startswith(EXTENSION) for key in root.items):
        return root
    items = {key: inner for key, inner in root.items.items() if not key.startswith(EXTENSION)}
    return replace(root, items=items, keys={key: root.keys[key] for key in items})


class At(NamedTuple):
    """A place in a tree, by the steps from its root: `at / "tools" / 0`. It need not exist."""

    root: Node
    steps: tuple[Step, ...] = ()

    def __truediv__(self, step: Step) -> At:
        return At(self.root, (*self.steps, step))

    def under(self, steps: tuple[Step, ...]) -> At:
        """Return the place `steps` below this one; intermediate steps that the tree does not have are skipped.

        A validator's steps may include its own alternatives. The last step is kept, since it may name a missing key.
        """
        here = self
        for position, step in enumerate(steps):
            if (here / step).exists or position == len(steps) - 1:
                here = here / step
        return here

    @property
    def node(self) -> Node:
        """The node at this place, or the nearest one above."""
        return self._walk()[0]

    @property
    def exists(self) -> bool:
        return self._walk()[1] == len(self.steps)

    def _walk(self) -> tuple[Node, int]:
        node = self.root
        for count, step in enumerate(self.steps):
            inner = _inner(node, step)
            if inner is None:
                return node, count
            node = inner
        return node, len(self.steps)

    @property
    def mark(self) -> Mark:
        return self.node.mark

    @property
    def key_mark(self) -> Mark:
        """The position of this place's key, or of the place itself if it has none."""
        parent = At(self.root, self.steps[:-1]).node
        last = self.steps[-1] if self.steps else None
        return parent.keys.get(str(last), self.mark) if isinstance(parent, Table) else self.mark

    @property
    def path(self) -> str:
        """The steps as text: `tools[0].name`."""
        return json_path(list(self.steps))[1:].removeprefix(".")

    @property
    def text(self) -> str:
        """The scalar at this place, as written in the file; empty for a list or a mapping."""
        return self.node.text if isinstance(self.node, Scalar) else ""

    @property
    def origin(self) -> str:
        """The place as `file:line`, as in the `origin` of tools and policies."""
        return f"{self.mark.file}:{self.mark.line}"

    @property
    def shown(self) -> str:
        """A description of the value as written in the file; a value from the environment is never shown."""
        node = self.node
        if not isinstance(node, Scalar):
            return "a mapping" if isinstance(node, Table) else "a list"
        if node.value is None:
            return "nothing"
        return shown(node.text) if isinstance(node.value, str) else node.text[:80]

    def problem(self, message: str, *, at_key: bool = False, variable: str = "") -> Problem:
        """Return the problem `message` at this place, or at its key; `variable` is the unset one."""
        where = str(self.key_mark if at_key else self.mark)
        return Problem(where=where, path=self.path, message=message, variable=variable)


def _inner(node: Node, step: Step) -> Node | None:
    if isinstance(node, Table):
        return node.items.get(str(step))
    if isinstance(node, Items) and isinstance(step, int) and 0 <= step < len(node.items):
        return node.items[step]
    return None
