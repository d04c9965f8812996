"""Outages: the parts that can be away, how each is taken away, and what must be told of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID
from msgspec import Struct, field
from msgspec.structs import replace
from psutil import Process

from pegboard.auth.keys import KeyStore
from tests import forking
from tests.limits.server import RedisServer
from tests.operate.world import ALERTS, API, FUNCTIONS, WAITS, Database, Relay, Served, Web, World
from tests.ports import free_port
from tests.server.processes import serving

Step = Callable[[World], Awaitable[None]]
KEY = "k" * 32
AGENT = {
    "apiVersion": "pegboard/v1",
    "kind": "Agent",
    "metadata": {"name": "helper", "version": "0.1.0"},
    "spec": {"prompts": {"system": "You help."}},
}


class Parts:
    """Starts the servers that a config uses, in the folder of the test."""

    def __init__(self, folder: Path, superuser_url: str, name: str, stack: AsyncExitStack) -> None:
        self.folder, self._superuser_url, self._name, self.stack = folder, superuser_url, name, stack
        self.env: dict[str, str] = {}
        self.address: str | None = None
        """Where `forking` forks from."""

    async def redis(self) -> RedisServer:
        server = RedisServer(self.folder)
        await asyncio.to_thread(server.start)
        self.stack.callback(server.stop)
        return server

    async def database(self) -> Database:
        database = await asyncio.to_thread(Database, self._superuser_url, f"outage_{self._name}")
        await database.relay.mend()
        self.stack.push_async_callback(database.relay.cut)
        return database

    async def web(self) -> Web:
        web = Web()
        await web.start()
        self.stack.push_async_callback(web.stop)
        return web


Way = Literal["killed", "stopped", "misaddressed", "removed", "absent"]
"""`stopped` is a part that keeps its connections and answers nothing, as a program after SIGSTOP or on a lost network;
`misaddressed` is a config, taken by a reload, with the address of a part where nothing is; `removed` is a file that was
deleted; `absent` is an address where nothing is when the server starts."""


class Prepared(Struct, frozen=True, kw_only=True):
    """The sections of a config that use a part, and the steps that take it away and bring it back.

    `ways` has the steps of the ways other than `killed`. `cut` takes the part away before the config is served, and
    `end` brings it back.
    """

    config: dict[str, Any]
    begin: Step
    end: Step
    ways: Mapping[Way, tuple[Step, Step]] = field(default_factory=dict[Way, tuple[Step, Step]])
    cut: Callable[[], Awaitable[None]] | None = None

    def steps(self, way: Way) -> tuple[Step, Step]:
        return self.ways.get(way, (self.begin, self.end))


class Outage(Struct, frozen=True, kw_only=True):
    """One part that can be away. `tool` is called meanwhile; the other texts must occur in what is seen, by channel."""

    title: str
    prepare: Callable[[Parts], Awaitable[Prepared]]
    tool: str = "add"
    arguments: Mapping[str, Any] = field(default_factory=lambda: {"a": 1, "b": 2})
    well: str = "200 ok"
    doctor: str
    doctor_ways: Mapping[Way, str] = field(default_factory=dict[Way, str])
    """What occurs in a row of `doctor` instead, by way."""
    readyz: str = "200 ready"
    metric: str
    log: str
    log_over: str
    alert: str
    call: str
    options: tuple[str, ...] = ()

    def is_well(self, served: Served) -> bool:
        return served.readyz == "200 ready" and served.call.startswith(self.well)

    def is_told(self, served: Served, way: Way = "killed") -> bool:
        told = (
            (self.metric, served.metrics), (self.log, served.log), (self.alert, served.alerts),
            (self.readyz, (served.readyz,)), (self.call if way == "killed" else "", (served.call,)),
        )  # fmt: skip
        if way == "killed" and served.call == WAITS:
            return False
        return all(any(text in each for each in texts) for text, texts in told)

    def is_over(self, served: Served) -> bool:
        return (
            self.is_well(served)
            and not served.metrics
            and any("over:" in alert for alert in served.alerts)
            and any(self.log_over in line for line in served.log)
        )


@asynccontextmanager
async def world_of(
    outage: Outage, folder: Path, superuser_url: str, name: str, way: Way = "killed"
) -> AsyncGenerator[tuple[World, Prepared]]:
    """Serve the config of an outage for the time of the block."""
    async with AsyncExitStack() as stack:
        parts = Parts(folder, superuser_url, name, stack)
        prepared = await outage.prepare(parts)
        if way == "absent":
            assert prepared.cut is not None
            await prepared.cut()
        (folder / "outage_tools.py").write_text(FUNCTIONS)
        receiver = {"on": ALERTS, "to": {"command": ["sh", "-c", "cat >> alerts.jsonl; echo >> alerts.jsonl"]}}
        config = {"name": "shop", "python": ["outage_tools"], "alerts": [receiver], **prepared.config}
        (folder / "pegboard.yaml").write_text(orjson.dumps(config).decode())
        options = ("--log-format", "json", "--log-level", "warning", *outage.options)
        if way == "misaddressed":
            options += ("--reload",)
        server = await stack.enter_async_context(serving(folder, *options, env=parts.env, address=parts.address))
        world = World(folder, server, tool=outage.tool, arguments=outage.arguments, env=parts.env)
        world.address = parts.address
        stack.push_async_callback(world.end)
        yield world, prepared


def _misaddressed(right: str) -> tuple[Step, Step]:
    """Return the steps that write another port into the config, and the right one again."""
    return _renamed(right, f"{right.rpartition(':')[0]}:{free_port()}")


def _renamed(right: str, wrong: str) -> tuple[Step, Step]:
    """Return the steps that replace a text of the config, and write it again."""

    def swap(world: World, old: str, new: str) -> None:
        file = world.folder / "pegboard.yaml"
        text = file.read_text()
        assert old in text
        # In one step, since a reload may read it at any moment.
        (world.folder / "new.yaml").write_text(text.replace(old, new))
        (world.folder / "new.yaml").rename(file)

    async def begin(world: World) -> None:
        swap(world, right, wrong)

    async def end(world: World) -> None:
        swap(world, wrong, right)

    return begin, end


def _removed(name: str) -> tuple[Step, Step]:
    """Return the steps that move a file away, and back."""

    async def begin(world: World) -> None:
        (world.folder / name).rename(world.folder / f"{name}.away")

    async def end(world: World) -> None:
        (world.folder / f"{name}.away").rename(world.folder / name)

    return begin, end


def _relayed(relay: Relay, address: str) -> Mapping[Way, tuple[Step, Step]]:
    """Return the other ways to lose a server behind a relay."""

    async def freeze(_: World) -> None:
        relay.freeze()

    async def mend(_: World) -> None:
        await relay.mend()

    return {"stopped": (freeze, mend), "misaddressed": _misaddressed(address)}


def _redis(section: Callable[[str], dict[str, Any]]) -> Callable[[Parts], Awaitable[Prepared]]:
    async def prepare(parts: Parts) -> Prepared:
        server = await parts.redis()

        async def begin(_: World) -> None:
            await asyncio.to_thread(server.stop)

        async def end(_: World) -> None:
            await asyncio.to_thread(server.start)

        async def freeze(_: World) -> None:
            server.freeze()

        async def thaw(_: World) -> None:
            server.thaw()

        ways: dict[Way, tuple[Step, Step]] = {"stopped": (freeze, thaw), "misaddressed": _misaddressed(server.uri)}
        cut = partial(asyncio.to_thread, server.stop)
        return Prepared(config=section(server.uri), begin=begin, end=end, ways=ways, cut=cut)

    return prepare


def _postgres(section: Callable[[str], dict[str, Any]]) -> Callable[[Parts], Awaitable[Prepared]]:
    async def prepare(parts: Parts) -> Prepared:
        database = await parts.database()

        async def begin(_: World) -> None:
            await database.relay.cut()

        async def end(_: World) -> None:
            await database.relay.mend()

        ways = _relayed(database.relay, database.address)
        return Prepared(config=section(database.uri), begin=begin, end=end, ways=ways, cut=database.relay.cut)

    return prepare


def _web(section: Callable[[str], dict[str, Any]], **files: object) -> Callable[[Parts], Awaitable[Prepared]]:
    async def prepare(parts: Parts) -> Prepared:
        web = await parts.web()
        relay = Relay(web.port)
        await relay.mend()
        parts.stack.push_async_callback(relay.cut)
        address = f"127.0.0.1:{relay.port}"
        for name, content in files.items():
            (parts.folder / f"{name}.json").write_bytes(orjson.dumps(content))

        async def begin(_: World) -> None:
            await relay.cut()

        async def end(_: World) -> None:
            await relay.mend()

        ways = _relayed(relay, address)
        return Prepared(config=section(f"http://{address}"), begin=begin, end=end, ways=ways, cut=relay.cut)

    return prepare


def _with_keys(parts: Parts, file: str) -> dict[str, Any]:
    parts.env["CALLER_KEY"] = KeyStore(parts.folder / file).add("ann")[0]
    rule = {"when": {"key": "ann"}, "user": "ann", "profiles": ["all"], "roles": ["operator"]}
    return {
        "identity": {"api_keys": {"store": f"sqlite:{file}"}, "map": [rule]},
        "groups": {"core": "All"},
        "profiles": {"all": {"include": ["core"]}},
    }


async def _keys(parts: Parts) -> Prepared:
    path, aside = parts.folder / "keys.db", parts.folder / "aside.db"
    config = _with_keys(parts, "keys.db")

    async def begin(_: World) -> None:
        path.rename(aside)
        path.write_text("not a database " * 100)
        path.chmod(0o600)

    async def end(_: World) -> None:
        aside.rename(path)

    ways: dict[Way, tuple[Step, Step]] = {"misaddressed": _renamed("sqlite:keys.db", "sqlite:elsewhere.db")}
    return Prepared(config=config, begin=begin, end=end, ways=ways)


NOTES = '''
import os, sys
if os.path.exists({down!r}):
    sys.exit("the disk of the notes is gone")
from mcp.server.mcpserver import MCPServer
server = MCPServer("notes")
@server.tool()
def read(title: str) -> str:
    """Read a note."""
    return title
server.run()
'''


async def _mcp_stdio(parts: Parts) -> Prepared:
    folder = parts.folder
    down = folder / "down"
    (folder / "notes.py").write_text(NOTES.format(down=str(down)))
    mcp = {"transport": "stdio", "command": sys.executable, "args": ["notes.py"], "cwd": "."}

    async def begin(world: World) -> None:
        down.touch()
        program_of(world).kill()

    async def end(_: World) -> None:
        down.unlink()

    async def freeze(world: World) -> None:
        program_of(world).suspend()

    async def thaw(world: World) -> None:
        program_of(world).resume()

    ways: dict[Way, tuple[Step, Step]] = {
        "stopped": (freeze, thaw), "misaddressed": _renamed("notes.py", "elsewhere.py"),
    }  # fmt: skip
    tools = [{"name": "notes", "type": "mcp", "mcp": mcp}]
    return Prepared(config={"tools": tools}, begin=begin, end=end, ways=ways)


def program_of(world: World) -> Process:
    (program,) = [each for each in Process(world.server.pid).children(True) if "notes.py" in each.cmdline()]
    return program


async def _mcp_http(parts: Parts) -> Prepared:
    upstream = parts.folder / "upstream"
    upstream.mkdir()
    (upstream / "upstream_tools.py").write_text(FUNCTIONS)
    (upstream / "pegboard.yaml").write_text('{"name": "upstream", "python": ["upstream_tools"]}')
    server = await parts.stack.enter_async_context(serving(upstream))
    relay = Relay(int(server.url.rpartition(":")[2]))
    await relay.mend()
    parts.stack.push_async_callback(relay.cut)

    async def begin(_: World) -> None:
        await relay.cut()

    async def end(_: World) -> None:
        await relay.mend()

    address = f"127.0.0.1:{relay.port}"
    mcp = {"transport": "http", "url": f"http://{address}/mcp"}
    tools = [{"name": "notes", "type": "mcp", "mcp": mcp}]
    ways = _relayed(relay, address)
    return Prepared(config={"tools": tools}, begin=begin, end=end, ways=ways, cut=relay.cut)


async def _config(parts: Parts) -> Prepared:
    async def begin(world: World) -> None:
        file = world.folder / "pegboard.yaml"
        file.write_text(file.read_text().replace('"shop"', '"shop", "tols": []'))

    async def end(world: World) -> None:
        file = world.folder / "pegboard.yaml"
        file.write_text(file.read_text().replace(', "tols": []', ""))

    ways: dict[Way, tuple[Step, Step]] = {"removed": _removed("pegboard.yaml")}
    return Prepared(config={}, begin=begin, end=end, ways=ways)


def certify(folder: Path, *, ends: datetime) -> None:
    """Write a new certificate with its key to `certificate.pem`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "shop")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(ends - timedelta(days=90)).not_valid_after(ends)
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + made.sign(key, SHA256()).public_bytes(pem)
    (folder / "new.pem").write_bytes(text)
    (folder / "new.pem").rename(folder / "certificate.pem")


