"""`pegboard doctor` in an outage: each dead part has a row, and what was not checked is counted."""

import asyncio
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from psutil import NoSuchProcess, Process

from pegboard.config import Config
from pegboard.sources.mcp import supervised_source
from tests import forking
from tests.cli.conftest import Run
from tests.limits.server import redis_server
from tests.ports import free_port
from tests.server.processes import serving
from tests.timing import PATIENCE_S

API = {"openapi": "3.1.0", "paths": {"/": {"get": {"operationId": "look"}}}}
EVERY_STORE = {
    "audit", "connections", "consents", "conversations", "tasks", "documents", "api_keys", "budgets", "embedding_cache",
}  # fmt: skip


def config_with(*, http: str, redis: str, store: str) -> dict[str, Any]:
    """Return a config that depends on every kind of part."""
    return {
        "name": "acme",
        "rate_limits": {"store": redis},
        "budgets": {
            "store": f"{store}budgets.db" if store.startswith("sqlite") else store,
            "rules": {"all": {"per": "day", "calls": 9}},
        },
        "consents": {"store": f"{store}consents.db" if store.startswith("sqlite") else store},
        "connections": {"key": "k" * 32, "store": f"{store}people.db" if store.startswith("sqlite") else store},
        "audit": {"store": f"{store}audit.db" if store.startswith("sqlite") else store},
        "agents": {"store": f"{store}talks.db" if store.startswith("sqlite") else store},
        "tasks": {"store": f"{store}tasks.db" if store.startswith("sqlite") else store},
        "workspace": {"store": f"{store}docs.db" if store.startswith("sqlite") else store},
        "identity": {"api_keys": {"store": "sqlite:keys.db"}, "map": [{"when": {"key": "*"}, "profiles": ["chat"]}]},
        "profiles": {"chat": {"include": ["core"]}},
        "console": {"bodies": "operators"},
        "server": {"keys": ["k" * 32], "bus": redis},
        "models": {"default": {"provider": "openai_compatible", "base_url": f"{http}/v1", "name": "m"}},
        "discovery": {"embedder": {"type": "openai", "model": "e", "base_url": f"{http}/v1"}},
        "tools": [
            {"name": "shop", "type": "openapi", "openapi": {"spec": "shop.json", "base_url": http}},
            {"name": "hook", "type": "webhook", "description": "Send.", "webhook": {"url": f"{http}/{{id}}"},
             "parameters": {"id": {"type": "string", "required": True}}},
        ],
    }  # fmt: skip


