"""`pegboard lock --as`: the definitions of a personal source are accepted over the account of one person."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from tests import forking
from tests.connections.agreeing import ANN, BOB, connect
from tests.connections.test_auth_config import ENV, loaded, said, written
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import McpUpstream, mail_of

OF_LOCK = ["connect", "read_mail", "wait", "whoami", "write"]


async def pegboard(folder: Path, *words: str) -> tuple[int, str, str]:
    """Run the command beside the servers of the test; return its exit code and what it printed."""
    ran = await asyncio.to_thread(forking.run, ["pegboard", *words], cwd=folder, env={**os.environ, **ENV})
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


async def test_one_person_lists_the_operator_accepts_and_everybody_sees(tmp_path: Path) -> None:
    async with ToyIssuer().running() as issuer, McpUpstream(issuer).running() as mcp:
        tool = {"name": "mail", "type": "mcp", "mcp": {"transport": "http", "url": mcp.resource},
                "auth": {"mode": "user", "issuer": issuer.url}}  # fmt: skip
        catalog = loaded(tmp_path, tool)
        async with catalog:
            await connect(catalog.connections, issuer, ANN)
            await connect(catalog.connections, issuer, BOB)
        assert (tmp_path / "pegboard.lock").exists() is False
        written(tmp_path, tool)
        code, out, err = await pegboard(tmp_path, "lock")
        assert (code, "add --as user=NAME" in out) == (0, True), (out, err)
        names = [f"mail.{name}" for name in OF_LOCK[1:]]
        code, out, err = await pegboard(tmp_path, "lock", "accept", *names, "--as", "user=ann,space=acme")
        assert (code, [name for name in names if name in out]) == (0, names), (out, err)
        code, out, err = await pegboard(tmp_path, "lock", "diff", "--as", "user=bob,space=acme")
        assert code == 1
        assert "mail.only_for_bob: new" in out
        assert "only_for_ann" not in out
        pins = json.loads((tmp_path / "pegboard.lock").read_text())["servers"]["mail"]
        assert sorted(pins) == OF_LOCK[1:]
        code, out, err = await pegboard(tmp_path, "lock", "diff", "--as", "user=nobody")
        assert (code, "must connect to 'mail'" in err) == (1, True), (out, err)
        catalog = loaded(tmp_path, tool)
        async with catalog:
            assert (await said(catalog, "carol", "mail__read_mail")).error.kind == "connection_required"
            assert (await said(catalog, "bob", "mail__read_mail")).text == mail_of("bob")