async def _certificate(parts: Parts) -> Prepared:
    certify(parts.folder, ends=datetime.now(UTC) + timedelta(days=90))

    async def begin(world: World) -> None:
        certify(world.folder, ends=datetime.now(UTC) - timedelta(days=1))

    async def end(world: World) -> None:
        certify(world.folder, ends=datetime.now(UTC) + timedelta(days=90))

    ways: dict[Way, tuple[Step, Step]] = {"removed": _removed("certificate.pem")}
    return Prepared(config={}, begin=begin, end=end, ways=ways)


def _disk(section: Callable[[Parts], dict[str, Any]]) -> Callable[[Parts], Awaitable[Prepared]]:
    """Put a store on a small file system of its own, in the folder `disk`, and fill that."""

    async def prepare(parts: Parts) -> Prepared:
        disk = parts.folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(disk)], check=True)
        parts.stack.callback(subprocess.run, ["umount", "-l", str(disk)], check=True)

        async def begin(_: World) -> None:
            with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(b"x" * 4096)

        async def end(_: World) -> None:
            (disk / "filler").unlink()

        return Prepared(config=section(parts), begin=begin, end=end)

    return prepare


CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *out) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, out);
    long shift = 0;
    const char *name = getenv("CLOCK_SHIFT");
    FILE *file = id == CLOCK_REALTIME && name ? fopen(name, "r") : NULL;
    if (file) {
        if (fscanf(file, "%ld", &shift) == 1) out->tv_sec += shift;
        fclose(file);
    }
    return code;
}
"""


async def _clock(parts: Parts) -> Prepared:
    """Serve with a clock that reads its difference to the machine's from a file."""
    source, library, shift = (parts.folder / name for name in ("clock.c", "clock.so", "shift"))
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    parts.env["CLOCK_SHIFT"] = str(shift)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library))
        parts.address = forking.having("sched")

    async def begin(_: World) -> None:
        shift.write_text("-7200")

    async def end(_: World) -> None:
        shift.write_text("0")

    return Prepared(config={}, begin=begin, end=end)


