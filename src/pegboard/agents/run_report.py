"""Run report: the outcome of an agent run, as JSON."""

from __future__ import annotations

from pegboard.model.agent import AgentResult, AgentUsage
from pegboard.model.json_types import JSON


def report_of(result: AgentResult) -> JSON:
    """Return the outcome of an agent run as JSON, without its error."""
    return {
        "agent": result.agent,
        "runId": result.run_id,
        "status": result.status,
        "output": result.output,
        "stoppedReason": result.stopped_reason,
        "usage": _usage(result.usage),
        **({"awaySources": list(result.away_sources)} if result.away_sources else {}),
        **({"missingTools": list(result.missing_tools)} if result.missing_tools else {}),
    }


def _usage(usage: AgentUsage) -> JSON:
    return {
        "requests": usage.requests,
        "toolCalls": usage.tool_calls,
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        # A string, because a float cannot hold every amount of money.
        "usd": None if usage.usd is None else str(usage.usd),
    }
