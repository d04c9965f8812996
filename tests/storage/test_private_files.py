"""Every SQLite store is private to its owner: created so, and refused if other users may write it."""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pegboard import CallError, DefinitionError, Tasks
from pegboard.agents.conversations import SessionKey, SqliteConversations
from pegboard.auth.keys import KeyStore, KeyStoreError
from pegboard.consent.sqlite_store import SqliteConsents
from pegboard.discovery.learning.use_store import UseStore
from pegboard.storage.file_permissions import store_faults
from pegboard.workspace.document_workspace import Workspace
from tests.storage.make_stores import ANN, shop

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has access lists instead of modes")


async def use_keys(path: Path) -> None:
    KeyStore(path).add(f"k{path.stat().st_size if path.exists() else 0}")


async def use_consents(path: Path) -> None:
    await SqliteConsents(path).use_up("mark", keep_s=1.0)


async def use_conversations(path: Path) -> None:
    await SqliteConversations(path).turns(SessionKey("a", None, None, "s"), last=1)


async def use_learned(path: Path) -> None:
    UseStore(path, catalog="c").of_space("s")


async def use_documents(path: Path) -> None:
    workspace = Workspace(f"sqlite:{path}")
    try:
        await workspace.statistics()
    finally:
        workspace.close()


async def use_tasks(path: Path) -> None:
    catalog = shop(Tasks(f"sqlite:{path}"))
    try:
        await catalog.tasks.list(ANN)
    finally:
        await catalog.close()


STORES = [use_keys, use_consents, use_conversations, use_learned, use_documents, use_tasks]
REFUSALS = (KeyStoreError, DefinitionError, OSError, CallError)


@pytest.mark.parametrize("use", STORES)
async def test_a_store_is_created_for_its_owner_and_refused_once_others_may_write_it(
    tmp_path: Path, use: Callable[[Path], Awaitable[Any]]
) -> None:
    path = tmp_path / "s.db"
    await use(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o602)
    with pytest.raises(REFUSALS, match=f"may be written by everybody; run chmod o-w {path}"):
        await use(path)
    path.chmod(0o600)
    tmp_path.chmod(0o777)
    with pytest.raises(REFUSALS, match=f"the folder '{tmp_path}' may be written by everybody; run chmod o-w"):
        await use(path)
    # In a sticky folder such as /tmp others cannot replace the file.
    tmp_path.chmod(0o1777)
    await use(path)
    tmp_path.chmod(0o700)


@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_a_file_that_sqlite_would_read_next_to_it_counts_as_well(tmp_path: Path, end: str) -> None:
    path = tmp_path / "s.db"
    KeyStore(path).add("ann")
    planted = Path(f"{path}{end}")
    planted.touch()
    planted.chmod(0o666)
    assert [fault.where for fault in store_faults(path)] == [str(planted)]
    with pytest.raises(KeyStoreError, match="may be written by everybody"):
        KeyStore(path).add("bob")


def test_a_link_is_judged_by_the_file_behind_it(tmp_path: Path) -> None:
    real = tmp_path / "real" / "s.db"
    real.parent.mkdir()
    KeyStore(real).add("ann")
    link = tmp_path / "link.db"
    link.symlink_to(real)
    assert list(store_faults(link)) == []
    real.chmod(0o606)
    assert {fault.where for fault in store_faults(link)} == {str(link), str(real)}
