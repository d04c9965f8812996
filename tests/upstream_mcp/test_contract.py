"""What a config says of an MCP server holds at each call of its tools, whatever the server says of itself."""

import json
import sys
import textwrap
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pegboard import Secret, ToolContext
from pegboard.config import load_catalog
from pegboard.core.view import View
from tests.security.test_mcp_http_client import evil_http
from tests.timing import PATIENCE_S
from tests.upstream_mcp.parts import EVIL, free_port, on_stdio, running, until

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
READ = {"name": "read", "description": "Read.", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}}


@asynccontextmanager
async def configured(folder: Path, mcp: str, more: str = "", **context: Any) -> AsyncGenerator[View]:
    """Give the view of a config with one server, once its tools are listed."""
    path = folder / "pegboard.yaml"
    path.write_text(textwrap.dedent(f"tools:\n  - name: up\n    type: mcp\n    mcp: {mcp}\n{more}"))
    catalog, _ = load_catalog(path, env={"UPSTREAM_KEY": "secret-token"})
    await catalog.start()
    try:
        await catalog.registry.sources["up"].settled()  # type: ignore[attr-defined]
        yield catalog.view(ToolContext(budget=None, **context))
    finally:
        await catalog.close(grace_s=0)


def at_evil(*options: str, more: str = "") -> str:
    args = json.dumps([str(EVIL), *options])
    return f'{{transport: stdio, command: "{sys.executable}", args: {args}{more}}}'


def kind_of(result: Any) -> str:
    return "ok" if result.error is None else result.error.kind


@pytest.mark.parametrize(("transport", "path"), [("http", "mcp"), ("sse", "sse")])
async def test_the_servers_credentials_are_sent_with_each_message_and_the_callers_with_none(
    tmp_path: Path, transport: str, path: str
) -> None:
    port, log = free_port(), tmp_path / "log"
    mcp = f'{{transport: {transport}, url: "http://127.0.0.1:{port}/{path}", headers: {{X-Key: "${{UPSTREAM_KEY}}"}}}}'
    async with evil_http(port, f"log={log}"):
        credentials = {"up": Secret("caller-token")}
        async with configured(tmp_path, mcp, user_id="ann", upstream_credentials=credentials) as view:
            assert (await view.call("up__echo", {"text": "hi"})).text == "hi"
        posted = [line for line in log.read_text().splitlines() if not line.startswith("GET")]
    assert len(posted) >= 4
    assert all(line.endswith(" with secret-token") for line in posted)


async def test_arguments_that_break_the_schema_never_reach_the_server(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with configured(tmp_path, at_evil(f"log={log}")) as view:
        assert kind_of(await view.call("up__write", {"text": 3})) == "invalid_arguments"
        assert kind_of(await view.call("up__write", {"text": "3"})) == "ok"
    assert log.read_text().count("tools/call") == 1


async def test_a_result_that_breaks_the_servers_own_schema_is_an_error(tmp_path: Path) -> None:
    promised = {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "string"}}}}
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([{**READ, "outputSchema": promised}, {**READ, "name": "free"}]))
    async with configured(tmp_path, at_evil(f"tools={tools}", "call=number", "size=7")) as view:
        broken = await view.call("up__read", {})
        assert (kind_of(broken), "$.rows[0]" in broken.text) == ("output_invalid", True)
        assert (await view.call("up__free", {})).structured == {"rows": [{"id": 7}]}


@pytest.mark.parametrize("is_trusted", [False, True])
async def test_a_server_frees_its_tools_of_consent_only_where_it_is_trusted(tmp_path: Path, is_trusted: bool) -> None:
    asked: list[object] = []

    async def approve(request: object) -> bool:
        asked.append(request)
        return False

    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([READ, {**READ, "name": "write", "annotations": {"readOnlyHint": False}}]))
    mcp = at_evil(f"tools={tools}", more=f", trust_annotations: {str(is_trusted).lower()}")
    async with configured(tmp_path, mcp, "    consent: destructive\n", user_id="ann", approve=approve) as view:
        read, write = await view.call("up__read", {"text": "x"}), await view.call("up__write", {"text": "x"})
    assert (kind_of(read), kind_of(write)) == ("ok" if is_trusted else "consent_declined", "consent_declined")
    assert len(asked) == (1 if is_trusted else 2)


async def test_a_limit_of_a_server_holds_for_each_of_its_tools_apart(tmp_path: Path) -> None:
    async with configured(tmp_path, at_evil(), "    rate_limit: 1/60s\n", user_id="ann") as view:
        ended = [kind_of(await view.call(f"up__{name}", {"text": "x"})) for name in ("echo", "echo", "write", "write")]
    assert ended == ["ok", "rate_limited", "ok", "rate_limited"]


async def test_a_list_is_asked_for_again_when_the_server_says_that_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr("pegboard.sources.mcp.supervised_source.MCP_REFRESH_S", (0.05, 300.0, 3_600.0))
    settings = on_stdio(EVIL, "ttl=50", f"log={log}", trust="any")
    async with running(settings, on_stdio(EVIL, f"log={log}.calm", name="calm", trust="any")):
        await until(lambda: log.read_text().count("tools/list") >= 4, within_s=PATIENCE_S)
        assert Path(f"{log}.calm").read_text().count("tools/list") == 1
