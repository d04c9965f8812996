"""What the audit says besides calls: changes of what may be called, whoever makes them; and how operators read it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from pegboard import ToolContext, http_app
from pegboard.audit.audit_query import AuditFilter, newest_rows
from pegboard.audit.audit_row import AuditRow
from pegboard.audit.jsonl_audit import JsonlAudit
from pegboard.cli import main
from pegboard.cli.commands.audit import Wanted
from pegboard.config import Config, load_catalog
from pegboard.config.reload import Reloader
from pegboard.server.http_api.audit_routes import FILTER_PARAMETERS
from pegboard.server.principal import Identity
from tests.server.doors import META, call, inside, served
from tests.server.http_callers import context_of_user, known_callers
from tests.server.processes import serving
from tests.timing import PATIENCE_S

CANARY = "canary-of-somebody-0123456789"
CONFIG = """
python: [shop]
audit: {store: "jsonl:rows.jsonl"}
consents: {store: "sqlite:consents.db"}
identity: {api_keys: {store: "sqlite:keys.db"}, map: [{when: {key: "*"}, profiles: [all]}]}
profiles: {all: {include: [core]}}
workspace: {store: "sqlite:docs.db"}
settings: {key: "${KEY:-canary-of-somebody-0123456789}"}
"""
SHOP = """
from pegboard import default_catalog

@default_catalog.tool(consent="always")
async def refund(account: str) -> str:
    "Refund."
    return account

@default_catalog.tool(read_only=True)
async def look(text: str) -> str:
    "Look."
    return text
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o700)
    (tmp_path / "pegboard.yaml").write_text(CONFIG)
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows_in(folder: Path, **wanted: Any) -> list[AuditRow]:
    """Return the rows, the oldest first."""
    return newest_rows(JsonlAudit(folder / "rows.jsonl"), AuditFilter(**wanted), limit=1_000)[::-1]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)


async def asked(folder: Path, account: str) -> str:
    """Make a call that waits for a person; return the id of its question."""
    catalog, _ = load_catalog(folder / "pegboard.yaml")
    await catalog.view(ToolContext(user_id="ann")).call("refund", {"account": account})
    questions = await catalog.executor.ports.consents.listed()  # type: ignore[attr-defined]
    await catalog.close()
    return questions[0].id


