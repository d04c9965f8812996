"""Parser: parse YAML 1.2 text to a tree, within bounds; creates only text, numbers, lists and mappings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct, field
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from pegboard.config.yaml.tree import Items, Mark, Node, Scalar, ScalarValue, Table
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.error import Problem
from pegboard.model.record import replace

YAML_NODES = 100_000  # nodes with all aliases expanded: a few nested aliases can mean billions

MAX_DEPTH: Final = DEFAULT_BOUNDS.json_depth

_STANDARD = "tag:yaml.org,2002:"
_TEXT_TAGS = frozenset({"!", f"{_STANDARD}str"})
_OWN_TAGS = {SequenceStartEvent: f"{_STANDARD}seq", MappingStartEvent: f"{_STANDARD}map"}
_WORDS: dict[str, ScalarValue] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_HALF = re.compile("[\ud800-\udfff]")
_BASES = {"0o": 8, "0x": 16}
_HINTS = {
    "mapping values are not allowed here": "a text with ': ' needs quotes, and keys of one mapping the same indent",
    "found character '\\t' that cannot start any token": "indent with spaces, not with tabs",
    "found unexpected end of stream": "a quote is not closed",
    "expected <block end>": "a colon is missing after a key, or an indent differs from that of the lines above",
    "expected ',' or": "a bracket is not closed, or a text inside brackets needs quotes",
}


class _StopError(Exception):
    """Parsing cannot continue."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def parse(text: str, *, file: str, scalar_keys: bool = False) -> tuple[Node | None, list[Problem]]:
    """Return the tree of one YAML document, `None` if it is empty, and all of its faults.

    With `scalar_keys` a key such as `200:` is read as its text; otherwise it is a fault.
    """
    composer = _Composer(file, scalar_keys=scalar_keys)
    try:
        for event in _events(text, file):
            composer.take(event)
    except _StopError as stop:
        return None, [*composer.problems, stop.problem]
    return composer.root, composer.problems


