"""Claude Agent SDK: a View as an in-process MCP server, and the guard of servers that the SDK connects itself."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, McpSdkServerConfig
from mcp import types
from mcp.server import Server, ServerRequestContext

from pegboard.adapters.guard_only_view import GuardOnlyView
from pegboard.adapters.result_parts import error_text
from pegboard.core.coroutine_runner import is_cancelled
from pegboard.core.view import View
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.providers.mcp import mcp_result, mcp_tool_before_2026
from pegboard.providers.mcp_progress import Progress

GUARD_HOOK_S = 60.0  # seconds for the guard's hook to answer, including a person's answer

log = logging.getLogger("pegboard")
_DOOR = "claude_agent_sdk"
_ANSWER_SHARE = 0.9  # share of the hook's time limit until it denies; later the SDK continues without its answer


class ViewServer(Server[Any]):
    """The MCP server of a View, in this process."""


def mcp_server(view: View, name: str = "pegboard") -> McpSdkServerConfig:
    """Return the tools of a View as a server for `ClaudeAgentOptions(mcp_servers={name: …})`.

    It has the tools that the View lists at that moment, and reports progress if the client asks for it.
    `allowed_tools(view, name)` returns the matching allow-list.
    """
    server = ViewServer(name)

    async def list_tools(ctx: object, params: object) -> types.ListToolsResult:
        tools = await view.renewed().atools()
        return types.ListToolsResult.model_validate({"tools": [mcp_tool_before_2026(entry) for entry in tools]})

    async def call_tool(ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        progress = Progress(ctx.session.report_progress)
        result = await _of_this_call(view).call(params.name, params.arguments or {}, callbacks=progress)
        return types.CallToolResult.model_validate(mcp_result(result, wrap_structured=True))

    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    return McpSdkServerConfig(type="sdk", name=name, instance=server)


def allowed_tools(view: View, name: str = "pegboard") -> list[str]:
    """Return the allow-list: the View's tools as `mcp__<name>__<tool>`, and mirrored names."""
    return view.names(server=name)


def guarded(
    options: ClaudeAgentOptions, view: View, *, timeout_s: float = GUARD_HOOK_S, trust_settings: bool = False
) -> ClaudeAgentOptions:
    """Return the options with a PreToolUse hook that checks each call with the View before the SDK makes it.

    Declare servers that the SDK connects itself with `catalog.mirror(source=…)`, and its own tools with
    `catalog.mirror("Bash", groups=…)`. Calls to undeclared servers are denied; the SDK's own tools are only checked if
    they are mirrored. An accepted call runs with the arguments that were checked. Your own permission prompt still
    applies: the hook never allows a call by itself.

    `timeout_s` limits the hook, including a person's answer. `trust_settings` accepts hooks and servers from files that
    the SDK reads by itself, which may change a call after the guard has checked it.

    Raises:
        DefinitionError: other hooks would run after the guard.
    """
    if isinstance(options.mcp_servers, Mapping):
        servers: Mapping[str, Any] = options.mcp_servers
    else:
        raise DefinitionError("guarded() needs mcp_servers as a dict: the contents of a file may change unnoticed.")
    if not trust_settings and (options.setting_sources != [] or options.plugins or options.settings):
        text = "Hooks of settings files and plugins could change a call after the guard has judged it: say"
        raise DefinitionError(f"{text} setting_sources=[] without plugins and settings, or trust_settings=True.")
    before = list((options.hooks or {}).get("PreToolUse", ()))
    if any(isinstance(getattr(hook, "__self__", None), _Guard) for matcher in before for hook in matcher.hooks):
        raise DefinitionError("These options have a guard already; only the last one's arguments would count.")
    guard = _Guard(view, servers, answers_within_s=timeout_s * _ANSWER_SHARE)
    last = HookMatcher(matcher=None, hooks=[guard.judge], timeout=timeout_s, on_failure="block")
    guard.matchers, guard.own = [*before, last], last
    return replace(options, hooks={**(options.hooks or {}), "PreToolUse": guard.matchers})


class _Guard:
    """The hook of one session. It always answers: with a denial, or with the arguments to run with."""

    matchers: Sequence[HookMatcher]
    own: HookMatcher

    def __init__(self, view: View, servers: Mapping[str, Any], *, answers_within_s: float) -> None:
        self._view, self._answers_within_s = view, answers_within_s
        self._ours = {_prefix(name) for name, config in servers.items() if _is_ours(config)}
        self._others = {_prefix(name) for name, config in servers.items() if not _is_ours(config)}

    async def judge(self, event: Any, tool_use_id: str | None, context: Any) -> Any:
        """Implement the SDK's hook."""
        try:
            return await asyncio.wait_for(self._judged(event), self._answers_within_s)
        except TimeoutError:
            return _denied(f"No answer whether it may run within {self._answers_within_s:g} s.")
        except BaseException as error:  # boundary: the SDK runs the tool if its hook fails
            if is_cancelled() or not isinstance(error, Exception | asyncio.CancelledError):
                raise
            log.exception("The guard failed; the call is denied.")
            return _denied("It could not be determined whether this call may run.")

    async def _judged(self, event: Mapping[str, Any]) -> JSON:
        name, arguments = event["tool_name"], event["tool_input"]
        if self.matchers[-1] is not self.own or self.own.hooks != [self.judge] or self.own.matcher is not None:
            return _denied("The guard is no longer the last hook: what it judges might not be what runs.")
        if self._is_of_our_server(name):
            # The server checks the call when it arrives; checking here would charge it twice.
            return {}
        view = GuardOnlyView(_of_this_call(self._view))
        if not name.lower().startswith("mcp__") and not view.knows(name):
            return {}
        result = await view.call(name, arguments)
        if result.error is not None:
            return _denied(error_text(result.error))
        if view.passed is None:
            return _denied("A hook answered it in place of the tool, which cannot be done here.")
        # Also if nothing changed: otherwise another hook's unchecked arguments would be used.
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": view.passed}}

    def _is_of_our_server(self, name: str) -> bool:
        """Tell whether a View's own server runs the tool, and no other server of this session could be meant."""
        return any(map(name.startswith, self._ours)) and not any(map(name.startswith, self._others))


def _is_ours(config: Any) -> bool:
    return isinstance(config, dict) and isinstance(cast("JSON", config).get("instance"), ViewServer)


def _prefix(server: str) -> str:
    return f"mcp__{re.sub(r'[^a-zA-Z0-9_-]', '_', server)}__"


def _of_this_call(view: View) -> View:
    """Return the current view: a session may last long, so conditions are evaluated for each call."""
    return view.renewed(view.ctx.with_request(door=_DOOR))


def _denied(reason: str) -> JSON:
    decision = {"permissionDecision": "deny", "permissionDecisionReason": reason}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}
