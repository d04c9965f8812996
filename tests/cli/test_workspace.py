"""pegboard ingest and pegboard workspace: documents in, what there is, who may see it, and out again."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text("workspace: {store: 'sqlite:documents.db'}\n")
    (tmp_path / "handbook").mkdir()
    (tmp_path / "handbook" / "leave.md").write_text("# Leave\n\nThirty days a year.\n")
    (tmp_path / "handbook" / "orders.csv").write_text("id,total\n1,10\n2,20\n")


def test_a_folder_comes_in_and_the_second_time_nothing_is_left_to_do(run: Run) -> None:
    assert run("ingest", "handbook", "--space", "s1") == (0, "2 added in the space 's1'.\n", "")
    assert run("ingest", "handbook", "--space", "s1").out == "2 unchanged in the space 's1'.\n"
    told = orjson.loads(run("call", "search_documents", "--as", "space=s1", "--args", '{"query": "days"}').out)
    assert [hit["name"] for hit in told["hits"]] == ["leave.md"]
    nobody = orjson.loads(run("call", "search_documents", "--as", "space=s2", "--args", '{"query": "days"}').out)
    assert nobody["hits"] == []


def test_a_folder_that_is_empty_for_a_moment_stops_the_run_with_1(run: Run, tmp_path: Path) -> None:
    run("ingest", "handbook", "--space", "s1")
    for path in (tmp_path / "handbook").iterdir():
        path.rename(tmp_path / path.name)
    ran = run("ingest", "handbook", "--space", "s1")
    assert (ran.code, ran.out) == (1, "")
    assert "all 2 documents of the source 'handbook' would be removed" in ran.err
    assert "--allow-shrink" in ran.err
    assert orjson.loads(run("workspace", "ls", "--json").out)["sources"][0]["documents"] == 2
    assert run("ingest", "handbook", "--space", "s1", "--allow-shrink").out == "2 removed in the space 's1'.\n"


def test_another_folder_of_the_same_name_is_another_source(run: Run, tmp_path: Path) -> None:
    run("ingest", "handbook", "--space", "s1")
    (tmp_path / "sales" / "handbook").mkdir(parents=True)
    (tmp_path / "sales" / "handbook" / "prices.md").write_text("# Prices\n")
    ran = run("ingest", "sales/handbook", "--space", "s1")
    assert ran.code == 1
    assert "another place. Give this place a source with another name (`--source`)" in ran.err
    assert orjson.loads(run("workspace", "ls", "--json").out)["sources"][0]["documents"] == 2
    assert run("ingest", "sales/handbook", "--space", "s1", "--source", "sales").code == 0


def test_a_file_without_text_is_told_and_the_encoding_of_a_source_is_set(run: Run, tmp_path: Path) -> None:
    (tmp_path / "handbook" / "blank.md").write_text("\n")
    (tmp_path / "handbook" / "cities.csv").write_bytes("Stadt,n\nKöln,1\n".encode("cp1252"))
    ran = run("ingest", "handbook", "--space", "s1")
    assert (ran.code, ran.out) == (0, "4 added, 1 without text in the space 's1'.\n")
    assert ran.err.startswith("blank.md: it has no text, so that no search finds it")
    assert run("ingest", "handbook", "--space", "s1").err == ""
    query = ("call", "query_documents", "--as", "space=s1", "--args", '{"sql": "SELECT Stadt FROM cities"}')
    assert orjson.loads(run(*query).out)["rows"] == [["Köln"]]
    assert run("ingest", "handbook", "--space", "s1", "--encoding", "cp437").code == 0
    assert orjson.loads(run(*query).out)["rows"] == [["K÷ln"]]
    assert "There is no encoding 'nonesuch'" in run("ingest", "handbook", "--space", "s1", "--encoding", "nonesuch").err


def test_bad_files_are_one_line_each_and_end_with_1(run: Run, tmp_path: Path) -> None:
    (tmp_path / "handbook" / "bad.json").write_text("{")
    (tmp_path / "handbook" / "picture.png").write_bytes(b"\x89PNG\r\n")
    ran = run("ingest", "handbook", "--space", "s1")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert ran.err.startswith("bad.json: it is not JSON at ")
    assert ran.out == "2 added, 1 failed in the space 's1'.\nFiles of kinds that are not read: 1 .png (a picture).\n"
    told = orjson.loads(run("ingest", "handbook", "--space", "s1", "--json").out)
    assert (told["failed"], told["unchanged"], told["kindsNotRead"]) == (1, 2, {"png": 1})
    assert [bad["path"] for bad in told["bad"]] == ["bad.json"]


def test_how_many_passages_a_search_by_vectors_takes_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text("workspace: {store: 'sqlite:documents.db', embedder: hashing}\n")
    assert "reads every passage of its spaces: on one core some 20,000 take" in run("workspace", "stats").out


def test_what_there_is_is_listed_counted_and_removed(run: Run) -> None:
    run("ingest", "handbook", "--space", "s1", "--source", "book")
    [source] = orjson.loads(run("workspace", "ls", "--json").out)["sources"]
    assert (source["space"], source["name"], source["documents"], source["status"]) == ("s1", "book", 2, "ready")
    assert "1 source in" in run("workspace", "ls", "s1").out
    assert "0 sources in" in run("workspace", "ls", "s2").out
    [space] = orjson.loads(run("workspace", "stats", "--json").out)["spaces"]
    assert (space["documents"], space["rows"], space["sources"]) == (2, 2, 1)
    assert "1 space in" in run("workspace", "stats").out
    assert "reads every passage" not in run("workspace", "stats").out
    assert run("workspace", "rm", "s1", "book").out == "Removed 'book' from the space 's1', with 2 documents.\n"
    assert orjson.loads(run("workspace", "ls", "--json").out)["sources"] == []
    assert run("workspace", "rm", "s1", "book").code == 1


def test_a_space_is_granted_to_users_and_roles_and_taken_back(run: Run) -> None:
    run("ingest", "handbook", "--space", "s1")
    asked = ("call", "search_documents", "--args", '{"query": "days"}', "--as")
    assert orjson.loads(run(*asked, "user=bob").out)["hits"] == []
    assert run("workspace", "grant", "user:bob", "s1").out.startswith(
        "user:bob was granted read access to the documents of the space 's1'.\n"
    )
    run("workspace", "grant", "role:support", "s1", "write")
    assert len(orjson.loads(run(*asked, "user=bob").out)["hits"]) == 1
    assert len(orjson.loads(run(*asked, "user=cid,roles=support").out)["hits"]) == 1
    assert "role:support   write" in run("workspace", "ls").out
    assert run("workspace", "revoke", "user:bob", "s1").code == 0
    assert orjson.loads(run(*asked, "user=bob").out)["hits"] == []
    assert "has no grant" in run("workspace", "revoke", "user:bob", "s1").err


def test_a_space_that_does_not_exist_is_granted_only_when_it_is_said_to_be_new(run: Run) -> None:
    run("ingest", "handbook", "--space", "sales")
    ran = run("workspace", "grant", "user:bob", "sale")
    assert (ran.code, ran.out) == (1, "")
    assert "There is no space 'sale'" in ran.err
    assert "Did you mean 'sales'?" in ran.err
    assert "--new" in ran.err
    assert "bob" not in run("workspace", "ls").out
    assert run("workspace", "grant", "user:bob", "later", "write", "--new").code == 0
    assert run("workspace", "grant", "user:cid", "later").code == 0
    assert "Unknown option: --new" in run("workspace", "ls", "--new").err


@pytest.mark.parametrize("access", ["read", "write"])
def test_a_grant_says_for_which_credentials_it_counts_and_it_does(run: Run, access: str) -> None:
    run("ingest", "handbook", "--space", "s1")
    said = run("workspace", "grant", "user:bob", "s1", access).out
    assert "a credential that names a space sees only that one." in said
    assert "write to it only with a write grant." in said
    asked = ("call", "search_documents", "--args", '{"query": "days"}', "--as")
    found = {who: len(orjson.loads(run(*asked, who).out)["hits"]) for who in ("user=bob", "user=bob,space=s2")}
    assert found == {"user=bob": 1, "user=bob,space=s2": 0}


@pytest.mark.parametrize("reason", ["file is not a database", "unable to open database file"])
def test_a_store_that_cannot_be_used_says_why_to_the_operator(run: Run, tmp_path: Path, reason: str) -> None:
    store = tmp_path / "documents.db"
    store.mkdir() if "unable" in reason else store.write_bytes(b"no database " * 400)
    ran = run("ingest", "handbook", "--space", "s1", "--json")
    assert ran.code == 1
    assert f"The document store cannot be used now. The operator must look at its file. Reason: {str(store)!r}: " in (
        text := orjson.loads(ran.out)["error"]["message"]
    )
    assert reason in text
    assert text in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["workspace", "grant", "bob", "s1", "--new"], "'bob' is nobody: write user:NAME or role:NAME."),
        (["workspace", "grant", "user:", "s1", "--new"], "'user:' is nobody"),
        (["workspace", "grant", "user:bob", "s1", "own"], "pegboard workspace grant --help"),
        (["workspace", "rm", "s1"], "pegboard workspace rm --help"),
        (["workspace", "revoke"], "pegboard workspace revoke --help"),
        (["ingest", "nowhere", "--space", "s1"], "There is no folder or file 'nowhere'."),
        (["ingest", "handbook", "--space", ""], "is not a valid space name"),
        (["ingest", "handbook"], "--space"),
    ],
)
def test_what_cannot_be_done_says_what_to_write(run: Run, words: list[str], said: str) -> None:
    ran = run(*words)
    assert ran.code in (1, 2)
    assert said in ran.err


def test_a_config_without_documents_says_what_to_add(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text("name: acme\n")
    assert "workspace: {store: 'sqlite:./documents.db'}" in run("ingest", "handbook", "--space", "s1").err


def test_the_model_of_an_embedder_is_fetched_by_a_command_alone_which_says_what_is_in_the_way(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "No embedder has `type: fastembed`" in run("workspace", "fetch-model").err
    config = "workspace: {{store: 'sqlite:documents.db', embedder: {{type: fastembed, {model}}}}}\n"
    (tmp_path / "pegboard.yaml").write_text(config.format(model="path: here"))
    assert "there is nothing to fetch" in run("workspace", "fetch-model").out
    asked: list[str] = []

    def offline(host: str, *_: Any, **__: Any) -> Any:
        asked.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", offline)
    (tmp_path / "pegboard.yaml").write_text(config.format(model="model: BAAI/bge-small-en-v1.5"))
    ran = run("workspace", "fetch-model")
    assert ran.code != 0
    assert "could not be downloaded" in ran.err
    assert f"copy '{tmp_path / '.pegboard-models'}' here" in ran.err
    assert asked
    # What is taken in is found by its words, and the same is said.
    asked.clear()
    ran = run("ingest", "handbook", "--space", "s1")
    assert "pegboard workspace fetch-model" in ran.err + ran.out
    assert asked == []


def test_one_document_is_listed_shown_stored_and_removed(run: Run, tmp_path: Path) -> None:
    run("ingest", "handbook", "--space", "s1")
    listed = run("workspace", "ls", "s1", "handbook").out
    assert "leave.md" in listed
    assert "2 documents in the source 'handbook' of the space 's1'." in listed
    [leave, _] = orjson.loads(run("workspace", "ls", "s1", "handbook", "--json").out)["documents"]
    assert run("workspace", "show", "s1", "handbook", "leave.md", "--text").out == "# Leave\n\nThirty days a year.\n\n"
    assert f"document_id: {leave['document_id']}\n" in run("workspace", "show", "s1", "handbook", "leave.md").out
    (tmp_path / "new.md").write_text("# Leave\n\nForty days.\n")
    (tmp_path / "note.txt").write_text("Soup.")
    assert run("workspace", "put", "s1", "notes", "a/note.txt", "note.txt").out.startswith("a/note.txt: added, as doc_")
    assert run("workspace", "ls", "s1", "notes", "--folder", "b").out.startswith("0 documents")
    removed = run("workspace", "rm", "s1", "handbook", "leave.md").out
    assert removed.startswith("Removed 'leave.md' from the source 'handbook' of the space 's1'.\nThe next ingest")
    assert run("workspace", "rm", "s1", "handbook", "leave.md").code == 1
    assert run("ingest", "handbook", "--space", "s1").out == "1 added, 1 unchanged in the space 's1'.\n"
    missing = run("workspace", "put", "s1", "notes", "b.txt", "nothing.txt")
    assert (missing.code, "'nothing.txt' cannot be read" in missing.err) == (2, True)


def test_a_file_is_stored_in_the_place_of_a_document_of_a_folder(run: Run, tmp_path: Path) -> None:
    run("ingest", "handbook", "--space", "s1")
    before = orjson.loads(run("workspace", "show", "s1", "handbook", "leave.md", "--json").out)
    (tmp_path / "new.md").write_text("# Leave\n\nForty days.\n")
    stored = orjson.loads(run("workspace", "put", "s1", "handbook", "leave.md", "new.md", "--json").out)
    assert (stored["status"], stored["document_id"]) == ("changed", before["document_id"])
    assert stored["note"].startswith("The next ingest of its source reads its own content again")
    sources = orjson.loads(run("workspace", "ls", "--json").out)["sources"]
    assert [(each["name"], each["type"], each["status"]) for each in sources] == [("handbook", "folder", "ready")]
    assert run("ingest", "handbook", "--space", "s1").out == "1 changed, 1 unchanged in the space 's1'.\n"
    # What a source has not stays to its owner.
    assert "takes no 'upload'" in run("workspace", "put", "s1", "handbook", "other.md", "new.md").err


def test_a_watch_is_of_a_folder_and_takes_no_yes_beforehand(run: Run) -> None:
    both = run("ingest", "handbook", "--space", "s1", "--watch", "--allow-shrink")
    assert (both.code, "do not go together" in both.err) == (2, True)
    page = run("ingest", "https://example.com/a", "--space", "s1", "--watch")
    assert (page.code, "--watch is for folders" in page.err) == (2, True)
    missing = run("ingest", "nothing", "--space", "s1", "--watch")
    assert (missing.code, "There is no folder 'nothing' to watch" in missing.err) == (2, True)


def test_metadata_of_ones_own_is_given_on_the_command_line_and_filters_searches(run: Run, tmp_path: Path) -> None:
    assert run("ingest", "handbook", "--space", "s1", "--meta", "team=support").code == 0
    (tmp_path / "parking.md").write_text("Thirty places a year.\n")
    assert run("workspace", "put", "s1", "notes", "parking.md", "parking.md", "--meta", "team=office").code == 0
    asked = '{"query": "thirty", "metadata": {"team": "office"}}'
    hits = orjson.loads(run("call", "search_documents", "--as", "user=ann,space=s1", "--args", asked, "--json").out)
    assert "parking.md" in str(hits)
    assert "leave.md" not in str(hits)
    for words in (("ingest", "handbook", "--space", "s1"), ("workspace", "put", "s1", "notes", "a.md", "parking.md")):
        ran = run(*words, "--meta", "team")
        assert ran.code != 0
        assert "'team' is not metadata. Write KEY=VALUE" in ran.err
