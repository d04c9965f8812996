"""A caller sees its spaces as if no others existed: not a byte, a count, a score, an id or a word of an error."""

from __future__ import annotations

import gc
import random
import shutil
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from pegboard import ToolContext
from pegboard.model.document import DocumentTable, NewDocument
from pegboard.model.error import CallError
from pegboard.workspace.limits import DOCUMENT_STORE_CONNECTIONS
from tests.workspace.library import ON_SQLITE_ALONE, Library, Place, as_bytes, in_space
from tests.workspace.postgres_databases import Databases

SPACES = ("alpha", "beta", "gamma")
WORDS = ("lease", "notice", "period", "travel", "invoice", "holiday")
# Who may see what: by the space that the host passes, by a user's grants, by a role's.


def callers() -> dict[str, tuple[ToolContext, set[str]]]:
    """Return callers whose requests have made no call yet, each with the spaces that it may see."""
    return {
        "ann in alpha": (in_space("alpha", "ann"), {"alpha"}),
        "bob": (in_space(None, "bob"), {"beta"}),
        "support": (in_space(None, "cid", "support"), {"beta", "gamma"}),
        "nobody": (ToolContext(), set[str]()),
        "stranger": (in_space("delta", "dan"), set[str]()),
    }


def canary(space: str) -> str:
    return f"canary{space}"


async def planted(place: Place) -> Library:
    """Return a library with three spaces whose every name and text has a canary beside the words that all share."""
    library, dice = Library(place), random.Random(7)
    for size, space in enumerate(SPACES, start=1):
        mark = canary(space)
        for number in range(2):
            words = [" ".join(dice.choices(WORDS, k=12)) for _ in range(size * 3)]
            texts = {
                f"shared/{mark}-{number}/{place}-{mark}.txt": f"{text}\n{mark} {space}\n"
                for place, text in enumerate(words)
            }
            rows = DocumentTable(name="orders", columns=("name", mark), rows=((f"{mark}-row", size),))
            await library.add(space, f"{mark}-{number}", texts, tables=(rows,), owner=mark, size=size)
        # The same document in each of them, so that names, paths and checksums are no help.
        await library.add(space, "common", {"shared/common.txt": "lease notice period travel"})
    await library.store.grant("user:bob", "beta", "read")
    await library.store.grant("role:support", "beta", "read")
    await library.store.grant("role:support", "gamma", "write")
    return library


async def without(library: Library, visible: set[str], folder: Path, databases: Databases | None) -> Library:
    """Return the same library as if the other spaces had never been: same ids, nothing else."""
    library.store.close()
    if databases is None:
        folder.mkdir()
        shutil.copy(Path(str(library.place)) / "documents.db", folder / "documents.db")
    twin = Library(folder if databases is None else databases.copy_of(str(library.place)))
    for space in set(SPACES) - visible:
        for number in ("common", f"{canary(space)}-0", f"{canary(space)}-1"):
            await twin.store.remove_source(twin.store.operator_scope(space), space, number)
    twin.store.close()
    gone = ",".join(f"'{space}'" for space in set(SPACES) - visible) or "null"
    if databases is None:
        with apsw.Connection(str(folder / "documents.db")) as db:
            db.execute(f"delete from spaces where name in ({gone})")
    else:
        with psycopg.connect(str(twin.place), autocommit=True) as connection:
            connection.execute(f"delete from pegboard.spaces where name in ({gone})")  # type: ignore[arg-type] - of ours
    return twin


async def pool_of(library: Library) -> dict[str, list[Any]]:
    """Return what a caller may send, true or guessed: every id, name and cursor of every space."""
    sources, documents, cursors = list[str](), list[str](), list[str]()
    uris, tables = ["docs://alpha/common/nothing.txt", "docs://nowhere/common/shared/common.txt"], ["nothing"]
    for space in SPACES:
        ctx = in_space(space)
        page = await library.call("list_sources", ctx, limit=1)
        cursors.append(page["next_cursor"])
        listed = await library.call("list_sources", ctx)
        sources += [each["source_id"] for each in listed["items"]]
        folder = await library.call("list_folder_contents", ctx, source_id=sources[-1], path="/shared", limit=1)
        cursors += [folder["next_cursor"]] * (folder["next_cursor"] is not None)
        uris += (await library.resources(ctx))[:3]
        unknown = (await library.call("query_documents", ctx, sql="select * from nothing"))["error"][1]
        tables += unknown.partition("There are: ")[2].partition(". Ask")[0].split(", ")[:3]
        documents += [each["document_id"] for each in (await library.call("find_by_name", ctx, pattern="*"))["items"]]
    marks = [canary(space) for space in SPACES]
    return {
        "source_id": [*sources, "src_0000000000000000", "common"],
        "document_id": [*documents, "doc_0000000000000000", "1"],
        "cursor": cursors,
        "path": ["/", "/shared", *(f"/shared/{mark}-0" for mark in marks), "/shared/common.txt"],
        "uri": [*uris, *(uri.replace("docs://beta", "docs://alpha") for uri in uris)],
        "sql": [
            *(f"select * from {table}" for table in tables),
            "select name, sql from sqlite_master",
            "select set_config('pegboard.spaces', 'all', true)",
            "select * from pegboard.documents",
            f"select a.* from {tables[-1]} a, {tables[1]} b",
        ],
        "query": [*WORDS, *marks, "lease notice period", " ".join(marks), "nothingofthekind"],
        "pattern": [*marks, "canary", "lease", "*", "shared/**", "*.txt"],
        "metadata": [{"owner": mark} for mark in marks] + [{"size": 1}, {"size": 3}, {}],
    }


