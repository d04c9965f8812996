"""why: explain one decision, and the smallest change that would turn it."""

from __future__ import annotations

from pegboard.base.model import JSON, Decision
from pegboard.cli.faults import Exit
from pegboard.cli.options import Given, ToolName
from pegboard.cli.project import opened


async def why_command(name: ToolName, /, *, options: Given) -> Exit:
    """Tell why a caller may use a tool or not, and what would change that.

    Ends with 0 if the tool is visible, else with 1.
    """
    async with opened(options, tool=name) as (project, view):
        decision = await view.awhy(name)
        told: JSON = project.clean(_as_json(name, decision, options.chosen_profile), view.ctx)
    if options.json:
        options.terminal.json(told)
    else:
        if decision.visible:
            options.terminal.styled(f"{name}: visible {options.seen_by}", "green")
        else:
            options.terminal.styled(f"{name}: hidden {options.seen_by}, code {decision.code!r}", "yellow")
        options.terminal.pairs(_lines(told))
    return Exit.DONE if decision.visible else Exit.REFUSED


def _as_json(name: str, decision: Decision, profile: str | None) -> JSON:
    return {
        "name": name,
        "profile": profile,
        "visible": decision.visible,
        "code": decision.code,
        "reason": decision.reason,
        "fix": decision.fix and decision.fix._asdict(),
        "next": decision.next,
        "next_reason": decision.next_reason,
    }


def _lines(told: JSON) -> list[tuple[str, str]]:
    lines = [("reason", told["reason"])]
    if told["fix"]:
        lines.append(("fix", told["fix"]["text"]))
    if told["next"]:
        after = f"hidden, code {told['next']!r}: {told['next_reason']}" if told["next"] != "visible" else "visible"
        lines.append(("then", after))
    return lines