@contextmanager
def listening() -> Iterator[str]:
    """Accept connections on loopback, and answer nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ending = threading.Event()

        def accept() -> None:
            while not ending.is_set():
                server.accept()[0].close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            ending.set()
            socket.create_connection(("127.0.0.1", port)).close()
            thread.join()


def rows_of(out: str) -> dict[str, tuple[str, bool]]:
    kinds = ("store", "bus", "server", "model")
    rows = [row for row in orjson.loads(out)["findings"] if row["kind"] in kinds]
    return {f"{row['kind']} {row['name'].partition(' (')[0]}": (row["state"], row["is_wrong"]) for row in rows}


def test_every_dead_store_bus_server_and_model_has_a_row_and_comes_back_with_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shop.json").write_text(json.dumps(API))
    config = tmp_path / "pegboard.yaml"
    away = f"http://127.0.0.1:{free_port()}"
    with redis_server(tmp_path) as redis, listening() as here:
        config.write_text(json.dumps(config_with(http=here, redis=redis.uri, store="sqlite:")))
        assert rows_of(run("doctor", "--json").out)["store api_keys"] == ("unreachable", True)
        assert run("keys", "add", "ann").code == 0
        ran = run("doctor", "--json")
        up = rows_of(ran.out)
        assert (ran.code, set(up.values())) == (0, {("ok", False)}), up
        redis.stop()
        nothing = f"postgresql://ann:canary-word@127.0.0.1:{free_port()}/x"
        config.write_text(json.dumps(config_with(http=away, redis=redis.uri, store=nothing)))
        ran = run("doctor", "--json")
    down = rows_of(ran.out)
    assert set(down) == set(up)
    # These two are files.
    alive = {"store api_keys", "store embedding_cache"}
    assert {name for name, row in down.items() if row == ("ok", False)} == alive
    assert {row for name, row in down.items() if name not in alive} == {("unreachable", True)}
    assert (ran.code, "canary-word" in ran.out + ran.err) == (1, False)
    assert {name.removeprefix("store ") for name in up if name.startswith("store ")} == {
        *EVERY_STORE, "limits",
    }  # fmt: skip


def test_the_last_sentence_counts_what_was_not_checked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shop.json").write_text(json.dumps(API))
    with listening() as here:
        tool = {"name": "shop", "type": "openapi", "openapi": {"spec": "shop.json", "base_url": here}}
        (tmp_path / "pegboard.yaml").write_text(json.dumps({"tools": [tool]}))
        ran = run("doctor")
        assert ran.code == 0
        last = ran.out.rstrip().rpartition("\n\n")[2]
        assert last == "All that was checked works; 1 was not checked: credentials of servers and models."
        assert orjson.loads(run("doctor", "--json").out)["not_checked"] == 1


@pytest.mark.parametrize("fault", ["no database", "a folder"])
def test_a_store_file_that_cannot_be_written_is_wrong_and_no_probe_creates_one(
    run: Run, tmp_path: Path, fault: str
) -> None:
    file = tmp_path / "consents.db"
    (tmp_path / "pegboard.yaml").write_text(json.dumps({"consents": {"store": "sqlite:consents.db"}}))
    assert rows_of(run("doctor", "--json").out) == {"store consents": ("ok", False)}
    assert not file.exists()
    if fault == "a folder":
        file.mkdir(mode=0o700)
    else:
        file.write_text("not a database " * 100)
        file.chmod(0o600)
    ran = run("doctor", "--json")
    assert (ran.code, rows_of(ran.out)) == (1, {"store consents": ("unreachable", True)})


@pytest.mark.soak  # mounts a file system
def test_a_full_disk_is_told_for_every_store_on_it_and_so_is_its_end(run: Run, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "shop.json").write_text(json.dumps(API))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(disk)], check=True)
    try:
        with redis_server(tmp_path) as redis, listening() as here:
            config = config_with(http=here, redis=redis.uri, store="sqlite:disk/")
            config["identity"]["api_keys"]["store"] = "sqlite:disk/keys.db"
            (tmp_path / "pegboard.yaml").write_text(json.dumps(config))
            assert run("keys", "add", "ann").code == 0
            with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(b"x" * 4096)
            full = orjson.loads(run("doctor", "--json").out)["findings"]
            (disk / "filler").unlink()
            after = rows_of(run("doctor", "--json").out)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    told = {row["name"] for row in full if "the disk is full (0 KiB are free)" in row["detail"]}
    assert told >= EVERY_STORE - {"embedding_cache"}
    assert set(after.values()) == {("ok", False)}


def test_doctor_has_a_row_for_each_receiver_without_the_token_in_its_address(run: Run, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/canary-word"
    alerts = [
        {"on": ["down"], "to": url, "secret": "what we know"},
        {"on": ["down"], "to": {"command": ["no-such-program-here", "canary-word"]}},
        {"on": ["down"], "to": {"command": ["cat", "canary-word"]}},
    ]
    (tmp_path / "pegboard.yaml").write_text(json.dumps({"alerts": alerts}))
    ran = run("doctor", "--json")
    rows = {row["name"]: row["state"] for row in orjson.loads(ran.out)["findings"] if row["kind"] == "server"}
    assert rows == {
        f"of an alert ({url.removesuffix('/canary-word')})": "unreachable",
        "of an alert (no-such-program-here)": "unreachable",
        "of an alert (cat)": "ok",
    }
    assert ran.code == 1
    assert "canary-word" not in ran.out + ran.err


def test_an_mcp_server_that_accepts_connections_and_stays_silent_has_a_row_after_a_probe(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised_source, "PROBE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        mcp = {"transport": "http", "url": f"http://127.0.0.1:{server.getsockname()[1]}/mcp"}
        (tmp_path / "pegboard.yaml").write_text(json.dumps({"tools": [{"name": "notes", "type": "mcp", "mcp": mcp}]}))
        ran = run("doctor", "--json")
    (row,) = [row for row in orjson.loads(ran.out)["findings"] if row["kind"] == "source"]
    assert (ran.code, row["state"], row["detail"]) == (1, "unreachable", "it did not answer within 0.3 s")
    assert row["to_do"] == "See that it runs, and what its own log says. If it only starts slowly, run this again."


# Answers what a client asks before its first call, without the SDK, whose import takes a second.
NOTES = f"""#!{sys.executable}
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        version = message["params"]["protocolVersion"]
        info = {{"name": "notes", "version": "1"}}
        result = {{"protocolVersion": version, "capabilities": {{"tools": {{}}}}, "serverInfo": info}}
    elif message.get("method") == "tools/list":
        result = {{"tools": [{{"name": "read", "inputSchema": {{"type": "object"}}}}]}}
    elif message.get("method") == "ping":
        result = {{}}
    else:
        if "id" in message:
            error = {{"code": -32601, "message": "unknown"}}
            print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "error": error}}), flush=True)
        continue
    print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
