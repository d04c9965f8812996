"""YAML draft: a file to be written, where each invalid item becomes a comment with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from pegboard.config.yaml.parser import parse
from pegboard.config.yaml.tree import At, Items, Step, Table
from pegboard.core.schema import json_path
from pegboard.model.error import Problem

REASON = "# Not carried over: "

_NAMES_AND_INDICES = re.compile(r"[^.\[\]]+")
# Without one of these keys there would be no agent, or a different one.
_ESSENTIAL = frozenset({(), ("apiVersion",), ("kind",), ("metadata",), ("metadata", "name"), ("spec",)})


class _Item(Struct, frozen=True, kw_only=True):
    """A key, or an item of a list, that begins a line; lines count from 0."""

    steps: tuple[Step, ...]
    first: int
    last: int
    indent: int


class YamlDraft:
    """The text of an agent's file in block style, as `mapping_text` writes it."""

    def __init__(self, text: str) -> None:
        self._source = text
        self._lines = text.splitlines()
        root, _ = parse(text, file="draft")
        self._root = root
        self._items = {} if root is None else {item.steps: item for item in self._items_of(At(root))}
        self._reasons: dict[tuple[Step, ...], str] = {}

    def text_at(self, line: int) -> str:
        """Return the text of the innermost item with this line, counted from 1."""
        item = self._innermost(line - 1)
        return "" if item is None else "\n".join(self._lines[item.first : item.last + 1])

    def leave_out(self, line: int, column: int, problem: Problem) -> str | None:
        """Turn the item that has a problem into a comment; return which and why, or `None` if the file needs it.

        A tool is left out whole, unless one of its keys is unknown: without a value that was meant, such as a limit,
        it would do something else.
        """
        item = self._innermost(line - 1)
        if item is None:
            return None
        last = item.steps[-1]
        is_named = str(last) in _NAMES_AND_INDICES.findall(problem.path)
        is_key = is_named and isinstance(last, str) and column == item.indent + 1 and problem.path.endswith(last)
        steps = item.steps if is_named else item.steps[:-1]
        if steps[:2] == ("spec", "tools") and len(steps) > 3 and not is_key:
            steps = steps[:3]
        whole = self._emptied(steps)
        is_of_model = steps[:2] == ("spec", "model") and not (is_key and len(steps) > 2)
        if whole in _ESSENTIAL or is_of_model or steps[:2] == ("spec", "permissions") or steps in self._reasons:
            return None
        reason = f"{self._rest(steps, problem)}{problem.message}"
        self._reasons[steps] = reason
        self._reasons.setdefault(whole, "")
        return f"{self._label(steps)}: {reason}"

    def text(self, *, with_reasons: bool = True) -> str:
        """Return the file, with what is left out as comments; without reasons each item keeps its line."""
        return "".join(f"{line}\n" for line in self._rendered(with_reasons=with_reasons))

    def is_written_as(self, text: str) -> bool:
        """Tell whether a text is this file, whatever of it is a comment."""
        return _without_comments(text) == _without_comments(self._source)

    # ------------------------------------------------------------ items

    def _items_of(self, at: At) -> Iterator[_Item]:
        node = at.node
        if isinstance(node, Table):
            for key, mark in node.keys.items():
                line = self._lines[mark.line - 1]
                indent = mark.column - 1
                if not line[:indent].strip(" -"):
                    if line[:indent].isspace() or not indent:
                        yield self._item((*at.steps, key), mark.line - 1, indent)
                    yield from self._items_of(at / key)
        elif isinstance(node, Items):
            for index, inner in enumerate(node.items):
                first, indent = inner.mark.line - 1, inner.mark.column - 3
                if self._lines[first][: indent + 2] == " " * indent + "- ":
                    yield self._item((*at.steps, index), first, indent)
                    yield from self._items_of(at / index)

    def _item(self, steps: tuple[Step, ...], first: int, indent: int) -> _Item:
        last = first
        for number in range(first + 1, len(self._lines)):
            line = self._lines[number]
            if line.strip():
                if len(line) - len(line.lstrip()) <= indent:
                    break
                last = number
        return _Item(steps=steps, first=first, last=last, indent=indent)

    def _innermost(self, line: int) -> _Item | None:
        around = [item for item in self._items.values() if item.first <= line <= item.last]
        return max(around, key=lambda item: len(item.steps), default=None)

    def _emptied(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """Return the item that would be empty without this one: YAML has no empty block."""
        while len(steps) > 1:
            siblings = {each for each in self._items if each[:-1] == steps[:-1]}
            # The first key of a list item is on the line of its dash.
            is_last = siblings <= {*self._reasons, steps} and not isinstance(steps[-2], int)
            if steps in self._items and not is_last:
                return steps
            steps = steps[:-1]
        return steps

    # ------------------------------------------------------------ words

    def _label(self, steps: tuple[Step, ...]) -> str:
        path = json_path(list(steps))[1:].removeprefix(".")
        value = None if self._root is None else At(self._root, (*steps, "name"))
        is_tool = steps[:2] == ("spec", "tools") and len(steps) == 3
        return f"{path} ({value.text})" if is_tool and value is not None and value.exists else path

    def _rest(self, steps: tuple[Step, ...], problem: Problem) -> str:
        """Return the position of a problem inside an item; the loader does not count list items that were left out."""
        path = _NAMES_AND_INDICES.findall(problem.path)[len(steps) :]
        return ".".join(path) + ": " if path else ""

    def _rendered(self, *, with_reasons: bool) -> Iterator[str]:
        left_out = [(self._items[steps], reason) for steps, reason in self._reasons.items()]
        for number, line in enumerate(self._lines):
            around = [item for item, _ in left_out if item.first <= number <= item.last]
            if not around:
                yield line
                continue
            lead = " " * min(item.indent for item in around)
            for item, reason in left_out:
                if item.first == number and reason and with_reasons:
                    yield f"{lead}{REASON}{' '.join(reason.split())}"
            yield f"{lead}# {line[len(lead) :]}".rstrip()


def _without_comments(text: str) -> list[str]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith(REASON))
    return [re.sub(r"^(\s*)# ?", r"\1", line).strip() for line in lines]


def reasons_in(text: str) -> list[str]:
    """Return the reasons that an earlier import wrote for parts that it left out."""
    lines = (line.strip() for line in text.splitlines())
    return [line.removeprefix(REASON) for line in lines if line.startswith(REASON)]
