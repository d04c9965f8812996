"""Monitoring: the dashboard and the alert rules use metrics, labels and values that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from pegboard.core.call.finished_call import CallKind
from pegboard.model.source_state import SourceState, SourceStatus
from pegboard.telemetry.call_metrics import LIMITS_S, CallMetrics
from pegboard.telemetry.prometheus_text import gauges_of, prometheus_text

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples/deploy/monitoring"
PAGES = ROOT / "docs/howto"
RULES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "pegboard-rules.yaml").read_text())["groups"][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text())
EXPRESSIONS = [
    *(rule["expr"] for rule in RULES),
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]),
]
VALUES = {
    "status": set(get_args(SourceStatus)),
    "outcome": {word for kinds in get_args(CallKind) for word in get_args(kinds)},
}
# Prometheus itself adds these.
ADDED = {"job", "instance", "le"}


def metrics() -> dict[str, set[str]]:
    """Return the labels of each metric that a server can have."""
    counted = CallMetrics()
    counted.add({"add": [{"ok": 1}, [1] * (len(LIMITS_S) + 1), 0.1]})
    gauges = gauges_of(
        in_flight=0, waiting=0, streams=0, sources={"notes": SourceState()}, stores={"limits": True},
        servers={"of shop": True}, hosts={"clock": True}, is_refused=False,
    )  # fmt: skip
    text = prometheus_text(counted, gauges).decode()
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def selectors(expression: str) -> Iterator[tuple[str, str]]:
    """Yield the metrics of a query, each with what is between its braces."""
    return ((each[1], each[2] or "") for each in re.finditer(r"\b(pegboard_\w+)(?:\{([^}]*)\})?", expression))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_query_uses_metrics_labels_and_values_that_exist(expression: str) -> None:
    known = metrics()
    used = list(selectors(expression))
    labels = set[str]()
    for name, matchers in used:
        assert name in known
        labels |= known[name]
        for label, value in re.findall(r'(\w+)(?:=~|!=|!~|=)"([^"]*)"', matchers):
            assert label in known[name] | ADDED
            if label in VALUES:
                assert set(value.split("|")) <= VALUES[label]
    for listed in re.findall(r"\bby \(([^)]*)\)", expression):
        assert {label.strip() for label in listed.split(",")} <= labels | ADDED
    assert used or expression.startswith("up{")
    assert expression.count("(") == expression.count(")")


def test_every_metric_of_ours_is_on_the_dashboard_or_in_a_rule_and_in_the_reference() -> None:
    ours = {name for name in metrics() if name.startswith("pegboard_") and not name.endswith(("_created", "_sum"))}
    families = {re.sub(r"_(bucket|count)$", "", name) for name in ours}
    queried = {re.sub(r"_(bucket|count)$", "", name) for text in EXPRESSIONS for name, _ in selectors(text)}
    page = (PAGES / "logging.md").read_text(encoding="utf-8")
    assert families <= queried
    assert {name for name in families if f"`{name}" not in page} == set()


def test_every_label_in_a_summary_survives_its_query() -> None:
    for rule in RULES:
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        by = {label.strip() for listed in re.findall(r"\bby \(([^)]*)\)", rule["expr"]) for label in listed.split(",")}
        assert named <= by | ADDED, rule["alert"]


def test_every_rule_is_on_the_page() -> None:
    page = (PAGES / "monitoring.md").read_text(encoding="utf-8")
    assert {rule["alert"] for rule in RULES} == set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE))


def test_panels_have_different_numbers_and_do_not_overlap() -> None:
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
