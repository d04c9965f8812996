"""why: explain one decision, and the smallest change that would reverse it."""

from __future__ import annotations

from collections.abc import Mapping

from pegboard.cli.command_error import Exit
from pegboard.cli.commands.call import approval
from pegboard.cli.options import SharedOptions, ToolName
from pegboard.cli.project import left_out, opened
from pegboard.core.lifecycle import end_of
from pegboard.core.names import fold
from pegboard.model.agent import AgentEntry
from pegboard.model.decision import Decision
from pegboard.model.json_types import JSON
from pegboard.model.tool import ToolEntry


async def why_command(name: ToolName, /, *, options: SharedOptions) -> Exit:
    """Explain why a caller may or may not use a tool, and what would change that.

    A visible tool may still be refused at the moment: its limit is reached, its server is down, its definition waits
    for a review, or nobody can approve it. Exits with 0 if the tool is visible, else with 1.
    """
    async with opened(options, tool=name, approve=approval(options.terminal, yes=False), only_reads=True) as (
        project,
        view,
    ):
        decision = await view.awhy(name)
        notes = _notes(name, view.snapshot.find(name), project.catalog.registry.declarations.agents)
        if options.json:
            # Without --json they are on stderr.
            notes += [f"left out: {text}" for text in left_out(project.config)]
        answer: JSON = project.clean(_as_json(name, decision, options.chosen_profile, notes), view.ctx)
    if options.json:
        options.terminal.json(answer)
    else:
        if decision.callable:
            options.terminal.styled(f"{name}: visible {options.seen_by}", "green")
        elif decision.asks and decision.blocked is not None and decision.blocked.kind == "consent_required":
            text = f"{name}: visible {options.seen_by}; a person must agree to each call"
            options.terminal.styled(text, "yellow")
        elif decision.visible:
            text = f"{name}: visible {options.seen_by}, but a call is refused now"
            options.terminal.styled(text, "yellow")
        else:
            options.terminal.styled(f"{name}: hidden {options.seen_by}, code {decision.code!r}", "yellow")
        options.terminal.pairs(_lines(answer))
    return Exit.DONE if decision.visible else Exit.REFUSED


def _notes(name: str, entry: ToolEntry | None, agents: Mapping[str, AgentEntry]) -> list[str]:
    """Return notes about the name: its current name, the end date of its tool, and agents that run without it."""
    if entry is None:
        ids = {fold(text) for text in (name, f"main.{name}", name.replace("__", ".", 1))}
        return [
            f"the agent {agent!r} declares this tool and runs without it"
            for agent, each in agents.items()
            if not ids.isdisjoint(map(fold, each.spec.shared))
        ]
    notes = [f"{name!r} is now called {entry.wire_name!r}"] if name in entry.spec.renamed_from else []
    is_ending = entry.spec.deprecated is not None or entry.spec.replaced_by is not None
    return [*notes, end_of(entry.spec)] if is_ending else notes


def _as_json(name: str, decision: Decision, profile: str | None, notes: list[str]) -> JSON:
    return {
        "name": name,
        "profile": profile,
        "visible": decision.visible,
        "code": decision.code,
        "reason": decision.reason,
        "fix": decision.fix and decision.fix._asdict(),
        "next": decision.next,
        "next_reason": decision.next_reason,
        "callable": decision.callable,
        "asks": decision.asks,
        "blocked": decision.blocked and decision.blocked.as_json(),
        "notes": notes,
    }


def _lines(answer: JSON) -> list[tuple[str, str]]:
    lines = [("reason", answer["reason"])]
    if answer["fix"]:
        lines.append(("fix", answer["fix"]["text"]))
    if answer["next"]:
        is_hidden = answer["next"] != "visible"
        after = f"hidden, code {answer['next']!r}: {answer['next_reason']}" if is_hidden else "visible"
        lines.append(("then", after))
    if blocked := answer["blocked"]:
        until = f" (until {blocked['until']})" if blocked["until"] else ""
        lines.append(("refused", f"{blocked['kind']}: {blocked['reason']}{until}"))
    lines += [("note", note) for note in answer["notes"]]
    return lines
