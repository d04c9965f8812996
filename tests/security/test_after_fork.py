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


# What other threads and a loop of the parent are in the middle of when it forks; then the child is used, and closed.
BUSY = """
import asyncio, faulthandler, json, os, sys, threading, time
from pathlib import Path
from pegboard import Bounds, Catalog, Tasks, ToolContext
from pegboard.model.source_state import SourceState

faulthandler.dump_traceback_later(100, exit=True)
case, folder = sys.argv[1], Path(sys.argv[2])
catalog = Catalog(
    bounds=Bounds(calls_in_flight=8), tasks=Tasks(f"sqlite:{folder}/tasks.db" if case == "stored_tasks" else "memory")
)
begun, go_on = threading.Event(), threading.Event()

def blocked():
    # In a thread of the parent alone.
    if threading.current_thread().name == "busy":
        begun.set()
        go_on.wait(50)

@catalog.tool
def plain(n: int) -> int:
    return n + 1

@catalog.tool
async def wait() -> str:
    await asyncio.sleep(100)
    return "over"

@catalog.tool(task="optional")
async def later(n: int) -> int:
    with (folder / "ran").open("a") as log:
        log.write(f"{n} {os.getpid()}\\n")
    return n

class Slow(dict):
    def get(self, name, default=None):
        blocked()
        return super().get(name, default)

class Source:
    name = "slow"
    def entries(self):
        blocked()
        return ()
    def state(self): return SourceState(status="ok")
    def groups(self): return frozenset()
    def subscribe(self, notify): self.notify = notify
    async def start(self): pass
    async def stop(self, grace_s=0): pass

def view(user): return catalog.view(ToolContext(user_id=user, budget=None))

async def use(tag):
    said = {}
    result = await asyncio.wait_for(view("bob").call("plain", {"n": 1}), 20)
    said["plain"] = result.error.message if result.is_error else "fine"
    said["found"] = len((await asyncio.wait_for(catalog.search(view("bob"), "plain"), 20)).tools) > 0
    if case.endswith("tasks"):
        result = await asyncio.wait_for(view("bob").call("later", {"n": 5}, as_task=True), 20)
        said["later"] = result.error.message if result.is_error else "fine"
        while not result.is_error and (await catalog.tasks.get(result.task_id, view("bob").ctx)).state == "working":
            await asyncio.sleep(0.02)
    return said

async def child():
    said = {"used": await use("child")}
    began = time.monotonic()
    await catalog.close()
    return {**said, "closed_at_once": time.monotonic() - began < 5}

def fork():
    pid = os.fork()
    if pid == 0:
        try:
            said = asyncio.run(child())
        except BaseException as error:
            said = {"failed": repr(error)}
        (folder / "said").write_text(json.dumps(said))
        os._exit(0)
    os.waitpid(pid, 0)

def beside(code):
    thread = threading.Thread(target=code, name="busy")
    thread.start()
    assert begun.wait(50)
    return thread

async def main():
    said = {"before": await use("parent")}
    waits, thread = [], None
    if case == "calls":
        waits = [asyncio.create_task(view("ann").call("wait")) for _ in range(8)]
        while len(catalog.executor.in_flight) < 8: await asyncio.sleep(0)
    if case == "reading_sources":
        source = Source()
        catalog.add_source(source)
        thread = beside(catalog.registry.snapshot)
    if case == "reading_tools":
        catalog.discovery.finder.use_requests(Slow())
        thread = beside(lambda: catalog.discovery.finder._following(catalog.registry.snapshot()))
    await asyncio.to_thread(fork)
    go_on.set()
    if thread is not None: thread.join()
    for one in waits: one.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    said["after"] = await use("parent")
    await catalog.close(grace_s=0)
    print(json.dumps({**said, "child": json.loads((folder / "said").read_text())}))

asyncio.run(main())
"""


@pytest.mark.parametrize("case", ["calls", "reading_sources", "reading_tools", "kept_tasks", "stored_tasks"])
def test_a_child_of_a_busy_process_waits_for_nothing_that_goes_on_in_its_parent(tmp_path: Path, case: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUSY, case, str(tmp_path)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    fine = said["before"]
    assert fine == {"plain": "fine", "found": True, **({"later": "fine"} if case.endswith("tasks") else {})}
    assert said["after"] == fine
    used = said["child"].get("used", {})
    if case == "stored_tasks":
        # Who runs the tasks of a store is one process, and goes on doing so.
        assert "forked" in used.pop("later", ""), said["child"]
        assert used | {"later": "fine"} == fine
        assert len({line.split()[1] for line in (tmp_path / "ran").read_text().splitlines()}) == 1
    else:
        assert said["child"] == {"used": fine, "closed_at_once": True}
    assert said["child"].get("closed_at_once")
