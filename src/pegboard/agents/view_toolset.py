"""View toolset: a View in pydantic-ai's form, so that every call of an agent goes through the Executor."""

from __future__ import annotations

from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import BinaryContent, ToolReturn
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from pegboard.agents.budgets import RunBudget
from pegboard.core.view import View
from pegboard.model.result import (
    AudioContent,
    ImageContent,
    ResourceContent,
    ResourceLink,
    TextContent,
    ToolResult,
    call_error,
)

AGENT_ITERATIONS = 50  # requests of one run to its model, by default


class _AsWritten:
    """Passes arguments unchanged to the Executor, which parses JSON as for any other call."""

    def validate_json(self, input: str | bytes | bytearray, **_: Any) -> Any:  # noqa: A002 - pydantic's word
        return _json_text(input)

    def validate_python(self, input: Any, **_: Any) -> Any:  # noqa: A002 - as above
        return input


def _json_text(text: Any) -> Any:
    """Return JSON text in the form that the Executor accepts."""
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


class ViewToolset(AbstractToolset[None]):
    """The tools of one View, for one run."""

    def __init__(self, view: View, budget: RunBudget) -> None:
        self._view, self._budget = view, budget

    @property
    def id(self) -> str | None:
        return None

    async def get_tools(self, ctx: RunContext[None]) -> dict[str, ToolsetTool[None]]:
        # Called before each request, so that changes in availability apply.
        tools = await self._view.atools()
        return {
            entry.wire_name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=entry.wire_name,
                    description=entry.spec.description or None,
                    parameters_json_schema=entry.spec.input_schema,
                ),
                max_retries=AGENT_ITERATIONS,
                args_validator=_AsWritten(),
            )
            for entry in tools
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[None], tool: ToolsetTool[None]
    ) -> Any:
        result = await self._view.call(name, tool_args)
        if result.error is not None and result.error.kind == "budget_exceeded":
            # If the run's own budget is used up, it ends. A sub-agent's exceeded budget is an ordinary result.
            self._budget.spend(default=self._view.snapshot.declared.bounds.calls_per_request, look_only=True)
        if result.error is not None and result.error.kind == "consent_required" and self._client_calls_again():
            # The client asks the person now, and then repeats the surrounding call with the answer.
            raise call_error(result.error)
        return _for_the_model(result)

    def _client_calls_again(self) -> bool:
        """Tell whether the client answers by calling again; then a question ends this call."""
        return getattr(self._view.ctx.request.client, "asks_by_calling_again", False) is True

    async def call_unknown(self, name: str, arguments: Any) -> None:
        """Refuse and record a call of an unlisted name like any other."""
        await self._view.call(name, _json_text(arguments) or None)


def _for_the_model(result: ToolResult) -> Any:
    """Return a result for the model: JSON or text, with its images and sounds."""
    if result.error is not None:
        hint = f" {result.error.hint}" if result.error.hint else ""
        return f"Error ({result.error.kind}): {result.error.message}{hint}"
    media = [
        BinaryContent(data=block.data, media_type=block.mime_type)
        for block in result.content
        if isinstance(block, ImageContent | AudioContent)
    ]
    if result.has_structured:
        value = result.structured
    else:
        value = "\n".join(filter(None, map(_text, result.content)))
    return ToolReturn(return_value=value, content=media) if media else value


def _text(block: object) -> str:
    match block:
        case TextContent(text):
            return text
        case ResourceContent(uri=uri, text=text):
            return f"{uri}\n{text}" if text is not None else uri
        case ResourceLink(uri=uri, name=name):
            return f"{name}: {uri}"
        case _:
            return ""