def drawn(dice: random.Random, pool: dict[str, list[Any]]) -> tuple[str, dict[str, Any]]:
    """Return a call that somebody might try."""
    tool = dice.choice(
        "list_sources list_folder_contents folder_tree search_documents grep_documents find_by_name document_info "
        "read_document query_documents resource resources".split()
    )
    pick = {key: dice.choice(values) for key, values in pool.items()}
    filters: dict[str, Any] = {}
    if dice.random() < 0.5:
        filters = dice.choice(
            [
                {"source_ids": [pick["source_id"]]},
                {"feed_ids": [pick["source_id"]]},
                {"document_ids": [pick["document_id"]]},
                {"folder_path": pick["path"]},
            ]
        )
    paging = {"cursor": pick["cursor"]} if dice.random() < 0.2 else {"limit": dice.choice([1, 2, 50])}
    match tool:
        case "list_sources":
            return tool, paging
        case "list_folder_contents":
            return tool, {"source_id": pick["source_id"], "path": pick["path"], **paging}
        case "folder_tree":
            return tool, {
                "source_id": pick["source_id"], "path": pick["path"], "include_documents": True,
                "max_nodes": dice.choice([1, 3, 500]),
            }  # fmt: skip
        case "search_documents":
            return tool, {
                "query": pick["query"],
                "metadata": pick["metadata"],
                "min_score": dice.choice([0, 0.3]),
                **filters,
            }
        case "grep_documents":
            return tool, {"pattern": pick["pattern"].strip("*") or "e", "ignore_case": True, **filters}
        case "find_by_name":
            return tool, {"pattern": pick["pattern"], **filters}
        case "document_info":
            by_path = {"source_id": pick["source_id"], "path": f"{pick['path'].strip('/')}/x"}
            return tool, dice.choice([{"document_id": pick["document_id"]}, by_path])
        case "query_documents":
            return tool, {"sql": pick["sql"]}
        case "resource":
            return tool, {"uri": pick["uri"]}
        case "resources":
            return tool, {}
        case _:
            return tool, {"document_id": pick["document_id"], "start": dice.choice([0, 5])}


async def asked(library: Library, ctx: ToolContext, tool: str, args: dict[str, Any]) -> Any:
    """Call a tool, or look at the resources."""
    if tool == "resources":
        return await library.resources(ctx)
    return await (library.read(args["uri"], ctx) if tool == "resource" else library.call(tool, ctx, **args))


@ON_SQLITE_ALONE
async def test_calls_that_are_refused_leave_no_connection_open(library: Library, place: Place) -> None:
    await library.add("s1", "handbook", {"a.txt": "lease"})
    gc.disable()
    try:
        for _ in range(3 * DOCUMENT_STORE_CONNECTIONS):
            refused = await library.call("read_document", document_id="doc_x")
            assert refused["error"][0] == "not_found"
            assert (await library.call("query_documents", sql="select * from nothing"))["error"]
        opened = [link for link in map(_target, Path("/proc/self/fd").iterdir()) if link == str(place / "documents.db")]  # type: ignore[operator] - a folder
        assert 1 <= len(opened) <= DOCUMENT_STORE_CONNECTIONS
        library.store.close()
        # What was written stands in the file itself once nobody has it open.
        assert not Path(f"{place}/documents.db-wal").exists()
    finally:
        gc.enable()


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""


@pytest.mark.parametrize("seed", [1, pytest.param(range(2, 40), marks=pytest.mark.soak)])
async def test_whatever_is_asked_the_answer_is_as_if_the_other_spaces_had_never_been(
    request: pytest.FixtureRequest, place: Place, tmp_path: Path, seed: Any
) -> None:
    databases = None if isinstance(place, Path) else request.getfixturevalue("databases")
    library = await planted(place)
    pool = await pool_of(library)
    for name, (ctx, visible) in callers().items():
        twin = await without(library, visible, tmp_path / name, databases)
        hidden = [canary(space).encode() for space in SPACES if space not in visible]
        seen = 0
        for number in seed if isinstance(seed, range) else [seed]:
            dice = random.Random(number)
            for _ in range(60):
                tool, args = drawn(dice, pool)
                answer = await asked(library, ctx, tool, args)
                assert as_bytes(answer) == as_bytes(await asked(twin, ctx, tool, args)), (name, tool, args)
                said = as_bytes(args)
                shown = as_bytes(answer)
                assert not [mark for mark in hidden if mark in shown and mark not in said], (name, tool, args)
                seen += any(canary(space).encode() in shown for space in visible)
        # What may be seen was found: an answer that is always empty would pass as well.
        assert bool(seen) == bool(visible)
        twin.store.close()
    library.store.close()


