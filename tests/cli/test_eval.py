"""eval: how well tool search finds the tools for requests of an operator."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("folder")

REQUESTS = """
requests:
  - {query: how many words are in this text, tools: [count_words]}
  - {query: get rid of a page and count what is in it, tools: [delete_page, main.count_words],
     queries: [delete a page, count words]}
  - {query: transfer money abroad}
"""


@pytest.fixture
def file(folder: Path) -> Path:
    path = folder / "requests.yaml"
    path.write_text(REQUESTS, encoding="utf-8")
    return path


def test_eval_shows_recall_confidence_and_tokens(run: Run, file: Path) -> None:
    ran = run("eval", file.name)
    assert (ran.code, ran.err) == (0, "")
    head, _, row, *rest = ran.out.splitlines()
    assert head.split() == ["Searched", "by", "recall@1", "recall@5", "recall@10", "strong", "fair", "weak", "tokens"]
    assert row.startswith("words alone")
    assert "3 requests in all groups, 2 of which a tool serves" in "\n".join(rest)


def test_eval_counts_each_need_and_the_tools_that_were_ranked_before(run: Run, file: Path, folder: Path) -> None:
    told = orjson.loads(run("eval", file.name, "--json").out)
    [only] = told["runs"]
    # One of two tools can be first.
    assert only["recall"] == {"1": 0.75, "5": 1.0, "10": 1.0}
    assert (only["requests"], only["servable"], only["missed"]) == (3, 2, [])
    assert sum(level["unserved"] for level in only["confidence"].values()) == 1
    assert only["tokens"] > 0
    wrong = folder / "wrong.jsonl"
    wrong.write_text('{"query": "how many words are in this text", "tools": ["delete_page"]}\n', encoding="utf-8")
    [only] = orjson.loads(run("eval", wrong.name, "--json").out)["runs"]
    assert {"tool": "main.delete_page", "with": "main.count_words", "requests": 1} in only["confused"]


def test_eval_compares_an_embedder_with_words_alone_and_leaves_no_trace(run: Run, file: Path, folder: Path) -> None:
    before = {path.name for path in folder.iterdir()}
    told = orjson.loads(run("eval", file.name, "--json", "--embedder", "hashing").out)
    assert [run_["how"] for run_ in told["runs"]] == ["words alone", "hashing"]
    assert {path.name for path in folder.iterdir()} == before


def test_eval_ends_with_1_where_less_is_found_than_a_build_wants(run: Run, folder: Path) -> None:
    path = folder / "requests.json"
    path.write_text('{"requests": [{"query": "transfer money abroad", "tools": ["no_such"]}]}', encoding="utf-8")
    ran = run("eval", path.name)
    assert (ran.code, ran.out) == (2, "")
    assert "Request 1 names the tool 'no_such', which is not here." in ran.err
    path.write_text('{"requests": [{"query": "count words", "tools": ["count_words"]}]}', encoding="utf-8")
    assert run("eval", path.name, "--at-least", "1").code == 0
    ran = run("eval", path.name, "--at-least", "1.1")
    assert (ran.code, "recall@5 is 1.000, less than --at-least 1.1." in ran.err) == (1, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("requests: []", "has no requests"),
        ("tools: {}", "is not a file of requests"),
        ("requests: [{query: x, tool: [a]}]", "is not a file of requests"),
        ("requests: [{tools: [count_words]}]", "Request 1 of 'r.yaml' has no `query`."),
        ("requests: [{query: x, tools: [cuont_words]}]", "Did you mean 'count_words'?"),
        ("a: [", "is not a file of requests"),
    ],
)
def test_eval_says_what_is_wrong_with_a_file(run: Run, folder: Path, text: str, said: str) -> None:
    (folder / "r.yaml").write_text(text, encoding="utf-8")
    ran = run("eval", "r.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert run("eval", "none.yaml").code == 2
