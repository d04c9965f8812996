"""A small MCP server of the example: notes that live as long as it runs."""

from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from pydantic import Field

server = MCPServer("notes")
notes: dict[str, str] = {}
Title = Annotated[str, Field(description="What the note is called")]


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def list_notes() -> list[str]:
    """List the titles of all notes."""
    return sorted(notes)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def read_note(title: Title) -> str:
    """Read one note."""
    return notes.get(title, "There is no such note.")


@server.tool(annotations=ToolAnnotations(idempotent_hint=True, destructive_hint=True))
def write_note(title: Title, text: Annotated[str, Field(description="All that it says")]) -> str:
    """Write a note; one with the same title is replaced."""
    notes[title] = text
    return f"{title} is written"


if __name__ == "__main__":
    server.run()
