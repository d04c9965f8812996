"""Score tool search: ours beside fastmcp's, pydantic-ai's and plain bm25s, on the sets at hand.

    python -m bench.discovery [--engine pegboard] [--set livemcp]

Our own small sets (`bench/requests`) always run; the shared ones when the folder that PEGBOARD_SHARED names, or
../shared, is there; a peer when it can be imported. recall@k is the share of a request's right tools among the first k,
averaged over requests; a tool that a request lists in `equiv` counts for its twin. Times are processor time of a call.
`no:` is the share of requests answered with nothing: of those that a tool serves, where it should be 0, and of
`unservable.jsonl`. How sure an answer says it is, `bench.confidence` judges. The set `5000` is made of words of the
shipped set and measures time only.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from bench import stdlib_tools
from pegboard.discovery.search.index import Index, ToolText

HERE = Path(__file__).parent
DEPTH = 10

Row = dict
Search = Callable[[str], Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class ToolSet:
    """Tools, requests that they serve and requests that they do not."""

    name: str
    tools: list[Row]
    servable: list[Row]
    unservable: list[str]


@dataclass(frozen=True, kw_only=True)
class Score:
    """What one engine reached on one set; None where the set has no such requests."""

    recall: dict[int, float]
    nothing_servable: float | None
    nothing_unservable: float | None
    build_s: float
    p50_ms: float
    p95_ms: float


# ---- sets ------------------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def shared_folder() -> Path | None:
    folder = Path(os.environ.get("PEGBOARD_SHARED", HERE.parent.parent / "shared")) / "bench" / "retrieval"
    return folder if folder.is_dir() else None


def tool_sets() -> Iterator[ToolSet]:
    unservable = read_rows(HERE / "requests" / "unservable.jsonl")

    def not_served_by(name: str) -> list[str]:
        return [row["query"] for row in unservable if name not in row.get("not_for", ())]

    own = read_rows(HERE / "requests" / "tools.jsonl")
    servable = read_rows(HERE / "requests" / "servable.jsonl")
    yield ToolSet(name="own", tools=own, servable=servable, unservable=not_served_by("own"))
    asked = read_rows(HERE / "requests" / "example_requests.jsonl")
    yield ToolSet(
        name="examples",
        tools=read_rows(HERE / "requests" / "example_tools.jsonl"),
        servable=[row for row in asked if row["relevant"]],
        unservable=[row["query"] for row in asked if not row["relevant"]],
    )
    yield ToolSet(
        name="stdlib",
        tools=[*stdlib_tools.tools()],
        servable=read_rows(HERE / "requests" / "stdlib.jsonl"),
        unservable=[],
    )
    shared = shared_folder()
    for folder in sorted(shared.iterdir()) if shared else ():
        requests = [row for path in sorted(folder.glob("queries.*.jsonl")) for row in read_rows(path)]
        tools = read_rows(folder / "tools.jsonl")
        yield ToolSet(name=folder.name, tools=tools, servable=requests, unservable=not_served_by(folder.name))
    yield ToolSet(name="5000", tools=grown(own, 5_000), servable=[], unservable=[row["query"] for row in servable])


def grown(tools: list[Row], count: int) -> list[Row]:
    """Return `count` tools, 20 to a server, whose words are drawn from the descriptions of `tools`."""
    draw = random.Random(1)
    words = [word for tool in tools for word in tool["description"].split()]

    def prose(length: int) -> str:
        return " ".join(draw.choices(words, k=length))

    return [
        {
            "name": f"server{n // 20}__{'_'.join(draw.choices(words, k=3))}_{n}",
            "description": prose(20),
            "inputSchema": {"properties": {word: {"description": prose(6)} for word in draw.choices(words, k=3)}},
            "server": f"server{n // 20}",
        }
        for n in range(count)
    ]


# ---- engines ---------------------------------------------------------------------------------------------------------


def parameters_of(tool: Row) -> list[tuple[str, str]]:
    properties = tool["inputSchema"].get("properties") or {}
    return [
        (name, str(schema.get("description") or "") if isinstance(schema, dict) else "")
        for name, schema in properties.items()
    ]


def tool_text(tool: Row) -> ToolText:
    return ToolText(
        id=tool["name"],
        name=tool["name"].split("__", 1)[-1],
        description=tool["description"] or "",
        namespace=tool["server"],
        parameters=tuple(parameters_of(tool)),
    )


def pegboard(tools: list[Row]) -> Search:
    index = Index.build(map(tool_text, tools))
    return lambda query: [hit.id for hit in index.search(query, limit=DEPTH).hits]


def fastmcp(tools: list[Row]) -> Search:
    module = importlib.import_module("fastmcp.server.transforms.search.bm25")
    documents = [
        module._extract_searchable_text(
            SimpleNamespace(name=t["name"], description=t["description"], parameters=t["inputSchema"])
        )
        for t in tools
    ]
    index = module._BM25Index()
    index.build(documents)
    return lambda query: [tools[place]["name"] for place in index.query(query, DEPTH)]


def pydantic_ai(tools: list[Row]) -> Search:
    module = importlib.import_module("pydantic_ai.toolsets._tool_search")
    listed = [SimpleNamespace(name=t["name"], description=t["description"]) for t in tools]
    return lambda query: module.keywords_search_fn(None, [query], listed)[:DEPTH]


def plain_bm25s(tools: list[Row]) -> Search:
    bm25s = importlib.import_module("bm25s")
    stemmer = importlib.import_module("Stemmer").Stemmer("english")

    def tokens(texts: list[str]) -> object:
        return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)

    index = bm25s.BM25()
    index.index(tokens(list(map(_plain_text, tools))), show_progress=False)

    def search(query: str) -> list[str]:
        places, scores = index.retrieve(tokens([query]), k=min(DEPTH, len(tools)), show_progress=False)
        return [tools[place]["name"] for place, score in zip(places[0], scores[0], strict=True) if score > 0]

    return search


def plain_fts5(tools: list[Row]) -> Search:
    """Return SQLite's own full-text search, asked for any of the words."""
    apsw = importlib.import_module("apsw")
    db = apsw.Connection(":memory:")
    db.execute("create virtual table tools using fts5 (text, tokenize = 'porter unicode61')")
    db.executemany("insert into tools values (?)", ((_plain_text(tool),) for tool in tools))

    def search(query: str) -> list[str]:
        words = "".join(c if c.isalnum() else " " for c in query).split()
        match = " OR ".join(f'"{word}"' for word in words)
        asked = "select rowid from tools where tools match ? order by bm25(tools) limit ?"
        return [tools[int(n) - 1]["name"] for (n,) in db.execute(asked, (match, DEPTH))] if words else []

    return search


