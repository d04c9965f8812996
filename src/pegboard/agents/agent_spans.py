"""Agent spans: the OpenTelemetry spans of agent runs and of their requests to language models."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pegboard.egress.client_spans import tracer_in_use
from pegboard.model import span_names

if TYPE_CHECKING:
    from opentelemetry.trace import Span
    from pydantic_ai.models import Model

    from pegboard.model.agent import AgentResult


@contextmanager
def run_span(agent: str, conversation: str | None) -> Generator[Span | None]:
    """Trace the run of an agent; what it does is below this span. Prompts and answers are not recorded."""
    tracer = tracer_in_use()
    if tracer is None:
        yield None
        return
    attributes = {span_names.OPERATION: span_names.INVOKE_AGENT, span_names.AGENT_NAME: agent}
    if conversation is not None:
        attributes[span_names.CONVERSATION_ID] = conversation
    with tracer.start_as_current_span(
        f"{span_names.INVOKE_AGENT} {agent}", attributes=attributes, record_exception=False
    ) as span:
        yield span


def note_outcome(span: Span | None, result: AgentResult) -> None:
    """Record how a run ended."""
    if span is None:
        return
    span.set_attribute(span_names.RUN_STATUS, result.status)
    if result.error is not None:
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - only where runs are traced

        span.set_attribute(span_names.ERROR_TYPE, result.error.kind)
        span.set_status(Status(StatusCode.ERROR))


def traced_model(model: Model) -> Model:
    """Return the model with a span for each request, if runs are traced; without prompts and answers."""
    if tracer_in_use() is None:
        return model
    from pydantic_ai.models.instrumented import (  # noqa: PLC0415 - only where runs are traced
        InstrumentationSettings,
        InstrumentedModel,
    )

    settings = InstrumentationSettings(
        include_content=False, include_binary_content=False, include_model_request_parameters=False
    )
    return InstrumentedModel(model, settings)