async def test_each_command_that_changes_what_may_be_called_leaves_a_row_without_the_arguments(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in [
        ["keys", "add", "ann-laptop"],
        ["keys", "rotate", "ann-laptop"],
        ["keys", "revoke", "ann-laptop", "--all"],
        ["workspace", "grant", "user:ann", "s1", "read", "--new"],
        ["workspace", "revoke", "user:ann", "s1"],
        ["consent", "approve", await asked(folder, CANARY)],
        ["consent", "grant", await asked(folder, f"{CANARY}-2"), "--calls", "3", "--for", "7d", "--any-other", "--yes"],
    ]:
        assert await asyncio.to_thread(main, words) == 0, (words, capsys.readouterr())
    granted = next(row for row in rows_in(folder) if row.event == "grant_given").detail["consent_id"]
    assert await asyncio.to_thread(main, ["consent", "forget", str(granted)]) == 0
    changes = [row for row in rows_in(folder) if row.event not in ("call", "begin")]
    assert [row.event for row in changes] == [
        "key_added", "key_rotated", "key_revoked", "access_given", "access_revoked", "consent_decided", "grant_given",
        "consent_forgotten",
    ]  # fmt: skip
    assert all(row.credential.startswith("cli") for row in changes)
    assert changes[0].detail["key"] == "ann-laptop"
    assert {name: changes[5].detail[name] for name in ("decision", "tool", "user")} == {
        "decision": "approved", "tool": "main.refund", "user": "ann",
    }  # fmt: skip
    assert CANARY not in (folder / "rows.jsonl").read_text()
    # Neither is the key itself, which was printed.
    printed = capsys.readouterr().out
    key = next(word for word in printed.split() if word.startswith("pgb_"))
    assert key not in (folder / "rows.jsonl").read_text()
    assert await asyncio.to_thread(main, ["audit", "verify"]) == 0


async def test_a_change_that_cannot_be_recorded_is_made_and_reported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rows.jsonl").mkdir()
    assert await asyncio.to_thread(main, ["keys", "add", "ann-laptop"]) == 0
    assert "warning: This change is not in the audit" in capsys.readouterr().err


async def test_a_reload_leaves_a_row_with_the_hashes_of_the_files_or_with_why_it_was_refused(folder: Path) -> None:
    path = folder / "pegboard.yaml"
    catalog, config = load_catalog(path)
    taken: list[Config] = []
    reloader: Reloader = Reloader(path, {}, catalog, config=config, on_reload=taken.append)
    path.write_text(CONFIG + "groups: {core: Tools}\n")
    assert await reloader.reload()
    content = path.read_bytes()
    path.write_text(CONFIG + f"tools: [{{name: {CANARY}, type: nothing}}]\n")
    assert not await reloader.reload()
    await catalog.close()
    first, second = rows_in(folder)
    assert (first.event, first.detail["files"]) == (
        "config_taken", {"pegboard.yaml": sha256(content).hexdigest()},
    )  # fmt: skip
    assert second.event == "config_refused"
    assert "is not a type of tool" in json.dumps(second.detail["problems"])
    assert CANARY not in (folder / "rows.jsonl").read_text()


async def test_a_server_records_the_config_that_it_begins_with_once_for_all_its_workers(folder: Path) -> None:
    (folder / "pegboard.yaml").write_text('audit: {store: "jsonl:rows.jsonl"}\n')
    async with serving(folder, "--workers", "2"):
        await until(lambda: list(folder.glob("rows*.jsonl")) and rows_in(folder))
    assert [row.event for row in rows_in(folder)] == ["config_taken"]


async def test_rows_name_the_client_program_the_door_and_the_digest_of_invalid_arguments(folder: Path) -> None:
    catalog, config = load_catalog(folder / "pegboard.yaml")
    client_info = {**META, "io.modelcontextprotocol/clientInfo": {"name": "acme-desk", "version": "1"}}
    catalog.identity = None
    async with inside(http_app(catalog, config=config)) as client:
        await call(client, "look", {"text": "a"}, meta=client_info)
        await call(client, "look", {"text": 5})
        await client.post("/v1/tools/look/call", json={"text": "a"})
        await client.post("/v1/tools/nothing/call", json={"text": "a"})
    rows = [row for row in rows_in(folder) if row.event == "call"]
    assert [(row.client, row.door, row.outcome) for row in rows] == [
        ("acme-desk", "mcp", "ok"), ("", "mcp", "invalid_arguments"), ("", "http", "ok"), ("", "http", "not_found"),
    ]  # fmt: skip
    digests = [sha256(orjson.dumps({"text": value})).hexdigest() for value in ("a", 5)]
    assert [row.arguments_digest for row in rows[:3]] == [*digests, digests[0]]
    assert [row.argument_bytes for row in rows[:3]] == [12, 10, 12]


async def test_operators_read_the_rows_page_by_page_and_everybody_else_finds_nothing_there(folder: Path) -> None:
    catalog, _ = load_catalog(folder / "pegboard.yaml")
    catalog.identity = None
    for number in range(5):
        view = catalog.view(ToolContext(user_id="ann" if number % 2 else "bob"))
        await view.call("look", {"text": str(number)})
    audit = catalog.executor.ports.audit
    assert audit is not None
    await audit.close()
    operator = {"x-user": "operator"}
    app = known_callers(http_app(catalog, config=context_of_user))
    async with served(app) as url, httpx2.AsyncClient(base_url=url) as client:
        for heads in ({}, {"x-user": "ann"}):
            assert (await client.get("/v1/audit", headers=heads)).status_code == 404
        pages, cursor = [], ""
        while True:
            query = {"limit": "2", "tool": "look", **({"cursor": cursor} if cursor else {})}
            answer = (await client.get("/v1/audit", params=query, headers=operator)).json()
            pages.append([row["seq"] for row in answer["rows"]])
            if not (cursor := answer.get("nextCursor", "")):
                break
        assert pages == [[5, 4], [3, 2], [1]]
        of_ann = (await client.get("/v1/audit", params={"user": "ann", "since": "1h"}, headers=operator)).json()
        assert [(row["seq"], row["user"], row["outcome"]) for row in of_ann["rows"]] == [
            (4, "ann", "ok"), (2, "ann", "ok"),
        ]  # fmt: skip
        assert of_ann["rows"][0]["time"].endswith("Z")
        future = {"since": "2999-01-01T00:00:00Z"}
        assert (await client.get("/v1/audit", params=future, headers=operator)).json() == {"rows": []}
        for none in ({"until": "1h"}, {"slower_than": "60"}, {"agent": "writer"}):
            assert (await client.get("/v1/audit", params=none, headers=operator)).json() == {"rows": []}
        every = {"since": "1h", "until": "2999-01-01T00:00:00Z", "slower_than": "0"}
        assert len((await client.get("/v1/audit", params=every, headers=operator)).json()["rows"]) == 5
        wrongs = (
            {"limit": "0"}, {"limit": "x"}, {"since": "soon"}, {"until": "soon"}, {"slower_than": "-1"},
            {"slower_than": "x"}, {"cursor": "x"},
        )  # fmt: skip
        for wrong in wrongs:
            assert (await client.get("/v1/audit", params=wrong, headers=operator)).status_code == 400
    await catalog.close()


def test_the_command_and_the_http_door_offer_every_filter() -> None:
    fields = set(AuditFilter.__struct_fields__)
    assert set(FILTER_PARAMETERS) == fields
    options = {field.name for field in dataclasses.fields(Wanted)}
    # `--profile` is an option of every command, and `audit show` is about one call.
    assert options == {*FILTER_PARAMETERS.values()} - {"in_profile", "call_id"}


def test_who_calls_over_standard_input_came_in_through_that_door() -> None:
    from pegboard.server.principal import Principal, context_maker

    principal = Principal(identity=Identity(), profile=None, session="stdio", door="stdio")
    assert context_maker(None)(principal).request.door == "stdio"
