"""Retrieval on the shared sets: the figures that the index holds, with the weights that it has everywhere."""

import os
from statistics import fmean

import pytest

from bench.discovery import Score, ToolSet, measured, pegboard, tool_sets, tool_text
from pegboard.discovery.search.abstention import enough_among, evidence_of
from pegboard.discovery.search.index import Index, VisibleTools
from pegboard.discovery.search.query import parse_query
from pegboard.discovery.search.ranking import rank

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif("PEGBOARD_SHARED" not in os.environ, reason="PEGBOARD_SHARED names no folder"),
]

HELD = {"livemcp": 0.56, "toolbench": 0.67}
# Five of its 145 requests get nothing; for four of them the tools that serve them add nothing to the evidence, see the
# test below. Over both sets 1 % is held.
REFUSED = {"livemcp": 0.035}


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


def test_unservable_requests_get_nothing_and_servable_ones_do_not(scores: dict[str, tuple[ToolSet, Score]]) -> None:
    served: list[bool] = []
    for tools, score in scores.values():
        assert score.nothing_unservable is not None
        assert score.nothing_servable is not None
        assert score.nothing_unservable >= 0.81, tools.name
        assert score.nothing_servable <= REFUSED.get(tools.name, 0.02), tools.name
        search = pegboard(tools.tools)
        served.extend(not search(row["query"]) for row in tools.servable)
    assert fmean(served) <= 0.01


def test_words_alone_cannot_tell_most_refused_requests_from_those_that_no_tool_serves() -> None:
    """What the index says of them stays the same to two digits when every tool that serves them is taken away."""
    tools = next(tools for tools in tool_sets() if tools.name == "livemcp")
    index = Index.build(map(tool_text, tools.tools))
    names = {tool["name"] for tool in tools.tools}
    refused = [row for row in tools.servable if index.search(row["query"]).abstained]
    alike = 0
    for row in refused:
        serving = set(row["relevant"]).union(*row.get("equiv", {}).values())
        evidence, without = (round(strength(index.among(seen), row["query"]), 2) for seen in (names, names - serving))
        alike += evidence == without
    assert len(refused) <= 5
    assert alike >= len(refused) - 1


def strength(tools: VisibleTools, query: str) -> float:
    request = parse_query(query, tools.vocabulary())
    found = evidence_of(request, rank(request, tools.postings, tools.scope), tools.scope)
    return found / enough_among(len(tools.seen))


def test_single_requests_of_an_agent_are_far_easier_than_tasks(scores: dict[str, tuple[ToolSet, Score]]) -> None:
    tools, whole = scores["livemcp"]
    single = [row for row in tools.servable if row["kind"] == "agent"]
    ours = measured(ToolSet(name="agent", tools=tools.tools, servable=single, unservable=[]), "pegboard")
    assert ours.recall[10] >= 0.88
    assert ours.recall[5] > whole.recall[5]
