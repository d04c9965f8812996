"""pegboard store: copies of what is used, put back and brought up to date."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from pegboard.auth.keys import KeyStore
from pegboard.consent.sqlite_store import SqliteConsents
from tests.cli.conftest import Run
from tests.storage.make_stores import NOW

EARLIER = Path(__file__).parents[1] / "storage" / "of_af05731"
CONFIG = """\
profiles: {chat: {}}
identity:
  api_keys: {store: "sqlite:./keys.db"}
  map: [{when: {key: ann}, user: ann, profiles: [chat]}]
consents: {store: "sqlite:./consents.db"}
agents: {store: "sqlite:./conversations.db"}
tasks: {store: "sqlite:./tasks.db"}
workspace: {store: "sqlite:./documents.db"}
"""
FILES = ("keys.db", "consents.db", "conversations.db", "tasks.db", "documents.db")
NAMES = ("api_keys", "consents", "conversations", "tasks", "documents")


@pytest.fixture(autouse=True)
def _earlier(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text(CONFIG)
    for name in FILES:
        (tmp_path / name).write_bytes(gzip.decompress((EARLIER / f"{name}.gz").read_bytes()))
        (tmp_path / name).chmod(0o600)


def records(path: Path) -> dict[str, int]:
    """Return how many rows each table has."""
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        tables = [name for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")]
        return {name: connection.execute(f'select count(*) from "{name}"').get for name in tables}


def rows(run: Run, *words: str) -> dict[str, dict[str, str]]:
    done = run("store", *words, "--json")
    assert done.code == 0, done.err
    return {row["store"]: row for row in json.loads(done.out)["stores"]}


def test_files_of_af05731_are_shown_and_migrated_with_every_record(run: Run, tmp_path: Path) -> None:
    before = {name: records(tmp_path / name) for name in FILES}
    shown = rows(run, "migrate", "--dry-run")
    assert {name: (row["version"], row["state"]) for name, row in shown.items()} == {
        "api_keys": ("2", "current"), "consents": ("1", "version 4 is due"), "conversations": ("1", "current"),
        "tasks": ("1", "version 2 is due"), "documents": ("2", "version 4 is due"),
    }  # fmt: skip
    assert {name: records(tmp_path / name) for name in FILES} == before
    rows(run, "migrate")
    for name in FILES:
        # Version 3 of documents has two more tables.
        made = {"languages": 0, "spellings": 0} if "documents" in before[name] else {}
        assert records(tmp_path / name) == before[name] | made | {"pegboard_schema_versions": 1}


def test_a_key_file_of_an_older_version_is_migrated(run: Run, tmp_path: Path) -> None:
    with closing(apsw.Connection(str(tmp_path / "keys.db"))) as connection:
        connection.execute("alter table api_keys drop column holder")
    assert rows(run, "migrate", "--dry-run")["api_keys"]["state"] == "version 2 is due"
    assert rows(run, "migrate")["api_keys"]["state"] == "migrated from 1"
    assert {key.holder for key in KeyStore(tmp_path / "keys.db").listed()} != {None}


def test_a_backup_is_one_state_while_others_write_and_is_put_back(run: Run, tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.db")
    before = [key.id for key in store.listed()]
    with closing(apsw.Connection(str(tmp_path / "documents.db"))) as writer:
        writer.execute("begin immediate; delete from documents")
        assert rows(run, "backup", "copies").keys() == set(NAMES)
        writer.execute("rollback")
    assert sorted(path.name for path in (tmp_path / "copies").iterdir()) == sorted(f"{name}.db" for name in NAMES)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "copies").iterdir()} == {0o600}
    assert records(tmp_path / "copies" / "documents.db")["documents"] == 2
    store.add("cyd")
    refused = run("store", "restore", "copies")
    assert (refused.code, "--overwrite" in refused.err) == (1, True)
    assert len(store.listed()) == len(before) + 1
    assert {row["state"] for row in rows(run, "restore", "copies", "--overwrite").values()} == {"restored"}
    assert [key.id for key in store.listed()] == before
    again = run("store", "backup", "copies")
    assert (again.code, "exists already" in again.err) == (1, True)


async def test_a_store_that_is_gone_is_restored_from_a_file_of_af05731(run: Run, tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir(mode=0o700)
    for name, file in zip(NAMES, FILES, strict=True):
        (tmp_path / file).rename(tmp_path / "copies" / f"{name}.db")
    assert {row["state"] for row in rows(run, "restore", "copies").values()} == {"restored"}
    assert len(KeyStore(tmp_path / "keys.db").listed()) == 3
    consents = SqliteConsents(tmp_path / "consents.db", wall_clock=lambda: NOW)
    assert await consents.use_up("mark", keep_s=1.0) is False
    assert records(tmp_path / "consents.db")["pegboard_schema_versions"] == 1


@pytest.mark.parametrize("harm", ["damaged", "newer"])
def test_a_backup_that_cannot_be_used_changes_nothing(run: Run, tmp_path: Path, harm: str) -> None:
    rows(run, "backup", "copies")
    copy = tmp_path / "copies" / "consents.db"
    if harm == "damaged":
        copy.write_bytes(b"x" * 8192)
    else:
        with closing(apsw.Connection(str(copy))) as connection:
            connection.execute("create table pegboard_schema_versions (store text primary key, version integer)")
            connection.execute("insert into pegboard_schema_versions values ('consents', 99)")
    before = {name: (tmp_path / name).read_bytes() for name in FILES}
    refused = run("store", "restore", "copies", "--overwrite")
    assert refused.code == 1
    assert ("version 99" if harm == "newer" else "not a database") in refused.err
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == before


def test_what_it_cannot_do_is_said(run: Run, tmp_path: Path) -> None:
    assert "requires an argument" in run("store", "backup").err
    assert "Unexpected argument" in run("store", "migrate", "x").err
    assert "Unknown option: --overwrite" in run("store", "backup", "x", "--overwrite").err
    assert "Unknown option: --dry-run" in run("store", "backup", "x", "--dry-run").err
    (tmp_path / "keys.db").chmod(0o666)
    refused = run("store", "migrate")
    assert "chmod o-w" in refused.err
    (tmp_path / "pegboard.yaml").write_text("tools: []\n")
    assert "names no store" in run("store", "migrate").err
