"""Document parts: puts the files that a description refers to into it, so that all references stay inside."""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from pegboard.core.names import legal
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

OPENAPI_PARTS = 5_000  # files of one description

_PARTS: Final = "x-parts"
# The names under these keys are free: a schema may be called `example`.
_NAMED: Final = frozenset({"properties", "patternProperties", "schemas", "definitions", "$defs", "dependentSchemas"})
# Documentation only, often with a file for each example.
_SKIPPED: Final = frozenset({"example", "examples"})


def with_parts(root: JSONValue, *, name: str, read: Callable[[str], JSONValue]) -> JSONValue:
    """Return a description with the files that it refers to under one of its keys, and all references to there.

    Args:
        root: the description.
        name: the name of its file.
        read: returns the contents of a file, whose path is relative to the folder of the description. `None` means
            that the file cannot be used; references to it are left as they are.

    Raises:
        DefinitionError: it refers to too many files.
    """
    if not is_object(root):
        return root
    parts = _Parts(name, read)
    whole: JSON = {key: parts.rewritten(value, name, key=key) for key, value in root.items()}
    while parts.waiting:
        path, value = parts.waiting.popleft()
        parts.contents[parts.names[path]] = parts.rewritten(value, path)
    return {**whole, _PARTS: parts.contents} if parts.contents else whole


class _Parts:
    """The files met so far: their names in the description, those to rewrite, and the rewritten ones."""

    def __init__(self, root: str, read: Callable[[str], JSONValue]) -> None:
        self.names: dict[str, str] = {}
        self.contents: JSON = {}
        self.waiting: deque[tuple[str, JSONValue]] = deque()
        self._root, self._read = root, read
        self._unusable: set[str] = set()

    def rewritten(self, value: JSONValue, path: str, *, key: str = "") -> JSONValue:
        """Return a value of the file at `path` with all references leading into the description."""
        if is_list(value):
            return [self.rewritten(item, path) for item in value]
        if not is_object(value):
            return value
        is_named = key in _NAMED
        return {
            name: self._reference(inner, path)
            if name == "$ref" and isinstance(inner, str)
            else inner
            if not is_named and (name in _SKIPPED or (name.startswith("x-") and name != "x-ms-paths"))
            else self.rewritten(inner, path, key=name)
            for name, inner in value.items()
        }

    def _reference(self, reference: str, path: str) -> str:
        quoted, _, pointer = reference.partition("#")
        file = unquote(quoted)
        if "://" in file or file.startswith("/"):
            return reference
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
        if target == self._root:
            return f"#{pointer}"
        is_anchor = pointer and not pointer.startswith("/")
        if is_anchor or not self._is_usable(target):
            return reference
        return f"#/{_PARTS}/{self.names[target]}{pointer}"

    def _is_usable(self, path: str) -> bool:
        """Tell whether a file can be used, and read it the first time."""
        if path in self.names:
            return True
        if path in self._unusable:
            return False
        value = self._read(path)
        if value is None:
            self._unusable.add(path)
            return False
        if len(self.names) >= OPENAPI_PARTS:
            raise DefinitionError(f"refers to more than {OPENAPI_PARTS:,} files; bundle them into one")
        self.names[path] = self._free_name(path)
        self.waiting.append((path, value))
        return True

    def _free_name(self, path: str) -> str:
        """Return a name from which schemas are named: that of the file, or of its whole path if it is taken."""
        stem = posixpath.splitext(path)[0]
        name = legal(posixpath.basename(stem))
        taken = set(self.names.values())
        if name in taken:
            name = legal(stem.replace("../", "").replace("/", "_"))
        while name in taken:
            name += "_"
        return name
