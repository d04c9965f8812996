"""A server on stdio that writes down each call and each reading that reaches it: `counted_server.py FILE`."""

import json
import sys
from pathlib import Path

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [{"name": name, "description": f"{name} a path", "inputSchema": PATH} for name in ("read", "wipe")]


def count(*hit: object) -> None:
    with Path(sys.argv[1]).open("a") as hits:
        hits.write(json.dumps(hit) + "\n")


def answer(message: dict) -> dict | None:
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "counted", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}, "resources": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": TOOLS}
        case "resources/list":
            return {"resources": [{"uri": "counted://secret", "name": "secret"}]}
        case "resources/read":
            count("resource", message["params"]["uri"])
            return {"contents": [{"uri": "counted://secret", "text": "CANARY-resource"}]}
        case "tools/call":
            count(message["params"]["name"], message["params"].get("arguments"))
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
