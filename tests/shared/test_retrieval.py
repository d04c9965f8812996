"""Retrieval on the shared sets: the figures that the index holds, with the weights that it has everywhere."""

import asyncio
import os
from collections.abc import Callable
from itertools import pairwise
from math import inf
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from bench.confidence import (
    FEW,
    SHARES,
    SHIPPED,
    UNSERVED,
    Asked,
    asked_of,
    calibration_error,
    fitted,
    right_by_level,
    share_of,
)
from bench.discovery import Row, Score, ToolSet, measured, recall_at, tool_sets, tool_text
from pegboard.discovery.search.compared import Cosines
from pegboard.discovery.search.index import Index
from pegboard.models.embedding.hashing import HashingEmbedder
from tests.discovery.test_meaning import seeded

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif("PEGBOARD_SHARED" not in os.environ, reason="PEGBOARD_SHARED names no folder"),
]

HELD = {"livemcp": 0.6175, "toolbench": 0.752}


@pytest.fixture(scope="module")
def scores() -> dict[str, tuple[ToolSet, Score]]:
    return {tools.name: (tools, measured(tools, "pegboard")) for tools in tool_sets() if tools.name in HELD}


@pytest.mark.parametrize("name", HELD)
def test_recall_of_five_is_held(scores: dict[str, tuple[ToolSet, Score]], name: str) -> None:
    assert scores[name][1].recall[5] >= HELD[name]


@pytest.mark.parametrize("name", HELD)
def test_recall_is_above_that_of_the_peers(scores: dict[str, tuple[ToolSet, Score]], name: str) -> None:
    tools, ours = scores[name]
    for engine in ("bm25s", "fastmcp", "pydantic-ai"):
        try:
            peer = measured(tools, engine)
        except ImportError:
            continue
        assert ours.recall[5] > peer.recall[5], engine


def test_no_servable_request_is_answered_with_nothing(scores: dict[str, tuple[ToolSet, Score]]) -> None:
    assert [score.nothing_servable for _, score in scores.values()] == [0, 0]


@pytest.fixture(scope="module")
def judged() -> dict[str, list[Asked]]:
    sets = [tools for tools in tool_sets() if tools.servable]
    return {tools.name: asked_of(tools, [other for other in sets if other is not tools]) for tools in sets}


@pytest.mark.parametrize("name", HELD)
def test_the_words_mean_what_they_say(judged: dict[str, list[Asked]], name: str) -> None:
    here = judged[name]
    right = {level: right for level, (_, right) in right_by_level(here, SHIPPED).items()}
    assert right["strong"] >= 0.8
    assert 0.4 <= right["fair"] <= 0.8
    assert right["weak"] <= 0.2
    assert calibration_error(here, SHIPPED) <= 0.1


@pytest.mark.parametrize("name", HELD)
def test_unservable_requests_are_hardly_ever_strong_and_right_first_hits_hardly_ever_weak(
    judged: dict[str, list[Asked]], name: str
) -> None:
    def share(kind: str, level: str, *, first: bool = False, most_tools: float = inf) -> float:
        here = [one for one in judged[name] if one.kind == kind and one.tools <= most_tools]
        assert here, f"nothing is asked as {kind!r}"
        return share_of([one for one in here if one.is_first or not first], SHIPPED, level)

    assert {one.kind for one in judged[name]} == SHARES.keys()
    assert max(share(kind, "strong") for kind in ("hidden", "other", "by hand")) <= 0.05
    # Other tools of the namespace that would serve, which may serve a part: words tell these apart least.
    assert share("siblings", "strong") <= 0.12
    assert share("siblings", "strong", most_tools=FEW) <= 0.16
    assert sum(SHARES[kind] * share(kind, "strong") for kind in UNSERVED) <= 0.05 * sum(SHARES[k] for k in UNSERVED)
    assert share("served", "weak", first=True) <= 0.1


@pytest.mark.parametrize(("fitted_on", "judged_on"), [("livemcp", "toolbench"), ("toolbench", "livemcp")])
def test_a_calibration_holds_on_a_set_that_it_has_not_seen(
    judged: dict[str, list[Asked]], fitted_on: str, judged_on: str
) -> None:
    calibration = fitted(judged[fitted_on])
    right = {level: right for level, (_, right) in right_by_level(judged[judged_on], calibration).items()}
    assert right["strong"] > right["fair"] + 0.25 > right["weak"] + 0.45
    assert calibration_error(judged[judged_on], calibration) <= 0.14


def test_single_requests_of_an_agent_are_far_easier_than_tasks(scores: dict[str, tuple[ToolSet, Score]]) -> None:
    tools, whole = scores["livemcp"]
    single = [row for row in tools.servable if row["kind"] == "agent"]
    ours = measured(ToolSet(name="agent", tools=tools.tools, servable=single, unservable=[]), "pegboard")
    assert ours.recall[10] >= 0.88
    assert ours.recall[5] > whole.recall[5]


@pytest.mark.parametrize("name", HELD)
def test_a_poor_embedder_costs_at_most_a_point_and_an_oracle_wins_by_as_much_as_it_knows(name: str) -> None:
    tools = next(tools for tools in tool_sets() if tools.name == name)
    index = Index.build(map(tool_text, tools.tools))
    ids = list(index._ids)
    vectors = {id_: seeded(id_, 96) for id_ in ids}
    matrix = np.stack([vectors[id_] for id_ in ids]).astype(np.float32)
    hashing = HashingEmbedder(dimension=64)
    hashed = asyncio.run(hashing.embed(index.meanings))

    def known(likeness: Callable[[Row], Any] | None, row: Row) -> Cosines | None:
        return None if likeness is None else Cosines(known=likeness(row))

    def recall(likeness: Callable[[Row], Any] | None) -> float:
        return fmean(
            recall_at(
                row,
                [
                    hit.id
                    for hit in index.search(
                        row["query"], limit=5, likeness=likeness and Cosines(known=likeness(row))
                    ).hits
                ],
                5,
            )
            for row in tools.servable
        )

    def oracle(blur: float) -> Callable[[Row], Any]:
        def likeness(row: Row) -> Any:
            gold = np.sum([vectors[name] for name in row["relevant"] if name in vectors], axis=0)
            seen = (1 - blur) * gold / np.linalg.norm(gold) + blur * seeded(f"noise of {row['qid']}", 96)
            return (matrix @ (seen / np.linalg.norm(seen))).astype(np.float32)

        return likeness

    alone = recall(None)
    assert recall(lambda row: hashed @ asyncio.run(hashing.embed([row["query"]]))[0]) >= alone - 0.01
    assert recall(lambda row: matrix @ seeded(row["query"], 96).astype(np.float32)) >= alone - 0.01
    found = [recall(oracle(blur)) for blur in (0.75, 0.65, 0.55, 0.45, 0.0)]
    assert all(less < more for less, more in pairwise(found))
    assert found[0] >= alone - 0.01
    assert found[-1] > alone + 0.15
