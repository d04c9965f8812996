"""Real argument pairs under `repair=True`: the repairable kinds are mended, valid ones are never changed."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pegboard import Catalog, ToolContext, ToolSpec
from pegboard.core.names import legal

pytestmark = pytest.mark.shared
ARGS = Path(os.environ.get("PEGBOARD_SHARED", "../shared")) / "bench" / "args"
MENDED = {"numeric_string", "json_string_for_object", "scalar_for_array", "string_boolean"}


def pairs(kind: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ARGS / f"{kind}.jsonl").read_text().splitlines()]


async def ran(pair: dict[str, Any], *, repair: bool) -> Any:
    """Return what the handler was given; `None` when it was not run."""
    seen: list[Any] = []
    catalog, name = Catalog(), legal(pair["tool"])
    spec = ToolSpec(name=name, input_schema=pair["inputSchema"], repair=repair)
    catalog.register(spec, lambda ctx, args: seen.append(args))
    await catalog.view(ToolContext()).call(name, pair["args"])
    return seen[0] if seen else None


async def test_no_valid_argument_is_ever_changed() -> None:
    changed = [pair["id"] for pair in pairs("valid") if await ran(pair, repair=True) != await ran(pair, repair=False)]
    assert changed == []


def _is_whole(pair: dict[str, Any], base: dict[str, Any]) -> bool:
    """Tell whether the mutation kept all that the base says: one item for a list of several lost the others, and any
    boolean became `"true"`.
    """
    value: Any = base["args"]
    for step in pair["path"].split("/")[1:]:
        value = value[step] if isinstance(value, dict) else value[int(step)]
    kept_all = pair["mutation"] != "scalar_for_array" or len(value) == 1
    return kept_all and (pair["mutation"] != "string_boolean" or str(value).lower() in str(pair["args"]))


async def test_the_repairable_kinds_are_mended_to_what_they_were_made_of() -> None:
    bases = {pair["id"]: pair for pair in pairs("valid")}
    mended: Counter[str] = Counter()
    wrong: list[Any] = []
    refused: list[str] = []
    all_of = Counter(pair["mutation"] for pair in pairs("invalid"))
    for pair in pairs("invalid"):
        got = await ran(pair, repair=True)
        if got is None:
            refused.append(pair["id"])
            continue
        mended[pair["mutation"]] += 1
        base = bases.get(pair["base"])
        if pair["mutation"] in MENDED and base is not None and _is_whole(pair, base):
            meant = await ran(base, repair=False)
            if got != meant:
                wrong.append((pair["id"], pair["args"], got))
    assert wrong == []
    # Of one the single value is none of those that the list may have.
    assert [name for name in refused if name.split("!")[1] in MENDED] == ["multiple_50#0!scalar_for_array"]
    print({kind: f"{mended[kind]} of {count}" for kind, count in sorted(all_of.items())})
