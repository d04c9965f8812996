"""Tools found in a package: the functions of Python's standard library, with their docstrings as descriptions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

Row = dict[str, Any]
MODULES = (
    "base64", "bisect", "calendar", "colorsys", "difflib", "email.utils", "filecmp", "fnmatch", "fractions", "getpass",
    "glob", "gzip", "hashlib", "heapq", "hmac", "html", "http.client", "inspect", "json", "locale", "math", "mimetypes",
    "operator", "os", "os.path", "platform", "random", "secrets", "shlex", "shutil", "socket", "ssl", "statistics",
    "string", "struct", "subprocess", "tempfile", "textwrap", "time", "tokenize", "unicodedata", "urllib.parse", "uuid",
    "zlib",
)  # fmt: skip


def tools() -> Iterator[Row]:
    """Yield the documented public functions of these modules, in the form of `bench/requests/tools.jsonl`."""
    for module_name in MODULES:
        module = import_module(module_name)
        server = module_name.replace(".", "_")
        for name, function in sorted(vars(module).items()):
            text = inspect.getdoc(function) if inspect.isroutine(function) and not name.startswith("_") else None
            if text:
                yield {
                    "name": f"{server}__{name}",
                    "description": text.partition("\n\n")[0],
                    "inputSchema": {"type": "object", "properties": {each: {} for each in _parameters(function)}},
                    "server": server,
                }


def _parameters(function: Any) -> list[str]:
    try:
        return [*inspect.signature(function).parameters]
    except ValueError:
        return []
