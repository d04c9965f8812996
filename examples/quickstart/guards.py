"""Guards: hooks that pegboard.yaml puts around calls."""

from __future__ import annotations

from collections import Counter

from pegboard import HookCall, ToolResult, Verdict

calls_by_tool: Counter[str] = Counter()


def keep_decisions(call: HookCall) -> Verdict | None:
    """Deny changes to decisions, which are superseded and never edited."""
    if str(call.args.get("page", "")).startswith("decisions/"):
        return Verdict.deny("Decisions are never edited. Write a new one that supersedes it.")
    return None


def tally(call: HookCall, result: ToolResult) -> None:
    """Count every call, by tool and outcome."""
    outcome = "ok" if result.error is None else result.error.kind
    calls_by_tool[f"{call.wire_name} {outcome}"] += 1
