"""What `pegboard demo` shows, as a newcomer runs it: in a process of its own, with a real client over HTTP."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from mcp import Client

from tests import forking

DEMO = [sys.executable, "-c", "import sys; from pegboard.cli import main; sys.exit(main())", "demo"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody whose home is empty."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(tmp_path)}


def test_demo_once_shows_both_callers_and_every_guard(env: dict[str, str], tmp_path: Path) -> None:
    ended = subprocess.run([*DEMO, "--once"], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    shown = ended.stdout
    assert re.search(r"reader 6 tools: list_pages, ", shown)
    assert re.search(r"editor 7 tools: list_pages, .*replace_text", shown)
    assert "reader: replace_text is hidden, code 'group'" in shown
    assert "fix:  include 'editing'\n    then: visible" in shown
    assert "fix:  remove ['publish'] from deny\n    then: code 'factory': no factory 'publisher'" in shown
    for expected in (
        '[{"page":',
        "$.depth: the value is greater than the maximum of 6",
        "JSON-RPC error -32602: No tool named 'replace_text' is available to this caller.",
        "JSON-RPC error -32602: No tool named 'no_such_tool' is available to this caller.",
        "Decisions are never edited.",
        "call 5: ok\n    call 6: 'search_docs' is temporarily unavailable",
        "a person must agree first",
        "a person declined it",
        '{"page":"glossary.md","replaced":1',
        "-# Glossary\n      +# Words",
        "the publisher was given: glossary.md",
        "7 files of ",
        '"name":"passwords.pdf"',
        '["south",3,2176.0],["north",4,3068.2],["west",3,3806.6]',
        "You have thirty days of holiday a year.",
        '{"hits":[],"mode_used":"keyword","truncated":false}',
        "Ask find_by_name for what there is.",
        "1 × search_docs rate_limited",
    ):
        assert expected in shown
    assert list(tmp_path.iterdir()) == []


def test_demo_serves_on_until_it_is_interrupted(env: dict[str, str], tmp_path: Path) -> None:
    with _running(env, tmp_path) as demo:
        assert demo.stdout is not None
        shown = ""
        for line in demo.stdout:
            shown += line
            if line == "Ctrl-C ends it.\n":
                break
        address = re.findall(r"Connect a client of yours to (\S+),", shown)[0]

        names = _tool_names(address)
        console = re.findall(r"Console, for people: (\S+)", shown)[0]
        with urlopen(console) as page:
            assert "Open the console" in page.read().decode()
        demo.send_signal(signal.SIGINT)

        assert "show_changes" in names
        assert demo.wait(timeout=60) == 0
        assert demo.stdout.read() == "Stopped.\n"


def test_demo_can_be_interrupted_in_the_middle(env: dict[str, str], tmp_path: Path) -> None:
    with _running(env, tmp_path, "--once") as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if line == "Guarded calls\n":
                break
        demo.send_signal(signal.SIGINT)

        assert demo.wait(timeout=60) == 0
        assert demo.stdout.read().endswith("Stopped.\n")


def test_demo_says_when_its_port_is_taken(env: dict[str, str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = forking.run(["pegboard", "demo", "--port", port], env=env, cwd=tmp_path)

    assert ended.returncode == 2
    assert b"cannot be listened on" in ended.stderr


def test_demo_ends_quietly_when_nobody_reads_on(env: dict[str, str], tmp_path: Path) -> None:
    with _running(env, tmp_path, "--once") as demo:
        assert demo.stdout is not None
        demo.stdout.readline()
        demo.stdout.close()

        assert demo.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("port", "said"),
    [
        ("x", b"port"),
        ("99999", b"is not a port; choose one from 1 to 65535"),
        ("-1", b"is not a port; choose one from 1 to"),
    ],
)
def test_a_port_that_is_none_is_a_usage_error(env: dict[str, str], tmp_path: Path, port: str, said: bytes) -> None:
    ended = forking.run(["pegboard", "demo", f"--port={port}"], env=env, cwd=tmp_path)

    assert ended.returncode == 2
    assert said in ended.stderr


def _tool_names(address: str) -> list[str]:
    async def names() -> list[str]:
        async with Client(address) as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    return asyncio.run(names())


@contextmanager
def _running(env: dict[str, str], folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = forking.started("pegboard", "demo", *words)
    demo = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        yield demo
    finally:
        demo.kill()
        demo.wait()
        if demo.stdout is not None:
            demo.stdout.close()
