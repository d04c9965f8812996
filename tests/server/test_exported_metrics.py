"""Exported metrics: an OpenTelemetry collector gets what `/metrics` shows, from every server, and no data of calls."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from pegboard.telemetry.call_metrics import LIMITS_S
from pegboard.telemetry.otel_providers import meter_provider_in_use, set_up_exporters, tracer_provider_in_use
from tests import forking
from tests.builtin.web import Asked, Site, answer
from tests.server.doors import META, VERSION
from tests.server.processes import serving

SECRET = "canary-of-the-test"
SHOP = """
from pegboard import default_catalog

@default_catalog.tool
def add(a: int, b: int = 0) -> int:
    "Add."
    return a + b
"""
CONFIG = """\
name: shop
python: [shop]
audit: {store: "sqlite:./audit.db"}
budgets: {rules: {work: {calls: 4, per: day}}}
profiles: {all: {}}
"""


class MetricsCollector:
    """An OTLP/HTTP collector. Metrics have the names that Prometheus gives them, and their last points by labels."""

    def __init__(self) -> None:
        self.site = Site(self._take)
        self.raw = b""
        self.points: dict[str, dict[tuple[str, ...], Any]] = {}
        self.services: dict[str, str] = {}
        self.scopes: list[tuple[str, str]] = []

    def _take(self, asked: Asked) -> bytes:
        assert asked.path == "/v1/metrics"
        self.raw += asked.body
        for resource in ExportMetricsServiceRequest.FromString(asked.body).resource_metrics:
            self.services = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_metrics:
                self.scopes += [(scope.scope.name, one.value.string_value) for one in scope.scope.attributes]
                for metric in scope.metrics:
                    self._add(metric)
        return answer(b"", headers=["Content-Type: application/x-protobuf"])

    def _add(self, metric: Any) -> None:
        kind = metric.WhichOneof("data")
        data = getattr(metric, kind)
        # Source: the compatibility of OpenTelemetry and Prometheus, metric metadata.
        name = metric.name + ("_total" if kind == "sum" and data.is_monotonic else "")
        assert metric.unit == ("s" if name.endswith("_seconds") and kind == "histogram" else "")
        self.points[name] = {
            tuple(sorted(f"{one.key}={one.value.string_value}" for one in point.attributes)): point
            for point in data.data_points
        }

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        return {labels: point.as_int or point.as_double for labels, point in self.points[name].items()}


def exporting_to(url: str) -> dict[str, str]:
    """Return variables that export metrics alone, to the end of the server and not before."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_TRACES_EXPORTER": "none"}


def written(folder: Path) -> Path:
    (folder / "shop.py").write_text(SHOP)
    (folder / "pegboard.yaml").write_text(CONFIG)
    return folder


async def test_a_collector_gets_every_metric_of_a_server_under_the_same_name_with_the_same_labels(
    tmp_path: Path,
) -> None:
    collector = MetricsCollector()
    async with collector.site.server() as site:
        async with (
            serving(written(tmp_path), env=exporting_to(site.url)) as server,
            httpx2.AsyncClient(base_url=server.url) as client,
        ):
            for tool, arguments in (("add", {"a": 1}), ("add", {"a": SECRET}), (SECRET, {}), ("add", {"a": 2})):
                await client.post(f"/v1/tools/{tool}/call", json=arguments, params={"profile": "all"})
            shown = (await client.get("/metrics")).text
    assert collector.services["service.name"] == "pegboard"
    assert set(collector.scopes) == {("pegboard", "shop")}
    ends = {("outcome=ok", "tool=add"): 2, ("outcome=invalid_arguments", "tool=add"): 1,
            ("outcome=not_found", "tool=(unknown)"): 1}  # fmt: skip
    assert collector.values("pegboard_calls_total") == ends
    durations = collector.points["pegboard_call_duration_seconds"]
    assert {labels: point.count for labels, point in durations.items()} == ends
    assert {(*point.explicit_bounds,) for point in durations.values()} == {LIMITS_S}
    gauges: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(shown):
        for sample in family.samples if family.type == "gauge" else ():
            labels = tuple(sorted(f"{name}={value}" for name, value in sample.labels.items()))
            gauges.setdefault(sample.name, {})[labels] = sample.value
    # These are about the workers whose sums /metrics shows, and about the process.
    of_metrics = {name for name in gauges if name.startswith("pegboard_")}
    of_metrics -= {"pegboard_workers_heard", "pegboard_metrics_partial"}
    assert collector.points.keys() == {*of_metrics, "pegboard_calls_total", "pegboard_call_duration_seconds"}
    assert {name: collector.values(name).keys() for name in of_metrics} == {
        name: gauges[name].keys() for name in of_metrics
    }
    assert collector.values("pegboard_store_up")[("store=audit",)] == 1
    assert SECRET.encode() not in collector.raw


async def test_a_server_on_stdio_exports_its_calls_at_its_end(tmp_path: Path) -> None:
    collector = MetricsCollector()
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
               "params": {"name": "add", "arguments": {"a": 1}, "_meta": META}}  # fmt: skip
    async with collector.site.server() as site:
        done = await asyncio.to_thread(
            forking.run, ["pegboard", "serve", "--stdio"], cwd=written(tmp_path), env=exporting_to(site.url),
            given=json.dumps(request).encode() + b"\n",
        )  # fmt: skip
    assert json.loads(done.stdout)["result"]["isError"] is False, (done, VERSION)
    assert collector.values("pegboard_calls_total") == {("outcome=ok", "tool=add"): 1}


EMBEDDED = """
import asyncio, json
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from pegboard import Catalog, ToolContext, http_app

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
trace.set_tracer_provider(TracerProvider())
catalog = Catalog("shop")


@catalog.tool
def add(a: int) -> int:
    "Add."
    return a


def points():
    data = reader.get_metrics_data()
    found = [metric for each in data.resource_metrics for scope in each.scope_metrics for metric in scope.metrics]
    return {metric.name: [*metric.data.data_points] for metric in found}


async def served(calls):
    app, other = http_app(catalog), http_app(catalog)
    async with app.router.lifespan_context(app), other.router.lifespan_context(other):
        for number in range(calls):
            await catalog.view(ToolContext()).call("add", {"a": number})
        now = points()
        [calls], [durations] = now["pegboard_calls"], now["pegboard_call_duration_seconds"]
        return calls.value, durations.count, any(exemplar.span_id for exemplar in durations.exemplars)


async def main():
    answers = [await served(2), await served(3)]
    await catalog.start()
    await catalog.view(ToolContext()).call("add", {"a": 0})
    print(json.dumps([*answers, "pegboard_calls" in points()]))

asyncio.run(main())
"""


def test_an_app_uses_the_meter_provider_of_its_host_while_it_is_served_also_for_the_second_time(tmp_path: Path) -> None:
    script = tmp_path / "host.py"
    script.write_text(EMBEDDED)
    done = forking.run(["python", str(script)], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # The histogram is the host's, and goes on.
    assert json.loads(done.stdout) == [[2, 2, True], [3, 5, True], False]


def test_nothing_is_set_up_for_a_signal_that_is_turned_off_or_has_no_endpoint() -> None:
    before = tracer_provider_in_use(), meter_provider_in_use()
    set_up_exporters({})
    off = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}
    set_up_exporters({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", **off})
    assert (tracer_provider_in_use(), meter_provider_in_use()) == before
