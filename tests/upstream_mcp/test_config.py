"""What pegboard.yaml says about MCP servers."""

import json
import sys
import textwrap
from pathlib import Path
from typing import get_args

import pytest
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

from pegboard import ToolContext
from pegboard.config import load_catalog
from pegboard.model.error import DefinitionError
from pegboard.sources.mcp.server_settings import ProtocolVersion
from pegboard.sources.mcp.supervised_source import McpSource
from tests.upstream_mcp.parts import EVIL, PLAIN, start_of


def load(folder: Path, text: str, **env: str) -> dict[str, McpSource]:
    path = folder / "pegboard.yaml"
    path.write_text(textwrap.dedent(text))
    catalog, _ = load_catalog(path, env=env)
    return dict(catalog.registry.sources)  # type: ignore[arg-type]


def test_the_documented_forms_load_as_written(tmp_path: Path) -> None:
    sources = load(
        tmp_path,
        """\
        tools:
          - name: fs
            type: mcp
            groups: [files]
            mcp:
              transport: stdio
              command: npx
              args: ["-y", "@modelcontextprotocol/server-filesystem", "./data"]
              cwd: .
          - {name: mcp_database, type: mcp, description: "Database access via MCP", mcp: {transport: sse, url: "http://localhost:3001/sse"}}
          - name: metabase
            type: mcp
            mcp:
              transport: http
              url: "http://127.0.0.1:1/mcp"
              headers: {Authorization: "Bearer ${TOKEN}"}
              tools:
                groups: {"*": [metabase_full], "list_*": [metabase_full, metabase_messaging]}
                consent: {"list_*": never, "*_all": destructive, delete_all: always}
        profiles: {chat: {include: [files, metabase_messaging], deny: ["metabase__delete_*"]}}
        """,
        TOKEN="t0ken",
    )
    fs, metabase = sources["fs"].settings, sources["metabase"].settings
    assert (fs.command, fs.groups, fs.cwd) == ("npx", ("files",), str(tmp_path))
    assert fs.args == ("-y", "@modelcontextprotocol/server-filesystem", "./data")
    assert sources["mcp_database"].settings.url == "http://localhost:3001/sse"
    assert metabase.groups_of("list_all") == ("metabase_full", "metabase_messaging")
    assert metabase.groups_of("get") == ("metabase_full",)
    asks = {name: metabase.own_of(name).get("consent") for name in ("list_cards", "list_all", "delete_all", "get")}
    assert asks == {"list_cards": "never", "list_all": "destructive", "delete_all": "always", "get": "never"}
    assert "t0ken" not in repr(metabase)
    assert metabase.headers["Authorization"].reveal() == "Bearer t0ken"  # type: ignore[union-attr]
    assert sources["fs"].lock is sources["metabase"].lock


@pytest.mark.parametrize(
    ("mcp", "said"),
    [
        ("{transport: stdio}", "`transport: stdio` needs `command:`"),
        (
            "{transport: stdio, command: npx -y tools}",
            '"npx -y tools" is a program with arguments, and no shell reads it',
        ),
        ("{transport: http, command: x}", "does not go with `transport: http`"),
        ("{transport: http, url: 'file:///x'}", "is not an http or https address"),
        (
            "{transport: sse, url: 'http://x/', per_user: true}",
            "`per_user:` is not supported by this version of Pegboard yet",
        ),
        ("{transport: pipe, command: x}", "transport"),
        ("{transport: stdio, command: x, tolls: {}}", "tolls"),
        ("{transport: stdio, command: x}, aliases: {a: b}", "is said of one tool"),
    ],
)
def test_what_cannot_be_honoured_is_refused(tmp_path: Path, mcp: str, said: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        load(tmp_path, f"tools:\n  - {{name: up, type: mcp, mcp: {mcp}}}\n")
    assert said in str(caught.value)
    assert "pegboard.yaml:2:" in str(caught.value)


def test_a_name_that_is_no_namespace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="without '__'"):
        load(tmp_path, "tools:\n  - {name: a__b, type: mcp, mcp: {transport: stdio, command: x}}\n")


async def test_a_configured_server_is_served(tmp_path: Path) -> None:
    path = tmp_path / "pegboard.yaml"
    command, *words = start_of(PLAIN)
    path.write_text(
        textwrap.dedent(f"""\
        tools:
          - name: up
            type: mcp
            groups: [sums]
            repair: true
            mcp: {{transport: stdio, command: "{command}", args: {json.dumps(words)}, tools: {{only: [add]}}}}
        profiles: {{chat: {{include: [sums]}}}}
        """)
    )
    catalog, _ = load_catalog(path, env={})
    await catalog.start()
    try:
        await catalog.registry.sources["up"].settled()  # type: ignore[attr-defined]
        view = catalog.view(ToolContext(), profile="chat")
        assert view.names() == ["up__add"]
        assert (await view.call("up__add", {"a": 1, "b": 2})).structured == {"total": 3}
        assert (await view.call("up__add", {"a": "1", "b": 2})).structured == {"total": 3}
        assert (tmp_path / "pegboard.lock").exists()
    finally:
        await catalog.close(grace_s=0)


@pytest.mark.parametrize(("wanted", "is_served"), [("2024-11-05", True), ("2025-06-18", True), ("2025-11-25", False)])
async def test_a_server_of_an_older_revision_than_is_asked_for_is_not_spoken_to(
    tmp_path: Path, wanted: str, is_served: bool
) -> None:
    sources = load(
        tmp_path,
        f"""\
        tools:
          - name: up
            type: mcp
            mcp: {{transport: stdio, command: "{sys.executable}", args: ["{EVIL}"], min_protocol_version: {wanted}}}
        """,
    )
    source = sources["up"]
    await source.start()
    try:
        await source.settled()
        assert source.state().is_up is is_served
        if not is_served:
            assert "speaks '2025-06-18', and min_protocol_version is '2025-11-25'" in source.state().reason
    finally:
        await source.stop()


def test_a_revision_that_nobody_knows_is_refused_where_it_stands(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="min_protocol_version"):
        load(
            tmp_path,
            "tools:\n  - {name: up, type: mcp, mcp: {transport: stdio, command: x, min_protocol_version: '2025'}}\n",
        )
    assert get_args(ProtocolVersion) == KNOWN_PROTOCOL_VERSIONS
