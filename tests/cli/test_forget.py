"""`pegboard forget`: what is stored about a person is gone, and what is kept is listed."""

import asyncio
import json
import os
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from pegboard.agents.conversations import SessionKey, conversations_of
from pegboard.auth.keys import KeyStore
from pegboard.config import load
from pegboard.config.personal_data import NOT_PERSONAL, PERSONAL
from pegboard.config.stores import SCHEMAS, store_database, stores_of
from pegboard.consent.sql_records import SqlConsents
from pegboard.discovery.learning.search_use import mark_of_user
from pegboard.model.consent import ConsentRequest
from pegboard.storage.database import database_of
from pegboard.storage.store_uri import StoreUri
from tests.cli.conftest import Run

CANARY = "canaryperson"
OTHER = "somebodyelse"
AUDITS = {"sqlite": "sqlite:audit.db", "jsonl": "jsonl:audit.jsonl"}


@pytest.fixture(params=["sqlite", "jsonl", "postgresql"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URI of a database for all stores but the audit, which may be in files."""
    tmp_path.chmod(0o700)
    if request.param != "postgresql":
        audit, uri = AUDITS[request.param], "sqlite:all.db"
    else:
        server: str = request.getfixturevalue("postgres_url")
        name = f"forget_{uuid4().hex}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"create database {name}".encode())
        audit = uri = server.replace("/postgres?", f"/{name}?")
    rule = {"when": {"key": "phone"}, "user": CANARY, "profiles": ["all"]}
    config = {
        "consents": {"store": uri},
        "agents": {"store": uri},
        "connections": {"store": uri, "key": "k" * 32},
        "workspace": {"store": uri},
        "audit": {"store": audit, "sign_key": "s" * 32, "bodies": "redacted"},
        "tasks": {"store": "sqlite:tasks.db"},
        "discovery": {"learn": {"file": "use.db"}},
        "identity": {"api_keys": {"store": "sqlite:keys.db"}, "map": [rule]},
        "groups": {"core": "All"},
        "profiles": {"all": {"include": ["core"]}},
    }
    (tmp_path / "pegboard.yaml").write_text(json.dumps(config))
    return uri


def question(user: str, *, asked: str) -> ConsentRequest:
    return ConsentRequest(
        tool="main.wipe", definition_hash="d", args_digest=asked, arguments={"who": user}, reason=f"{user} asks",
        user_id=user, space_id="s1", session_id=f"session of {user}", agent=None, call_id="c1", credential="key",
    )  # fmt: skip


async def fill(folder: Path, run: Run) -> None:
    """Let both persons leave something in each store."""
    config = load(folder / "pegboard.yaml", env=dict(os.environ))
    databases = {store.name: store for store in stores_of(config)}
    consents = SqlConsents(store_database(databases["consents"]))
    conversations = conversations_of(databases["conversations"].uri)
    for user in (CANARY, OTHER):
        await consents.record(question(user, asked="1"), is_yes=False, decided_by=f"cli:{user}")
        await consents.file(question(user, asked="2"), f"{user} wants to wipe")
        await conversations.append(SessionKey("helper", user, "s1", "one"), f"I am {user}".encode(), keep=10)
        with store_database(databases["connections"]).transaction() as connection:
            connection(
                "insert into connections values (:id, :id, :user, null, 'git', 'a', 'a', 'a', 'a', 'a', 'a', 'sealed', "
                "1, 1, null, null, 1, 1, null, null, :user)",
                id=user[:3], user=user,
            )  # fmt: skip
        with store_database(databases["learned_use"]).transaction() as connection:
            connection("insert into used values ('c', 's', :mark, 't', 'd', 'w', 1, 1)", mark=mark_of_user(user))


def prepare(folder: Path, run: Run) -> None:
    asyncio.run(fill(folder, run))
    KeyStore(folder / "keys.db").add("phone")
    for user in (CANARY, OTHER):
        assert run("workspace", "grant", f"user:{user}", "s1", "--new").code == 0
        assert run("call", "nothing", f"x={user}", "--as", f"user={user}").code != 0


def contents(folder: Path, uri: str) -> str:
    """Return everything that the stores have."""
    files = [path for path in folder.iterdir() if path.is_file() and path.name != "pegboard.yaml"]
    text = "".join(path.read_bytes().decode("latin-1") for path in files)
    if uri.startswith("sqlite"):
        return text
    with psycopg.connect(uri) as connection:
        names = connection.execute(
            "select table_schema, table_name from information_schema.tables where table_schema not like 'pg_%' "
            "and table_schema <> 'information_schema'"
        ).fetchall()
        for schema, name in names:
            for (row,) in connection.execute(f'select t::text from "{schema}"."{name}" t'.encode()):
                text += str(row)
    return text


def test_no_store_has_the_name_afterwards_and_others_keep_theirs(run: Run, tmp_path: Path, stores: str) -> None:
    prepare(tmp_path, run)
    assert CANARY in contents(tmp_path, stores)
    planned = json.loads(run("forget", f"user:{CANARY}", "--json").out)
    counts = {f"{each['store']}: {each['what']}": each["count"] for each in planned["records"]}
    assert (planned["is_done"], CANARY in contents(tmp_path, stores)) == (False, True)
    assert {what: count for what, count in counts.items() if not count} == {
        "connections: accounts whose connection is not complete": 0,
    }
    done = json.loads(run("forget", f"user:{CANARY}", "--yes", "--json").out)
    assert done["is_done"]
    left = contents(tmp_path, stores)
    assert CANARY not in left
    assert CANARY.encode().hex() not in left
    assert (OTHER in left, done["pseudonym"] in left) == (True, True)
    again = json.loads(run("forget", f"user:{CANARY}", "--json").out)
    assert {each["count"] for each in again["records"]} == {0}
    verified = run("audit", "verify")
    assert verified.code == 0, verified.out
    assert "lost names by `pegboard forget`" in verified.out
    (event,) = json.loads(run("audit", "ls", "--kind", "user_forgotten", "--json").out)["rows"]
    assert event["detail"]["pseudonym"] == done["pseudonym"]
    (row,) = json.loads(run("audit", "ls", "--user", done["pseudonym"], "--json").out)["rows"]
    assert (row["name"], "arguments" in row) == ("nothing", False)


def test_what_is_kept_is_listed(run: Run, tmp_path: Path, stores: str) -> None:
    prepare(tmp_path, run)
    shown = run("forget", f"user:{CANARY}").out
    kept = shown.partition("Kept:")[2]
    for text in ("`pegboard keys revoke phone`", "identity.map", "Tasks", "Documents", "audit", "backups"):
        assert text in kept
    assert ("PostgreSQL" in kept) == stores.startswith("postgresql")
    assert shown.rstrip().endswith(f"Nothing was changed. To delete this for good: pegboard forget user:{CANARY} --yes")
    assert f"'{CANARY}' is forgotten" in run("forget", f"user:{CANARY}", "--yes").out


@pytest.mark.parametrize("who", ["ann", "user:", "key:ann"])
def test_a_person_is_named_with_user(run: Run, who: str) -> None:
    ran = run("forget", who)
    assert (ran.code, f"{who!r} is not a person. Write user:NAME" in ran.err) == (2, True)


def test_every_table_with_a_column_for_a_person_is_emptied_or_listed(tmp_path: Path) -> None:
    named = {"user_id", "user", "caller", "principal", "holder", "decided_by", "owner"}
    handled = {records.table for of_store in PERSONAL.values() for records in of_store} | set(NOT_PERSONAL)
    for name, schema in SCHEMAS.items():
        uri = StoreUri.parse(f"sqlite:{tmp_path / name}.db", folder=tmp_path)
        database = database_of(uri, schema, busy_s=5.0)
        database.migrate()
        with database.reading() as connection:
            for table in schema.tables:
                columns = {row[0] for row in connection("select name from pragma_table_info(:table)", table=table)}
                assert not columns & named or table in handled, (name, table)
