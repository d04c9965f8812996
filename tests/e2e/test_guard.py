"""The guard with Claude Code itself: what reaches servers that it connects past the View, by their own count."""

import asyncio
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    StreamEvent,
    ToolResultBlock,
    ToolUseBlock,
)

from pegboard import Catalog, Profile, ToolContext
from pegboard.adapters.claude_agent_sdk import allowed_tools, guarded, mcp_server
from pegboard.model.policy import Policy
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.supervised_source import McpSource
from pegboard.testing import CallsTool, ModelRequest, ModelServer
from tests.adapters.shop import open_shop
from tests.timing import PATIENCE_S

CLIENTS = Path(__file__).parent / "clients"
SERVER = CLIENTS / "counted_server.py"
INSIDE = "Do it inside."
RESOURCE = {"server": "files", "uri": "counted://secret"}
# What a model may try instead of the name of a tool that it may not use.
SPELLINGS = (
    "mcp__files__wipe", "mcp__files__WIPE", "mcp__Files__wipe", "MCP__files__wipe", "mcp__files____wipe",
    "mcp__files__wipe ", " mcp__files__wipe", "mcp__files.wipe", "files__wipe", "files.wipe", "wipe",
    "mcp__files__files__wipe", "mcp__files__wipe\n", "mcp__ﬁles__wipe", "mcp__files__wi\u200bpe",
)  # fmt: skip
pytestmark = pytest.mark.e2e


def program() -> Path:
    """Return the program itself; what npm calls needs a script that is not run at its installation."""
    (found,) = CLIENTS.glob("node_modules/@anthropic-ai/claude-code-*/claude")
    return found


def command(hits: Path) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVER), str(hits)]}


