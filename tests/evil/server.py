"""Server: an MCP server that misbehaves on demand, over stdio or HTTP, with nothing but the standard library.

server.py [KEY=VALUE …]

session=ID      open sessions of this id over HTTP
tools=PATH      offer the definitions in this JSON file, read anew for every list; else `echo`, `write`, `read`
count=N         offer N tools of about 1 KB
pages=new|same|cycle|N    never end the list: always a new cursor, the same one, three in turn; or N pages
call=KIND       how `tools/call` goes wrong, see `MISDEEDS`; else it is honest
ttl=MS          say of each list how long it holds
changes=N       announce N times after each list that it has changed
tells=N         announce N times after each call that the list has changed
start=exit|hang|stderr|garbage    what it does before it is spoken to
pings=ignored   answer no ping
log=PATH        append a line for each message that came, and for each run of `write`
stubborn=S      ignore SIGTERM, and leave three `sleep S` behind, one in a session of its own
media=TYPES     the Content-Type of answers to `tools/call`; several, with `|` between, are headers of their own
status=N        their status
size=N          the bytes of `call=image`, `structured` or `line_sse`; the levels of `deep`; what `number` says;
                the lists of `values`, the objects of `records`
as=JSON         what `disguised_sse` and `disguised_get` add to an answer, so that it may be read as another message
http=PORT       speak HTTP at http://127.0.0.1:PORT/mcp, and SSE at /sse, rather than stdio
"""

import http.server
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

OPTIONS = dict(argument.split("=", 1) for argument in sys.argv[1:])
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
HONEST = [
    {"name": "echo", "description": "Say it again.", "inputSchema": TEXT},
    {"name": "write", "description": "Write a line.", "inputSchema": TEXT},
    {"name": "read", "description": "Read it.", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}},
]
MISDEEDS = (
    "hang", "hang_write", "die", "die_once", "garbage", "flood_garbage", "double", "foreign", "string_id", "null_id",
    "cancelled_id", "huge", "image", "structured", "number", "link", "blocks", "deep", "nan", "drip", "progress",
    "stderr", "line", "no_result", "endless_sse", "progress_sse", "line_sse", "retry_sse", "verbatim",
    "verbatim_sse", "others", "others_sse", "neighbour", "disguised_sse", "disguised_get",
    "flood", "values", "records",
)  # fmt: skip


def note(text: str) -> None:
    if "log" in OPTIONS:
        with Path(OPTIONS["log"]).open("a") as log:
            log.write(text + "\n")


def offered() -> list[Any]:
    if "tools" in OPTIONS:
        return json.loads(Path(OPTIONS["tools"]).read_text())
    if "count" in OPTIONS:
        return [
            {"name": f"tool_{number}", "description": "x" * 900, "inputSchema": TEXT}
            for number in range(int(OPTIONS["count"]))
        ]
    return HONEST


