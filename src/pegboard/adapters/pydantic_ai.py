"""Pydantic AI: a View as a toolset, for `Agent(toolsets=[PegboardToolset(view)])`."""

from __future__ import annotations

from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed
from pydantic_ai.messages import BinaryContent, ToolReturn
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from pegboard.adapters.framework_client import for_one_call
from pegboard.adapters.result_parts import error_text
from pegboard.adapters.view_source import ViewFactory, view_of
from pegboard.core.view import View
from pegboard.model.error import ToolError
from pegboard.model.result import AudioContent, ImageContent, ToolResult

_ANY = SchemaValidator(core_schema.any_schema())  # the executor validates arguments, so errors have one form
_MENDABLE = frozenset({"invalid_arguments", "not_found"})


class PegboardToolset(AbstractToolset[Any]):
    """The tools of a View for the agents of Pydantic AI. Each run has its own toolset.

    `source` is a View, or a function that makes one from the run's context (`ctx.deps` identifies the caller). Errors
    that the model can fix are raised as `ModelRetry`, at most `max_retries` times (default: the agent's setting). A
    tool that needs approval raises `ApprovalRequired`: the agent needs `DeferredToolRequests` among its output types,
    whose `approvals` and `metadata` contain the question; pass `DeferredToolResults` to continue. Their `metadata`
    binds the approval to definition and arguments.
    """

    def __init__(
        self,
        source: View | ViewFactory,
        *,
        id: str | None = "pegboard",  # noqa: A002 - the framework's own word for it
        max_retries: int | None = None,
    ) -> None:
        self._source, self._id, self._max_retries = source, id, max_retries
        self._view: View | None = source if isinstance(source, View) else None

    @property
    def id(self) -> str | None:
        """The id of the toolset in durable runs of the framework."""
        return self._id

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        """Return the toolset of one run."""
        own = PegboardToolset(self._source, id=self._id, max_retries=self._max_retries)
        own._view = await view_of(self._source, ctx)
        return own

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools that the View lists now."""
        view = await self._own(ctx)
        retries = ctx.max_retries if self._max_retries is None else self._max_retries
        return {
            tool["name"]: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool["name"],
                    description=tool.get("description"),
                    parameters_json_schema=tool["inputSchema"],
                    return_schema=tool.get("outputSchema"),
                    include_return_schema=False,
                    sequential=not _may_overlap(tool.get("annotations", {})),
                    metadata={key: tool[key] for key in ("annotations", "_meta") if key in tool},
                ),
                max_retries=retries,
                args_validator=_ANY,
            )
            for tool in view.export("mcp")
        }

    async def call_tool(self, name: str, tool_args: Any, ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        """Call one tool of the View.

        Raises:
            ApprovalRequired: a person must agree first.
            ModelRetry: the model can correct the call.
            ToolFailed: any other error of the call.
        """
        view, client = for_one_call(
            await self._own(ctx), answer=ctx.tool_call_approved or None, agreed_to=ctx.tool_call_metadata
        )
        result = await view.call(name, tool_args)
        if result.error is None:
            return _returned(result)
        if result.error.kind == "consent_required" and client.question is not None:
            raise ApprovalRequired(metadata=client.question)
        raise _raised(result.error)

    async def _own(self, ctx: RunContext[Any]) -> View:
        if self._view is None:
            self._view = await view_of(self._source, ctx)
        return self._view


def _may_overlap(annotations: dict[str, Any]) -> bool:
    return annotations.get("readOnlyHint") is True or annotations.get("idempotentHint") is True


def _raised(error: ToolError) -> Exception:
    text = error_text(error)
    return ModelRetry(text) if error.kind in _MENDABLE else ToolFailed(text)


def _returned(result: ToolResult) -> Any:
    """Return the content for the model: the structured value or the text, and images and audio as they are."""
    value = result.structured if result.has_structured else result.text
    media = [
        BinaryContent(block.data, media_type=block.mime_type)
        for block in result.content
        if isinstance(block, ImageContent | AudioContent)
    ]
    if media:
        value = [*([value] if value not in (None, "") else []), *media]
    return ToolReturn(value, metadata=dict(result.meta) or None)