async def test_what_is_stored_elsewhere_changes_no_score_and_no_order(library: Library) -> None:
    texts = {f"{place}.txt": f"lease {'notice ' * place}period of the house {place}" for place in range(5)}
    await library.add("s1", "handbook", texts)
    before = await library.call("search_documents", query="lease notice period")
    flood = {f"{place}.txt": "lease lease notice " * 40 + str(place) for place in range(30)}
    await library.add("s2", "flood", flood)
    assert await library.call("search_documents", query="lease notice period") == before
    assert len(before["hits"]) == 5
    scores = [hit["score"] for hit in before["hits"]]
    assert scores == sorted(scores, reverse=True)
    assert 0 < scores[-1] < scores[0] <= 1


async def test_who_was_given_a_space_may_write_it_until_it_is_granted_by_name(library: Library) -> None:
    store, ann = library.store, in_space("s1", "ann")
    assert (await store.scope(ann)).writable == {"s1"}
    await store.grant("user:bob", "s1", "read")
    assert (await store.scope(ann)).writable == frozenset()
    assert (await store.scope(in_space("s1", "bob"))).writable == frozenset()
    await store.grant("role:editor", "s1", "write")
    assert (await store.scope(in_space("s1", "eve", "editor"))).writable == {"s1"}
    # Taking the last grant back gives nobody more than before.
    assert await store.revoke("user:bob", "s1")
    assert await store.revoke("role:editor", "s1")
    assert (await store.scope(ann)) == (await store.scope(in_space("s1", "ann")))
    assert (await store.scope(ann)).writable == frozenset()


async def test_without_a_space_a_caller_has_what_is_granted_to_its_user_and_roles_alone(library: Library) -> None:
    for who, space, access in (
        ("user:bob", "s1", "read"),
        ("role:support", "s2", "write"),
        ("user:eve", "s3", "write"),
    ):
        await library.store.grant(who, space, access)  # type: ignore[arg-type] - one of the two words
    scope = await library.store.scope(in_space(None, "bob", "support"))
    assert (scope.spaces, scope.writable) == (("s1", "s2"), frozenset({"s2"}))
    assert (await library.store.scope(in_space(None, None))).spaces == ()
    # A user who is called like a role is not it.
    assert (await library.store.scope(in_space(None, "support"))).spaces == ()


async def test_a_reader_and_a_stranger_cannot_write_and_nothing_is_left_behind(library: Library) -> None:
    await library.add("s1", "handbook", {"a.txt": "lease"})
    await library.store.grant("user:bob", "s1", "read")
    document = NewDocument(path="b.txt", mime="text/plain", size_bytes=1, checksum="x", text="planted")
    before = await library.store.statistics()
    for ctx, space, kind in (
        (in_space("s1", "bob"), "s1", "read_only"),
        (in_space(None, "bob"), "s1", "read_only"),
        (in_space("s2", "bob"), "s1", "not_found"),
        (in_space(None, "eve"), "s1", "not_found"),
    ):
        scope = await library.store.scope(ctx)
        with pytest.raises(CallError) as refused:
            await library.store.ingest(scope, document, space=space, source="handbook")
        assert refused.value.error.kind == kind
        with pytest.raises(CallError):
            await library.store.remove_source(scope, space, "handbook")
    assert await library.store.statistics() == before


async def test_what_is_revoked_is_gone_in_the_middle_of_a_list_or_a_text(library: Library) -> None:
    ids = await library.add("s1", "handbook", {f"{place}.txt": "CANARY " * 20 for place in range(5)})
    await library.add("s1", "notes", {"a.txt": "CANARY"})
    await library.store.grant("user:cid", "s1")
    cid, stranger, source, store = (
        in_space(None, "cid"),
        in_space(None, "eve"),
        await library.source_id(),
        library.store,
    )
    folder = await store.list_folder(await store.scope(cid), source, "/", limit=2)
    sources = await store.list_sources(await store.scope(cid), limit=1)
    begun = await library.call("read_document", cid, document_id=ids["0.txt"], end=10)
    assert (bool(folder["next_cursor"]), bool(sources["next_cursor"]), begun["next_start"]) == (True, True, 10)
    await store.revoke("user:cid", "s1")
    listed = await store.list_sources(await store.scope(cid), limit=1, cursor=sources["next_cursor"])
    assert (listed["items"], listed["next_cursor"]) == ([], None)
    with pytest.raises(CallError, match="There is no source"):
        await store.list_folder(await store.scope(cid), source, "/", limit=2, cursor=folder["next_cursor"])
    goes_on: list[tuple[str, dict[str, Any]]] = [
        ("read_document", {"document_id": ids["0.txt"], "start": 10}),
        ("search_documents", {"query": "canary", "document_ids": [ids["0.txt"]]}),
        ("search_documents", {"query": "canary"}),
        ("grep_documents", {"pattern": "CANARY", "source_ids": [source]}),
    ]
    for tool, arguments in goes_on:
        answer = await library.call(tool, cid, **arguments)
        assert answer == await library.call(tool, stranger, **arguments)
        assert "CANARY" not in str(answer)