def _plain_text(tool: Row) -> str:
    words = (word for pair in parameters_of(tool) for word in pair)
    return " ".join((tool["name"].replace("_", " "), tool["description"] or "", *words))


ENGINES: dict[str, Callable[[list[Row]], Search]] = {
    "pegboard": pegboard,
    "bm25s": plain_bm25s,
    "fts5": plain_fts5,
    "fastmcp": fastmcp,
    "pydantic-ai": pydantic_ai,
}


# ---- measuring -------------------------------------------------------------------------------------------------------


def recall_at(request: Row, names: Sequence[str], k: int) -> float:
    found = set(names[:k])
    equivalents = request.get("equiv", {})
    return statistics.fmean(not found.isdisjoint([gold, *equivalents.get(gold, [])]) for gold in request["relevant"])


def measured(tools: ToolSet, engine: str) -> Score:
    """Build one engine on a set and ask it all requests of the set.

    Raises:
        ImportError: the engine is not installed.
    """
    ENGINES[engine](tools.tools[:1])
    start = time.process_time()
    search = ENGINES[engine](tools.tools)
    build_s = time.process_time() - start
    search("warm up")
    costs_ms: list[float] = []

    def asked(query: str) -> Sequence[str]:
        start = time.process_time()
        names = search(query)
        costs_ms.append((time.process_time() - start) * 1e3)
        return names

    served = [asked(row["query"]) for row in tools.servable]
    unserved = [asked(query) for query in tools.unservable]
    pairs = list(zip(tools.servable, served, strict=True))
    return Score(
        recall={k: statistics.fmean(recall_at(row, names, k) for row, names in pairs) for k in (1, 5, 10) if pairs},
        nothing_servable=statistics.fmean(not names for names in served) if served else None,
        nothing_unservable=statistics.fmean(not names for names in unserved) if served and unserved else None,
        build_s=build_s,
        p50_ms=statistics.median(costs_ms),
        p95_ms=statistics.quantiles(costs_ms, n=20)[-1],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--set", action="append", dest="sets")
    options = parser.parse_args()
    row = "{:10} {:12} {:>6} {:>6} {:>6} {:>10} {:>10} {:>8} {:>8} {:>8}"
    print(row.format("set", "engine", "r@1", "r@5", "r@10", "no:served", "no:unserv", "build s", "p50 ms", "p95 ms"))
    for tools in tool_sets():
        if options.sets and tools.name not in options.sets:
            continue
        for engine in options.engine or ENGINES:
            try:
                score = measured(tools, engine)
            except ImportError as absent:
                print(row.format(tools.name, engine, *"------"[:5], f"({absent.name} is not installed)", "", ""))
                continue
            shares = (*(score.recall.get(k) for k in (1, 5, 10)), score.nothing_servable, score.nothing_unservable)
            told = ("-" if share is None else f"{share:.3f}" for share in shares)
            print(
                row.format(
                    tools.name, engine, *told, *(f"{t:.3f}" for t in (score.build_s, score.p50_ms, score.p95_ms))
                )
            )


if __name__ == "__main__":
    main()
