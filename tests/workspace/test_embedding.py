"""With an embedder passages are found by their vectors beside words; without its answer, by words as before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pegboard.models.embedding.hashing import HashingEmbedder
from pegboard.workspace.passage_embedder import NO_EMBEDDER
from tests.timing import PATIENCE_S
from tests.workspace.library import ON_SQLITE_ALONE, Library, Place, files, in_space

TOPICS = {"leave": ("holiday", "vacation"), "travel": ("train", "flight", "ticket"), "food": ("soup", "bread")}
TEXTS = {
    "leave.txt": "You have thirty days of vacation a year.",
    "trains.txt": "Buy the ticket of the train yourself.",
    "lunch.txt": "There is soup on Mondays.",
}


class Topics:
    """A model that knows of each word which of three topics it is about."""

    def __init__(self, model_id: str = "topics", *, extra: int = 0) -> None:
        self.model_id, self.dimension, self.fails_after = model_id, len(TOPICS) + extra, 1_000_000

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.fails_after -= len(texts)
        if self.fails_after < 0:
            raise ConnectionError("nobody is there")
        rows = [[float(sum(word in text.lower() for word in words)) for words in TOPICS.values()] for text in texts]
        return [[*row, *[0.0] * (self.dimension - len(TOPICS))] for row in rows]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    # A search on a busy machine would not wait for the thread of an embedder.
    monkeypatch.setattr("pegboard.workspace.passage_embedder.EMBED_WAIT_S", PATIENCE_S)


@pytest.fixture
def topics() -> Topics:
    return Topics()


@pytest.fixture
def library(place: Place, topics: Topics) -> Iterator[Library]:
    made = Library(place, embedder=topics)
    yield made
    made.store.close()


async def filled(library: Library, space: str = "s1") -> Library:
    await library.add(space, "handbook", TEXTS)
    await library.store.embed_missing(library.store.operator_scope(space), space)
    return library


@pytest.mark.parametrize("mode", ["vector", "hybrid", "keyword"])
async def test_a_search_by_meaning_without_an_embedder_says_that_it_was_by_words(place: Place, mode: str) -> None:
    library = Library(place)
    try:
        await library.add("s1", "handbook", TEXTS)
        found = await library.call("search_documents", query="soup", mode=mode)
        assert ([hit["name"] for hit in found["hits"]], found["mode_used"]) == (["lunch.txt"], "keyword")
        assert found.get("note") == (NO_EMBEDDER if mode == "vector" else None)
    finally:
        library.store.close()


async def test_a_passage_of_which_the_embedder_knows_nothing_is_found_by_its_words_alone(library: Library) -> None:
    await library.add("s1", "handbook", {"empty.txt": "Nobody knows what a quux is."})
    await filled(library)
    found = await library.call("search_documents", query="quux train")
    assert found["mode_used"] == "hybrid"
    assert {each["name"]: each["why"]["vector_rank"] for each in found["hits"]} == {"empty.txt": None, "trains.txt": 1}


async def test_a_passage_is_found_by_its_meaning_where_no_word_is_the_same(library: Library) -> None:
    await filled(library)
    found = await library.call("search_documents", query="holiday")
    assert found["mode_used"] == "hybrid"
    [hit] = found["hits"]
    assert (hit["name"], hit["score"], hit["why"]) == ("leave.txt", 1.0, {"keyword_rank": None, "vector_rank": 1})
    both = await library.call("search_documents", query="train")
    assert [(each["name"], each["why"]) for each in both["hits"]] == [
        ("trains.txt", {"keyword_rank": 1, "vector_rank": 1})
    ]
    # What words found has the cosine as its score too: one scale in one answer.
    words = await library.call("search_documents", query="Mondays train")
    assert {each["name"]: each["score"] for each in words["hits"]} == {"trains.txt": 1.0, "lunch.txt": 0.0}
    assert [
        each["name"] for each in (await library.call("search_documents", query="Mondays train", min_score=0.5))["hits"]
    ] == ["trains.txt"]
    by_vector = await library.call("search_documents", query="flight", mode="vector")
    assert (by_vector["mode_used"], [each["name"] for each in by_vector["hits"]]) == ("vector", ["trains.txt"])
    assert (await library.call("search_documents", query="holiday", mode="keyword"))["hits"] == []


async def test_filters_and_spaces_hold_for_what_vectors_find(library: Library) -> None:
    await filled(library)
    before = await library.call("search_documents", query="holiday train soup")
    await filled(library, "s2")
    assert await library.call("search_documents", query="holiday train soup") == before
    assert len(before["hits"]) == 3
    [lunch] = (await library.call("find_by_name", pattern="lunch"))["items"]
    only = await library.call("search_documents", query="holiday train soup", document_ids=[lunch["document_id"]])
    assert [each["name"] for each in only["hits"]] == ["lunch.txt"]
    nothing = await library.call("search_documents", in_space("s3"), query="holiday")
    assert nothing == {"hits": [], "mode_used": "keyword", "truncated": False}


async def test_an_embedder_that_fails_loses_no_document_and_the_next_run_reads_the_rest(
    library: Library, tmp_path: Path, topics: Topics
) -> None:
    folder = files(tmp_path / "files", {f"{number:03}.txt": f"train {number}" for number in range(150)})
    topics.fails_after = 64
    report = await library.take_in(folder)
    assert (report.counts["added"], report.embedded, "nobody is there" in report.embedder_fault) == (150, 64, True)
    # Its answers come from words, and say so.
    answer = await library.call("search_documents", query="train 149")
    assert ("149.txt" in [each["name"] for each in answer["hits"]], answer["mode_used"]) == (True, "keyword")
    assert "does not answer" in answer["note"]
    topics.fails_after = 1_000
    report = await library.take_in(folder)
    assert (report.counts["unchanged"], report.embedded, report.embedder_fault) == (150, 86, "")


@pytest.mark.parametrize("other", [Topics("others"), Topics(extra=1)])
async def test_vectors_of_another_model_or_dimension_are_never_compared_and_made_anew(
    place: Place, topics: Topics, other: Topics
) -> None:
    (await filled(Library(place, embedder=topics))).store.close()
    library = Library(place, embedder=other)
    answer = await library.call("search_documents", query="holiday vacation")
    assert (answer["mode_used"], "pegboard workspace embed" in answer["note"]) == ("keyword", True)
    assert await library.store.embed_missing(library.store.operator_scope("s1"), "s1") == 3
    answer = await library.call("search_documents", query="holiday")
    assert (answer["mode_used"], [each["name"] for each in answer["hits"]]) == ("hybrid", ["leave.txt"])
    assert await library.store.embed_missing(library.store.operator_scope("s1"), "s1") == 0
    library.store.close()


@ON_SQLITE_ALONE
async def test_a_model_that_tells_questions_from_passages_by_a_word_before_them_gets_it(place: Place) -> None:
    read: dict[str, list[str]] = {}

    class Reading(Topics):
        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            read.setdefault(self.model_id, []).extend(texts)
            return await super().embed(texts)

    names = ("intfloat/multilingual-e5-small", "nomic-ai/nomic-embed-text-v1.5", "intfloat/e5-mistral-7b-instruct")
    for name in (*names, "BAAI/bge-small-en-v1.5"):
        library = Library(place, embedder=Reading(name))
        await filled(library)
        # Of another model than the one before: all are read anew, and the question as well.
        assert (await library.call("search_documents", query="holiday"))["hits"][0]["name"] == "leave.txt"
        library.store.close()
    begun = {name: {text.partition(": ")[0] for text in texts if ": " in text} for name, texts in read.items()}
    assert [begun[name] for name in names] == [{"query", "passage"}, {"search_query", "search_document"}, set()]
    assert begun["BAAI/bge-small-en-v1.5"] == set()


async def test_a_changed_document_has_the_vectors_of_what_it_says_now(library: Library) -> None:
    await filled(library)
    await library.add("s1", "handbook", {"leave.txt": "Soup for everybody."})
    await library.store.embed_missing(library.store.operator_scope("s1"), "s1")
    assert (await library.call("search_documents", query="holiday"))["hits"] == []
    soup = await library.call("search_documents", query="bread")
    assert {each["name"] for each in soup["hits"]} == {"leave.txt", "lunch.txt"}


async def test_hashing_finds_words_with_slips_and_leaves_what_words_find_in_its_order(place: Place) -> None:
    library = await filled(Library(place, embedder=HashingEmbedder()))
    slip = await library.call("search_documents", query="vacatoin", limit=1)
    assert (slip["mode_used"], [each["name"] for each in slip["hits"]]) == ("hybrid", ["leave.txt"])
    for query in ("ticket train", "soup year", "days of the train"):
        by_words = await library.call("search_documents", query=query, mode="keyword")
        by_both = await library.call("search_documents", query=query)
        count = len(by_words["hits"])
        assert [each["name"] for each in by_both["hits"]][:count] == [each["name"] for each in by_words["hits"]]
    library.store.close()
