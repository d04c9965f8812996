"""OpenAI Agents SDK: a View as function tools, for `Agent(tools=tools(view))`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.tool_context import ToolContext as CallOfRun

from agents import FunctionTool, RunContextWrapper, Tool, ToolOutputImage, ToolOutputText
from pegboard.adapters.framework_client import APPROVALS_REMEMBERED, for_one_call
from pegboard.adapters.result_parts import data_url, parts_of, text_of
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.digests import digest
from pegboard.core.json_reader import parse_json
from pegboard.core.view import View
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.result import ToolResult

_TARGET = "openai_strict"


def tools(view: View) -> list[Tool]:
    """Return the tools of a View, for one request, with strict schemas.

    A tool that needs approval interrupts the run: see `result.interruptions` and `state.approve(…)`, then resume it.
    Tools that become hidden during the run are hidden there, too. Await async predicates first: `catalog.aview`.
    """
    return [_ViewTool(view, exported["function"]).function_tool() for exported in view.export(_TARGET)]


class _ViewTool:
    """One tool of the View in the form of the SDK. Lives as long as the agent that it was made for."""

    def __init__(self, view: View, exported: JSON) -> None:
        self._view, self._exported = view, exported
        self._name = view.wire_name(_TARGET, exported["name"])
        # Whether a hook or a consent rule wants approval is only known after the guards have run.
        self._asked: BoundedCache[str, bool] = BoundedCache(max_entries=APPROVALS_REMEMBERED)
        self._agreed_to: BoundedCache[str, Mapping[str, Any]] = BoundedCache(max_entries=APPROVALS_REMEMBERED)

    def function_tool(self) -> Tool:
        return FunctionTool(
            name=self._exported["name"],
            description=self._exported.get("description", ""),
            params_json_schema=self._exported["parameters"],
            strict_json_schema=self._exported["strict"],
            on_invoke_tool=self._invoke,
            is_enabled=self._is_enabled,
            needs_approval=self._needs_approval,
        )

    async def _is_enabled(self, run: RunContextWrapper[Any], agent: object) -> bool:
        return await self._view.afind(self._name) is not None

    async def _needs_approval(self, run: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        blocked = (await self._view.awhy(self._name)).blocked
        needed = digest(arguments) in self._asked or (blocked is not None and blocked.kind == "consent_required")
        entry = await self._view.afind(self._name) if needed else None
        if entry is not None and call_id not in self._agreed_to:
            self._agreed_to.remember(call_id, {"definition_hash": entry.fingerprint})
        return needed

    async def _invoke(self, run: CallOfRun[Any], text: str) -> Any:
        answer = run.is_tool_approved(run.tool_name, run.tool_call_id)
        view, client = for_one_call(self._view, answer=answer, agreed_to=self._agreed_to.get(run.tool_call_id))
        try:
            arguments = view.decode(_TARGET, self._name, text)
        except KeyError:
            arguments = text.encode()
        result = await view.call(self._name, arguments)
        if result.error is not None and result.error.kind == "consent_required" and client.question is not None:
            return f"{text_of(result)}{self._ask_next_time(text)}"
        return _output(result)

    def _ask_next_time(self, text: str) -> str:
        try:
            self._asked.remember(digest(parse_json(text.encode())), True)
        except CallError:
            return ""
        return " Call it again with the same arguments: then a person is asked."


def _output(result: ToolResult) -> Any:
    parts = parts_of(result)
    if all(isinstance(part, str) for part in parts):
        return text_of(result)
    return [
        ToolOutputText(text=part) if isinstance(part, str) else ToolOutputImage(image_url=data_url(part))
        for part in parts
    ]
