"""OpenTelemetry SDK: export spans and metrics of this process over OTLP/HTTP, as the `OTEL_…` variables say."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import Histogram, MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from pegboard.telemetry.call_metrics import COUNTED_TOOLS

EXPORTED_SERIES = 4 * COUNTED_TOOLS  # time series of one metric; the SDK adds up further ones


def export_spans(resource: Mapping[str, str]) -> None:
    """Set the tracer provider of the process."""
    provider = TracerProvider(resource=Resource.create({**resource}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def export_metrics(resource: Mapping[str, str]) -> None:
    """Set the meter provider of the process. Its last values are exported by `exporting_metrics`."""
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(),
        cardinality_limits={Histogram: EXPORTED_SERIES, ObservableCounter: EXPORTED_SERIES},
    )
    # At the end of the process the SDK would wait for half a minute for a collector that is down.
    provider = MeterProvider([reader], resource=Resource.create({**resource}), shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