def page(cursor: str | None) -> dict[str, Any]:
    kind = OPTIONS.get("pages")
    if kind is None:
        return {"tools": offered()}
    at = int(cursor or 0)
    tools = [{**tool, "name": f"{tool['name']}_{at}"} for tool in offered()]
    if kind.isdigit():
        return {"tools": tools} | ({"nextCursor": str(at + 1)} if at + 1 < int(kind) else {})
    return {"tools": tools, "nextCursor": {"new": str(at + 1), "same": "7", "cycle": str((at + 1) % 3)}[kind]}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the honest answer to a message, `None` to a notification."""
    method, identity = message.get("method"), message.get("id")
    if identity is None or (method == "ping" and OPTIONS.get("pings") == "ignored"):
        return None
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        told = {
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities,
            "serverInfo": {"name": "e", "version": "1"},
        }
    elif method == "tools/list":
        told = page((message.get("params") or {}).get("cursor"))
        if "ttl" in OPTIONS:
            told["ttlMs"] = int(OPTIONS["ttl"])
    elif method == "tools/call":
        name, arguments = message["params"]["name"], message["params"].get("arguments") or {}
        if name == "write":
            note(f"wrote {arguments.get('text')}")
        told = {"content": [{"type": "text", "text": arguments.get("text", name)}]}
    elif method == "ping":
        told = {}
    else:
        return {"jsonrpc": "2.0", "id": identity, "error": {"code": -32601, "message": "Method not found"}}
    return {"jsonrpc": "2.0", "id": identity, "result": told}


GIVEN_UP: list[Any] = []


def line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def misdeed(kind: str, good: dict[str, Any], out: Any) -> bytes:
    """Return what comes instead of the answer `good`; may take time, or not return."""
    identity = good["id"]
    match kind:
        case "hang":
            return b""
        case "die":
            os._exit(1)
        case "hang_write":
            if good["result"]["content"][0]["text"] != "still there":
                return b""
        case "die_once":
            mark = Path(OPTIONS["log"] + ".died")
            if not mark.exists():
                mark.touch()
                os._exit(1)
        case "garbage":
            noise = b'\x1b[31mnpm WARN\x1b[0m banner\n{"jsonrpc": \n\xff\xfe\x00\n\x00\x00\n[]\n42\n\r\n'
            return noise + line(good).replace(b"\n", b"\r\n")
        case "flood_garbage":
            return b"not a message\n" * 2_000
        case "double":
            return line(good) + line({**good, "result": {"content": [{"type": "text", "text": "twice"}]}})
        case "foreign":
            return line({**good, "id": 99_999}) + line(good)
        case "string_id":
            return line({**good, "id": str(identity)})
        case "null_id":
            return line({**good, "id": None})
        case "cancelled_id":
            # The first call is never answered until it was given up; then its answer comes, before the next one's.
            if not GIVEN_UP:
                GIVEN_UP.append(identity)
                return b""
            stale = {"content": [{"type": "text", "text": "stale"}]}
            return line({**good, "id": GIVEN_UP[0], "result": stale}) + line(good)
        case "verbatim":
            # The text of the call, a character for a byte, is the JSON of the structured value.
            return verbatim(good)
        case "others":
            # Answers to requests that others may have open, and none to this one.
            return b"".join(line({**good, "id": other}) for other in range(1, 200) if other != identity)
        case "neighbour":
            # The answer to the request that came after this one, and none to this one.
            time.sleep(0.2)
            return line({**good, "id": identity + 1})
        case "drip":
            for byte in line(good):
                out.write(bytes([byte]))
                out.flush()
                time.sleep(0.005)
            return b""
        case "progress":
            params = {"progressToken": identity, "progress": 1}
            told = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            return line(told) * 100_000 + line(good)
        case "stderr":
            sys.stderr.write("noise " * 500_000)
            sys.stderr.flush()
        case "line":
            while True:
                out.write(b"x" * 1_000_000)
    strange = strange_result(kind, good)
    if strange is None:
        return line(good)
    return line({**good, "result": 0}).replace(b'"result": 0', b'"result": ' + strange)


def verbatim(good: dict[str, Any]) -> bytes:
    text = good["result"]["content"][0]["text"].encode("latin-1")
    result = b'{"content":[],"structuredContent":' + text + b"}"
    return b'{"jsonrpc":"2.0","id":' + json.dumps(good["id"]).encode() + b',"result":' + result + b"}\n"


def disguised(good: dict[str, Any]) -> list[bytes]:
    """Return answers to all requests that others may have open, which are read as something else at first sight."""
    others = [other for other in range(1, 40) if other != good["id"]]
    return [line({**good, "id": other, **json.loads(OPTIONS["as"])}) for other in others]


def strange_result(kind: str, good: dict[str, Any]) -> bytes | None:
    """Return the JSON of a result that is too large, too deep, or none; `None` for an honest one."""
    told: Any = None
    match kind:
        case "image":
            data = "QUJD" * (int(OPTIONS["size"]) // 3)
            told = {"content": [{"type": "image", "data": data, "mimeType": "image/png"}]}
        case "structured":
            told = {"content": [], "structuredContent": {"rows": ["x" * 1_000] * (int(OPTIONS["size"]) // 1_000)}}
        case "number":
            told = {"content": [], "structuredContent": {"rows": [{"id": int(OPTIONS["size"])}]}}
        case "link":
            uri = good["result"]["content"][0]["text"]
            told = {"content": [{"type": "resource_link", "uri": uri, "name": "report"}]}
        case "huge":
            told = {"content": [{"type": "text", "text": "x" * 6_000_000}]}
        case "blocks":
            told = {"content": [{"type": "text", "text": "x"}] * 10_000}
        case "deep":
            levels = int(OPTIONS.get("size", 500))
            deep = "[" * levels + "]" * levels
            return f'{{"content": [], "structuredContent": {{"a": {deep}}}}}'.encode()
        case "values":
            return b'{"content": [], "structuredContent": {"a": [' + b"[]," * int(OPTIONS["size"]) + b"[]]}}"
        case "records":
            told = {"content": [], "structuredContent": {"rows": [{"a": "b"}] * int(OPTIONS["size"])}}
        case "nan":
            told = {"content": [], "structuredContent": {"a": float("nan")}}
        case "no_result":
            told = {"content": "none"}
    return None if told is None else json.dumps(told).encode()


def on_stdio() -> None:
    out = sys.stdout.buffer
    for received in sys.stdin.buffer:
        message = json.loads(received)
        note(message.get("method", "answer"))
        good = answer(message)
        if good is None:
            continue
        is_bad = message.get("method") == "tools/call" and "call" in OPTIONS
        out.write(misdeed(OPTIONS["call"], good, out) if is_bad else line(good))
        changes = {"tools/list": "changes", "tools/call": "tells"}.get(message.get("method", ""), "")
        out.write(line({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}) * int(OPTIONS.get(changes, 0)))
        out.flush()


class OnHttp(http.server.BaseHTTPRequestHandler):
    """Answers each POST with JSON, or on the stream of its SSE session."""

    protocol_version = "HTTP/1.1"
    sessions: dict[str, queue.SimpleQueue[bytes]] = {}  # noqa: RUF012 - shared by all requests, on purpose
    told_to_all: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    received_by_all = threading.Event()

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        carried = str(self.headers) + json.dumps(message)
        known = [token for token in ("secret-token", "caller-token") if token in carried]
        note(" with ".join([message.get("method", "answer"), *known]))
        good = answer(message)
        if OPTIONS.get("start") == "401":
            return self.reply(401, b"{}")
        if OPTIONS.get("start") == "redirect":
            self.send_response(307)
            self.send_header("location", OPTIONS["to"])
            self.send_header("content-length", "0")
            return self.end_headers()
        is_bad = message.get("method") == "tools/call" and "call" in OPTIONS
        session = self.sessions.get(self.path)
        if session is not None:
            self.reply(202, b"")
            if good is not None:
                session.put(misdeed(OPTIONS["call"], good, self.wfile) if is_bad else line(good))
            return None
        if good is None:
            return self.reply(202, b"")
        if is_bad and OPTIONS["call"].endswith("_sse"):
            if OPTIONS["call"] == "verbatim_sse":
                return self.events(verbatim(good))
            if OPTIONS["call"] == "others_sse":
                return self.events(*(line({**good, "id": other}) for other in range(1, 200) if other != good["id"]))
            if OPTIONS["call"] == "disguised_sse":
                return self.events(*disguised(good))
            return self.stream(OPTIONS["call"], message["params"].get("_meta", {}).get("progressToken"))
        if is_bad and OPTIONS["call"] == "disguised_get":
            for said in disguised(good):
                self.told_to_all.put(said)
            self.received_by_all.wait(5)
            return self.reply(200, line(good))
        if is_bad:
            media = OPTIONS.get("media", "application/json").split("|")
            if OPTIONS["call"] == "flood":
                return self.flood(media)
            return self.reply(int(OPTIONS.get("status", 200)), misdeed(OPTIONS["call"], good, self.wfile), *media)
        if "session" in OPTIONS and message["method"] == "initialize":
            return self.reply(200, line(good), session=OPTIONS["session"])
        return self.reply(200, line(good))

    def flood(self, media: list[str]) -> None:
        """Answer with more than anybody should take, and write down how much of it was taken."""
        self.close_connection = True
        self.send_response(200)
        for one in media:
            self.send_header("content-type", one)
        self.end_headers()
        taken_mb = 0
        try:
            for taken_mb in range(64):  # noqa: B007 - it is said below
                self.wfile.write(b"x" * 2**20)
        except OSError:
            pass
        note(f"flooded {taken_mb}")

    def do_GET(self) -> None:
        note("GET " + self.headers.get("last-event-id", ""))
        if self.path == "/sse":
            return self.session()
        if OPTIONS.get("call") == "retry_sse" and "last-event-id" in self.headers:
            return self.stream("retry_sse", None)
        if OPTIONS.get("call") == "disguised_get":
            return self.tell_all()
        return self.reply(405, b"")

    def tell_all(self) -> None:
        """Be the stream that no request opened."""
        self.open_stream()
        for number in count():
            self.wfile.write(b"data: " + self.told_to_all.get().rstrip(b"\n") + b"\n\n")
            if number == 300:
                self.received_by_all.set()

    def session(self) -> None:
        """Be one SSE session: the answers to what is posted at its own address come on this stream."""
        path, answers = f"/messages/{id(self)}", queue.SimpleQueue[bytes]()
        self.sessions[path] = answers
        self.open_stream()
        try:
            self.wfile.write(f"event: endpoint\ndata: {path}\n\n".encode())
            while True:
                for said in answers.get().splitlines():
                    self.wfile.write(b"event: message\ndata: " + said + b"\n\n")
        except OSError:
            self.close_connection = True
        finally:
            del self.sessions[path]

    def stream(self, kind: str, token: Any) -> None:
        """Answer with events that never bring a result."""
        self.open_stream()
        if kind == "retry_sse":
            # It ends at once, and asks to be asked again at once.
            self.wfile.write(b"id: 7\nretry: 0\ndata:\n\n")
            return
        if kind == "line_sse":
            self.wfile.write(b"data: ")
            for _ in range(int(OPTIONS["size"]) // 1_000_000):
                self.wfile.write(b"x" * 1_000_000)
            note("wrote it all")
            return
        for step in count():
            params = {"progressToken": token, "progress": step}
            told = line({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
            self.wfile.write(b": still here\n\n" if kind == "endless_sse" else b"data: " + told + b"\n")
            time.sleep(0.01)

    def events(self, *messages: bytes) -> None:
        """Answer with a stream of these messages, and end it."""
        self.open_stream()
        for message in messages:
            self.wfile.write(b"data: " + message.rstrip(b"\n") + b"\n\n")

    def open_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()

    def reply(self, status: int, body: bytes, *media: str, session: str = "") -> None:
        self.send_response(status)
        if session:
            self.send_header("mcp-session-id", session)
        for one in media or ("application/json",):
            self.send_header("content-type", one)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        pass


class Server(http.server.ThreadingHTTPServer):
    """Says nothing of clients that hang up."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def main() -> None:
    if OPTIONS.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for is_apart in (False, False, True):
            subprocess.Popen(["sleep", OPTIONS["stubborn"]], start_new_session=is_apart)
    match OPTIONS.get("start"):
        case "exit":
            sys.exit(1)
        case "hang":
            signal.pause()
        case "stderr":
            sys.stderr.write("noise " * 500_000)
        case "garbage":
            print("Welcome to this server!\n\x1b[1mhave fun\x1b[0m", flush=True)
    if "http" in OPTIONS:
        Server(("127.0.0.1", int(OPTIONS["http"])), OnHttp).serve_forever()
    else:
        on_stdio()


if __name__ == "__main__":
    main()
