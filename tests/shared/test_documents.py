"""Searching the shared documents by words: not below bm25s with the Porter stemmer, which is measured beside."""

import os
from pathlib import Path

import pytest

from bench.documents import HELD_NDCG, cranfield, judged, ours, plain_bm25s

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif("PEGBOARD_SHARED" not in os.environ, reason="PEGBOARD_SHARED names no folder"),
]


def test_keyword_search_ranks_no_worse_than_the_peer(tmp_path: Path) -> None:
    found = cranfield()
    assert found is not None
    documents, questions = found
    quality = judged(questions, ours(documents, tmp_path, "keyword"))
    assert quality.ndcg >= HELD_NDCG
    assert quality.recall >= 0.419
    try:
        peer = judged(questions, plain_bm25s(documents))
    except ImportError:
        return
    assert quality.ndcg >= peer.ndcg
