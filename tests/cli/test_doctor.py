"""`pegboard doctor` on APIs, keys and packages: the state of each, and what to do."""

import importlib.metadata
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest

from pegboard.cli.commands import doctor
from pegboard.extras import install_command
from tests.cli.conftest import Run
from tests.upstream_mcp.parts import free_port

CONFIG = """\
tools:
  - {{name: away, type: openapi, openapi: {{spec: "http://127.0.0.1:{port}/openapi.json"}}}}
  - {{name: shop, type: openapi, openapi: {{spec: shop.json, base_url: "https://shop.example"}}}}
  - name: hook
    type: webhook
    description: x
    webhook: {{url: "https://hook.example", headers: {{A: "${{HOOK_KEY:-}}", B: "${{SHOP_KEY}}"}}}}
"""
SHOP = {
    "openapi": "3.1.0",
    "paths": {
        "/": {
            "get": {"operationId": "look"},
            "put": {"operationId": "draw", "requestBody": {"required": True, "content": {"multipart/mixed": {}}}},
        }
    },
}


def test_each_api_and_key_has_a_state_and_where_it_is_not_well_what_to_do(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "shop-key-canary")
    monkeypatch.delenv("HOOK_KEY", raising=False)
    (tmp_path / "pegboard.yaml").write_text(CONFIG.format(port=free_port()))
    (tmp_path / "shop.json").write_text(json.dumps(SHOP))
    ran = run("doctor", "--json")
    assert (ran.code, "shop-key-canary" in ran.out) == (1, False)
    told = orjson.loads(ran.out)
    rows = {row["name"]: row for row in told["findings"] if row["kind"] != "packages"}
    shown = {name: (row["state"], row["is_wrong"]) for name, row in rows.items() if row["kind"] in ("source", "key")}
    assert shown == {
        "away": ("unreachable", True),
        "shop": ("ok", False),
        "HOOK_KEY": ("not set", False),
        "SHOP_KEY": ("set", False),
    }
    assert "is unavailable" in rows["away"]["detail"]
    assert rows["away"]["to_do"].endswith("(pegboard.yaml:2).")
    assert rows["shop"]["detail"] == (
        "1 tool; draw was left out: its body is of a type that cannot be written: multipart/mixed"
    )
    assert rows["HOOK_KEY"]["to_do"].startswith("Set it where Pegboard runs, if the default is not what is wanted")
    assert "pegboard.yaml:7" in rows["HOOK_KEY"]["to_do"]


def test_an_optional_package_that_is_missing_is_named_with_its_extra(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == "jmespath":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(doctor._metadata, "version", version, raising=False)
    (tmp_path / "pegboard.yaml").write_text("{}\n")
    ran = run("doctor", "--json")
    assert ran.code == 0
    [tools] = [row for row in orjson.loads(ran.out)["findings"] if row["name"] == "tools"]
    assert (tools["state"], tools["detail"], tools["to_do"]) == (
        "not installed", "jmespath", f"If wanted: {install_command('tools')}",
    )  # fmt: skip


def test_commands_wait_for_a_description_behind_a_url(run: Run, tmp_path: Path) -> None:
    with described({"openapi": "3.1.0", "paths": {"/": {"get": {"operationId": "look"}}}}) as url:
        tool = {"name": "shop", "type": "openapi", "openapi": {"spec": f"{url}/openapi.json"}}
        (tmp_path / "pegboard.yaml").write_text(json.dumps({"tools": [tool]}))
        assert [row["name"] for row in orjson.loads(run("list", "--json").out)["tools"]] == ["shop__look"]
        assert run("why", "shop__look").code == 0
        told = orjson.loads(run("doctor", "--json").out)["findings"][0]
        assert (told["name"], told["state"], told["detail"]) == ("shop", "ok", "1 tool")


@contextmanager
def described(description: dict[str, Any]) -> Iterator[str]:
    """Serve a description on loopback, and return where."""

    class Described(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(description).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    server = HTTPServer(("127.0.0.1", 0), Described)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
