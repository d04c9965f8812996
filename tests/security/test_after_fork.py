"""A catalog that was used before its process forked: in the child it works, or says what to do."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EVIL = Path(__file__).parents[1] / "evil" / "server.py"
# Used by a parent with threads, connections and a server; then by its child, in a loop of its own; then by both.
PROGRAM = """
import asyncio, faulthandler, json, multiprocessing, os, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pegboard import context_for, load_catalog
from pathlib import Path

faulthandler.dump_traceback_later(100, exit=True)
config_path, how = Path(sys.argv[1]), sys.argv[2]
catalog, config = load_catalog(config_path, env={})
url = "http://localhost:%s/" % sys.argv[3]
CALLS = [
    ("plain", {"n": 1}), ("sql_query", {"query": "select 1"}), ("up__echo", {"text": "x"}),
    ("json_transform", {"data": {"a": 1}, "expression": "a"}), ("cache_store", {"action": "get", "key": "k"}),
    ("http_request", {"method": "GET", "url": url}),
]

async def use():
    view = catalog.view(context_for(config, user="ann", space="s"))
    said = {}
    for name, arguments in CALLS:
        result = await asyncio.wait_for(view.call(name, arguments), 30)
        said[name] = result.error.message if result.is_error else "fine"
    return said

async def begin():
    await catalog.start()
    for source in catalog.registry.sources.values():
        await source.listed()
    return await use()

async def child():
    said = {"inherited": await use(), "started": await begin()}
    await catalog.close()
    return said

def in_child():
    Path(sys.argv[4]).write_text(json.dumps(asyncio.run(child())))

loop = asyncio.new_event_loop()
before = loop.run_until_complete(begin())
if how == "multiprocessing":
    forked = multiprocessing.get_context("fork").Process(target=in_child)
    forked.start(); forked.join()
else:
    pid = os.fork()
    if pid == 0:
        in_child()
        os._exit(0)
    os.waitpid(pid, 0)
after = loop.run_until_complete(use())
loop.run_until_complete(catalog.close())
print(json.dumps({"before": before, "after": after, **json.loads(Path(sys.argv[4]).read_text())}))
"""
MINE = "def plain(n: int) -> int:\n    return n + 1\n"


@pytest.mark.parametrize("how", ["multiprocessing", "preloading"])
def test_a_used_catalog_works_in_a_forked_child_or_says_what_to_do(tmp_path: Path, how: str) -> None:
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("create table t(x)")
    (tmp_path / "mine.py").write_text(MINE)
    tools: list[dict[str, Any]] = [
        {"name": "plain", "type": "internal", "handler": "python:mine:plain"},
        {"name": "json_transform", "type": "builtin"},
        {"name": "cache_store", "type": "builtin"},
        {"name": "http_request", "type": "builtin", "config": {"allow_private": True, "allow_hosts": ["*"]}},
        {"name": "sql_query", "type": "builtin", "config": {"connection_string": f"sqlite:///{tmp_path}/a.db"}},
        {
            "name": "up", "type": "mcp",
            "mcp": {"transport": "stdio", "command": sys.executable, "args": [str(EVIL)], "trust": "any"},
        },
    ]  # fmt: skip
    config = tmp_path / "pegboard.yaml"
    config.write_text(json.dumps({"tools": tools}))
    web = subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert web.stdout is not None
        port = web.stdout.readline().split(" port ")[1].split()[0]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(config), how, port, str(tmp_path / "said")],
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
    finally:
        web.kill()
        web.communicate()
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    fine = dict.fromkeys(said["before"], "fine")
    inherited = said.pop("inherited")
    assert said == {"before": fine, "started": fine, "after": fine}
    assert "await catalog.start()" in inherited.pop("up__echo")
    assert set(inherited.values()) == {"fine"}