async def test_a_stopped_program_of_a_running_server_has_a_row_and_the_programs_of_others_have_none(
    tmp_path: Path,
) -> None:
    # Declared without arguments, and a stranger has the same word in its command line.
    program = tmp_path / "python"
    program.write_text(NOTES)
    program.chmod(0o700)
    mcp = {"transport": "stdio", "command": str(program), "cwd": "."}
    (tmp_path / "pegboard.yaml").write_text(json.dumps({"tools": [{"name": "notes", "type": "mcp", "mcp": mcp}]}))

    async def rows() -> list[tuple[str, str, str]]:
        ran = await asyncio.to_thread(forking.run, ["pegboard", "doctor", "--json"], cwd=tmp_path)
        found = orjson.loads(ran.stdout)["findings"]
        return [(row["name"], row["state"], row["detail"]) for row in found if row["kind"] == "source"]

    # `cat - python` reads its input first, and so stays.
    stranger = await asyncio.create_subprocess_exec("cat", "-", "python", stdin=subprocess.PIPE)
    async with serving(tmp_path) as server:
        async with asyncio.timeout(PATIENCE_S):
            while not (pids := _pids_of(program, server.pid)):
                await asyncio.sleep(0.02)
        (pid,) = pids
        for each in (pid, stranger.pid):
            os.kill(each, signal.SIGSTOP)
        stopped = await rows()
        os.kill(pid, signal.SIGCONT)
        running = await rows()
    stranger.kill()
    await stranger.wait()
    well = ("notes", "ok", "1 tool")
    text = f"process {pid} of its program was stopped by a signal, so it does not answer"
    assert stopped == [well, ("notes", "stopped", text)]
    assert running == [well]


def _pids_of(program: Path, server: int) -> list[int]:
    with suppress(NoSuchProcess):
        return [each.pid for each in Process(server).children(True) if str(program) in each.cmdline()]
    return []


# What a probe answers for, and what needs none; a new section of the config must be put into one of them.
PROBED = {
    "tools", "agents", "agent_store", "models", "embedder", "learn", "passage_embedder", "limit_store",
    "consent_store", "connections", "server", "identity", "workspace", "tasks", "audit", "alerts", "budgets",
}  # fmt: skip
NEEDS_NONE = {
    "path", "files", "globs", "env", "name", "python", "settings", "secrets", "defaulted", "predicates", "groups",
    "profiles", "hooks", "examples", "bounds", "default_limit", "console", "consent_page", "skills", "lint_ignores",
    "warnings", "open_files", "refused", "kinds", "imports", "strict", "left_out",
}  # fmt: skip


def test_every_section_of_the_config_is_probed_or_needs_no_probe() -> None:
    assert {field.name for field in dataclasses.fields(Config)} == PROBED | NEEDS_NONE
