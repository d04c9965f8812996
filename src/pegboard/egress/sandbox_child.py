"""Child: the far side of a killable call; runs alone, by its path, and imports nothing of ours.

Reads one line of JSON (the order) and the payload behind it from stdin, writes one line of JSON to stdout.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any


def main() -> None:
    """Limit ourselves, then import the function, call it and write its answer."""
    order = json.loads(sys.stdin.buffer.readline())
    for name, limit in order["limits"].items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(number, (value, value))
    # What the function prints must not be taken for its answer.
    answers = os.dup(1)
    os.dup2(2, 1)
    sys.path[:] = order["path"]
    try:
        answer: dict[str, object] = {"value": _call(order)}
        text = json.dumps(answer)
    except MemoryError:
        text = json.dumps({"failure": "memory"})
    except Exception as exc:  # noqa: BLE001  (whatever foreign code raises is reported to the parent)
        text = json.dumps({"failure": "raised", "type": type(exc).__name__, "message": str(exc)[:2000]})
    with os.fdopen(answers, "w", encoding="utf-8") as pipe:
        pipe.write(text + "\n")


def _call(order: dict[str, Any]) -> object:
    module, _, name = order["call"].partition(":")
    function: Callable[..., object] = getattr(importlib.import_module(module), name)
    if not order["has_payload"]:
        return function(order["argument"])
    return function(order["argument"], sys.stdin.buffer.read())


if __name__ == "__main__":
    main()