def _store_of(kind: str) -> Callable[[str], dict[str, Any]]:
    return lambda uri: {kind: {"store": uri}}


OUTAGES: Mapping[str, Outage] = {
    "bus": Outage(
        title="The bus",
        prepare=_redis(lambda uri: {"server": {"bus": uri, "keys": [KEY]}}),
        doctor="bus server.bus | unreachable", metric='pegboard_store_up{store="server.bus"} 0',
        log="bus", log_over="bus", alert="store_down began", call="200 ok",
    ),
    "limits": Outage(
        title="The store of rate limits",
        prepare=_redis(lambda uri: {"rate_limits": {"store": uri, "default": "100/60s"}}),
        tool="send", arguments={"text": "x"},
        doctor="store limits | unreachable", readyz="503", metric='pegboard_store_up{store="limits"} 0',
        log="limits", log_over="limits", alert="store_down began", call="503",
    ),
    "consents": Outage(
        title="The store of consents", prepare=_postgres(_store_of("consents")), tool="wipe", arguments={},
        well="403 consent_required",
        doctor="store consents | unreachable", metric='pegboard_store_up{store="consents"} 0',
        log="consents", log_over="consents", alert="store_down began", call="",
    ),
    "tasks": Outage(
        title="The store of tasks", prepare=_postgres(_store_of("tasks")), tool="later", arguments={}, well="20",
        doctor="store tasks | unreachable", metric='pegboard_store_up{store="tasks"} 0',
        log="tasks", log_over="tasks", alert="store_down began", call="",
    ),
    "keys": Outage(
        title="The store of API keys", prepare=_keys,
        doctor="store api_keys | unreachable", readyz="503", metric="",
        log="keys", log_over="keys", alert="store_down began", call="503",
    ),
    "documents": Outage(
        title="The store of documents",
        prepare=_postgres(lambda uri: {"workspace": {"store": uri, "space": "s1"}}),
        tool="search_documents", arguments={"query": "x"},
        doctor="store documents | unreachable", metric='pegboard_store_up{store="documents"} 0',
        log="documents", log_over="documents", alert="store_down began", call="",
    ),
    "audit": Outage(
        title="The audit", prepare=_postgres(lambda uri: {"audit": {"store": uri, "required": True}}),
        tool="send", arguments={"text": "x"},
        doctor="store audit | unreachable", readyz="503", metric='pegboard_store_up{store="audit"} 0',
        log="audit", log_over="audit", alert="audit_broken began", call="503 audit_unavailable",
    ),
    "model": Outage(
        title="A model",
        prepare=_web(lambda url: {
            "models": {"default": {"provider": "openai_compatible", "base_url": f"{url}/v1", "name": "m"}},
            "files": ["helper.json"],
            "tools": [{"name": "ask", "type": "agent", "agent": "helper", "description": "Ask."}],
        }, helper=AGENT),
        tool="ask", arguments={"query": "x"},
        doctor="model default", metric="pegboard_server_up", log="default", log_over="default", alert="down began",
        call="",
    ),
    "openapi": Outage(
        title="The host of an OpenAPI document",
        prepare=_web(
            lambda url: {
                "tools": [{"name": "shop", "type": "openapi", "openapi": {"spec": "api.json", "base_url": url}}]
            },
            api=API,
        ),
        tool="shop__orders", arguments={},
        doctor="server of shop", metric='pegboard_server_up', log="shop", log_over="shop", alert="down began", call="",
    ),
    "mcp-stdio": Outage(
        title="An MCP server over stdio", prepare=_mcp_stdio, tool="notes__read", arguments={"title": "x"},
        # `doctor` starts a program of its own, and that one runs.
        doctor="source notes | unreachable", doctor_ways={"stopped": "source notes | stopped"},
        metric='pegboard_source_status{source="notes",status="unreachable"} 1',
        log="notes", log_over="notes", alert="down began", call="502 upstream_unavailable",
    ),
    "mcp-http": Outage(
        title="An MCP server over HTTP", prepare=_mcp_http, tool="notes__add",
        doctor="source notes | unreachable", metric='pegboard_source_status{source="notes",status="unreachable"} 1',
        log="notes", log_over="notes", alert="down began", call="502 upstream_unavailable",
    ),
    "config": Outage(
        title="A config that is refused", prepare=_config, options=("--reload",),
        # In a folder without a config, `doctor` checks Pegboard itself.
        doctor="tols", doctor_ways={"removed": ""},
        metric="pegboard_config_refused 1", log="config_reload_refused", log_over="Reloaded",
        alert="config_refused began", call="200 ok",
    ),
    "certificate": Outage(
        title="The certificate", prepare=_certificate, doctor="", metric='pegboard_host_ok{part="certificate"} 0',
        options=("--tls-cert", "certificate.pem"),
        log="certificate", log_over="certificate", alert="down began", call="200 ok",
    ),
    "disk": Outage(
        title="A full disk",
        prepare=_disk(lambda _: {"audit": {"store": "jsonl:disk/audit.jsonl", "required": True}}),
        tool="send", arguments={"text": "x" * 100},
        doctor="store audit | unreachable", readyz="503", metric='pegboard_store_up{store="audit"} 0',
        log="No space left", log_over="stored again", alert="audit_broken began", call="503 audit_unavailable",
    ),
    "clock": Outage(
        title="A clock that was set back", prepare=_clock, doctor="host clock | behind",
        metric='pegboard_host_ok{part="clock"} 0', log="was set back", log_over="clock", alert="down began",
        call="200 ok",
    ),
}  # fmt: skip

