"""OpenTelemetry metrics: the metrics of `/metrics` as instruments, with the same labels.

Their names become those of `/metrics` by the rules of Prometheus for OTLP: a counter gets `_total`, and a unit is added
to names that do not end with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Observation

from pegboard.core.call.finished_call import FinishedCall, StartedCall
from pegboard.telemetry.call_metrics import LIMITS_S, CallMetrics
from pegboard.version import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from prometheus_client.metrics_core import Metric

CATALOG = "pegboard.catalog"
"""The attribute of the meter that names the catalog: a process may serve several."""


class OtelMetrics:
    """The instruments of one catalog at one meter provider, which stay: OpenTelemetry cannot remove them.

    They show what `begin` gave them last, and nothing after its end. Calls are read from their counters, and gauges
    from the values of the last `show`, in the thread of the exporter. Durations are recorded by tool and outcome as
    calls end.

    A `CallObserver` while a catalog is served.
    """

    times_stages = False

    def __init__(self, provider: MeterProvider, catalog: str) -> None:
        meter = provider.get_meter("pegboard", __version__, attributes={CATALOG: catalog})
        self._counts = CallMetrics()
        self._gauges: Mapping[str, Metric] = {}
        self._known = set[str]()
        self._create_gauge = meter.create_observable_gauge
        meter.create_observable_counter("pegboard_calls", [self._observe_calls], description="Finished calls.")
        self._durations = meter.create_histogram(
            "pegboard_call_duration_seconds", "s", "How long calls took.", explicit_bucket_boundaries_advisory=LIMITS_S
        )

    def begin(self, counts: CallMetrics) -> Callable[[], None]:
        """Show these counters of calls from now on; return a function that ends this."""
        self._counts = counts

        def end() -> None:
            if self._counts is counts:
                self._counts, self._gauges = CallMetrics(), {}

        return end

    def show(self, gauges: Iterable[Metric]) -> None:
        """Show these values from now on, and no older ones."""
        self._gauges = {gauge.name: gauge for gauge in gauges}
        for name, gauge in self._gauges.items():
            if name not in self._known:
                self._known.add(name)
                self._create_gauge(name, [partial(self._observe_gauge, name)], description=gauge.documentation)

    def started(self, call: StartedCall) -> None:
        """Do nothing: a call is timed when it ends."""

    def finished(self, call: FinishedCall) -> None:
        """Record the duration of one call."""
        self._durations.record(call.duration_s, {"tool": self._counts.counted_name(call), "outcome": call.kind})

    def _observe_calls(self, _options: CallbackOptions) -> Iterator[Observation]:
        # Copied: calls end meanwhile, in another thread.
        for tool, counted in [*self._counts.by_tool.items()]:
            for outcome, count in [*counted.ends.items()]:
                yield Observation(count, {"tool": tool, "outcome": outcome})

    def _observe_gauge(self, name: str, _options: CallbackOptions) -> Iterator[Observation]:
        gauge = self._gauges.get(name)
        for sample in () if gauge is None else gauge.samples:
            yield Observation(sample.value, sample.labels)


_instruments: WeakKeyDictionary[MeterProvider, dict[str, OtelMetrics]] = WeakKeyDictionary()


def instruments_of(provider: MeterProvider, catalog: str) -> OtelMetrics:
    """Return the instruments of a catalog, by its name; the same ones when it is served again."""
    of_provider = _instruments.setdefault(provider, {})
    if catalog not in of_provider:
        of_provider[catalog] = OtelMetrics(provider, catalog)
    return of_provider[catalog]
