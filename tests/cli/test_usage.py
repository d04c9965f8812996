"""`pegboard usage`: counts of the audit, by tool and by the other fields."""

from pathlib import Path

import orjson
import pytest

from tests.cli.conftest import CONFIG, Run
from tests.cli.test_replay import recorded

COST = "cost: {amount: 0.5, unit: credits}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    text = (
        CONFIG.replace("rate_limit: {max_calls: 10", f"{COST}\n    rate_limit: {{max_calls: 3")
        + "audit: {store: 'sqlite:./audit.db'}\n"
    )
    (tmp_path / "pegboard.yaml").write_text(text)
    return tmp_path


def test_usage_counts_calls_errors_latency_and_tokens_by_any_field(run: Run, folder: Path) -> None:
    calls = (
        [("ann", "chat", "count_words", {"text": "x" * 430})] * 5
        + [("bob", "operator", "explode", {}), ("bob", "operator", "echo", {"whole": "no"})]
        + [("bob", "chat", "delete_page", {"page": "p"}), ("bob", "chat", "nothing", {})]
    )
    recorded(folder / "pegboard.yaml", len(calls), make=lambda number: calls[number])
    answer = orjson.loads(run("usage", "--json").out)
    rows = {row["name"]: (row["calls"], row["ran"], row["errors"]) for row in answer["rows"]}
    assert rows == {
        "main.count_words": (5, 3, {"rate_limited": 2}),
        "main.explode": (1, 1, {"tool_error": 1}),
        "main.echo": (1, 0, {"invalid_arguments": 1}),
        "delete_page": (1, 0, {"not_found": 1}),
        "nothing": (1, 0, {"not_found": 1}),
    }
    first = answer["rows"][0]
    assert 0 < first["p50_s"] <= first["p95_s"] <= first["p99_s"]
    assert first["tokens"] > 500
    costs = [one["costs"] for one in (first, answer["rows"][1], answer["total"])]
    assert costs == [{"credits": 1.5}, {}, {"credits": 1.5}]
    assert sorted(answer["always_refused"]) == ["delete_page", "main.echo", "nothing"]
    assert answer["never_called"] == ["main.delete_page", "main.search_web", "main.shout", "main.chatter"]
    assert {one["profile"] for one in answer["lists"]} == {"chat", "operator"}
    assert (answer["total"]["calls"], answer["total"]["ran"]) == (9, 4)
    by_user = orjson.loads(run("usage", "--json", "--by", "user").out)["rows"]
    assert [(row["name"], row["calls"]) for row in by_user] == [("ann", 5), ("bob", 4)]
    by_profile = orjson.loads(run("usage", "--json", "--by", "profile", "--user", "bob").out)
    assert [(row["name"], row["calls"]) for row in by_profile["rows"]] == [("chat", 2), ("operator", 2)]
    assert "never_called" not in by_profile
    shown = run("usage", "--limit", "1").out
    assert "█" in shown
    assert "Cost" in shown
    assert "1.5" in shown
    assert "9 calls, 4 of them ran. 4 more rows with --limit." in shown
    assert orjson.loads(run("usage", "--json", "--since", "2h", "--until", "1h").out)["total"]["calls"] == 0
    since, until = "2026-01-01T10:00", "2099-01-01T11:00"
    assert orjson.loads(run("usage", "--json", "--since", since, "--until", until).out)["total"]["calls"] == 9


def test_usage_shows_what_is_left_of_budgets(run: Run, folder: Path) -> None:
    path = folder / "pegboard.yaml"
    more = "all: {per: month, calls: 1000}, free: {per: 60, cost: 1}"
    rules = f"{{few: {{tools: explode, each: user, per: day, calls: 4}}, {more}}}"
    text = path.read_text() + f"budgets: {{store: 'sqlite:./budgets.db', rules: {rules}}}\n"
    path.write_text(text)
    recorded(path, 5, make=lambda number: ("bob", "operator", "explode", {}))
    budgets = orjson.loads(run("usage", "--json").out)["budgets"]
    left = {(one["budget"], one["of"].get("user"), one["unit"]): (one["used"], one["left"]) for one in budgets}
    assert left == {("few", "bob", "calls"): (4, 0), ("all", None, "calls"): (4, 996), ("free", None, "usd"): (0, 1)}
    assert "pegboard.yaml:" in budgets[0]["rule"]
    shown = run("usage").out
    assert "4 of 4 calls" in shown
    assert "user bob" in shown
    assert "budgets" not in orjson.loads(run("usage", "--json", "--user", "bob").out)
    (folder / "budgets.db").write_bytes(b"not a database" * 100)
    assert "The store of budgets cannot be read" in run("usage").err
    path.write_text(text.replace("store: 'sqlite:./budgets.db', ", ""))
    assert orjson.loads(run("usage", "--json").out)["budgets"] == [], "a server counts in its own memory"


def test_usage_shows_the_fullest_counters(run: Run, folder: Path) -> None:
    path = folder / "pegboard.yaml"
    rules = "{each: {tools: explode, each: user, per: day, calls: 4}}"
    path.write_text(path.read_text() + f"budgets: {{store: 'sqlite:./budgets.db', rules: {rules}}}\n")
    recorded(path, 22, make=lambda number: (f"user{number}", "operator", "explode", {}))
    assert "The 20 fullest of 22 counters of budgets" in run("usage").out


@pytest.mark.usefixtures("folder")
def test_a_range_that_ends_before_it_begins_is_refused(run: Run) -> None:
    assert "must be longer ago than" in run("usage", "--since", "1h", "--until", "2h").err
