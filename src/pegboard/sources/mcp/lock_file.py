"""Lock file: pins the definitions of foreign tools as they were accepted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pegboard.core.digests import digest
from pegboard.core.json_reader import parse_json, read_answer
from pegboard.core.json_text import json_bytes
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.model.record import replace
from pegboard.storage.whole_file import write_whole

MCP_LOCK_STRICT_BYTES = 4_000_000  # a larger lock file is read with its own bounds, not those of a message
MCP_LOCK_VALUES = 100_000_000  # values in such a file

_VERSION = 2
_WHOLE = replace(DEFAULT_BOUNDS, answer_values=MCP_LOCK_VALUES, answer_containers=MCP_LOCK_VALUES)
# Version 1 of the file did not pin these keys. They stay unchecked for its tools until these are accepted again.
_FIRST_VERSION = 1
_NOT_IN_FIRST = frozenset({"icons", "_meta"})
# Lists whose order has no meaning; other lists are compared in order.
_SETS = frozenset({"required", "enum", "type", "anyOf", "oneOf", "allOf"})


def canonical(definition: JSONValue) -> JSONValue:
    """Return a definition in canonical form: sorted keys and sorted set-like lists."""
    if is_object(definition):
        return {key: _as_set(inner) if key in _SETS else canonical(inner) for key, inner in definition.items()}
    return [canonical(inner) for inner in definition] if is_list(definition) else definition


def _as_set(value: JSONValue) -> JSONValue:
    plain = canonical(value)
    return sorted(plain, key=lambda inner: json_bytes(inner, sort_keys=True)) if is_list(plain) else plain


def fingerprint(definition: JSON) -> str:
    """Return the SHA-256 that identifies a pin."""
    return digest(canonical(definition))


class LockFile:
    """`pegboard.lock`: the accepted definitions by server and tool. Without a path it is kept in memory.

    `existed` tells whether there was a file at creation, which makes `pinned` the default. `fault` says why an existing
    file cannot be used; then no tools of any server may be used until it is repaired or deleted. If `is_kept` is false,
    newly accepted definitions are kept in memory only.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.fault = ""
        self.is_kept = True
        self._pins: dict[str, dict[str, JSON]] = {}
        self._first: frozenset[tuple[str, str]] = frozenset()
        self.existed = path is not None and path.exists()
        if path is not None and self.existed:
            try:
                self._pins, self._first = _read(path.read_bytes())  # raw: the operator's own file, named by them
            except (OSError, ValueError, CallError) as error:
                self.fault = f"{str(path.name)!r} cannot be used: {error}. Restore it, or delete it and review again"

    def pins(self, server: str) -> Mapping[str, JSON]:
        """Return the accepted definitions of a server, by original tool name."""
        return self._pins.get(server, {})

    def comparable(self, server: str, definition: JSON) -> JSON:
        """Return the part of an offered definition that its pin covers: version 1 has no icons or `_meta`."""
        if (server, definition["name"]) not in self._first:
            return definition
        return {key: value for key, value in definition.items() if key not in _NOT_IN_FIRST}

    def is_current(self) -> bool:
        """Tell whether the file has these pins: another program may have written it since it was read."""
        if self.path is None or not self.is_kept:
            return True
        try:
            return _read(self.path.read_bytes())[0] == self._pins  # raw: the operator's own file, named by them
        except FileNotFoundError:
            return not self._pins
        except (OSError, ValueError, CallError):
            return False

    @property
    def servers(self) -> frozenset[str]:
        """The servers that have pins, even an empty set."""
        return frozenset(self._pins)

    @property
    def count(self) -> int:
        """The number of pinned tools."""
        return sum(map(len, self._pins.values()))

    def accept(self, server: str, definitions: Mapping[str, JSON]) -> None:
        """Pin these definitions, replacing pins of the same names, and write the file.

        Raises:
            OSError: the file cannot be written; the pins still apply in memory.
        """
        self._pins[server] = {**self._pins.get(server, {}), **definitions}
        self._first -= {(server, tool) for tool in definitions}
        self.write()

    def forget(self, server: str, tool: str) -> None:
        """Remove a pin, e.g. of a removed tool, and write the file."""
        self._pins.get(server, {}).pop(tool, None)
        self.write()

    def drop(self, server: str) -> None:
        """Remove all pins of a server, and write the file."""
        self._pins.pop(server, None)
        self.write()

    def write(self) -> None:
        """Write all pins atomically. A file that could not be read is never overwritten."""
        if self.path is None or self.fault or not self.is_kept:
            return
        servers = {
            server: {
                tool: {
                    "sha256": fingerprint(definition),
                    "definition": definition,
                    **({"version": _FIRST_VERSION} if (server, tool) in self._first else {}),
                }
                for tool, definition in sorted(tools.items())
            }
            for server, tools in sorted(self._pins.items())
        }
        text = json_bytes({"version": _VERSION, "servers": servers}, indent=True)
        write_whole(self.path, text + b"\n")


def _read(text: bytes) -> tuple[dict[str, dict[str, JSON]], frozenset[tuple[str, str]]]:
    """Return the pins in the text of a file, and which of them are of version 1.

    Raises:
        ValueError: it does not have the form that this module writes.
        CallError: it is not strict JSON.
    """
    if b"<<<<<<<" in text:
        raise ValueError("it has conflict marks of a merge")
    whole: Any = _loaded(text)
    known = is_object(whole) and whole.get("version") in (_FIRST_VERSION, _VERSION)
    if not known or not is_object(whole.get("servers")):
        raise ValueError(f"it is not a lock of version {_VERSION}")
    is_first = whole["version"] == _FIRST_VERSION
    pins: dict[str, dict[str, JSON]] = {}
    first: set[tuple[str, str]] = set()
    for server, tools in cast("JSON", whole["servers"]).items():
        if not is_object(tools):
            raise ValueError(f"the entry of server {server!r} is not an object")
        pins[server] = {tool: _pin(server, tool, entry) for tool, entry in tools.items()}
        first |= {(server, tool) for tool, entry in tools.items() if is_first or entry.get("version") == _FIRST_VERSION}
    return pins, frozenset(first)


def _loaded(text: bytes) -> JSONValue:
    return parse_json(text) if len(text) < MCP_LOCK_STRICT_BYTES else read_answer(text, bounds=_WHOLE)


def _pin(server: str, tool: str, entry: JSONValue) -> JSON:
    definition = entry.get("definition") if is_object(entry) else None
    if not is_object(definition) or definition.get("name") != tool or not is_object(definition.get("inputSchema")):
        raise ValueError(f"the entry of {server}.{tool} is not a definition")
    if cast("JSON", entry).get("sha256") != fingerprint(definition):
        raise ValueError(f"the entry of {server}.{tool} does not fit its checksum")
    return definition
