"""Make one SQLite file of each store with a few records. `of_af05731/` was made with the code of that commit.

git worktree add ../old af05731
PYTHONPATH=../old/src python tests/storage/make_stores.py FOLDER
"""

from __future__ import annotations

import asyncio
import gzip
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from pegboard import CallContext, Catalog, Tasks, ToolContext
from pegboard.agents.conversations import SessionKey, SqliteConversations
from pegboard.auth.keys import KeyStore
from pegboard.consent.sqlite_store import SqliteConsents
from pegboard.discovery.learning.use_store import Use, UseStore
from pegboard.model.consent import ConsentRequest, Grant
from pegboard.models.embedding.cache import CachedEmbedder
from pegboard.models.embedding.hashing import HashingEmbedder
from pegboard.workspace.document_workspace import Workspace

NOW = 1_790_000_000.0
ANN = ToolContext(user_id="ann", space_id="s1")
REQUEST = ConsentRequest(
    tool="pay", definition_hash="d1", args_digest="a1", arguments={"to": "bob"}, reason="It pays.", user_id="ann",
    space_id="s1", session_id="one", agent=None, call_id="c1", credential="key:k",
)  # fmt: skip


def keys(folder: Path) -> None:
    """Three keys: one good, one rotated and still good, one revoked."""
    store = KeyStore(folder / "keys.db", clock=lambda: NOW)
    (folder / "keys.txt").write_text(f"{store.add('ann')[0]}\n", encoding="utf-8")
    store.rotate("ann", overlap_s=10 * 365 * 86_400)
    store.add("bob", lifetime_s=86_400)
    store.revoke("bob")


async def consents(folder: Path) -> None:
    """An open question, a no, a grant and a used answer."""
    store = SqliteConsents(folder / "consents.db", wall_clock=lambda: NOW)
    await store.file(REQUEST, "Pay bob?")
    await store.record(REQUEST, is_yes=False, decided_by="ann")
    grant = Grant(
        tool="pay", definition_hash="d1", matching={"type": "object"}, calls=5, lasts_s=3_600.0, user_id="ann",
        space_id="s1", credential=None,
    )  # fmt: skip
    await store.grant(grant, decided_by="cli:ann")
    await store.use_up("mark", keep_s=3_600.0)


async def conversations(folder: Path) -> None:
    """Two sessions with three turns."""
    store = SqliteConversations(folder / "conversations.db", wall_clock=lambda: NOW)
    for session, turn in (("one", b"a"), ("one", b"b"), ("two", b"c")):
        await store.append(SessionKey("sales", "ann", "s1", session), turn, keep=10)


def learned(folder: Path) -> None:
    """Two uses of one space."""
    store = UseStore(folder / "use.sqlite", catalog="shop", wall_clock=lambda: NOW)
    for caller in ("ann", "bob"):
        store.add("=s1", Use(caller=caller, tool="pay", definition="d1", terms=frozenset({"send", "money"})))


async def vectors(folder: Path) -> None:
    """The vectors of two texts."""
    await CachedEmbedder(HashingEmbedder(), folder / "vectors.db").embed(["one", "two"])


async def documents(folder: Path) -> None:
    """A text and a table in one space, with a grant."""
    workspace = Workspace(f"sqlite:{folder}/documents.db")
    await workspace.upload(b"# Refunds\n\nMoney comes back within 14 days.\n", space="s1", path="refunds.md")
    await workspace.upload(b"name,price\nlamp,10\ndesk,200\n", space="s1", path="prices.csv")
    await workspace.grant("user:ann", "s1", "read")
    workspace.close()


def shop(store: Any) -> Catalog:
    """A catalog whose one tool asks a person."""
    catalog = Catalog("shop", tasks=store)

    @catalog.tool(groups="core", task="required")
    async def import_orders(ctx: CallContext, source: str) -> object:
        """Import orders."""
        await ctx.progress(0.5, "downloaded")
        return f"{source}: {await ctx.ask('Import?', schema={'type': 'boolean'})}"

    return catalog


async def tasks(folder: Path) -> None:
    """A task that has ended, and one that waits for a person."""
    catalog = shop(Tasks(f"sqlite:{folder}/tasks.db", ttl_s=100 * 365 * 86_400))
    view = catalog.view(ANN)
    for source in ("first", "second"):
        task_id = (await view.call("import_orders", {"source": source})).task_id
        assert task_id is not None
        record = await catalog.tasks.get(task_id, ANN)
        while not (record.questions and record.message):
            await catalog.tasks.changed(record, timeout_s=1.0)
            record = await catalog.tasks.get(task_id, ANN)
        if source == "first":
            yes: dict[str, Any] = {"action": "accept", "content": {"answer": True}}
            await catalog.tasks.answer(task_id, ANN, dict.fromkeys(record.questions, yes))
            await catalog.tasks.result(task_id, ANN, timeout_s=60)
    await catalog.close()


async def main(folder: Path) -> None:
    """Make all of them, each in one compressed file."""
    folder.mkdir(parents=True, exist_ok=True)
    keys(folder)
    learned(folder)
    for make in (consents, conversations, vectors, documents, tasks):
        await make(folder)
    for path in [*folder.glob("*.db"), *folder.glob("*.sqlite")]:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("pragma wal_checkpoint(truncate)")
            connection.execute("vacuum")
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
