"""Lock file: the file that pins what foreign tools said of themselves when they were accepted."""

from __future__ import annotations

import os
import tempfile
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

MCP_LOCK_STRICT_BYTES = 4_000_000  # a larger lock, which we wrote ourselves, is read without a message's bounds
MCP_LOCK_VALUES = 100_000_000  # and with so many values

_VERSION = 2
_WHOLE = replace(DEFAULT_BOUNDS, answer_values=MCP_LOCK_VALUES, answer_containers=MCP_LOCK_VALUES)
# What the first version of the file did not pin. Of a tool that it pinned it stays unjudged until it is accepted anew.
_FIRST_VERSION = 1
_NOT_IN_FIRST = frozenset({"icons", "_meta"})
# The order of these lists says nothing; that of other lists might.
_SETS = frozenset({"required", "enum", "type", "anyOf", "oneOf", "allOf"})


def canonical(definition: JSONValue) -> JSONValue:
    """Return a definition in which equal meaning looks equal, whatever the order of keys and of set-like lists."""
    if is_object(definition):
        return {key: _as_set(inner) if key in _SETS else canonical(inner) for key, inner in definition.items()}
    return [canonical(inner) for inner in definition] if is_list(definition) else definition


def _as_set(value: JSONValue) -> JSONValue:
    plain = canonical(value)
    return sorted(plain, key=lambda inner: json_bytes(inner, sort_keys=True)) if is_list(plain) else plain


def fingerprint(definition: JSON) -> str:
    """Return the SHA-256 that a pin is known by."""
    return digest(canonical(definition))


class LockFile:
    """`pegboard.lock`: by server and tool the definition that was accepted. Without a path it lives in memory.

    `existed` says whether there was a file when this was made, which makes `pinned` the default. `fault` says why an
    existing file cannot be used: then nothing of any server may be, until it is mended or deleted. Where `is_kept` is
    false, what is accepted from then on holds in memory alone.
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
                self.fault = f"{str(path.name)!r} cannot be used: {error}. Restore it, or delete it to accept anew"

    def pins(self, server: str) -> Mapping[str, JSON]:
        """Return the accepted definitions of a server, by the tools' own names."""
        return self._pins.get(server, {})

    def comparable(self, server: str, definition: JSON) -> JSON:
        """Return what of an offered definition its pin can say: one of the first version knows no icons or `_meta`."""
        if (server, definition["name"]) not in self._first:
            return definition
        return {key: value for key, value in definition.items() if key not in _NOT_IN_FIRST}

    @property
    def servers(self) -> frozenset[str]:
        """The servers that have pins, if only an empty list of them."""
        return frozenset(self._pins)

    @property
    def count(self) -> int:
        """How many tools are pinned."""
        return sum(map(len, self._pins.values()))

    def accept(self, server: str, definitions: Mapping[str, JSON]) -> None:
        """Pin these definitions, replacing what was pinned under their names, and write the file.

        Raises:
            OSError: the file cannot be written; the pins hold in memory all the same.
        """
        self._pins[server] = {**self._pins.get(server, {}), **definitions}
        self._first -= {(server, tool) for tool in definitions}
        self.write()

    def forget(self, server: str, tool: str) -> None:
        """Take back a pin, e.g. of a tool that is gone, and write the file."""
        self._pins.get(server, {}).pop(tool, None)
        self.write()

    def drop(self, server: str) -> None:
        """Take back all pins of a server, and write the file."""
        self._pins.pop(server, None)
        self.write()

    def write(self) -> None:
        """Write all pins, whole or not at all. A file that could not be read is never overwritten."""
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
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text + b"\n")
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _read(text: bytes) -> tuple[dict[str, dict[str, JSON]], frozenset[tuple[str, str]]]:
    """Return the pins in the text of a file, and which of them are of the first version.

    Raises:
        ValueError: it is not as this module writes it.
        CallError: it is not strict JSON.
    """
    if b"<<<<<<<" in text:
        raise ValueError("it has conflict marks of a merge")
    whole: Any = _loaded(text)
    known = is_object(whole) and whole.get("version") in (_FIRST_VERSION, _VERSION)
    if not known or not is_object(whole.get("servers")):
        raise ValueError(f"it is no lock of version {_VERSION}")
    is_first = whole["version"] == _FIRST_VERSION
    pins: dict[str, dict[str, JSON]] = {}
    first: set[tuple[str, str]] = set()
    for server, tools in cast("JSON", whole["servers"]).items():
        if not is_object(tools):
            raise ValueError(f"the entry of server {server!r} is no object")
        pins[server] = {tool: _pin(server, tool, entry) for tool, entry in tools.items()}
        first |= {(server, tool) for tool, entry in tools.items() if is_first or entry.get("version") == _FIRST_VERSION}
    return pins, frozenset(first)


def _loaded(text: bytes) -> JSONValue:
    return parse_json(text) if len(text) < MCP_LOCK_STRICT_BYTES else read_answer(text, bounds=_WHOLE)


def _pin(server: str, tool: str, entry: JSONValue) -> JSON:
    definition = entry.get("definition") if is_object(entry) else None
    if not is_object(definition) or definition.get("name") != tool or not is_object(definition.get("inputSchema")):
        raise ValueError(f"the entry of {server}.{tool} is no definition")
    if cast("JSON", entry).get("sha256") != fingerprint(definition):
        raise ValueError(f"the entry of {server}.{tool} does not fit its checksum")
    return definition
