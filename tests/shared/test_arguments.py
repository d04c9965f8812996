"""Real argument pairs: all valid ones pass, all invalid ones fail at the place where they were broken."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from pegboard import Catalog, ToolResult, ToolSpec
from pegboard.core.names import legal
from tests.core.parts import ANN, echo, kind_of

pytestmark = pytest.mark.shared
ARGS = Path(os.environ.get("PEGBOARD_SHARED", "../shared")) / "bench" / "args"


def pairs(kind: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ARGS / f"{kind}.jsonl").read_text().splitlines()]


async def called(pair: dict[str, Any], *, as_text: bool = False) -> ToolResult:
    """Register the tool of a pair under a legal name, and call it with the arguments of the pair."""
    catalog = Catalog()
    name = legal(pair["tool"])
    spec = ToolSpec(name=name, description=pair.get("description", ""), input_schema=pair["inputSchema"])
    catalog.register(spec, echo)
    return await catalog.view(ANN).call(name, json.dumps(pair["args"]).encode() if as_text else pair["args"])


def steps(path: str) -> list[str]:
    """Return the keys and indexes of a JSON pointer or of a `$.path`."""
    if path.startswith("$"):
        found = re.findall(r'\.([A-Za-z_]\w*)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]', path)
        return [name or index or json.loads(quoted) for name, index, quoted in found]
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/") if part]


@pytest.mark.parametrize("as_text", [False, True])
async def test_every_valid_pair_passes(as_text: bool) -> None:
    failed = [
        (pair["id"], result.text) for pair in pairs("valid") if (result := await called(pair, as_text=as_text)).is_error
    ]
    assert (failed, len(pairs("valid"))) == ([], 613)


@pytest.mark.parametrize("as_text", [False, True])
async def test_every_invalid_pair_fails_at_the_noted_place_or_inside_it(as_text: bool) -> None:
    wrong: list[tuple[str, str, list[str]]] = []
    for pair in pairs("invalid"):
        result = await called(pair, as_text=as_text)
        details: Any = result.error.details if result.error is not None else {}
        paths = [problem["path"] for problem in details.get("problems", [])]
        noted = steps(pair["path"])
        if kind_of(result) != "invalid_arguments" or not any(steps(path)[: len(noted)] == noted for path in paths):
            wrong.append((pair["id"], pair["path"], paths))
    assert (wrong, len(pairs("invalid"))) == ([], 534)


async def test_names_with_dots_go_through_the_map_of_wire_names() -> None:
    names = {pair["tool"] for pair in pairs("valid")}
    dotted = [name for name in names if "." in name]
    assert len(dotted) > len(names) / 4
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", legal(name)) for name in names)
