"""A reranker of the host orders passages again, within limits; a search never fails because of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pegboard import DefinitionError, Reranker, Workspace
from pegboard.cli import main
from pegboard.workspace.reranking import NOT_RERANKED, RERANK_AT_ONCE
from tests.timing import PATIENCE_S
from tests.workspace.library import ON_SQLITE_ALONE, Library, files

NOTES = {
    "a.md": "# Fares\n\nTrain train train train",
    "b.md": "# Seats\n\nA train, and a seat at the window",
    "c.md": "# Food\n\nThe train has a long menu with soup and bread",
}


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    # A search on a busy machine would not wait for the thread of a reranker.
    defaults: Any = Reranker.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "timeout_s", PATIENCE_S)


def by_length(query: str, passages: Sequence[str]) -> list[int]:
    return [len(each) for each in passages]


async def names(library: Library, query: str = "train", **more: Any) -> tuple[list[str], str]:
    answer = await library.call("search_documents", query=query, **more)
    return [hit["name"] for hit in answer["hits"]], answer.get("note", "")


async def test_a_reranker_orders_the_passages_and_the_answer_tells_its_scores(library: Library) -> None:
    await library.add("s1", "notes", NOTES)
    usual, note = await names(library)
    assert (usual[0], note) == ("a.md", "")
    seen: list[str] = []

    async def score(query: str, passages: Sequence[str]) -> list[int]:
        seen.extend((query, *passages))
        return by_length(query, passages)

    Workspace(library.store, reranker=score)
    answer = await library.call("search_documents", query="train", limit=1, neighbours=1)
    [hit] = answer["hits"]
    assert (hit["name"], hit["before"], hit["why"]["keyword_rank"]) == ("c.md", "", usual.index("c.md") + 1)
    assert hit["why"]["reranker_score"] == max(map(len, seen[1:]))
    assert seen[0] == "train"
    assert "c\n# Food\n\nThe train has a long menu with soup and bread" in seen
    Workspace(library.store, reranker=by_length)
    assert (await names(library))[0][0] == "c.md"


@ON_SQLITE_ALONE
async def test_a_reranker_gets_the_best_passages_only(library: Library) -> None:
    await library.add("s1", "notes", NOTES)
    Workspace(library.store, reranker=Reranker(lambda query, passages: [-n for n in range(len(passages))], passages=2))
    best, _ = await names(library, limit=1)
    seen: list[int] = []

    def score(query: str, passages: Sequence[str]) -> list[int]:
        seen.append(len(passages))
        return [*range(len(passages))]

    Workspace(library.store, reranker=Reranker(score, passages=2))
    assert ((await names(library, limit=1))[0] == best, seen) == (False, [2])


def returns_too_few(query: str, passages: Sequence[str]) -> list[float]:
    return [1.0]


def returns_nan(query: str, passages: Sequence[str]) -> list[float]:
    return [float("nan") for _ in passages]


def raises(query: str, passages: Sequence[str]) -> list[float]:
    raise RuntimeError("canary")


def returns_nothing(query: str, passages: Sequence[str]) -> Any:
    return None


@ON_SQLITE_ALONE
@pytest.mark.parametrize("score", [returns_too_few, returns_nan, raises, returns_nothing])
async def test_a_reranker_that_fails_for_three_queries_leaves_the_order_says_so_and_rests(
    library: Library, score: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await library.add("s1", "notes", NOTES)
    usual, _ = await names(library)
    now, calls = [0.0], []

    def counted(query: str, passages: Sequence[str]) -> Any:
        calls.append(query)
        return score(query, passages)

    Workspace(library.store, reranker=Reranker(counted, clock=lambda: now[0]))
    for query in ("train", "the train", "a train", "train", "one train"):
        assert NOT_RERANKED in (await names(library, query))[1]
    assert await names(library) == (usual, NOT_RERANKED)
    assert calls == ["train", "the train", "a train"]
    now[0] = 31.0
    await names(library)
    assert len(calls) == 4
    assert caplog.text.count("searches keep their own order for 30 s") == 1


@ON_SQLITE_ALONE
async def test_a_query_that_makes_a_reranker_fail_does_not_take_it_from_other_searches(library: Library) -> None:
    await library.add("s1", "notes", NOTES)

    def score(query: str, passages: Sequence[str]) -> list[int]:
        if "hostile" in query:
            raise RuntimeError(query)
        return by_length(query, passages)

    Workspace(library.store, reranker=Reranker(score))
    for number in range(5):
        for _ in range(3):
            assert NOT_RERANKED in (await names(library, f"hostile train {number}"))[1]
        assert await names(library) == (["c.md", "b.md", "a.md"], "")


@ON_SQLITE_ALONE
async def test_late_calls_of_a_reranker_are_not_waited_for_and_are_limited(library: Library) -> None:
    await library.add("s1", "notes", NOTES)
    usual, _ = await names(library)
    go_on, started = threading.Event(), threading.Semaphore(0)

    def late(query: str, passages: Sequence[str]) -> list[int]:
        started.release()
        go_on.wait()
        return by_length(query, passages)

    now = [0.0]
    Workspace(library.store, reranker=Reranker(late, timeout_s=0.01, clock=lambda: now[0]))
    try:
        for _ in range(RERANK_AT_ONCE):
            is_started = False
            while not is_started:
                now[0] += 31.0
                assert await names(library) == (usual, NOT_RERANKED)
                # A thread that a busy machine starts late is not given the call at all.
                is_started = await asyncio.to_thread(started.acquire, timeout=0.5)
        now[0] += 31.0
        assert await names(library) == (usual, NOT_RERANKED)
        assert not started.acquire(blocking=False)
    finally:
        go_on.set()


@pytest.mark.parametrize(("limits", "message"), [({"passages": 0}, "1 to 200"), ({"timeout_s": 0}, "greater than 0")])
def test_a_reranker_with_impossible_limits_is_refused(limits: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Reranker(by_length, **limits)


def test_a_config_names_a_reranker(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files(tmp_path, {
        "reranker_of_a_config.py": "def score(query, passages):\n    return [len(each) for each in passages]\n",
        **{f"in/{name}": text for name, text in NOTES.items()},
        "pegboard.yaml": "workspace: {reranker: {handler: 'python:reranker_of_a_config:score', passages: 10}}",
    })  # fmt: skip
    at = ["--config", str(tmp_path / "pegboard.yaml")]
    assert main(["ingest", *at, "--space", "s1", str(tmp_path / "in")]) == 0
    capfd.readouterr()
    asked = '{"query": "train", "limit": 1}'
    assert main(["call", "search_documents", *at, "--as", "space=s1", "--args", asked, "--json"]) == 0
    assert '"c.md"' in capfd.readouterr().out
