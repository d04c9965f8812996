"""Plain reader: parse YAML 1.2 to a plain value, fast; for large foreign documents, where positions are not needed.

It follows the rules of the config parser: tags create nothing, duplicate keys are refused, expanded aliases count. It
uses libyaml's scanner, or PyYAML's own in Python, which is slow, if PyYAML was built without libyaml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import yaml

from pegboard.config.yaml.parser import scalar_value
from pegboard.model.bounds import Bounds
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

_HALF = re.compile("[\ud800-\udfff]")
_STANDARD = "tag:yaml.org,2002:"
_TAGS: Final[Mapping[object, frozenset[str | None]]] = {
    yaml.ScalarEvent: frozenset({None, "!", f"{_STANDARD}str"}),
    yaml.SequenceStartEvent: frozenset({None, "!", f"{_STANDARD}seq"}),
    yaml.MappingStartEvent: frozenset({None, "!", f"{_STANDARD}map"}),
}


class _Extent(NamedTuple):
    """The number of values with aliases expanded, and of levels."""

    values: int = 1
    levels: int = 1


class _Open:
    """A list or mapping that is still open. `key` is waiting for its value."""

    __slots__ = ("anchor", "is_merge", "items", "key", "levels", "merges", "table", "values")

    def __init__(self, anchor: str | None, *, is_table: bool) -> None:
        self.anchor = anchor
        self.table: JSON | None = {} if is_table else None
        self.items: list[JSONValue] = []
        self.key: str | None = None
        self.is_merge = False
        self.merges: list[JSON] = []
        self.values, self.levels = 1, 0


class PlainReader:
    """Reads one document; used once."""

    def __init__(self, *, bounds: Bounds, most_values: int) -> None:
        self._most_levels, self._most_values = bounds.json_depth, most_values
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[JSONValue, _Extent] | None] = {}
        self._scalars: dict[str, Any] = {}
        self._root: JSONValue = None
        self._documents = 0

    def read(self, text: str) -> JSONValue:
        """Return the value of a document. Keys that are not text are read as their text.

        Raises:
            DefinitionError: the text is not YAML, or breaks a rule of this reader; with line and column.
        """
        if not text.isascii() and _HALF.search(text):
            raise DefinitionError("it contains half of a character (a lone surrogate)")
        scanner: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        try:
            while (event := scanner.get_event()) is not None:
                try:
                    self._take(event)
                except ValueError as error:
                    place = event.start_mark
                    raise DefinitionError(f"line {place.line + 1}, column {place.column + 1}: {error}") from None
        except yaml.YAMLError as error:
            raise DefinitionError(_syntax_fault(error)) from None
        finally:
            scanner.dispose()
        return self._root

    def _take(self, event: Any) -> None:
        kind: object = type(event)  # pyright: ignore[reportUnknownVariableType] - PyYAML has no types
        if kind in _TAGS and event.tag not in _TAGS[kind]:
            raise ValueError(f"the tag {str(event.tag).replace(_STANDARD, '!!', 1)[:80]!r} is refused")
        if kind is yaml.ScalarEvent:
            value = self._scalar(event.value) if event.implicit[0] else event.value
            if event.anchor is not None:
                self._anchors[event.anchor] = value, _Extent()
            self._place(value, _Extent(), text=event.value, is_plain=event.implicit[0])
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            if len(self._open) >= self._most_levels:
                raise ValueError(f"there are more than {self._most_levels} levels")
            if event.anchor is not None:
                self._anchors[event.anchor] = None
            self._open.append(_Open(event.anchor, is_table=kind is yaml.MappingStartEvent))
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._end()
        elif kind is yaml.AliasEvent:
            known = self._anchors.get(event.anchor)
            if known is None:
                raise ValueError(f"the alias *{event.anchor} refers to no anchor, or is inside its own anchor")
            self._place(*known, text=known[0] if isinstance(known[0], str) else None)
        elif kind is yaml.DocumentStartEvent:
            self._documents += 1
            if self._documents > 1:
                raise ValueError("a second document starts here")

    def _scalar(self, text: str) -> JSONValue:
        if text not in self._scalars:
            self._scalars[text] = scalar_value(text)
        return self._scalars[text]

    def _end(self) -> None:
        done = self._open.pop()
        if done.table is None:
            value: JSONValue = done.items
        else:
            table = done.table
            for base in done.merges:
                table = {**base, **table}
            value = table
        extent = _Extent(done.values, done.levels + 1)
        if done.anchor is not None:
            self._anchors[done.anchor] = value, extent
        self._place(value, extent)

    def _place(self, value: JSONValue, extent: _Extent, *, text: str | None = None, is_plain: bool = False) -> None:
        """Store a finished value: as the root, the next item, a key, or the value of the waiting key."""
        if extent.levels + len(self._open) > self._most_levels + 1:
            raise ValueError(f"there are more than {self._most_levels} levels, aliases written out")
        if not self._open:
            self._root = value
            return
        inside = self._open[-1]
        inside.values += extent.values
        if inside.values > self._most_values:
            raise ValueError(f"there are more than {self._most_values:,} values, aliases written out")
        inside.levels = max(inside.levels, extent.levels)
        if inside.table is None:
            inside.items.append(value)
        elif inside.key is None:
            if text is None:
                raise ValueError("a key must be a text")
            if text in inside.table:
                raise ValueError(f"the key {text[:80]!r} occurs twice")
            inside.key, inside.is_merge = text, is_plain and text == "<<"
        else:
            if inside.is_merge:
                inside.merges += _merged(value)
            else:
                inside.table[inside.key] = value
            inside.key = None


def _merged(value: JSONValue) -> list[JSON]:
    bases = list(value) if is_list(value) else [value]
    if not all(is_object(base) for base in bases):
        raise ValueError("`<<` takes in a mapping or a list of mappings")
    # Of several, the first wins.
    return [base for base in bases if is_object(base)]


def _syntax_fault(error: yaml.YAMLError) -> str:
    place: Any = getattr(error, "problem_mark", None)
    words = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read")
    return f"line {place.line + 1}, column {place.column + 1}: {words}" if place is not None else words
