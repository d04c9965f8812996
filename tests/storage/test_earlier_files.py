"""Files that the code of af05731 wrote (`make_stores.py`) open with nothing lost, and get a schema version."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from pegboard import Catalog, Tasks, ToolContext
from pegboard.agents.conversations import SessionKey, SqliteConversations
from pegboard.auth.keyring import Keyring
from pegboard.auth.keys import KeyStore
from pegboard.consent.grant_scope import open_arguments, scope_text
from pegboard.consent.sql_records import SCHEMA
from pegboard.consent.sqlite_store import SqliteConsents
from pegboard.discovery.learning.use_store import Use, UseStore
from pegboard.model.record import replace
from pegboard.models.embedding.cache import CachedEmbedder
from pegboard.models.embedding.hashing import HashingEmbedder
from pegboard.storage.sqlite_file import SqliteFile
from pegboard.workspace.document_workspace import Workspace
from tests.storage.make_stores import ANN, NOW, REQUEST, shop
from tests.timing import PATIENCE_S

EARLIER = Path(__file__).parent / "of_af05731"
Unpack = Callable[[str], Path]


@pytest.fixture
def unpack(tmp_path: Path) -> Unpack:
    """Return what unpacks one of the files."""

    def unpacked(name: str) -> Path:
        path = tmp_path / name
        path.write_bytes(gzip.decompress((EARLIER / f"{name}.gz").read_bytes()))
        path.chmod(0o600)
        return path

    return unpacked


def rows(path: Path, sql: str) -> list[Any]:
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        untyped: Any = connection
        return list(untyped.execute(sql))


def versions(path: Path) -> list[Any]:
    return rows(path, "select store, version from pegboard_schema_versions order by store")


async def test_every_api_key_is_there_and_the_good_ones_open(unpack: Unpack) -> None:
    path = unpack("keys.db")
    store = KeyStore(path, clock=lambda: NOW)
    assert [(key.name, key.state(NOW)) for key in store.listed()] == [
        ("ann", "active"), ("ann", "active"), ("bob", "revoked"),
    ]  # fmt: skip
    first = (EARLIER / "keys.txt").read_text(encoding="utf-8").strip()
    credential = await Keyring(path, clock=lambda: NOW).credential(first)
    new = store.rotate("ann", overlap_s=60)[0]
    successor = await Keyring(path, clock=lambda: NOW).credential(new)
    assert (successor.owner, successor.key) == (credential.owner, credential.key)
    assert versions(path) == [("api_keys", 2)]


async def test_every_consent_is_there(unpack: Unpack) -> None:
    path = unpack("consents.db")
    store = SqliteConsents(path, wall_clock=lambda: NOW)
    listed = {consent.state: consent for consent in await store.listed(is_open=False) if not consent.is_grant}
    assert (listed["asked"].question, listed["asked"].arguments) == ("Pay bob?", {"to": "bob"})
    assert listed["declined"].decided_by == "ann"
    [grant] = [consent for consent in await store.listed(is_open=False) if consent.is_grant]
    assert (grant.uses_left, grant.user_id, grant.matching) == (5, "ann", {"type": "object"})
    assert (open_arguments(grant.matching or {}), scope_text(grant.matching or {})) == (
        None, "OPEN: any value of every other argument.",
    )  # fmt: skip
    answer = await store.recall(REQUEST)
    assert answer is not None
    assert not answer.is_yes
    assert await store.use_up("mark", keep_s=60.0) is False
    assert await store.use_up("other", keep_s=60.0) is True
    assert versions(path) == [("consents", 4)]


async def test_a_file_of_consents_from_before_reasons_keeps_its_answers_and_takes_reasons(unpack: Unpack) -> None:
    path = unpack("consents.db")
    before = SqliteFile(path, replace(SCHEMA, sqlite=SCHEMA.sqlite[:3]), busy_s=2.0)
    with before.transaction() as run:
        run("update consents set edited = :edited, edited_by = 'ann' where state = 'asked'", edited='{"to": "eve"}')
        count = run("select count(*) from consents")[0][0]
    assert versions(path) == [("consents", 3)]
    store = SqliteConsents(path, wall_clock=lambda: NOW)
    listed = {consent.state: consent for consent in await store.listed(is_open=False)}
    assert (listed["asked"].edited, listed["asked"].edited_by) == ({"to": "eve"}, "ann")
    assert (listed["declined"].decided_by, listed["declined"].decline_reason) == ("ann", None)
    await store.decide(listed["asked"].id, is_yes=False, decided_by="bob", reason="She left.")
    decided = await store.shown(listed["asked"].id)
    assert decided is not None
    assert decided.decline_reason == "She left."
    assert rows(path, "select count(*) from consents") == [(count,)]


async def test_every_turn_of_a_conversation_is_there(unpack: Unpack) -> None:
    path = unpack("conversations.db")
    store = SqliteConversations(path)
    one, two = (SessionKey("sales", "ann", "s1", session) for session in ("one", "two"))
    assert (await store.turns(one, last=9), await store.turns(two, last=9)) == ([b"a", b"b"], [b"c"])
    await store.append(one, b"d", keep=9)
    assert await store.turns(one, last=9) == [b"a", b"b", b"d"]
    assert versions(path) == [("conversations", 1)]


def test_every_learned_use_is_there(unpack: Unpack) -> None:
    path = unpack("use.sqlite")
    store = UseStore(path, catalog="shop", wall_clock=lambda: NOW)
    terms = frozenset({"send", "money"})
    assert set(store.of_space("=s1")) == {
        Use(caller=caller, tool="pay", definition="d1", terms=terms) for caller in ("ann", "bob")
    }
    assert versions(path) == [("learned_use", 1)]


async def test_every_cached_vector_is_there(unpack: Unpack) -> None:
    path = unpack("vectors.db")

    class Silent(HashingEmbedder, frozen=True):
        async def embed(self, texts: Any) -> Any:
            assert not list(texts)
            return await super().embed(texts)

    texts = ["one", "two"]
    cached = await CachedEmbedder(Silent(), path).embed(texts)
    assert np.allclose(cached, await HashingEmbedder().embed(texts))
    assert versions(path) == [("embedding_cache", 1)]


async def test_every_document_is_there(unpack: Unpack) -> None:
    path = unpack("documents.db")
    before = rows(path, "select id from documents")
    workspace = Workspace(f"sqlite:{path}")
    try:
        [statistics] = await workspace.statistics()
        assert (statistics["space"], statistics["documents"]) == ("s1", 2)
        [grant] = await workspace.grants()
        assert (grant["principal"], grant["access"]) == ("user:ann", "read")
        assert await workspace.upload(b"# New\n\nMore.\n", space="s1", path="new.md")
        view = _catalog(workspace).view(ToolContext(user_id="ann", space_id="s1"))
        found = await view.call("search_documents", {"query": "refnuds"})
        assert {hit["name"] for hit in found.structured["hits"]} == {"refunds.md"}
        # The search has read those of before again, so that they are found like new ones; their ids stay.
        assert set(rows(path, "select id, analysis from documents")) >= {(id_, 1) for (id_,) in before}
    finally:
        workspace.close()
    assert [name for (name,) in rows(path, "select name from documents order by name")] == [
        "new.md", "prices.csv", "refunds.md",
    ]  # fmt: skip
    assert versions(path) == [("documents", 4)]


def _catalog(workspace: Workspace) -> Catalog:
    catalog = Catalog()
    catalog.use_documents(workspace.store)
    return catalog


async def test_a_task_that_waited_goes_on_and_one_that_ended_has_its_result(unpack: Unpack) -> None:
    path = unpack("tasks.db")
    catalog = shop(Tasks(f"sqlite:{path}"))
    try:
        await catalog.tasks.wake()
        records = {record.state: record for record in await catalog.tasks.list(ANN)}
        ended, waiting = records["completed"], records["input_required"]
        assert (await catalog.tasks.result(ended.task_id, ANN, timeout_s=PATIENCE_S)).text == "first: True"
        assert (waiting.message, waiting.fraction) == ("downloaded", 0.5)
        yes: dict[str, Any] = {"action": "accept", "content": {"answer": True}}
        await catalog.tasks.answer(waiting.task_id, ANN, dict.fromkeys(waiting.questions, yes))
        assert (await catalog.tasks.result(waiting.task_id, ANN, timeout_s=PATIENCE_S)).text == "second: True"
    finally:
        await catalog.close()
    assert versions(path) == [("tasks", 2)]
