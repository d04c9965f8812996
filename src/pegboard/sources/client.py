"""Client: tools that the host of the conversation runs instead of us."""

from __future__ import annotations

from typing import Any, Final

from pegboard.core.consent_text import QuestionTooLongError, shown_arguments
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_awaitable
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry, ToolSpec

SERVICE: Final = "client_tools"
_DONE: Final[JSON] = {"ok": True}
_DONE_SCHEMA: Final[JSON] = {"type": "object", "properties": {"ok": {"const": True}}, "required": ["ok"]}


def client_entry(spec: ToolSpec, *, wait: bool = False) -> ToolEntry:
    """Return a tool whose calls reach the host as `on_progress` events `{"client_tool", "arguments", "wait"}`.

    Without `wait` the model gets `{"ok": true}` at once. With `wait` the result is the host's answer, from
    `services={"client_tools": run}` of the context, with `run(ctx, name, arguments)`, sync or async. Without that
    service the client at the other end is asked. The tool's time limit applies in both cases.
    """

    def announce(ctx: CallContext, args: JSON) -> JSON:
        _announce(ctx, spec.name, args, wait=False)
        return dict(_DONE)

    if not wait:
        return ToolEntry(spec=replace(spec, output_schema=_DONE_SCHEMA), handler=announce, runs="inline")

    async def answered(ctx: CallContext, args: JSON) -> object:
        run: Any = ctx.services.get(SERVICE)
        if run is None and ctx.client is not None:
            return await ctx.client.elicit(_question(spec, args), spec.output_schema)
        _announce(ctx, spec.name, args, wait=True)
        if run is None:
            text = f"{spec.name!r} is run by the client, and there is none that answers. Use another tool."
            raise CallError("upstream_unavailable", text, retryable=False)
        value = run(ctx, spec.name, args)
        return await value if is_awaitable(value) else value

    return ToolEntry(spec=spec, handler=answered)


def _announce(ctx: CallContext, name: str, args: JSON, *, wait: bool) -> None:
    # Not awaited, so that a slow observer does not delay the call.
    ctx.emit({"client_tool": name, "arguments": args, "wait": wait})


def _question(spec: ToolSpec, args: JSON) -> str:
    try:
        arguments = shown_arguments(args)
    except QuestionTooLongError as error:
        text = f"{spec.name!r} is done by a person, who could not read what is wanted: {error}. Give it less to do."
        raise CallError("tool_error", text) from None
    return f"{spec.name}: {spec.description or 'please run this'}. With: {arguments}. What is the result?"
