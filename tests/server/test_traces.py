"""Traces: one span for each call, below that of its client and above what the tool does, and no data in any of them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from pegboard import Catalog, Policy, Profile, ToolContext, http_app
from pegboard.model.tool import ToolSpec
from pegboard.sources.webhook import WebhookSettings, webhook_entry
from pegboard.telemetry.otel_providers import set_up_exporters
from pegboard.telemetry.tracing import trace_calls
from pegboard.testing import CallsTool, ModelServer
from tests import forking
from tests.builtin.web import Asked, Site, answer, as_json
from tests.server.asgi import ask, send_raw
from tests.server.doors import META, VERSION, call
from tests.server.processes import serving

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
REMOTE = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
SECRET = "canary-of-the-test"


class Traced:
    """A catalog whose spans are kept."""

    def __init__(self, catalog: Catalog) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.end = trace_calls(catalog.executor, self.provider)

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def call_span(self) -> ReadableSpan:
        """Return the span of the only call; its slow stages have spans, too."""
        [span] = [span for name, span in self.spans().items() if not name.startswith("pegboard.")]
        return span


@pytest.fixture
def tools() -> Catalog:
    catalog = Catalog("shop")

    @catalog.tool
    def refund(account: str) -> str:
        "Refund."
        return f"paid to {account} with {SECRET}"

    @catalog.tool
    def broken(account: str) -> str:
        "Break."
        raise ValueError(f"{account} and {SECRET}")

    catalog.profile(Profile(name="all"))
    catalog.profile(Profile(name="some", policy=Policy(deny=("broken",))))
    return catalog


@pytest.fixture
def traced(tools: Catalog) -> Any:
    made = Traced(tools)
    yield made
    made.end()


@asynccontextmanager
async def running(catalog: Catalog) -> AsyncGenerator[Any]:
    app = http_app(catalog)
    async with app.router.lifespan_context(app):
        yield app


async def call_refund(app: Any, heads: list[tuple[bytes, bytes]]) -> None:
    params = {"name": "refund", "arguments": {"account": "a1"}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    of_mcp = [(b"mcp-protocol-version", VERSION.encode()), (b"mcp-method", b"tools/call"), (b"mcp-name", b"refund")]
    accept = (b"accept", b"application/json, text/event-stream")
    await send_raw(app, body, [*(head for head in heads if head[0] != b"accept"), accept, *of_mcp], path="/mcp/all")


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def id_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def parent_of(span: ReadableSpan) -> str:
    return "" if span.parent is None else f"{span.parent.span_id:016x}"


async def test_a_call_over_mcp_is_one_server_span_below_the_span_of_its_client(tools: Catalog, traced: Traced) -> None:
    async with running(tools) as app:
        await ask(app, "tools/call", {"name": "refund", "arguments": {"account": "a1"}}, path="/mcp/all", meta=REMOTE)
    span = traced.call_span()
    assert (span.name, span.kind, span.status.status_code) == ("tools/call refund", SpanKind.SERVER, StatusCode.UNSET)
    assert (trace_of(span), parent_of(span)) == (TRACE, PARENT)
    said = dict(span.attributes or {})
    assert said.pop("gen_ai.tool.call.id")
    assert said.pop("pegboard.request.id")
    said.pop("pegboard.door", None)
    assert said == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "refund",
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28",
        "jsonrpc.request.id": "1",
        "network.transport": "tcp",
        "pegboard.tool.id": "main.refund",
        "pegboard.profile": "all",
        "pegboard.outcome": "ok",
    }


@pytest.mark.parametrize(
    ("name", "path", "span_name", "outcome"),
    [
        ("broken", "/mcp/all", "tools/call broken", "tool_error"),
        ("broken", "/mcp/some", "tools/call", "not_found"),
        (f"no {SECRET}", "/mcp/all", "tools/call", "not_found"),
    ],
)
async def test_a_failed_or_refused_call_is_an_error_whose_text_is_not_recorded(
    tools: Catalog, traced: Traced, name: str, path: str, span_name: str, outcome: str
) -> None:
    async with running(tools) as app:
        await ask(app, "tools/call", {"name": name, "arguments": {"account": SECRET}}, path=path)
    span = traced.call_span()
    assert (span.name, span.status.status_code, span.status.description) == (span_name, StatusCode.ERROR, None)
    assert (span.attributes or {})["error.type"] == "tool_error"
    assert (span.attributes or {})["pegboard.outcome"] == outcome
    assert SECRET not in span.to_json()
    assert not span.events


@pytest.mark.parametrize("parent", ["", "00-", "00-zz-1-01", f"00-{'0' * 32}-{PARENT}-01", 7, None, ["00"]])
async def test_a_malformed_trace_context_starts_a_trace_of_its_own(tools: Catalog, traced: Traced, parent: Any) -> None:
    async with running(tools) as app:
        params = {"name": "refund", "arguments": {"account": "a1"}}
        answered = await ask(app, "tools/call", params, path="/mcp/all", meta={"traceparent": parent})
    assert answered["result"]["isError"] is False
    span = traced.call_span()
    assert span.parent is None


async def test_the_trace_of_an_http_request_is_a_link_over_mcp_and_the_parent_over_plain_http(
    tools: Catalog, traced: Traced
) -> None:
    heads = [(b"host", b"127.0.0.1:8420"), (b"content-type", b"application/json"), (b"accept", b"application/json")]
    heads.append((b"traceparent", REMOTE["traceparent"].encode()))
    async with running(tools) as app:
        await send_raw(app, b'{"account": "a1"}', heads, path="/v1/tools/refund/call", query=b"profile=all")
        plain = traced.call_span()
        traced.exporter.clear()
        await call_refund(app, heads)
    span = traced.call_span()
    assert (plain.name, plain.kind, parent_of(plain)) == ("execute_tool refund", SpanKind.INTERNAL, PARENT)
    assert (span.parent, [f"{link.context.trace_id:032x}" for link in span.links]) == (None, [TRACE])


async def test_a_call_of_host_code_is_below_the_current_span_and_restores_it(tools: Catalog, traced: Traced) -> None:
    view, tracer = tools.view(ToolContext(user_id="ann")), traced.provider.get_tracer("host")
    with tracer.start_as_current_span("turn") as turn:
        await asyncio.gather(*(view.call("refund", {"account": str(number)}) for number in range(5)))
        await view.call("refund", {"account": "last"})
    calls = [span for span in traced.exporter.get_finished_spans() if span.name == "execute_tool refund"]
    assert len(calls) == 6
    assert {parent_of(span) for span in calls} == {f"{turn.get_span_context().span_id:016x}"}


async def test_what_a_tool_does_is_below_its_call_and_slow_stages_are_shown(tools: Catalog, traced: Traced) -> None:
    tracer = traced.provider.get_tracer("host")

    @tools.tool
    async def outer(ctx: Any = None) -> str:
        "Work."
        with tracer.start_as_current_span("work"):
            await asyncio.sleep(0.005)
        return "done"

    await tools.view(ToolContext()).call("outer", {})
    spans = traced.spans()
    own = id_of(spans["execute_tool outer"])
    assert {parent_of(spans["work"]), parent_of(spans["pegboard.run"])} == {own}


async def test_a_service_behind_a_tool_continues_the_trace_and_gets_no_baggage(tools: Catalog, traced: Traced) -> None:
    site = Site(lambda _: as_json({"ok": True}))
    async with site.server() as server:
        spec = ToolSpec(name="pay", description="Pay.")
        tools.register(webhook_entry(spec, WebhookSettings(url=f"{server.url}/pay?token={SECRET}")))
        async with running(tools) as app:
            meta = {**REMOTE, "baggage": f"user={SECRET}"}
            await ask(app, "tools/call", {"name": "pay", "arguments": {}}, path="/mcp/all", meta=meta)
    spans = traced.spans()
    request = spans["POST"]
    assert request.kind == SpanKind.CLIENT
    assert parent_of(request) == id_of(spans["tools/call pay"])
    [asked] = site.asked
    assert asked.headers["traceparent"] == f"00-{TRACE}-{id_of(request)}-01"
    assert "baggage" not in asked.headers
    assert not any(SECRET in span.to_json() for span in traced.exporter.get_finished_spans())


async def test_nothing_is_traced_and_nothing_added_without_a_tracer_provider(tools: Catalog) -> None:
    trace_calls(tools.executor)()
    assert tools.executor.ports.call_observers == ()


async def test_a_missing_exporter_is_said_once_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with caplog.at_level(logging.WARNING):
        set_up_exporters({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    [record] = caplog.records
    assert "[otel]" in record.getMessage()


FRONT = """\
name: front
files: [clerk.yaml]
models: {{default: {{provider: openai_compatible, name: played, base_url: "{model}", api_key: "${{KEY}}"}}}}
tools:
  - {{name: ask_clerk, type: agent, description: Ask the clerk., agent: clerk}}
  - name: back
    type: mcp
    groups: [facts]
    mcp:
      {{transport: stdio, command: {command}, args: {args}, cwd: back, env: {{OTEL_SERVICE_NAME: back, {exporting}}}}}
