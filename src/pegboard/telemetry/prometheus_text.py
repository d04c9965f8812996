"""Prometheus text: the metrics in the Prometheus text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pegboard.model.source_state import SourceState
from pegboard.telemetry.call_metrics import LIMITS_S, CallMetrics

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(
    metrics: CallMetrics,
    *,
    in_flight: int,
    streams: int,
    sources: Mapping[str, SourceState],
    stores: Mapping[str, bool],
    is_refused: bool,
    has_process: bool = True,
) -> bytes:
    """Return the current metrics, with those of the process if it is the only one."""
    registry = CollectorRegistry(auto_describe=False)
    gauges = {
        "pegboard_calls_in_flight": ("Calls that run now.", in_flight),
        "pegboard_event_streams": ("Event streams that are open.", streams),
        "pegboard_config_refused": ("1 while the last change of the config is refused.", int(is_refused)),
    }
    registry.register(_Collected([*_calls(metrics), *_sources(sources), *_stores(stores), *_gauges(gauges)]))
    if has_process:
        ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = tuple(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _calls(metrics: CallMetrics) -> Iterable[Metric]:
    ends = CounterMetricFamily("pegboard_calls", "Finished calls.", labels=("tool", "outcome"))
    times = HistogramMetricFamily("pegboard_call_duration_seconds", "How long calls took.", labels=("tool",))
    limits = [*map(str, LIMITS_S), "+Inf"]
    for tool, counted in sorted(metrics.by_tool.items()):
        for kind, count in sorted(counted.ends.items()):
            ends.add_metric((tool, kind), count)
        times.add_metric((tool,), list(zip(limits, accumulate(counted.within), strict=True)), counted.total_s)
    return ends, times


def _sources(states: Mapping[str, SourceState]) -> Iterable[Metric]:
    up = GaugeMetricFamily("pegboard_source_up", "1 while the tools of a source can be used.", labels=("source",))
    status = GaugeMetricFamily("pegboard_source_status", "1 for the status it has.", labels=("source", "status"))
    for name, state in sorted(states.items()):
        up.add_metric((name,), int(state.is_up))
        status.add_metric((name, state.status), 1)
    return up, status


def _stores(stores: Mapping[str, bool]) -> Iterable[Metric]:
    if not stores:
        return []
    up = GaugeMetricFamily("pegboard_store_up", "1 while a store answers.", labels=("store",))
    for name, is_up in sorted(stores.items()):
        up.add_metric((name,), int(is_up))
    return [up]


def _gauges(gauges: Mapping[str, tuple[str, int]]) -> Iterable[Metric]:
    return [GaugeMetricFamily(name, text, value) for name, (text, value) in gauges.items()]