FULL_DISKS: Mapping[str, Outage] = {
    # Keys can still be read.
    "keys": replace(OUTAGES["keys"], prepare=_disk(lambda parts: _with_keys(parts, "disk/keys.db")), call="200 ok"),
    **{
        name: replace(OUTAGES[name], prepare=_disk(lambda _, name=name: _store_of(name)(f"sqlite:disk/{name}.db")))
        for name in ("consents", "tasks")
    },
    "documents": replace(
        OUTAGES["documents"],
        prepare=_disk(lambda _: {"workspace": {"store": "sqlite:disk/documents.db", "space": "s1"}}),
    ),
    "audit": replace(
        OUTAGES["audit"], prepare=_disk(lambda _: {"audit": {"store": "sqlite:disk/audit.db", "required": True}})
    ),
}
"""A full disk under the other stores. Each is told in the same way as another loss of the store."""

FROM_THE_NEXT_START = ("bus", "consents", "tasks", "audit")
"""The parts whose address a reload leaves as it was."""

STOPPED = (
    "bus", "limits", "consents", "tasks", "documents", "audit", "model", "openapi", "mcp-stdio", "mcp-http",
)  # fmt: skip
OTHER_WAYS: Sequence[tuple[str, Way]] = (
    *((name, "stopped") for name in STOPPED),
    # Another bus, audit, or store of consents or tasks, is used from the next start on.
    *((name, "misaddressed") for name in ("limits", "keys", "documents", "model", "openapi", "mcp-stdio", "mcp-http")),
    *((name, "absent") for name in STOPPED if name != "mcp-stdio"),
    *((name, "removed") for name in ("config", "certificate")),
)