profiles: {{all: {{}}}}
"""
CLERK = """\
apiVersion: pegboard/v1
kind: Agent
metadata: {name: clerk}
spec: {prompts: {system: You help.}, tools: [{group: facts}]}
"""
FACTS = """
from pegboard import default_catalog

@default_catalog.tool
def look_up(company: str) -> str:
    "Look a company up."
    return f"{company}: 40 people"
"""


class Collector:
    """An OTLP/HTTP collector."""

    def __init__(self) -> None:
        self.site = Site(self._take)
        self.spans: dict[str, Any] = {}
        self.raw = b""
        self.has_all = asyncio.Event()

    def _take(self, asked: Asked) -> bytes:
        self.raw += asked.body
        sent = ExportTraceServiceRequest.FromString(asked.body if asked.path == "/v1/traces" else b"")
        for resource in sent.resource_spans:
            [service] = [one.value.string_value for one in resource.resource.attributes if one.key == "service.name"]
            spans = [span for scope in resource.scope_spans for span in scope.spans]
            self.spans.update({f"{service}: {span.name}": span for span in spans})
        if {"pegboard: tools/call ask_clerk", "back: tools/call look_up"} <= self.spans.keys():
            self.has_all.set()
        return answer(b"", headers=["Content-Type: application/x-protobuf"])


async def test_one_trace_leads_from_a_client_through_an_agent_to_an_upstream_server(tmp_path: Path) -> None:
    collector = Collector()
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "facts.py").write_text(FACTS)
    (tmp_path / "back" / "pegboard.yaml").write_text("name: back\npython: [facts]\n")
    (tmp_path / "clerk.yaml").write_text(CLERK)
    model = ModelServer(
        lambda request: CallsTool("back__look_up", {"company": "Acme"}) if not request.outcomes else "So."
    )
    command, *args = forking.started("pegboard", "serve", "--stdio")
    async with collector.site.server() as server, model:
        exporting = {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
        text = FRONT.format(
            model=model.openai_url, command=json.dumps(command), args=json.dumps(args),
            exporting=json.dumps(exporting)[1:-1],
        )  # fmt: skip
        (tmp_path / "pegboard.yaml").write_text(text)
        async with (
            serving(tmp_path, env={**exporting, "KEY": SECRET}) as front,
            httpx2.AsyncClient(base_url=front.url) as client,
        ):
            result = await call(client, "ask_clerk", {"query": f"Is {SECRET} one?"}, path="/mcp/all", meta=REMOTE)
            assert result["result"]["isError"] is False, result
            async with asyncio.timeout(60):
                await collector.has_all.wait()
    spans = collector.spans
    chain = [
        "pegboard: tools/call ask_clerk",
        "pegboard: invoke_agent clerk",
        "pegboard: execute_tool back__look_up",
        "pegboard: MCP send tools/call look_up",
        "back: tools/call look_up",
    ]
    assert {spans[name].trace_id.hex() for name in chain} == {TRACE}
    assert [spans[name].parent_span_id.hex() for name in chain] == [
        PARENT, *(spans[name].span_id.hex() for name in chain[:-1])
    ]  # fmt: skip
    requests = [span for name, span in spans.items() if name.startswith("pegboard: chat")]
    assert {span.parent_span_id for span in requests} == {spans["pegboard: invoke_agent clerk"].span_id}
    assert SECRET.encode() not in collector.raw
