"""Credentials: what an API key, a token seen before and a limit on Redis add to a call, over HTTP.

Each server has the tool and the guards of the bench `http`; the first knows no credentials and counts in memory. The
key is looked up in its file for each request, the token was verified before, and Redis is a process of its own, whose
time is not counted. Without `redis-server`, or the extra `redis`, that row is not there.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from bench.http import CALL, bench_catalog, cost, serving
from bench.measure import THOROUGH, Effort, Row, compared

PLAIN, KEY, TOKEN, REDIS = "no credential", "API key", "token seen before", "limit on Redis"
HELD = {KEY: (1.1, None), TOKEN: (1.15, None), REDIS: (2.0, None)}
ISSUER, AUDIENCE = "https://login.example.com", "https://tools.example.com/mcp"


def run(effort: Effort = THOROUGH) -> list[Row]:
    """Measure a call with each of them beside one without any."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="pegboard-bench-")))
        ways = {PLAIN: (stack.enter_context(serving(PLAIN, module=__name__)), CALL)}
        key = made_key(folder / "keys.db")
        server = stack.enter_context(serving(KEY, str(folder / "keys.db"), module=__name__))
        ways[KEY] = server, with_credential(key)
        address, token = stack.enter_context(issuer())
        ways[TOKEN] = stack.enter_context(serving(TOKEN, address, module=__name__)), with_credential(token)
        if shutil.which("redis-server") and importlib.util.find_spec("limits"):
            uri = stack.enter_context(redis(folder))
            ways[REDIS] = stack.enter_context(serving(REDIS, uri, module=__name__)), CALL
        costs = {name: cost(server, wanted, effort.times(1_000)) for name, (server, wanted) in ways.items()}
        return compared(costs, effort, floor=PLAIN, held=HELD)


def with_credential(credential: str) -> bytes:
    head, end, body = CALL.partition(b"\r\n\r\n")
    return head + f"\r\nAuthorization: Bearer {credential}".encode() + end + body


def made_key(path: Path) -> str:
    from pegboard.auth.keys import KeyStore

    key = KeyStore(path).add("bench")[0]
    # A file that was written a moment ago is read anew each time.
    os.utime(path, (0, 0))
    return key


@contextmanager
def issuer() -> Iterator[tuple[str, str]]:
    """Publish a key on loopback; give its address, and a token that was signed with it."""
    import jwt
    from cryptography.hazmat.primitives.asymmetric import rsa
    from jwt.algorithms import RSAAlgorithm

    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = {**RSAAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": "one", "use": "sig"}
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 3_600}
    token = jwt.encode(claims, private, algorithm="RS256", headers={"kid": "one"})

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = orjson.dumps({"keys": [public]})
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name

    with HTTPServer(("127.0.0.1", 0), Keys) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/jwks", token
        server.shutdown()


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """Run a Redis of its own on loopback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(500):
            with socket.socket() as asking:
                if asking.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.01)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


# ---- servers: this module run as a program ---------------------------------------------------------------------------


def main(kind: str, given: str = "", count: str = "10") -> None:
    from pegboard import run_http
    from pegboard.auth.claim_templates import Template
    from pegboard.auth.rules import IdentityRules, MapRule, TokenRules

    store: Any = None
    if kind == REDIS:
        from pegboard.limits.redis_store import RedisLimitStore

        store = RedisLimitStore(given)
    catalog = bench_catalog(int(count), limit_store=store)
    user, all_tools = Template("ann"), (Template("all"),)
    if kind == KEY:
        rule = MapRule(key="bench", user=user, profiles=all_tools)
        catalog.identity = IdentityRules(key_store=Path(given), map=(rule,))
    elif kind == TOKEN:
        tokens = TokenRules(issuer=ISSUER, audience=AUDIENCE, jwks_url=given)
        catalog.identity = IdentityRules(
            tokens=tokens, map=(MapRule(claims={"sub": "*"}, user=user, profiles=all_tools),)
        )
    run_http(catalog, port=0, on_ready=lambda address: print(address.split(":")[2].partition("/")[0], flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
