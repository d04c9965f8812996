"""run: run an agent from the keyboard, and show its calls as they happen."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import Annotated, Any

from cyclopts import Parameter

from pegboard.agents.access import caller_of, may_run
from pegboard.agents.run_report import report_of
from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.commands.call import approval
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import opened
from pegboard.cli.terminal import CLI_SHOWN_CHARS, json_text
from pegboard.core.json_reader import parse_json
from pegboard.core.names import nearest
from pegboard.model.agent import AgentResult
from pegboard.model.error import CallError
from pegboard.model.event import Event
from pegboard.model.json_types import JSON, is_object
from pegboard.model.result import ToolResult

_CONTEXT = "Context for the agent's prompts, as a JSON object: `{{ context.company }}`."
_SESSION = "Continue the conversation with this name, and store this run in it."
_INDENT = "  "


async def run_command(
    name: Annotated[str, Parameter(help="Name of the agent.")],
    query: Annotated[str, Parameter(help="The task or question.")],
    /,
    *,
    context: Annotated[str | None, Parameter(allow_leading_hyphen=True, help=_CONTEXT)] = None,
    session: Annotated[str | None, Parameter(help=_SESSION)] = None,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], help="Approve the agent's calls in advance.")] = False,
    options: SharedOptions,
) -> Exit:
    """Run an agent, and show its answer and its tool calls as they happen.

    The answer goes to standard output, the calls to standard error; a sub-agent's calls are below the call that ran it.
    Exits with 0 if the agent completed, else with 1.
    """
    seen = _context(context)
    async with opened(options, approve=approval(options.terminal, yes=yes)) as (project, view):
        agents = project.catalog.registry.declarations.agents
        if name not in agents or not await may_run(name, view):
            known = [agent for agent in agents if await may_run(agent, view)]
            near = nearest(name, known, label="Agents") if known else " Name the files of agents under `files:`."
            raise CommandError(f"There is no agent {name!r}.{near}", kind="unknown_agent")
        ctx = caller_of(view)
        shown = _Shown(options)
        items = project.catalog.agents.stream(name, query, context=seen, session_id=session or ctx.session_id, ctx=ctx)
        async with aclosing(items):
            async for item in items:
                shown.show(item)
        assert shown.result is not None
        return shown.end(shown.result)


class _Shown:
    """The output of a run so far."""

    def __init__(self, options: Options) -> None:
        self.result: AgentResult | None = None
        self._terminal, self._is_json = options.terminal, options.json
        self._is_amid_line = self._has_text = False
        self._top_depth: int | None = None
        self._began: dict[str, float] = {}

    def show(self, item: str | Event | AgentResult) -> None:
        """Show one event."""
        if isinstance(item, AgentResult):
            self.result = item
        elif isinstance(item, str):
            self._has_text = True
            if not self._is_json:
                self._is_amid_line = not item.endswith("\n")
                self._terminal.stream(item)
        elif (line := self._line(item)) is not None:
            self._end_line()
            self._terminal.note(line)

    def end(self, result: AgentResult) -> Exit:
        """Show the outcome."""
        error = result.error
        if self._is_json:
            report = report_of(result)
            if error is not None:
                report["error"] = {"kind": error.kind, "message": error.message, "hint": error.hint}
            self._terminal.json(report)
            return Exit.DONE if error is None else Exit.REFUSED
        self._end_line()
        if error is not None:
            self._terminal.note(f"error ({error.kind}): {error.message}")
            if error.hint:
                self._terminal.note(error.hint)
            return Exit.REFUSED
        if not isinstance(result.output, str):
            self._terminal.say(json_text(result.output))
        elif not self._has_text and result.output:
            self._terminal.say(result.output)
        for source in result.away_sources:
            self._terminal.note(f"It ran without the tools of {source}. `pegboard doctor` says more.")
        for tool in result.missing_tools:
            self._terminal.note(f"It ran without {tool}.")
        if result.stopped_reason is not None:
            self._terminal.note(f"Stopped before it was done: {result.stopped_reason}. The output so far is above.")
        return Exit.DONE

    def _end_line(self) -> None:
        if self._is_amid_line:
            self._is_amid_line = False
            self._terminal.stream("\n")

    def _line(self, event: Event) -> str | None:
        payload, depth = event.payload, 0
        if event.type.startswith("on_sub_agent"):
            at = int(payload.get("depth", 0))
            self._top_depth = at if self._top_depth is None else self._top_depth
            depth = max(1, at - self._top_depth + 1)
        tool = str(payload.get("tool", event.tool))
        begin = _INDENT * depth + (f"{payload['agent']}: " if depth else "")
        call_id = str(payload.get("call_id", event.call_id))
        match event.type:
            case "on_tool_call" | "on_sub_agent_tool_call":
                self._began[call_id] = time.monotonic()
                return f"{begin}→ {tool} {_short(payload.get('arguments', {}))}"
            case "on_tool_result" | "on_sub_agent_tool_result":
                took_s = time.monotonic() - self._began.pop(call_id, time.monotonic())
                outcome = "" if event.ok else "failed, "
                return f"{begin}← {tool} ({outcome}{took_s:.1f} s) {_short(_plain(payload.get('result')))}"
            case "on_sub_agent_end" if payload.get("status") != "completed":
                return f"{begin}{payload.get('status')}"
            case _:
                return None


def _plain(result: Any) -> Any:
    if isinstance(result, ToolResult):
        return result.structured if result.has_structured else result.text
    return result


def _short(value: Any) -> str:
    text = " ".join((value if isinstance(value, str) else json_text(value, indent=False)).split())
    return text if len(text) <= CLI_SHOWN_CHARS else f"{text[:CLI_SHOWN_CHARS]}…"


def _context(text: str | None) -> JSON:
    if text is None:
        return {}
    try:
        value = parse_json(text)
    except CallError as error:
        raise CommandError(f"--context: {error.error.message}") from None
    if not is_object(value):
        raise CommandError(f'--context {text[:100]!r}: a JSON object is needed, such as \'{{"company": "Acme"}}\'.')
    return value
