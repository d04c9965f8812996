"""The example folder works as it stands."""

import sys
from pathlib import Path

from pegboard import ToolContext
from pegboard.config import load_catalog

EXAMPLE = Path(__file__).parents[2] / "examples" / "mcp_servers" / "pegboard.yaml"


async def test_one_server_is_offered_in_two_slices() -> None:
    catalog, _ = load_catalog(EXAMPLE, env={"PYTHON": sys.executable})
    await catalog.start()
    try:
        await catalog.registry.sources["notes"].settled()  # type: ignore[attr-defined]
        editor = catalog.view(ToolContext(), profile="editor")
        reader = catalog.view(ToolContext(), profile="reader")
        assert editor.names() == ["notes__list_notes", "notes__read_note", "notes__write_note"]
        assert reader.names() == ["notes__list_notes", "notes__read_note"]
        assert not (await editor.call("notes__write_note", {"title": "a", "text": "b"})).is_error
        assert (await reader.call("notes__read_note", {"title": "a"})).text == "b"
        assert (await reader.call("notes__write_note", {"title": "a", "text": "c"})).is_error
    finally:
        await catalog.close(grace_s=0)
