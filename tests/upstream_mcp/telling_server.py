"""A server on stdio, in plain JSON-RPC, that answers as a file says: `tools`, `resources`, `result`, `contents`."""

import json
import sys
from pathlib import Path
from typing import Any


def answer(method: str, told: dict[str, Any], read: str) -> dict[str, Any] | None:
    """Return the result of a request; `None` for a method that the server does not have."""
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": told.get("capabilities", {"tools": {}, "resources": {}}),
            "serverInfo": {"name": "telling", "version": "1"},
        }
    return {
        "tools/list": {"tools": told.get("tools", []), **told.get("page", {})},
        "resources/list": {"resources": told.get("resources", [])},
        "resources/templates/list": {"resourceTemplates": []},
        "tools/call": told.get("result", {"content": []}),
        "resources/read": {"contents": told.get("contents", []) or [{"uri": read, "text": f"text of {read}"}]},
        "ping": {},
    }.get(method)


def main() -> None:
    """Answer line by line, from the file as it is at that moment."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        told = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
        result = answer(request["method"], told, (request.get("params") or {}).get("uri", ""))
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        reply |= {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        if sys.argv[2:] == ["id-last"]:
            reply["id"] = reply.pop("id")
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
