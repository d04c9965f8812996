"""What is missing on Windows is not needed to import Pegboard, nor for the command line and MCP over HTTP.

A child process hides it; it was not tried on a real Windows.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHILD = r'''
import asyncio, contextlib, importlib, io, json, os, pkgutil, signal, sys, threading, urllib.request

# These look at the platform itself, and take other modules there.
import mcp.client, mcp.server, platformdirs

MODULES = {"fcntl", "resource", "uvloop", "pwd", "grp", "termios", "tty", "pty", "syslog"}
OF_OS = """getuid geteuid getgid getegid getgroups fork forkpty setsid killpg getpgid setpgid getpgrp register_at_fork
    wait3 wait4 waitid chown lchown fchown mkfifo mknod getloadavg setuid setgid O_NOFOLLOW O_DIRECTORY O_CLOEXEC
    O_NONBLOCK O_NOCTTY sysconf pread pwrite WNOHANG posix_spawn pidfd_open fchmod get_blocking set_blocking""".split()
OF_SIGNAL = """SIGKILL SIGHUP SIGALRM SIGCHLD SIGUSR1 SIGUSR2 SIGPIPE SIGQUIT SIGSTOP SIGCONT SIGXCPU setitimer
    pthread_sigmask pthread_kill sigwait""".split()


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in MODULES else real(name, package)
sys.meta_path.insert(0, Hidden())
for name in MODULES:
    sys.modules.pop(name, None)
for owner, names in ((os, OF_OS), (signal, OF_SIGNAL)):
    for name in names:
        if hasattr(owner, name):
            delattr(owner, name)
def refuse(*_args):
    raise NotImplementedError
asyncio.SelectorEventLoop.add_signal_handler = asyncio.SelectorEventLoop.remove_signal_handler = refuse

seen = {}
import pegboard
failed = {}
for module in pkgutil.walk_packages(pegboard.__path__, "pegboard."):
    # The reaper and __main__ are programs; and posix is what is taken elsewhere.
    # What loads the frameworks of others takes as long as all else, and is theirs.
    if module.name.endswith(("__main__", "reaper_child", "platforms.posix")) or ".adapters." in module.name:
        continue
    try:
        importlib.import_module(module.name)
    except BaseException as error:
        failed[module.name] = f"{type(error).__name__}: {error}"
seen["failed"] = failed

from pegboard.cli import main

def cli(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return [code, out.getvalue(), err.getvalue()]

seen["init"] = cli("init", "new")
os.chdir("new")
with open("keyed.yaml", "w") as file:
    file.write("profiles: {chat: {}}\nidentity: {api_keys: {store: 'sqlite:./keys.db'}, "
               "map: [{when: {key: ann}, user: ann, profiles: [chat]}]}\n")
for words in (["check"], ["list", "--json"], ["call", "word_count", "text=a b", "--json"],
              ["export", "--target", "mcp"],
              ["keys", "add", "ann", "--config", "keyed.yaml"], ["doctor"], ["check", "--strict"]):
    seen[" ".join(words[:1] + words[-1:])] = cli(*words)
for name, tool in (
    ("stdio", "{name: s, type: mcp, mcp: {transport: stdio, command: cat}}"),
    ("files", "{name: read_file, type: builtin, config: {roots: [.]}}"),
    ("page", "{name: web_scrape, type: builtin}"),
):
    with open(f"{name}.yaml", "w") as file:
        file.write(f"tools: [{tool}]\n")
    seen[name] = cli("check", f"{name}.yaml")

from pegboard import Catalog, run_http
catalog = Catalog("w")

@catalog.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

def visit(address):
    try:
        base = address.removesuffix("/mcp")
        request = urllib.request.Request(base + "/v1/tools/add/call", b'{"a": 1, "b": 2}',
                                         {"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            seen["http"] = json.load(answer)
        with urllib.request.urlopen(base + "/") as answer:
            seen["page_text"] = answer.read().decode()
        seen["mcp"] = raw(address)
    except BaseException as error:
        seen["visit"] = f"{type(error).__name__}: {error}"
    finally:
        signal.raise_signal(signal.SIGINT)

def raw(address):
    import http.client
    host = address.partition("//")[2].partition("/")[0]
    connection = http.client.HTTPConnection(host)
    def ask(id, method, **params):
        body = json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream", **session}
        connection.request("POST", "/mcp", body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        if "mcp-session-id" in {name.lower() for name in answer.headers}:
            session["mcp-session-id"] = answer.headers["mcp-session-id"]
        return json.loads(text.partition("data: ")[2] or text)
    session = {}
    ask(1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "t", "version": "1"})
    return ask(2, "tools/call", name="add", arguments={"a": 2, "b": 3})

run_http(catalog, port=0, on_ready=lambda address: threading.Thread(target=visit, args=(address,)).start())
seen["ended"] = True
with open(sys.argv[1], "w") as file:
    json.dump(seen, file)
'''


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process saw that has nothing of what is missing on Windows."""
    folder = tmp_path_factory.mktemp("windows")
    script = folder / "child.py"
    script.write_text(CHILD, encoding="utf-8")
    answer = folder / "seen.json"
    ended = subprocess.run(
        [sys.executable, str(script), str(answer)],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert answer.exists(), ended.stderr[-3000:]
    return json.loads(Path(answer).read_text(encoding="utf-8"))


def test_every_module_imports_without_what_windows_lacks(seen: dict[str, Any]) -> None:
    assert seen["failed"] == {}


def test_the_command_line_works_without_what_windows_lacks(seen: dict[str, Any]) -> None:
    assert seen["init"][0] == 0
    assert seen["check check"][:2] == [0, "OK: 2 tools, 2 profiles, 2 groups, 1 predicate, 0 sources\n"]
    assert json.loads(seen["list --json"][1])["tools"]
    assert '"structured": 2' in seen["call --json"][1]
    assert seen["export mcp"][0] == 0
    assert seen["keys keyed.yaml"][0] == 0
    assert seen["doctor doctor"][0] == 0


def test_http_and_mcp_over_http_serve_without_what_windows_lacks_until_a_signal(seen: dict[str, Any]) -> None:
    assert "visit" not in seen, seen["visit"]
    assert seen["http"]["structuredContent"] == 3
    assert seen["mcp"]["result"]["structuredContent"] == {"result": 5}
    assert "/mcp" in seen["page_text"]
    assert seen["ended"]


def test_what_cannot_work_on_windows_is_refused_by_name(seen: dict[str, Any]) -> None:
    assert seen["stdio"][0] == 2
    assert "`transport: stdio` starts a program, and programs are not started on Windows" in seen["stdio"][1]
    assert seen["files"][0] == 2
    assert "files are not opened on Windows" in seen["files"][1]
    assert seen["check --strict"][0] == 2
    refusal = "Pegboard cannot determine on Windows which users may write a file; leave out --strict"
    assert refusal in seen["check --strict"][1]


def test_stdio_serves_a_session_without_what_windows_lacks(tmp_path: Path) -> None:
    hiding = CHILD.partition("seen = {}")[0]
    script = tmp_path / "child.py"
    script.write_text(f'{hiding}\nfrom pegboard.cli import main\nsys.exit(main(["serve", "--stdio"]))\n')
    tools = "tools: [{name: datetime_now, type: builtin}]\nprofiles: {default: {include: [core]}}\n"
    (tmp_path / "pegboard.yaml").write_text(tools)
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list", "params": {}},
        {"id": 3, "method": "tools/call", "params": {"name": "datetime_now", "arguments": {}}},
    ]
    ended = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        input="".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    begun, listed, called = (json.loads(line)["result"] for line in ended.stdout.splitlines())
    assert begun["protocolVersion"] == "2025-06-18"
    assert [tool["name"] for tool in listed["tools"]] == ["datetime_now"]
    assert called["structuredContent"]["timezone"] == "UTC"
