"""A small, honest MCP server for tests, over stdio: `plain_server.py`, or HTTP: `plain_server.py http|sse PORT`."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    PromptReference,
    ResourceTemplateReference,
)
from pydantic import BaseModel, Field

server = MCPServer("plain")


class Sum(BaseModel):
    total: int


@server.tool()
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@server.tool(name="say.hello")
def say_hello(name: Annotated[str, Field(description="Whom to greet")] = "you") -> str:
    """Greet somebody."""
    return f"hello {name}"


@server.tool()
def fail() -> str:
    """Fail, always."""
    raise ValueError("it broke")


@server.tool()
def pid() -> str:
    """Tell the process id."""
    return str(os.getpid())


@server.tool()
async def slow(seconds: float, mark: str = "") -> str:
    """Take some time; tell in a file when it has begun and when it is cancelled."""
    if mark:
        Path(mark).write_text("began")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        if mark:
            Path(mark).write_text("cancelled")
        raise
    return "done"


@server.tool()
async def steps(count: int, ctx: Context) -> str:
    """Report progress."""
    for done in range(1, count + 1):
        await ctx.report_progress(done, count, f"step {done}")
    return "done"


@server.tool()
def die() -> str:
    """End the process in the middle of the call."""
    os._exit(3)


COLOUR = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


@server.tool()
async def ask(ctx: Context) -> str | InputRequiredResult:
    """Ask the person for a colour."""
    answer = (ctx.input_responses or {}).get("colour")
    if not isinstance(answer, ElicitResult):
        params = ElicitRequestFormParams(message="Which colour?", requested_schema=COLOUR)
        return InputRequiredResult(input_requests={"colour": ElicitRequest(params=params)}, request_state="asked")
    return f"{answer.action} {(answer.content or {}).get('colour', '')} {ctx.request_state}"


@server.tool()
async def grow(ctx: Context) -> str:
    """Add a tool and say so."""

    def grown() -> str:
        """Newly there."""
        return "grown"

    server.add_tool(grown)
    await ctx.notify_tools_changed()
    return "ok"


@server.resource("note://plain/today", mime_type="text/markdown")
def today() -> str:
    """The note of today."""
    return "# today"


@server.resource("note://plain/days/{day}")
def on_day(day: str) -> str:
    """The note of a day."""
    return f"note of {day}"


@server.prompt(title="Sum up")
def sum_up(text: str, tone: str = "dry") -> str:
    """Sum up a text."""
    return f"Sum up in a {tone} tone: {text}"


@server.completion()
async def complete(
    ref: PromptReference | ResourceTemplateReference, argument: CompletionArgument, context: CompletionContext | None
) -> Completion:
    """Complete tones and days; tell what else is known."""
    known = {"tone": ["dry", "droll", "warm"], "day": ["monday", "sunday"]}
    others = sorted((context.arguments or {}).values()) if context else []
    return Completion(values=[word for word in known[argument.name] if word.startswith(argument.value)] + others)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        server.run(transport="streamable-http" if sys.argv[1] == "http" else "sse", port=int(sys.argv[2]))
    else:
        server.run()
