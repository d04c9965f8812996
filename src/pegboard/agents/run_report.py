"""Run report: how a run of an agent ended, as JSON."""

from __future__ import annotations

from pegboard.model.agent import AgentResult, AgentUsage
from pegboard.model.json_types import JSON


def report_of(result: AgentResult) -> JSON:
    """Return how a run ended, without its error."""
    return {
        "agent": result.agent,
        "runId": result.run_id,
        "status": result.status,
        "output": result.output,
        "stoppedReason": result.stopped_reason,
        "usage": _usage(result.usage),
    }


def _usage(usage: AgentUsage) -> JSON:
    return {
        "requests": usage.requests,
        "toolCalls": usage.tool_calls,
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        # As text, since money is not a binary fraction.
        "usd": None if usage.usd is None else str(usage.usd),
    }
