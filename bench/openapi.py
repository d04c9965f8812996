"""OpenAPI: from the text of a public description to tools with judged schemas, against fastmcp's import of the same.

Each import is a fresh process that counts its own processor time, its packages already imported. fastmcp compiles no
schema; ours does. A description that fastmcp cannot read is set against that of OpenAI, by the megabyte, and a YAML
against the same description as JSON. The documents are those of `bench/openapi` in the folder that PEGBOARD_SHARED
names, or ../shared; how many operations were left out is held too, at one in a hundred.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import peers
from bench.measure import THOROUGH, Cost, Effort, Row, compared
from pegboard.config.kinds.openapi import description_value
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.sources.openapi.openapi_source import ApiSettings, OpenApiSource

DOCUMENTS = ("k8s_v1.json", "k8s_apps.json", "openai.json", "twilio_api.json", "star-trek.json")
UNREAD = "discord.json"
FLOOR, YAML = "openai.json", "openai.yaml"
ROUNDS = 3
SERVER = "https://api.example.com"


def folder() -> Path:
    """Return where the descriptions are.

    Raises:
        RuntimeError: they are not there.
    """
    shared = Path(os.environ.get("PEGBOARD_SHARED", Path(__file__).parents[2] / "shared"))
    documents = shared / "bench" / "openapi"
    if not documents.is_dir():
        raise RuntimeError("the public descriptions are not here; name their folder with PEGBOARD_SHARED")
    return documents


def run(effort: Effort = THOROUGH) -> list[Row]:
    """Measure the imports."""
    documents = folder()
    few = Effort(rounds=min(ROUNDS, effort.rounds), share=effort.share)
    rows: list[Row] = []
    for name in DOCUMENTS if peers.HAS_FASTMCP else ():
        floor, ours = f"fastmcp from_openapi: {name}", f"pegboard: {name}"
        ways = {floor: imported("peer", documents / name), ours: imported("ours", documents / name)}
        rows += compared(ways, few, floor=floor, held={ours: (1.0, 0.25)})
    a_megabyte = f"pegboard: a megabyte of {FLOOR}"
    unread, whole, yaml = f"pegboard: a megabyte of {UNREAD}", f"pegboard: {FLOOR}", f"pegboard: {YAML}"
    ways = {a_megabyte: by_megabyte(documents / FLOOR), unread: by_megabyte(documents / UNREAD)}
    rows += compared(ways, few, floor=a_megabyte, held={unread: (4.0, 2.0)})
    ways = {whole: imported("ours", documents / FLOOR), yaml: imported("ours", documents / YAML)}
    return rows + compared(ways, few, floor=whole, held={yaml: (6.0, 2.0)})


def imported(who: str, path: Path) -> Cost:
    """Return the cost of one import, in a process of its own."""

    def cost() -> float:
        command = [sys.executable, "-m", "bench.openapi", who, str(path)]
        told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
        return float(told.stdout.split()[-1])

    return cost


def by_megabyte(path: Path) -> Cost:
    whole = imported("ours", path)
    return lambda: whole() / (path.stat().st_size / 1e6)


def ours(text: str) -> None:
    """Import a description, and see that no more than one operation in a hundred was left out."""
    read: Callable[[str], object] = lambda text: description_value(text, bounds=DEFAULT_BOUNDS)  # noqa: E731
    source = OpenApiSource(ApiSettings(name="api", read=read, base_url=SERVER))
    source.take(text)
    assert len(source.rejected) * 100 <= len(source.entries()), source.rejected[:3]


def peer(text: str) -> None:
    described = json.loads(text)
    described.setdefault("servers", [{"url": SERVER}])
    client = peers.load("httpx2").AsyncClient(base_url=SERVER)
    server = peers.load("fastmcp").FastMCP.from_openapi(described, client=client)
    assert asyncio.run(server.list_tools())


if __name__ == "__main__":
    logging.disable()
    engine = {"ours": ours, "peer": peer}[sys.argv[1]]
    if engine is peer:
        peers.load("fastmcp")
    content = Path(sys.argv[2]).read_text(encoding="utf-8")
    start = time.process_time()
    engine(content)
    print(time.process_time() - start)