def hits_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def isolated(folder: Path, model: ModelServer) -> dict[str, Any]:
    """Return the options of a session that knows nothing of this machine, and asks the scripted model."""
    env = {"HOME": str(folder), "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-x",
           "ENABLE_TOOL_SEARCH": "false", "DISABLE_AUTOUPDATER": "1",
           "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}  # fmt: skip
    return {"cli_path": program(), "cwd": folder, "env": env, "setting_sources": [], "strict_mcp_config": True}


class Session:
    """A session of Claude Code with the servers `files`, which the catalog mirrors, and `other`, which it does not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files, self.other = folder / "files.hits", folder / "other.hits"
        self.ends: list[str] = []
        self.catalog = Catalog("desk")
        # The catalog asks a server of its own for the names.
        known = ServerSettings(
            name="files", transport="stdio", command=sys.executable, args=(str(SERVER), str(folder / "own.hits"))
        )
        self.source = McpSource(known)
        self.catalog.mirror(source=self.source)
        self.catalog.mirror("Bash", groups="danger")
        self.catalog.mirror("ReadMcpResourceTool", groups="danger")
        self.catalog.profile(Profile(name="safe", include=("core",), policy=Policy(deny=("files.wipe",))))
        self.catalog.observe(self)

    def on_tool_result(self, event: Any) -> None:
        self.ends.append(event.payload["kind"])

    async def told(self, calls: Sequence[CallsTool], *, is_guarded: bool = True) -> dict[str, str]:
        """Have the model make these calls, one after the other; return what it was told of each."""
        seen, results, inside = dict[str, str](), list[Any](), threading.Event()

        def answer(request: ModelRequest) -> Any:
            if not request.tools:
                return "a title"
            if any(INSIDE in message.text for message in request.messages if message.role == "user"):
                if not request.turns:
                    return [CallsTool("mcp__files__wipe", {"path": "/inside"})]
                seen["inside"] = request.outcomes[0].text
                inside.set()
                return "done inside"
            outcomes = [outcome for message in request.messages for outcome in message.outcomes]
            seen.update({calls[place].name: outcome.text for place, outcome in enumerate(outcomes)})
            return [calls[len(outcomes)]] if len(outcomes) < len(calls) else "done"

        has_agent = any(call.name == "Task" for call in calls)
        await self.catalog.start()
        await self.source.settled()
        with ModelServer(answer) as model:
            plain = ClaudeAgentOptions(
                **isolated(self.folder, model),
                mcp_servers={"files": command(self.files), "other": command(self.other)},  # type: ignore[dict-item] - as the SDK takes it
                allowed_tools=["mcp__files", "mcp__other", "Bash", "Task", "Agent", "ReadMcpResourceTool"],
            )  # fmt: skip
            view = self.catalog.view(ToolContext(user_id="ann"), profile="safe")
            try:
                async with ClaudeSDKClient(guarded(plain, view) if is_guarded else plain) as client:
                    await client.query("Go.")
                    results = [
                        message async for message in client.receive_response() if isinstance(message, ResultMessage)
                    ]
                    # An agent below goes on by itself.
                    assert not has_agent or await asyncio.to_thread(inside.wait, PATIENCE_S)
            finally:
                await self.catalog.close(grace_s=0.0)
        assert [result.result for result in results] == ["done"]
        return seen


async def test_without_the_guard_the_command_runs_both(tmp_path: Path) -> None:
    """What is shown below would be shown by a server that is never reached, too."""
    session = Session(tmp_path)
    calls = [
        CallsTool("mcp__files__wipe", {"path": "/"}),
        CallsTool("mcp__other__wipe", {"path": "/"}),
        CallsTool("Bash", {"command": f"touch {tmp_path}/made"}),
        CallsTool("ReadMcpResourceTool", RESOURCE),
    ]
    told = await session.told(calls, is_guarded=False)
    assert hits_of(session.files) == [["wipe", {"path": "/"}], ["resource", "counted://secret"]]
    assert hits_of(session.other) == [["wipe", {"path": "/"}]]
    assert (tmp_path / "made").exists(), told


async def test_a_restricted_tool_runs_by_no_spelling_and_what_is_allowed_runs_with_what_was_judged(
    tmp_path: Path,
) -> None:
    session = Session(tmp_path)
    calls = [
        CallsTool("mcp__files__read", {"path": "a"}), *(CallsTool(name, {"path": "/"}) for name in SPELLINGS),
        CallsTool("mcp__other__read", {"path": "/"}), CallsTool("mcp__other__wipe", {"path": "/"}),
        CallsTool("mcp__files__read", {"path": 7}), CallsTool("Bash", {"command": f"touch {tmp_path}/made"}),
        CallsTool("ReadMcpResourceTool", RESOURCE),
        CallsTool("Task", {"description": "d", "prompt": INSIDE, "subagent_type": "general-purpose"}),
        CallsTool("mcp__files__read", {"path": "b"}),
    ]  # fmt: skip
    told = await session.told(calls)
    assert hits_of(session.files) == [["read", {"path": "a"}], ["read", {"path": "b"}]]
    assert hits_of(session.other) == []
    assert not (tmp_path / "made").exists()
    assert all("No tool named 'mcp__files__wipe'" in told[name] for name in ("mcp__files__wipe", "inside"))
    hidden = "not_found"
    assert session.ends == ["ok", *[hidden] * 3, "invalid_arguments", hidden, hidden, "ok", hidden]
    assert "CANARY" not in "".join(text for name, text in told.items() if name != "mcp__files__read")


async def test_a_session_streams_each_call_of_the_views_own_tools(tmp_path: Path) -> None:
    shop = open_shop()
    view = shop.view()
    script = [
        CallsTool("mcp__pegboard__bake", {}), CallsTool("mcp__pegboard__price", {"item": 7}),
        CallsTool("mcp__pegboard__raid", {"amount": 1}), CallsTool("mcp__pegboard__refund", {"order": "A1"}), "done",
    ]  # fmt: skip
    streamed, seen = list[str](), list[Any]()

    def answer(request: ModelRequest) -> Any:
        return script[request.turns] if request.tools else "a title"

    with ModelServer(answer) as model:
        plain = ClaudeAgentOptions(
            **isolated(tmp_path, model),
            mcp_servers={"pegboard": mcp_server(view)},
            allowed_tools=allowed_tools(view),
            include_partial_messages=True,
        )
        async with ClaudeSDKClient(guarded(plain, view)) as client:
            await client.query("Go.")
            async for message in client.receive_response():
                if isinstance(message, StreamEvent):
                    streamed.append(message.event["type"])
                content = getattr(message, "content", None)
                seen += content if isinstance(content, list) else []
        own = [name for name in model.requests[-1].tools if name.startswith("mcp__pegboard__")]
    assert sorted(own) == sorted(allowed_tools(view))
    assert {"content_block_start", "content_block_delta", "message_stop"} <= set(streamed)
    calls = [block for block in seen if isinstance(block, ToolUseBlock | ToolResultBlock)]
    kinds = [type(block) for block in calls]
    assert kinds == [ToolUseBlock, ToolResultBlock] * 4
    told = [str(block.content) for block in calls if isinstance(block, ToolResultBlock)]
    assert "bread" in told[0]
    assert "$.item" in told[1]
    assert "raid" in told[2]
    assert "CANARY" not in told[2]
    assert "a person must agree first" in told[3]
    assert shop.names_run() == ["bake"]
