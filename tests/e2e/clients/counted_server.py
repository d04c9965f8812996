"""A server on stdio whose tools write down each call that reaches them: `counted_server.py FILE`."""

import json
import sys
from pathlib import Path

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [{"name": name, "description": f"{name} a path", "inputSchema": PATH} for name in ("read", "wipe")]


def answer(message: dict) -> dict | None:
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "counted", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            with Path(sys.argv[1]).open("a") as hits:
                hits.write(json.dumps([message["params"]["name"], message["params"].get("arguments")]) + "\n")
            return {"content": [{"type": "text", "text": f"CANARY-{message['params']['name']}"}]}
        case "ping":
            return {}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message)
        error = {"error": {"code": -32601, "message": "Method not found"}}
        reply = {"jsonrpc": "2.0", "id": message["id"], **(error if result is None else {"result": result})}
        print(json.dumps(reply), flush=True)
