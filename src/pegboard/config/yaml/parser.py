"""Parser: parse YAML 1.2 text to a tree, within bounds; creates only text, numbers, lists and mappings.

libyaml scans the text; the values of scalars follow the core schema of YAML 1.2, not the 1.1 of PyYAML. If PyYAML was
built without libyaml, its own scanner, which is slow, does the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import yaml

from pegboard.config.yaml.tree import Items, Mark, Node, Scalar, ScalarValue, Table
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.error import Problem
from pegboard.model.record import replace

YAML_SLOW_CHARS = 262_144  # size of a text that may be scanned in Python
YAML_NODES = 100_000  # nodes with all aliases expanded: a few nested aliases can mean billions

MAX_DEPTH: Final = DEFAULT_BOUNDS.json_depth

_STANDARD = "tag:yaml.org,2002:"
_TEXT_TAGS = frozenset({None, "!", f"{_STANDARD}str"})
_LIST_TAGS = frozenset({None, "!", f"{_STANDARD}seq"})
_TABLE_TAGS = frozenset({None, "!", f"{_STANDARD}map"})
_WORDS: dict[str, ScalarValue] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_HALF = re.compile("[\ud800-\udfff]")
# JSON escapes a character beyond 16 bits as two halves, which libyaml refuses.
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_FORBIDDEN = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BASES = {"0o": 8, "0x": 16}
# By libyaml's messages. PyYAML's own scanner has others, without hints.
_HINTS = {
    "mapping values are not allowed": "a text with ': ' needs quotes, and keys of one mapping the same indent",
    "found a tab character": "indent with spaces, not with tabs",
    "found unexpected end of stream": "a quote is not closed",
    "did not find expected key": "a colon is missing after a key, or an indent differs from that of the lines above",
    "did not find expected '-'": "a dash is missing before an item, or an indent differs from that of the lines above",
    "could not find expected ':'": "a colon is missing after a key, or an indent differs from that of the lines above",
    "did not find expected ',' or": "a bracket is not closed, or a text inside brackets needs quotes",
}


class _StopError(Exception):
    """Parsing cannot continue."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def parse(
    text: str, *, file: str, scalar_keys: bool = False, max_nodes: int = YAML_NODES, max_depth: int = MAX_DEPTH
) -> tuple[Node | None, list[Problem]]:
    """Return the tree of one YAML document, `None` if it is empty, and all of its faults.

    With `scalar_keys` a key such as `200:` is read as its text; otherwise it is a fault.
    """
    composer = _Composer(file, scalar_keys=scalar_keys, max_nodes=max_nodes, max_depth=max_depth)
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
    """Yield the events of a text. They have positions, and no constructor that a tag could name ever runs."""
    forbidden = _FORBIDDEN.search(text)
    if forbidden is not None:
        before = text[: forbidden.start()]
        mark = Mark(file, before.count("\n") + 1, forbidden.start() - before.rfind("\n"))
        raise _stop(mark, f"the character U+{ord(forbidden[0]):04X} is not allowed in YAML; remove it")
    scanners: Any = yaml
    is_slow = len(text) <= YAML_SLOW_CHARS and _ESCAPED_HALF.search(text) is not None
    scanner = scanners.SafeLoader(text) if is_slow else getattr(scanners, "CSafeLoader", scanners.SafeLoader)(text)
    try:
        while (event := scanner.get_event()) is not None:
            yield event
    except yaml.MarkedYAMLError as error:
        raise _StopError(_syntax_problem(error, text, file)) from None
    except yaml.YAMLError as error:
        raise _stop(Mark(file, 1, 1), f"no valid YAML: {error}") from None
    finally:
        scanner.dispose()


def _syntax_problem(error: Any, text: str, file: str) -> Problem:
    reason = str(error.problem or error.context or "it cannot be read")
    place = error.problem_mark or error.context_mark
    # libyaml puts the end of a text at the start of the next line.
    place = None if place is not None and place.index >= len(text) else place
    last = text.rstrip("\n")
    end = Mark(file, last.count("\n") + 1, len(last) - last.rfind("\n"))
    mark = end if place is None else Mark(file, place.line + 1, place.column + 1)
    if reason == "found character that cannot start any token" and place is not None:
        character = text[place.index : place.index + 1]
        reason = "found a tab character here" if character == "\t" else f"no text begins with {character!r}"
    hint = next((hint for start, hint in _HINTS.items() if reason.startswith(start)), "")
    context = f" ({error.context} that starts in line {error.context_mark.line + 1})" if error.context_mark else ""
    return Problem(where=str(mark), message=f"no valid YAML: {reason}{context}" + (f"; {hint}" if hint else ""))


def _stop(mark: Mark, message: str) -> _StopError:
    return _StopError(Problem(where=str(mark), message=message))


# ---------------------------------------------------------------- events to nodes


class _Open:
    """A list or mapping that is still open. `key` is waiting for its value."""

    __slots__ = ("anchor", "is_repeated", "is_table", "items", "key", "keys", "mark", "merges", "table")

    def __init__(self, mark: Mark, anchor: str | None, *, is_table: bool) -> None:
        self.mark, self.anchor, self.is_table = mark, anchor, is_table
        self.items: list[Node] = []
        self.table: dict[str, Node] = {}
        self.keys: dict[str, Mark] = {}
        self.merges: list[Table] = []
        self.key: Scalar | None = None
        self.is_repeated = False