def scalar_value(text: str) -> ScalarValue:
    """Return the value of an unquoted text in the core schema of YAML 1.2.

    Raises:
        ValueError: it is a number that JSON does not have, or one that is too long.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        if len(text) > DEFAULT_BOUNDS.integer_digits:
            raise ValueError(f"an integer has at most {DEFAULT_BOUNDS.integer_digits} digits")
        base = _BASES.get(text[:2], 10)
        return int(text, base)
    if _NO_NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a number here; write it in quotes if it is text")
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"{text[:80]!r} is too large a number")
        return number
    return text


# ---------------------------------------------------------------- text to events


def _events(text: str, file: str) -> Iterator[Any]:
    # The event level of ruamel keeps positions, and never runs a constructor that a tag could name.
    yaml: Any = YAML(typ="safe", pure=True)
    try:
        yield from yaml.parse(text)
    except MarkedYAMLError as error:
        raise _StopError(_syntax_problem(error, file)) from None
    except ReaderError as fault:
        error: Any = fault
        position: int = error.position
        before = text[:position]
        mark = Mark(file, before.count("\n") + 1, position - before.rfind("\n"))
        raise _stop(mark, f"the character U+{ord(text[position]):04X} is not allowed in YAML; remove it") from None


def _syntax_problem(error: Any, file: str) -> Problem:
    reason = str(error.problem or error.context or "it cannot be read")
    hint = next((hint for start, hint in _HINTS.items() if reason.startswith(start)), "")
    place = error.problem_mark or error.context_mark
    mark = Mark(file, 1, 1) if place is None else Mark(file, place.line + 1, place.column + 1)
    context = f" ({error.context} that starts in line {error.context_mark.line + 1})" if error.context_mark else ""
    return Problem(where=str(mark), message=f"no valid YAML: {reason}{context}" + (f"; {hint}" if hint else ""))


def _stop(mark: Mark, message: str) -> _StopError:
    return _StopError(Problem(where=str(mark), message=message))


# ---------------------------------------------------------------- events to nodes


class _Open(Struct, kw_only=True):
    """A list or mapping that is still open. `key` is waiting for its value."""

    mark: Mark
    is_table: bool
    anchor: str | None
    items: list[Node] = field(default_factory=list[Node])
    table: dict[str, Node] = field(default_factory=dict[str, Node])
    keys: dict[str, Mark] = field(default_factory=dict[str, Mark])
    merges: list[Table] = field(default_factory=list[Table])
    key: Scalar | None = None
    is_repeated: bool = False


class _Composer:
    """Builds nodes from events, without recursion. Collects faults that do not stop parsing."""

    def __init__(self, file: str, *, scalar_keys: bool) -> None:
        self.root: Node | None = None
        self._scalar_keys = scalar_keys
        self.problems: list[Problem] = []
        self._file = file
        self._open: list[_Open] = []
        self._anchors: dict[str, Node | None] = {}
        self._documents = 0

    def take(self, event: Any) -> None:
        """Process the next event.

        Raises:
            _StopError: the document exceeds a bound, or there is a second one.
        """
        mark = Mark(self._file, event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, ScalarEvent):
            self._place(self._scalar(event, mark))
        elif isinstance(event, AliasEvent):
            self._place(self._alias(event, mark))
        elif isinstance(event, SequenceStartEvent | MappingStartEvent):
            self._start(event, mark)
        elif isinstance(event, SequenceEndEvent | MappingEndEvent):
            self._end()
        elif isinstance(event, DocumentStartEvent):
            self._document(event, mark)

    def _document(self, event: Any, mark: Mark) -> None:
        self._documents += 1
        if self._documents > 1:
            raise _stop(mark, "a second document starts here; a config is one document, so remove the `---`")
        if event.version is not None and tuple(event.version) != (1, 2):
            self._report(mark, "`%YAML` other than 1.2; this file is read as YAML 1.2, so remove the line")

    def _start(self, event: Any, mark: Mark) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise _stop(mark, f"more than {MAX_DEPTH} levels of lists and mappings inside each other")
        self._check_tag(event.tag, mark, frozenset({None, "!", _OWN_TAGS[type(event)]}))
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._open.append(_Open(mark=mark, is_table=isinstance(event, MappingStartEvent), anchor=event.anchor))

    def _end(self) -> None:
        done = self._open.pop()
        if not done.is_table:
            node: Node = Items(mark=done.mark, items=tuple(done.items), **_extent(done.items))
        else:
            for base in done.merges:
                for key, value in base.items.items():
                    if key not in done.table:
                        done.table[key], done.keys[key] = value, base.keys[key]
            node = Table(mark=done.mark, items=done.table, keys=done.keys, **_extent(done.table.values()))
        self._check_extent(node)
        self._place(self._named(done.anchor, node))

    def _check_extent(self, node: Node) -> None:
        if node.size > YAML_NODES:
            raise _stop(
                node.mark, f"more than {YAML_NODES:,} values, aliases written out; split the file, or use fewer aliases"
            )
        if node.depth + len(self._open) > MAX_DEPTH:
            raise _stop(
                node.mark, f"more than {MAX_DEPTH} levels of lists and mappings inside each other, aliases written out"
            )

    def _place(self, node: Node) -> None:
        """Store a finished value: as the root, the next item, a key, or the value of the waiting key."""
        if not self._open:
            self.root = node
            return
        inside = self._open[-1]
        if not inside.is_table:
            inside.items.append(node)
        elif inside.key is None:
            inside.key = self._key(node, inside)
        else:
            self._value(inside.key, node, inside)
            inside.key = None

    def _key(self, node: Node, inside: _Open) -> Scalar:
        if self._scalar_keys and isinstance(node, Scalar) and not isinstance(node.value, str):
            node = replace(node, value=node.text)
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            hint = f"; write '{node.text}' in quotes" if isinstance(node, Scalar) and node.text else ""
            self._report(node.mark, f"a key must be a text{hint}")
            return Scalar(mark=node.mark, value=None, text="", is_plain=False)
        first = inside.keys.get(node.value)
        inside.is_repeated = first is not None
        if first is not None:
            self._report(
                node.mark, f"the key {node.value!r} occurs twice: first at {first}. Remove one, or merge the two"
            )
        return node

    def _value(self, key: Scalar, node: Node, inside: _Open) -> None:
        if key.value is None or inside.is_repeated:
            return
        if key.is_plain and key.value == "<<":
            merged = node.items if isinstance(node, Items) else (node,)
            tables = [item for item in merged if isinstance(item, Table)]
            if len(tables) < len(merged):
                self._report(node.mark, "`<<` takes in a mapping or a list of mappings")
            inside.merges.extend(tables)
            return
        inside.table[str(key.value)], inside.keys[str(key.value)] = node, key.mark

    def _scalar(self, event: Any, mark: Mark) -> Node:
        text = self._whole(event.value, mark)
        is_plain = bool(event.implicit[0])
        self._check_tag(event.tag, mark, _TEXT_TAGS | {None})
        try:
            value = scalar_value(text) if is_plain else text
        except ValueError as error:
            self._report(mark, str(error))
            value = text
        return self._named(event.anchor, Scalar(mark=mark, value=value, text=text, is_plain=is_plain))

    def _whole(self, text: str, mark: Mark) -> str:
        """Decode characters beyond 16 bits that are escaped as surrogate pairs, as in JSON."""
        if not _HALF.search(text):
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._report(mark, "half of a character is escaped here; write the character itself")
            return _HALF.sub("\ufffd", text)

    def _alias(self, event: Any, mark: Mark) -> Node:
        anchor: str = event.anchor
        if anchor not in self._anchors:
            raise _stop(mark, f"the alias *{anchor} refers to no anchor; a text that begins with * needs quotes")
        node = self._anchors[anchor]
        if node is None:
            raise _stop(mark, f"the alias *{anchor} is inside its own anchor")
        return node

    def _named(self, anchor: str | None, node: Node) -> Node:
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _check_tag(self, tag: str | None, mark: Mark, fine: frozenset[str | None]) -> None:
        if tag not in fine:
            spelled = str(tag).replace(_STANDARD, "!!", 1)[:80]
            self._report(mark, f"the tag {spelled!r} is refused: a config holds plain values only; remove the tag")

    def _report(self, mark: Mark, message: str) -> None:
        self.problems.append(Problem(where=str(mark), message=message))


def _extent(inner: Any) -> dict[str, int]:
    return {"size": 1 + sum(node.size for node in inner), "depth": 1 + max((node.depth for node in inner), default=0)}
