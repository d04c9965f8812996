"""call: make one guarded call from the keyboard."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from pegboard.cli.arguments import read_arguments
from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import Options, SharedOptions, ToolName
from pegboard.cli.project import opened
from pegboard.cli.terminal import Terminal, json_text, safe
from pegboard.core.consent_text import QuestionTooLongError, consent_text, too_long
from pegboard.core.json_text import json_value
from pegboard.model.consent import Approve, ConsentRequest
from pegboard.model.json_types import JSON
from pegboard.model.result import TextContent, ToolResult
from pegboard.platforms import platform
from pegboard.providers.mcp import mcp_content

_PAIRS = "Arguments: key=value, converted to the type in the schema, or key:=JSON."
_LATER = "Do not ask at this terminal; store the question for `pegboard consent`."
_ARGS = "Arguments as a JSON object; @FILE reads a file, - reads standard input. key=value pairs take precedence."


async def call_command(
    name: ToolName,
    /,
    *pairs: Annotated[str, Parameter(help=_PAIRS)],
    args: Annotated[str | None, Parameter(allow_leading_hyphen=True, help=_ARGS)] = None,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], help="Approve the call in advance.")] = False,
    later: Annotated[bool, Parameter(help=_LATER)] = False,
    options: SharedOptions,
) -> Exit:
    """Call one tool. All guards apply.

    Exits with 0 if the tool succeeded, else with 1. If the tool needs an approval, it is requested on the terminal.
    """
    if yes and later:
        raise CommandError("--yes agrees now, --later does not. Keep one of them.")
    approve = None if later else approval(options.terminal, yes=yes)
    async with opened(options, tool=name, approve=approve) as (_, view):
        entry = await view.afind(name)
        result = await view.call(name, read_arguments(pairs, args, spec=entry and entry.spec))
    if options.json:
        options.terminal.json(_as_json(name, result))
    elif result.is_error:
        _print_error(options, result)
    else:
        options.terminal.say(_shown(result))
    return Exit.REFUSED if result.is_error else Exit.DONE


def approval(terminal: Terminal, *, yes: bool) -> Approve | None:
    """Return the function that asks for an approval; `None` if no person can be asked."""
    if yes:
        return lambda request: True
    if not (sys.stdin.isatty() and terminal.err.isatty()):
        return None
    return lambda request: _ask(request, terminal)


def _ask(request: ConsentRequest, terminal: Terminal) -> bool:
    try:
        question = consent_text(request)
    except QuestionTooLongError as error:
        raise too_long(request, error) from None
    terminal.note(question)
    # Input typed before the question was shown is not an answer.
    platform.forget_typed(sys.stdin)
    terminal.err.write("Go ahead? [y/N] ")
    terminal.err.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _as_json(name: str, result: ToolResult) -> JSON:
    """Return the whole result; `structured` and `error` only if there is one."""
    shown: JSON = {
        "tool": name,
        "is_error": result.is_error,
        "content": [mcp_content(block) for block in result.content],
    }
    if result.has_structured:
        shown["structured"] = result.structured
    if result.error is not None:
        error = result.error
        shown["error"] = {
            "kind": error.kind,
            "message": error.message,
            "hint": error.hint,
            "retryable": error.retryable,
            "retry_after_s": error.retry_after_s,
            "outcome_unknown": error.outcome_unknown,
            "details": dict(error.details),
        }
    shown["meta"] = dict(result.meta)
    return shown


def _shown(result: ToolResult) -> str:
    """Return the result as text: its texts, its structured value unless a text mirrors it, a line per other block."""
    if result.has_structured and (not result.content or _mirrors(result)):
        value = result.structured
        return value if isinstance(value, str) else json_text(value)
    return "\n".join(
        block.text if isinstance(block, TextContent) else safe(_in_a_line(mcp_content(block)))
        for block in result.content
    )


def _mirrors(result: ToolResult) -> bool:
    try:
        return len(result.content) == 1 and json_value(result.text.encode()) == result.structured
    except ValueError:
        return False


def _in_a_line(block: JSON) -> str:
    kind, inner = block["type"], block.get("resource", block)
    named = inner.get("uri") or inner.get("mimeType")
    size = f", {len(block['data']) * 3 // 4} bytes" if "data" in block else ""
    return f"[{kind} {named}{size}; --json has it whole]"


def _print_error(options: Options, result: ToolResult) -> None:
    error, terminal = result.error, options.terminal
    if error is None:
        terminal.note(f"error: {result.text}")
        return
    terminal.note(f"error ({error.kind}): {error.message}")
    problems = error.details.get("problems", ())
    for problem in problems if isinstance(problems, list | tuple) else ():  # pyright: ignore[reportUnknownVariableType] - JSON
        line = f"{problem['path']}: {problem['message']}"
        if line not in error.message:
            terminal.note(safe(f"  {line}"))
    if error.hint:
        terminal.note(error.hint)