class _Composer:
    """Builds nodes from events, without recursion. Collects faults that do not stop parsing."""

    def __init__(self, file: str, *, scalar_keys: bool, max_nodes: int, max_depth: int) -> None:
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._scalar_keys, self._max_nodes, self._max_depth = scalar_keys, max_nodes, max_depth
        self._file = file
        self._open: list[_Open] = []
        self._anchors: dict[str, Node | None] = {}
        self._values: dict[str, ScalarValue] = {}
        self._documents = 0
        self._take: Mapping[object, Callable[[Any], None]] = {
            yaml.ScalarEvent: self._scalar,
            yaml.AliasEvent: self._alias,
            yaml.SequenceStartEvent: self._start_list,
            yaml.MappingStartEvent: self._start_table,
            yaml.SequenceEndEvent: self._end_list,
            yaml.MappingEndEvent: self._end_table,
            yaml.DocumentStartEvent: self._document,
        }

    def take(self, event: Any) -> None:
        """Process the next event.

        Raises:
            _StopError: the document exceeds a bound, or there is a second one.
        """
        handler = self._take.get(type(event))  # pyright: ignore[reportUnknownArgumentType] - PyYAML has no types
        if handler is not None:
            handler(event)

    def _mark(self, event: Any) -> Mark:
        start = event.start_mark
        return Mark(self._file, start.line + 1, start.column + 1)

    def _document(self, event: Any) -> None:
        self._documents += 1
        if self._documents > 1:
            raise _stop(
                self._mark(event), "a second document starts here; a config is one document, so remove the `---`"
            )
        if event.version is not None and tuple(event.version) != (1, 2):
            self._report(self._mark(event), "`%YAML` other than 1.2; this file is read as YAML 1.2, so remove the line")

    def _start_list(self, event: Any) -> None:
        self._start(event, _LIST_TAGS, is_table=False)

    def _start_table(self, event: Any) -> None:
        self._start(event, _TABLE_TAGS, is_table=True)

    def _start(self, event: Any, tags: frozenset[str | None], *, is_table: bool) -> None:
        mark = self._mark(event)
        if len(self._open) >= self._max_depth:
            raise _stop(mark, f"more than {self._max_depth} levels of lists and mappings inside each other")
        self._check_tag(event.tag, mark, tags)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._open.append(_Open(mark, event.anchor, is_table=is_table))

    def _end_list(self, event: Any) -> None:
        done = self._open.pop()
        self._finish(Items(mark=done.mark, items=tuple(done.items), **_extent(done.items)), done.anchor)

    def _end_table(self, event: Any) -> None:
        done = self._open.pop()
        for base in done.merges:
            for key, value in base.items.items():
                if key not in done.table:
                    done.table[key], done.keys[key] = value, base.keys[key]
        table = Table(mark=done.mark, items=done.table, keys=done.keys, **_extent(done.table.values()))
        self._finish(table, done.anchor)

    def _finish(self, node: Items | Table, anchor: str | None) -> None:
        if node.size > self._max_nodes:
            raise _stop(
                node.mark,
                f"more than {self._max_nodes:,} values, aliases written out; split the file, or use fewer aliases",
            )
        if node.depth + len(self._open) > self._max_depth:
            text = f"more than {self._max_depth} levels of lists and mappings inside each other, aliases written out"
            raise _stop(node.mark, text)
        if anchor is not None:
            self._anchors[anchor] = node
        self._place(node)

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
                self._report(node.mark, "`<<` needs a mapping or a list of mappings")
            inside.merges.extend(tables)
            return
        inside.table[str(key.value)], inside.keys[str(key.value)] = node, key.mark

    def _scalar(self, event: Any) -> None:
        mark, text, is_plain = self._mark(event), event.value, bool(event.implicit[0])
        if not text.isascii():
            text = self._whole(text, mark)
        self._check_tag(event.tag, mark, _TEXT_TAGS)
        value = self._plain(text, mark) if is_plain else text
        node = Scalar(mark=mark, value=value, text=text, is_plain=is_plain)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._place(node)

    def _plain(self, text: str, mark: Mark) -> ScalarValue:
        try:
            return self._values[text]
        except KeyError:
            pass
        try:
            value = self._values[text] = scalar_value(text)
        except ValueError as error:
            self._report(mark, str(error))
            return text
        return value

    def _whole(self, text: str, mark: Mark) -> str:
        """Decode characters beyond 16 bits that are escaped as surrogate pairs, as in JSON."""
        if not _HALF.search(text):
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._report(mark, "half of a character is escaped here; write the character itself")
            return _HALF.sub("\ufffd", text)

    def _alias(self, event: Any) -> None:
        anchor: str = event.anchor
        if anchor not in self._anchors:
            hint = "a text that begins with * needs quotes"
            raise _stop(self._mark(event), f"the alias *{anchor} refers to no anchor; {hint}")
        node = self._anchors[anchor]
        if node is None:
            raise _stop(self._mark(event), f"the alias *{anchor} is inside its own anchor")
        self._place(node)

    def _check_tag(self, tag: str | None, mark: Mark, fine: frozenset[str | None]) -> None:
        if tag not in fine:
            spelled = str(tag).replace(_STANDARD, "!!", 1)[:80]
            self._report(mark, f"the tag {spelled!r} is refused: a config holds plain values only; remove the tag")

    def _report(self, mark: Mark, message: str) -> None:
        self.problems.append(Problem(where=str(mark), message=message))


def _extent(inner: Any) -> dict[str, int]:
    return {"size": 1 + sum(node.size for node in inner), "depth": 1 + max((node.depth for node in inner), default=0)}
