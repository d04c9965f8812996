"""What 527 real tools cost in a prompt, in each exposure, and that the bytes depend on the tools alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pegboard import Catalog, Profile, ToolContext, ToolSpec
from pegboard.core.names import legal
from pegboard.core.validated_entry import seal
from pegboard.discovery.token_count import estimated_tokens
from pegboard.model.tool import ToolEntry
from tests.core.parts import FakeSource, echo

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif("PEGBOARD_SHARED" not in os.environ, reason="PEGBOARD_SHARED names no folder"),
]
MOST = {"search": 1_000, "two_tool": 3_500}
ORDERS = 1_000


@pytest.fixture(scope="module")
def entries() -> list[ToolEntry]:
    path = Path(os.environ["PEGBOARD_SHARED"]) / "bench" / "retrieval" / "livemcp" / "tools.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    assert len(rows) == 527
    return [seal(entry_of(row)) for row in rows]


def entry_of(row: dict[str, Any]) -> ToolEntry:
    namespace = legal(row["server"]).replace("__", "_")[:32]
    # One schema of the set is of an older draft: true where now a number stands.
    schema = json.loads(json.dumps(row["inputSchema"]).replace('"exclusiveMinimum": true', '"exclusiveMinimum": 0'))
    spec = ToolSpec(
        name=legal(row["name"].split("__", 1)[1]),
        namespace=namespace,
        description=row["description"] or "",
        input_schema=schema,
    )
    return ToolEntry(spec=spec, handler=echo, source=namespace, is_foreign=True, is_toolset=True)


def list_bytes(entries: list[ToolEntry], exposure: Any) -> bytes:
    """Return the list over MCP of a catalog whose sources and tools come in the order given."""
    catalog = Catalog()
    by_source: dict[str, list[ToolEntry]] = {}
    for entry in entries:
        by_source.setdefault(entry.source or "", []).append(entry)
    for name, listed in by_source.items():
        catalog.add_source(FakeSource(name=name, listed=listed))
    catalog.profile(Profile(name="p", exposure=exposure))
    return catalog.exposed(catalog.view(ToolContext(), profile="p")).export_bytes("mcp")


@pytest.mark.parametrize("exposure", MOST)
def test_the_resident_cost_of_527_tools_is_small(entries: list[ToolEntry], exposure: str) -> None:
    cost = estimated_tokens(len(list_bytes(entries, exposure)))
    print(f"\n{exposure}: {cost} tokens; direct: {estimated_tokens(len(list_bytes(entries, 'direct')))}")
    assert cost < MOST[exposure]


def test_auto_searches_527_tools(entries: list[ToolEntry]) -> None:
    assert list_bytes(entries, "auto") == list_bytes(entries, "search")


@pytest.mark.parametrize("exposure", MOST)
def test_the_bytes_are_the_same_over_1000_orders(entries: list[ToolEntry], exposure: str) -> None:
    first = list_bytes(entries, exposure)
    for seed in range(ORDERS):
        shuffled = list(entries)
        Random(seed).shuffle(shuffled)
        assert list_bytes(shuffled, exposure) == first, seed
