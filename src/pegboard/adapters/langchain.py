"""LangChain and LangGraph: a View as structured tools, for `bind_tools`, `ToolNode` and other users of tools."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.config import get_config
from langgraph.types import interrupt
from pydantic import PrivateAttr

from pegboard.adapters.framework_client import APPROVALS_REMEMBERED, for_one_call
from pegboard.adapters.result_parts import error_text, parts_of, text_of
from pegboard.authoring.definition import read_registered
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.names import legal
from pegboard.core.view import View
from pegboard.model.call_context import CallContext
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON
from pegboard.model.result import ToolResult
from pegboard.model.tool import ToolEntry, ToolSpec
from pegboard.providers.mcp import mcp_result

_call_id: ContextVar[str | None] = ContextVar("pegboard_langchain_call_id", default=None)


def tools(view: View) -> list[BaseTool]:
    """Return the tools of a View, for one request. They are async: use `ainvoke`, as `ToolNode` does in an async graph.

    A message's `artifact` has the whole result as MCP has it. Inside of a LangGraph graph a tool that needs a yes calls
    `interrupt` with what to ask; resume with that value and `approved`: `Command(resume={**asked, "approved": True})`.
    """
    answered = _Answered()
    return [_view_tool(view, exported, answered) for exported in view.export("mcp")]


def declared(
    tools: Any,
    *,
    groups: Sequence[str] = ("core",),
    inject: Callable[[CallContext], Mapping[str, Any]] | None = None,
    config: Callable[[CallContext], RunnableConfig] | None = None,
    **options: Any,
) -> list[ToolEntry]:
    """Return tools of LangChain as entries for `catalog.register`, to be called through the guards.

    Args:
        tools: a tool, several, or a toolkit with `get_tools()`.
        groups: of each of them.
        inject: returns the arguments that are hidden from the model (`InjectedToolArg`), for one call.
        config: returns the `RunnableConfig` of one call.
        options: further fields of each `ToolSpec`, such as `consent` or `rate_limit`.

    Raises:
        DefinitionError: something else is among them, or a tool needs `inject`.
    """
    listed = tools.get_tools() if callable(getattr(tools, "get_tools", None)) else tools
    is_one = isinstance(listed, BaseTool) or not isinstance(listed, Iterable)
    every = cast("Iterable[Any]", [listed] if is_one else listed)
    return [_entry(tool, groups, inject, config, options) for tool in every]


def _entry(
    tool: Any,
    groups: Sequence[str],
    inject: Callable[[CallContext], Mapping[str, Any]] | None,
    config: Callable[[CallContext], RunnableConfig] | None,
    options: Mapping[str, Any],
) -> ToolEntry:
    if not isinstance(tool, BaseTool):
        raise DefinitionError(f"{tool!r} is not a tool of LangChain; give a BaseTool, several, or a toolkit.")
    schema = _own_schema(tool)
    hidden = _hidden_arguments(tool, schema)
    required = [name for name, is_required in hidden.items() if is_required]
    if required and inject is None:
        form = ", ".join(f"{name!r}: …" for name in required)
        text = f"The LangChain tool {tool.name!r} needs {required}, which the model does not send: "
        raise DefinitionError(f"{text}declared(…, inject=lambda ctx: {{{form}}}).")
    spec = ToolSpec(
        name=legal(tool.name),
        description=tool.description,
        input_schema=schema,
        groups=tuple(groups),
        origin=f"LangChain tool {tool.name!r}",
        **options,
    )

    async def run(ctx: CallContext, args: JSON) -> Any:
        injected: Mapping[str, Any] = {} if inject is None else inject(ctx)
        own = {name: value for name, value in injected.items() if name in hidden}
        return await tool.ainvoke({**args, **own}, None if config is None else config(ctx))

    return read_registered(spec, run, None)


def _hidden_arguments(tool: BaseTool, schema: JSON) -> dict[str, bool]:
    """Return the arguments that LangChain hides from the model, and whether each is required."""
    fields: Mapping[str, Any] = getattr(tool.get_input_schema(), "model_fields", {})
    published = schema.get("properties", {})
    hidden = {name: info for name, info in fields.items() if (info.alias or name) not in published}
    return {name: bool(info.is_required()) for name, info in hidden.items()}


def _own_schema(tool: BaseTool) -> JSON:
    """Return the schema of the arguments that a model provides, without those that LangChain fills in."""
    schema: Any = tool.tool_call_schema
    return dict(schema) if isinstance(schema, dict) else schema.model_json_schema()  # pyright: ignore[reportUnknownArgumentType] - JSON


class _Step(NamedTuple):
    """One call in one step of a graph. After an interrupt, the whole step runs again."""

    step: str
    call_id: str


class _Answered:
    """Results of calls in interrupted steps. A resumed step repeats all its calls; finished ones must not act twice."""

    def __init__(self) -> None:
        self._interrupted: BoundedCache[str, bool] = BoundedCache(max_entries=APPROVALS_REMEMBERED)
        self._results: BoundedCache[_Step, ToolResult] = BoundedCache(max_entries=APPROVALS_REMEMBERED)

    def interrupted(self, step: _Step) -> None:
        self._interrupted.remember(step.step, True)

    def keep(self, step: _Step, result: ToolResult) -> None:
        self._results.remember(step, result)

    def of(self, step: _Step) -> ToolResult | None:
        return self._results.pop(step, None) if step.step in self._interrupted else None


class _ViewTool(StructuredTool):
    """One tool of the View. LangChain does not validate its arguments; the guarded call does."""

    _view: View = PrivateAttr()
    _answered: _Answered = PrivateAttr()

    async def arun(self, tool_input: Any, *args: Any, tool_call_id: str | None = None, **options: Any) -> Any:
        token = _call_id.set(tool_call_id)
        try:
            return await super().arun(tool_input, *args, tool_call_id=tool_call_id, **options)
        finally:
            _call_id.reset(token)

    # No named parameters, because the framework fills the ones that it knows, and a tool may have its own `config`.
    async def _arun(self, /, *args: Any, **arguments: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - it names the parameters that it fills
        result = await self._run_guarded(arguments)
        if result.error is not None:
            raise ToolException(error_text(result.error))
        return _content(result), mcp_result(result)

    async def _run_guarded(self, arguments: JSON) -> ToolResult:
        step = _step()
        if step is not None and (earlier := self._answered.of(step)) is not None:
            return earlier
        view, client = for_one_call(self._view)
        result = await view.call(self.name, arguments)
        if result.error is not None and result.error.kind == "consent_required" and client.question is not None:
            if step is None:
                return result
            # When resumed, the step runs from its beginning; this call has not run, and `interrupt` returns the answer.
            self._answered.interrupted(step)
            answer, agreed_to = _answer(interrupt(client.question))
            view, _ = for_one_call(self._view, answer=answer, agreed_to=agreed_to)
            result = await view.call(self.name, arguments)
        if step is not None:
            self._answered.keep(step, result)
        return result


def _view_tool(view: View, exported: JSON, answered: _Answered) -> BaseTool:
    tool = _ViewTool(
        name=exported["name"],
        description=exported.get("description", ""),
        args_schema=exported["inputSchema"],
        coroutine=_never,
        response_format="content_and_artifact",
        handle_tool_error=True,
        metadata={key: exported[key] for key in ("annotations", "_meta") if key in exported},
    )
    tool._view, tool._answered = view, answered  # pyright: ignore[reportPrivateUsage] - attributes of our own class
    return tool


async def _never(
    **arguments: Any,
) -> Any:  # its presence tells the framework that the tool is async; `_arun` is called instead
    raise NotImplementedError


def _step() -> _Step | None:
    """Return the place of this call in a graph; `None` outside of a graph, where it cannot be interrupted."""
    call_id = _call_id.get()
    try:
        configured: Any = get_config().get("configurable") or {}
    except RuntimeError:
        return None
    if call_id is None or "checkpoint_ns" not in configured:
        return None
    return _Step(f"{configured.get('thread_id')}/{configured.get('checkpoint_ns')}", call_id)


def _answer(resumed: Any) -> tuple[bool, Mapping[str, Any]]:
    """Return whether the person agreed, and the call that the answer is for; empty if the answer does not say."""
    if not isinstance(resumed, dict) or resumed.get("approved") is not True:  # pyright: ignore[reportUnknownMemberType] - JSON
        return False, {}
    answer = cast("JSON", resumed)
    return True, {key: answer.get(key, "") for key in ("tool", "definition_hash", "args_digest", "user_id")}


def _content(result: ToolResult) -> Any:
    parts = parts_of(result)
    if all(isinstance(part, str) for part in parts):
        return text_of(result)
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image", "base64": base64.b64encode(part.data).decode(), "mime_type": part.mime_type}
        for part in parts
    ]
