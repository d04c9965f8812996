"""Words of a question: repeated ones count each time, and of very long questions the rarest are kept."""

from __future__ import annotations

from tests.workspace.library import Library


async def test_a_word_that_a_question_repeats_counts_as_often_as_it_occurs(library: Library) -> None:
    await library.add("s1", "handbook", {"a.txt": "Bicycles", "b.txt": "Gardens"})
    # Both words are equally rare, and the question is mostly about gardens.
    hits = (await library.call("search_documents", query="bicycles or gardens, gardens or gardens"))["hits"]
    assert [hit["name"] for hit in hits] == ["b.txt", "a.txt"]
    first, second = (hit["score"] for hit in hits)
    assert 0 < second < first <= 1
    assert abs(first - 3 * second) < 0.001


async def test_a_very_long_question_is_answered_by_its_rarest_words(library: Library) -> None:
    common = " ".join(f"w{number}" for number in range(1_500))
    texts = {f"{number}.txt": common for number in range(3)}
    await library.add("s1", "handbook", {**texts, "rare.txt": "The reactor was cooled."})
    query = f"{common} reactor"
    hits = (await library.call("search_documents", query=query, limit=50))["hits"]
    assert "rare.txt" in {hit["name"] for hit in hits}
    assert all(0 < hit["score"] <= 1 for hit in hits)
