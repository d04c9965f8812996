"""OpenTelemetry providers: set up the export of spans and metrics, and find the providers that the process has set."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pegboard.extras import needs_package
from pegboard.lazy import LazyModule

if TYPE_CHECKING:
    from pegboard.telemetry import otel_sdk
else:
    otel_sdk = LazyModule("pegboard.telemetry.otel_sdk")

FLUSH_MS = 2_000  # milliseconds that the end of a process waits for spans and metrics that were not exported yet

log = logging.getLogger("pegboard")


def set_up_exporters(env: Mapping[str, str]) -> None:
    """Export spans and metrics over OTLP/HTTP if the environment names an endpoint for them.

    For processes of ours alone: in a host's process the host sets OpenTelemetry up. A provider that is already set,
    such as by `opentelemetry-instrument`, stays.
    """
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
    named = "OTEL_SERVICE_NAME" in env or "service.name=" in env.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = {} if named else {"service.name": "pegboard"}
    try:
        if _is_wanted(env, "TRACES") and tracer_provider_in_use() is None:
            otel_sdk.export_spans(resource)
        if _is_wanted(env, "METRICS") and meter_provider_in_use() is None:
            otel_sdk.export_metrics(resource)
    except ImportError as error:
        log.warning("Spans and metrics are not exported, although the environment names an endpoint: %s.",
                    needs_package(error.name, "otel"))  # fmt: skip


def tracer_provider_in_use() -> Any:
    """Return the tracer provider of the process; `None` if nobody has set one."""
    if "opentelemetry.trace" not in sys.modules:
        # Code that sets one imports this module.
        return None
    from opentelemetry import trace  # noqa: PLC0415 - imported already

    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider) else provider


def meter_provider_in_use() -> Any:
    """Return the meter provider of the process; `None` if nobody has set one."""
    if "opentelemetry.metrics" not in sys.modules:
        return None
    from opentelemetry import metrics  # noqa: PLC0415 - imported already

    provider = metrics.get_meter_provider()
    # The API's placeholder has no public name. It exports nothing, so it cannot be flushed.
    return provider if hasattr(provider, "force_flush") else None


def _is_wanted(env: Mapping[str, str], signal: str) -> bool:
    """Return whether the environment names an endpoint for `TRACES` or `METRICS`, and does not turn them off."""
    # Source: the specification of OpenTelemetry, OTLP exporter configuration.
    has_endpoint = env.get("OTEL_EXPORTER_OTLP_ENDPOINT") or env.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return bool(has_endpoint) and env.get(f"OTEL_{signal}_EXPORTER") != "none"
