"""A row of the audit says what each layer of an upstream answered: the transport, the protocol, and its tool."""

import asyncio
import json
import sys
from pathlib import Path

from pegboard.config import context_for
from tests import ports
from tests.builtin.web import Asked, Site, as_json
from tests.config.project import Project
from tests.upstream_mcp.parts import PLAIN

CONFIG = """\
audit: {{store: "jsonl:./audit.jsonl"}}
tools:
  - {{name: good, type: webhook, description: Answer., webhook: {{url: "{site}/200", method: GET}}}}
  - {{name: busy, type: webhook, description: Refuse., webhook: {{url: "{site}/503", method: GET}}}}
  - {{name: away, type: webhook, description: Be away., webhook: {{url: "http://127.0.0.1:{port}/", method: GET}}}}
  - {{name: up, type: mcp, mcp: {{transport: stdio, command: "{python}", args: ["{server}"]}}}}
"""


async def test_a_row_names_what_transport_protocol_and_tool_of_an_upstream_answered(tmp_path: Path) -> None:
    def reply(asked: Asked) -> bytes:
        return as_json({}, status=f"{asked.target[1:]} Whatever")

    project = Project(tmp_path)
    async with Site(reply).server() as site:
        config = CONFIG.format(site=site.url.rstrip("/"), port=ports.free_port(), python=sys.executable, server=PLAIN)
        project.write(config)
        catalog, loaded = project.load()
        async with asyncio.timeout(60), catalog:
            view = catalog.view(context_for(loaded, user="ann"))
            for name in ("good", "busy", "away", "up__pid", "up__fail", "up__die"):
                await view.call(name, {})
    rows = [json.loads(line)["row"] for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    told = [
        (row["name"], row["outcome"], row.get("transport", ""), row.get("protocol", ""), row.get("tool_outcome", ""))
        for row in rows
        if row.get("event", "call") == "call" and "outcome" in row
    ]
    assert told == [
        ("good", "ok", "ok", "200", ""),
        ("busy", "upstream_unavailable", "ok", "503", ""),
        ("away", "upstream_unavailable", "upstream_unavailable", "", ""),
        ("up__pid", "ok", "ok", "ok", "ok"),
        ("up__fail", "tool_error", "ok", "ok", "is_error"),
        ("up__die", "upstream_lost", "upstream_lost", "", ""),
    ]
