"""Prometheus text: the metrics in the Prometheus text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pegboard.core.call.budget_levels import BudgetLevel
from pegboard.model.document import LiveState
from pegboard.model.source_state import SourceState
from pegboard.telemetry.call_metrics import LIMITS_S, CallMetrics

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def gauges_of(
    *,
    in_flight: int,
    waiting: int,
    streams: int,
    sources: Mapping[str, SourceState],
    stores: Mapping[str, bool],
    servers: Mapping[str, bool],
    hosts: Mapping[str, bool],
    budgets: Iterable[BudgetLevel] = (),
    is_refused: bool,
    live: Sequence[LiveState] = (),
) -> Sequence[Metric]:
    """Return the gauges of a server, without those that have nothing to show."""
    gauges = {
        "pegboard_calls_in_flight": ("Calls that run now.", in_flight),
        "pegboard_audit_waiting_calls": ("Calls that wait to begin, as the audit is behind.", waiting),
        "pegboard_event_streams": ("Event streams that are open.", streams),
        "pegboard_config_refused": ("1 if the last change of the config was refused.", int(is_refused)),
    }
    return [*_sources(sources), *_up(stores, servers, hosts), *_budgets(budgets), *_live(live), *_gauges(gauges)]


def prometheus_text(
    calls: CallMetrics,
    gauges: Iterable[Metric],
    *,
    worker: str = "",
    workers_heard: int = 1,
    has_process: bool = True,
) -> bytes:
    """Return the current metrics, with those of the process if it is the only one.

    Counters of one `worker` among several have its name as a label: next to their sum they are other time series, so
    that no counter seems to fall in an outage.
    """
    registry = CollectorRegistry(auto_describe=False)
    of_workers = {
        "pegboard_workers_heard": ("Workers whose state these metrics show, this one included.", workers_heard),
        "pegboard_metrics_partial": (
            "1 while other workers do not respond and the counts are those of one worker.",
            int(bool(worker)),
        ),
    }
    registry.register(_Collected([*_calls(calls, worker), *gauges, *_gauges(of_workers)]))
    if has_process:
        ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = tuple(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _calls(metrics: CallMetrics, worker: str) -> Iterable[Metric]:
    label, value = (("worker",), (worker,)) if worker else ((), ())
    ends = CounterMetricFamily("pegboard_calls", "Finished calls.", labels=("tool", "outcome", *label))
    times = HistogramMetricFamily("pegboard_call_duration_seconds", "How long calls took.", labels=("tool", *label))
    limits = [*map(str, LIMITS_S), "+Inf"]
    for tool, counted in sorted(metrics.by_tool.items()):
        for kind, count in sorted(counted.ends.items()):
            ends.add_metric((tool, kind, *value), count)
        buckets = list(zip(limits, accumulate(counted.within), strict=True))
        times.add_metric((tool, *value), buckets, counted.total_s)
    return ends, times


def _sources(states: Mapping[str, SourceState]) -> Iterable[Metric]:
    up = GaugeMetricFamily("pegboard_source_up", "1 while the tools of a source can be used.", labels=("source",))
    status = GaugeMetricFamily("pegboard_source_status", "1 for the status it has.", labels=("source", "status"))
    held = GaugeMetricFamily("pegboard_tools_held", "Tools that are held back for review.", labels=("source",))
    for name, state in sorted(states.items()):
        up.add_metric((name,), int(state.is_up))
        status.add_metric((name, state.status), 1)
        held.add_metric((name,), len(state.quarantined | state.changed))
    return up, status, held


def _up(stores: Mapping[str, bool], servers: Mapping[str, bool], hosts: Mapping[str, bool]) -> Iterable[Metric]:
    store_up = GaugeMetricFamily("pegboard_store_up", "1 while a store or the bus answers.", labels=("store",))
    server_up = GaugeMetricFamily("pegboard_server_up", "1 while a server accepts connections.", labels=("server",))
    host_ok = GaugeMetricFamily(
        "pegboard_host_ok", "1 while clock and certificate are as they should.", labels=("part",)
    )
    for gauge, parts in ((store_up, stores), (server_up, servers), (host_ok, hosts)):
        for name, is_up in sorted(parts.items()):
            gauge.add_metric((name,), int(is_up))
    return [gauge for gauge in (store_up, server_up, host_ok) if gauge.samples]


def _budgets(levels: Iterable[BudgetLevel]) -> Iterable[Metric]:
    """Return the fullest counter of each budget: one time series for each caller would be too many."""
    gauge = GaugeMetricFamily(
        "pegboard_budget_used_ratio",
        "The used part of a budget; with `each`, of the fullest.",
        labels=("budget", "unit"),
    )
    highest: dict[tuple[str, str], float] = {}
    for level in levels:
        key = (level.budget.name, level.counter.unit)
        highest[key] = max(highest.get(key, 0.0), level.ratio)
    for key, ratio in sorted(highest.items()):
        gauge.add_metric(key, ratio)
    return [gauge] if gauge.samples else []


def _live(states: Sequence[LiveState]) -> Iterable[Metric]:
    """Return the metrics of the document sources that are kept in step; none without such sources."""
    texts = {
        "pegboard_documents_up": "1 while the last look at a live source of documents succeeded.",
        "pegboard_documents_synced_timestamp_seconds": "When a live source was last read completely; 0 for never.",
        "pegboard_documents": "Documents of a live source.",
        "pegboard_documents_failed": "Files of a live source that cannot be read.",
    }
    up, synced, documents, failed = (
        GaugeMetricFamily(name, text, labels=("space", "source")) for name, text in texts.items()
    )
    for each in states:
        labels = (each.space, each.source)
        up.add_metric(labels, int(not each.trouble))
        synced.add_metric(labels, each.synced_at)
        documents.add_metric(labels, each.documents)
        failed.add_metric(labels, each.failures)
    return [gauge for gauge in (up, synced, documents, failed) if gauge.samples]


def _gauges(gauges: Mapping[str, tuple[str, int]]) -> Iterable[Metric]:
    return [GaugeMetricFamily(name, text, value) for name, (text, value) in gauges.items()]
