"""Sandbox child: the program that runs functions for `sandbox`; started by path, without our packages.

Reads a line of JSON (its limits), then for each call a line of JSON (the request) and its payload; writes a line of
JSON for each call.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

try:
    import resource
except ImportError:  # on Windows, where it is not used
    resource = None


def main() -> None:
    """Set our limits, then answer calls until the input ends."""
    assert resource is not None
    source = sys.stdin.buffer
    setup = json.loads(source.readline())
    for name, limit in setup["limits"].items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(number, (value, value))
    # A function's own prints must not be mistaken for its result.
    answers = os.dup(1)
    os.dup2(2, 1)
    sys.path[:] = setup["path"]
    with os.fdopen(answers, "w", encoding="utf-8") as pipe:
        while line := source.readline():
            request = json.loads(line)
            pipe.write(_answer(request, source.read(request["size"])) + "\n")
            pipe.flush()


def _answer(request: dict[str, Any], payload: bytes) -> str:
    try:
        module, _, name = request["call"].partition(":")
        function: Any = getattr(importlib.import_module(module), name)
        return json.dumps({"value": function(request["argument"], payload)})
    except MemoryError:
        return json.dumps({"failure": "memory"})
    except RecursionError:
        return json.dumps({"failure": "raised", "type": "RecursionError", "message": "it is nested too deeply"})
    except Exception as exc:  # noqa: BLE001  (whatever foreign code raises is reported to the parent)
        return json.dumps({"failure": "raised", "type": type(exc).__name__, "message": str(exc)[:2000]})


if __name__ == "__main__":
    main()
