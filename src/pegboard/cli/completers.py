"""Completers: names of tools and profiles, read from files only. Nothing is started and no code is imported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.lazy import LazyModule
from pegboard.model.bounds import KIB
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

if TYPE_CHECKING:
    import yaml
else:
    yaml = LazyModule("yaml")

COMPLETION_FILE_BYTES = 256 * KIB  # of a config or lock; larger files are not read

_CONFIG, _LOCK = "pegboard.yaml", "pegboard.lock"


def tool_names(context: object = None) -> list[str]:
    """Return the tools in the nearest config and in its lock."""
    config, folder = _config()
    tools = config.get("tools")
    entries = [tool for tool in tools if is_object(tool)] if is_list(tools) else []
    own = [tool.get("name") for tool in entries if tool.get("type") not in ("mcp", "openapi")]
    return [*(name for name in own if isinstance(name, str)), *_pinned(folder)]


def profile_names(context: object = None) -> list[str]:
    """Return the profiles in the nearest config."""
    profiles = _config()[0].get("profiles")
    return list(map(str, profiles)) if is_object(profiles) else []


def profiles_in(path: Path) -> list[str] | None:
    """Return the profiles in a config; `None` if it can have more, in other files, or cannot be parsed."""
    config = _parsed(_text(path))
    profiles = config.get("profiles", {})
    return None if not config or "files" in config or not is_object(profiles) else list(map(str, profiles))


def _pinned(folder: Path | None) -> Iterator[str]:
    text = "" if folder is None else _text(folder / _LOCK)
    try:
        lock: JSONValue = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return
    servers = lock.get("servers") if is_object(lock) else None
    for server, tools in servers.items() if is_object(servers) else ():
        yield from (f"{server}__{tool}" for tool in tools if is_object(tools))


def _config() -> tuple[JSON, Path | None]:
    """Return the contents of the config here or in a folder above, as far as it can be parsed, and its folder."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        text = _text(folder / _CONFIG)
        if text:
            return _parsed(text), folder
    return {}, None


def _parsed(text: str) -> JSON:
    try:
        value: JSONValue = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return value if is_object(value) else {}


def _text(path: Path) -> str:
    try:
        if not path.is_file() or path.stat().st_size > COMPLETION_FILE_BYTES:
            return ""
        return path.read_bytes().decode("utf-8", "replace")  # raw: the operator's own file, in whose folder they work
    except OSError:
        return ""
