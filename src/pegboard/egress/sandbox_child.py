"""Sandbox child: the program in which `sandbox` runs a function; started by path, without importing our code.

Reads one line of JSON (the request) and the payload after it from stdin, and writes one line of JSON to stdout.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

try:
    import resource
except ImportError:  # on Windows, where it is not used
    resource = None


def main() -> None:
    """Set our limits, then import and call the function and write its result."""
    assert resource is not None
    request = json.loads(sys.stdin.buffer.readline())
    for name, limit in request["limits"].items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(number, (value, value))
    # The function's own prints must not be mistaken for its result.
    answers = os.dup(1)
    os.dup2(2, 1)
    sys.path[:] = request["path"]
    try:
        answer: dict[str, object] = {"value": _call(request)}
        text = json.dumps(answer)
    except MemoryError:
        text = json.dumps({"failure": "memory"})
    except Exception as exc:  # noqa: BLE001  (whatever foreign code raises is reported to the parent)
        text = json.dumps({"failure": "raised", "type": type(exc).__name__, "message": str(exc)[:2000]})
    with os.fdopen(answers, "w", encoding="utf-8") as pipe:
        pipe.write(text + "\n")


def _call(request: dict[str, Any]) -> object:
    module, _, name = request["call"].partition(":")
    function: Callable[..., object] = getattr(importlib.import_module(module), name)
    if not request["has_payload"]:
        return function(request["argument"])
    return function(request["argument"], sys.stdin.buffer.read())


if __name__ == "__main__":
    main()
