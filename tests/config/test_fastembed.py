"""`embedder: {type: fastembed}`: a model in files of this machine, for documents and for tools, without a network."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from pegboard.config import context_for
from pegboard.models.embedding.fastembed_embedder import FastembedEmbedder
from tests.config.project import Project
from tests.config.test_embedders import TOOLS
from tests.models.onnx_model import write_model

WORDS = {"cash": (1.0, 0.0, 0.1), "funds": (1.0, 0.1, 0.0), "holiday": (0.0, 1.0, 0.1), "vacation": (0.1, 1.0, 0.0)}
LISTED = "BAAI/bge-small-en-v1.5"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail whatever asks for an address: a model is read from files, or not at all."""

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("something reached for the network")

    monkeypatch.setattr(socket, "getaddrinfo", refused)


def workspace(embedder: str, store: str = "sqlite:d.db") -> str:
    return f"workspace: {{store: '{store}', embedder: {embedder}}}\ntools: [{{name: rag_ingest, type: builtin}}]\n"


async def asked(project: Project, query: str) -> Any:
    return (await project.view(user="ann", space="s1").call("search_documents", {"query": query})).structured


async def told(project: Project, *documents: str) -> None:
    view = project.view(user="ann", space="s1")
    for document in documents:
        assert not (await view.call("rag_ingest", {"document": document})).is_error


async def test_documents_are_found_by_a_local_model_where_no_word_is_the_same(project: Project, tmp_path: Path) -> None:
    write_model(tmp_path / "model", WORDS)
    project.write(workspace("{type: fastembed, path: model}"))
    await told(project, "Thirty days of vacation.", "Petty funds are in the drawer.")
    found = await asked(project, "holiday")
    assert found["mode_used"] == "hybrid"
    assert (found["hits"][0]["text"], found["hits"][0]["score"] > 0.9) == ("Thirty days of vacation.", True)
    assert all(hit["score"] < 0.2 for hit in found["hits"][1:])
    assert (await asked(project, "cash"))["hits"][0]["text"].startswith("Petty funds")


async def test_tools_are_found_by_it_as_well(project: Project, tmp_path: Path) -> None:
    write_model(tmp_path / "model", WORDS, file="onnx/model.onnx")
    project.write(f"discovery: {{embedder: {{type: fastembed, path: model, threads: 1}}}}\n{TOOLS}")
    catalog, config = project.load()
    found = await catalog.search(catalog.view(context_for(config, user="ann")), "send cash")
    assert (found.words_alone, found.tools[0].entry.wire_name) == (None, "ledger")


async def test_vectors_of_a_model_that_was_exchanged_in_its_folder_are_made_anew(
    project: Project, tmp_path: Path
) -> None:
    write_model(tmp_path / "model", WORDS)
    project.write(workspace("{type: fastembed, path: model}"))
    await told(project, "Thirty days of vacation.")
    assert (await asked(project, "holiday"))["hits"]
    # Of the same dimension and the same words, so that nothing but its content tells it from the other.
    write_model(tmp_path / "model", {**WORDS, "holiday": (0.0, 0.0, 1.0)})
    again = await asked(project, "holiday")
    assert (again["mode_used"], again["hits"]) == ("keyword", [])
    assert "pegboard workspace embed" in again["note"]


async def test_a_model_that_is_not_there_is_told_of_with_the_folder_to_fill_and_words_find(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    project.write(workspace(f"{{type: fastembed, model: {LISTED}}}"))
    await told(project, "Thirty days of vacation.")
    found = await asked(project, "vacation")
    assert (found["mode_used"], len(found["hits"])) == ("keyword", 1)
    assert "does not answer" in found["note"]
    assert "pegboard workspace fetch-model" in caplog.text
    assert ".pegboard-models" in caplog.text


async def test_a_listed_model_is_loaded_from_a_folder_that_has_its_files(tmp_path: Path) -> None:
    write_model(tmp_path / "copied", WORDS, file="model_optimized.onnx")
    embedder = FastembedEmbedder(LISTED, path=tmp_path / "copied", threads=1)
    rows = await embedder.embed(["cash", "funds", "nothing it knows"])
    assert rows.shape == (3, 3)
    assert rows[0] @ rows[1] > 0.9
    assert not rows[2].any()
    assert (embedder.dimension, embedder.model_id.startswith(f"fastembed/{LISTED}@")) == (3, True)


async def test_what_is_no_model_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=r"Did you mean 'BAAI/bge-small-en-v1.5'"):
        await FastembedEmbedder("BAAI/bge-smal-en-v1.5", folder=tmp_path).embed(["x"])
    with pytest.raises(FileNotFoundError, match=r"has none of model.onnx, .* and no tokenizer.json"):
        await FastembedEmbedder(path=tmp_path).embed(["x"])
    write_model(tmp_path / "broken", WORDS)
    (tmp_path / "broken" / "model.onnx").write_bytes(b"no model")
    with pytest.raises(Exception, match=r"(?i)protobuf|load model"):
        await FastembedEmbedder(path=tmp_path / "broken").embed(["x"])


async def test_a_question_does_not_wait_for_all_of_a_long_list_and_the_loop_for_nothing(tmp_path: Path) -> None:
    embedder = FastembedEmbedder(path=write_model(tmp_path / "model", WORDS), threads=1)
    await embedder.load()
    ended: list[str] = []
    turns = 0

    async def ask(name: str, texts: list[str]) -> None:
        await embedder.embed(texts)
        ended.append(name)

    long = asyncio.create_task(ask("list", ["vacation " * 100] * 400))
    short = asyncio.create_task(ask("question", ["cash"]))
    while not (long.done() and short.done()):
        turns += 1
        await asyncio.sleep(0)
    assert ended == ["question", "list"]
    assert turns > 50
