"""`pegboard serve` logs what a reload or a hangup gave and took, as `pegboard plan` says it."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

from tests.server.processes import serving
from tests.timing import PATIENCE_S

CANARY = "canary-3f8a1c77e2b94d60"


def config(**changes: Any) -> str:
    """Return a config with two tools for two profiles; `changes` replace what it says of a tool."""
    tools = {
        "pay": {"handler": "python:mine:echo", "description": "Pay.", "consent": "always"},
        "look": {
            "handler": "python:mine:echo", "description": "Look.",
            "parameters": {"page": {"type": "string"}},
        },
    }  # fmt: skip
    for name, values in changes.items():
        tools.pop(name, None)
        if values is not None:
            tools[name] = {"handler": "python:mine:echo", "description": "Do.", **values}
    listed = [{"name": name, "type": "internal", **values} for name, values in tools.items()]
    profiles = {"support": {}, "sales": {"deny": ["pay"]}}
    return json.dumps({"tools": listed, "profiles": profiles, "settings": {"key": "${TOKEN}"}})


async def plans(said: Path, count: int) -> list[dict[str, Any]]:
    """Return the plans of the first reloads, once there are so many."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            lines = [json.loads(line) for line in said.read_text().splitlines() if line.startswith("{")]
            found = [line for line in lines if line.get("event") == "config_reload_plan"]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


def changes(record: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(one["profile"], c["kind"], c["tool"]) for one in record["plan"]["profiles"] for c in one["changes"]}


async def test_a_reload_logs_what_it_takes_for_each_profile(tmp_path: Path) -> None:
    path = tmp_path / "pegboard.yaml"
    path.write_text(config())
    (tmp_path / "mine.py").write_text("def echo(**arguments: object) -> dict[str, object]:\n    return arguments\n")
    env = {"TOKEN": CANARY}
    async with serving(tmp_path, "--reload", "--log-format", "json", env=env) as server:
        required = {"parameters": {"page": {"type": "string", "required": True}}}
        path.write_text(config(look=required, pay={"consent": "never"}, new={"description": CANARY}))
        [first] = await plans(server.said, 1)
        assert changes(first) == {
            ("support", "breaking", "look"), ("sales", "breaking", "look"), ("support", "weaker", "pay"),
            ("support", "gained", "new"), ("sales", "gained", "new"),
        }  # fmt: skip
        assert first["level"].lower() == "warning"
        assert "1 breaking, 1 weaker, 1 gained" in first["message"]
        assert "weaker pay (consent) in support: always → never" in first["message"]
        path.write_text(config(look=required, pay=None, new={}))
        second = (await plans(server.said, 2))[1]
        assert ("support", "lost", "pay") in changes(second)
        many = {f"tool{number}": {} for number in range(12)}
        path.write_text(config(look=required, pay=None, new={}, **many))
        third = (await plans(server.said, 3))[2]
        assert (third["level"].lower(), third["plan"]["summary"]["gained"]) == ("info", 12)
        assert "2 more changes" in third["message"]
        path.write_text(config(look=required, pay=None, new={}, **many) + "\n")
        assert "nothing that callers see has changed" in (await plans(server.said, 4))[3]["message"]
        assert CANARY not in server.said.read_text()


async def test_a_hangup_logs_once_what_the_new_workers_take(tmp_path: Path) -> None:
    path = tmp_path / "pegboard.yaml"
    path.write_text(config())
    (tmp_path / "mine.py").write_text("def echo(**arguments: object) -> dict[str, object]:\n    return arguments\n")
    env = {"TOKEN": CANARY}
    async with serving(tmp_path, "--workers", "2", "--log-format", "json", env=env) as server:
        path.write_text(config(pay={"consent": "never"}, new={"description": CANARY}))
        os.kill(server.pid, signal.SIGHUP)
        [first] = await plans(server.said, 1)
        assert changes(first) == {
            ("support", "weaker", "pay"), ("support", "gained", "new"), ("sales", "gained", "new"),
        }  # fmt: skip
        assert first["level"].lower() == "warning"
        path.write_text(config(pay={"consent": "never"}, new=None))
        os.kill(server.pid, signal.SIGHUP)
        assert ("sales", "lost", "new") in changes((await plans(server.said, 2))[1])
        assert CANARY not in server.said.read_text()
