"""Search: how good tool search is with embedders of every kind, and what a question costs among 10,000 tools.

Recall@5 over all requests of a set, nothing withheld. An embedder that is poor (hashed words, chance, letters counted)
may cost a point at most; an oracle knows the right tools, blurred: its vector of a request is that of a right tool,
mixed with chance. Costs are processor time of one question over 10,000 tools made of the words of real ones, asked in
200 visible sets of 5 to 90 % of them; with vectors, the likeness of each tool is part of it.

`own`, `examples` and `stdlib` (the functions of Python's standard library) were made here, with requests written before
they were searched for; the others are those of `../shared`. bm25s (English stemmer and stop words) and SQLite's FTS5
(`porter unicode61`, any of the words) read names, descriptions and parameters. `p` is that of a paired permutation test
on nDCG@10 against ours; below 0.05 the difference is significant, and the sign says who is ahead.

The two real embedders: `static` is the word vectors of wordllama, and `minilm` is all-MiniLM-L6-v2, read by
`FastembedEmbedder(path=…)` from the folder that PEGBOARD_MINILM names. Both need the extras `static` and `embeddings`.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.discovery import ENGINES, HERE, Row, ToolSet, grown, read_rows, recall_at, tool_sets, tool_text
from bench.document_quality import chance_of, ndcg
from bench.measure import Effort
from pegboard.core.ports import Embedder
from pegboard.discovery.meaning_pairs import PAIRED_TEXTS, knowledge_of
from pegboard.discovery.search.compared import Cosines, ToolVectors
from pegboard.discovery.search.index import Index, VisibleTools
from pegboard.model.error import DefinitionError
from pegboard.models.embedding.fastembed_embedder import FastembedEmbedder
from pegboard.models.embedding.hashing import HashingEmbedder
from pegboard.models.embedding.static_embedder import StaticEmbedder

Vectors = NDArray[np.float32]
Likeness = Callable[[Row], Vectors | Cosines | None]
BLURS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.0)
TOOLS, SETS, QUESTIONS = 10_000, 200, 400


def lines(_: Effort) -> Iterator[str]:
    """Yield both tables."""
    sets = {tools.name: tools for tools in tool_sets()}
    asked = [tools for tools in sets.values() if tools.servable]
    yield "| recall@5 | " + " | ".join(tools.name for tools in asked) + " |"
    yield "|---|" + "---:|" * len(asked)
    columns = [dict(_recalls(tools)) for tools in asked]
    for name in columns[0]:
        yield f"| {name} | " + " | ".join(f"{column[name]:.3f}" for column in columns) + " |"
    yield ""
    yield from _peers(asked)
    yield ""
    yield from _several(sets)
    yield ""
    yield "| a question among 10,000 tools | p50 | p95 |"
    yield "|---|---:|---:|"
    for name, costs_ms in _costs(sets):
        yield f"| {name} | {statistics.median(costs_ms):.1f} ms | {statistics.quantiles(costs_ms, n=20)[-1]:.1f} ms |"


def _peers(sets: Sequence[ToolSet]) -> Iterator[str]:
    """Yield how well two plain engines rank the tools of each set, compared with ours."""
    yield "| set | tools | requests | engine | nDCG@10 | recall@5 | p against ours |"
    yield "|---|---:|---:|---|---:|---:|---:|"
    for tools in sets:
        ours: list[float] = []
        for engine in ("pegboard", "bm25s", "fts5"):
            head = f"| {tools.name} | {len(tools.tools):,} | {len(tools.servable):,} | {engine} |"
            try:
                search = ENGINES[engine](tools.tools)
            except ImportError:
                yield f"{head} not installed | | |"
                continue
            found = [search(row["query"]) for row in tools.servable]
            gains = [ndcg(_judged(row, names), names) for row, names in zip(tools.servable, found, strict=True)]
            recall = statistics.fmean(
                recall_at(row, names, 5) for row, names in zip(tools.servable, found, strict=True)
            )
            gap = statistics.fmean(ours) - statistics.fmean(gains) if ours else 0.0
            p = f"{chance_of(ours, gains):.3f} ({100 * gap:+.1f})" if ours else ""
            ours = ours or gains
            yield f"{head} {statistics.fmean(gains):.3f} | {recall:.3f} | {p} |"


def _judged(request: Row, names: Sequence[str]) -> Row:
    """Return a request whose right tools are those that were found, where an equal one was."""
    equal = request.get("equiv", {})
    right = [
        next((name for name in names if name in (gold, *equal.get(gold, ()))), gold) for gold in request["relevant"]
    ]
    return {**request, "relevant": [*dict.fromkeys(right)]}


def _several(sets: dict[str, ToolSet]) -> Iterator[str]:
    """Yield what requests with several needs find, as one query and as one query for each need."""
    rows = read_rows(HERE / "requests" / "several.jsonl")
    yield "| requests with several needs | requests | all tools among 8 hits | share of the tools among 8 hits |"
    yield "|---|---:|---:|---:|"
    for name in dict.fromkeys(row["set"] for row in rows):
        index = Index.build(map(tool_text, sets[name].tools))
        some = [row for row in rows if row["set"] == name]
        for how, queries_of in (
            ("as one query", lambda row: [row["query"]]),
            ("one query for each need", lambda row: row["queries"]),
        ):
            found = [_in_turn([_hits(index, query) for query in queries_of(row)]) for row in some]
            shares = [
                len(set(row["relevant"]) & set(ids[:8])) / len(row["relevant"])
                for row, ids in zip(some, found, strict=True)
            ]
            whole = sum(share == 1 for share in shares) / len(some)
            yield f"| {name}, {how} | {len(some)} | {whole:.0%} | {statistics.fmean(shares):.0%} |"


def _hits(index: Index, query: str) -> list[str]:
    return [hit.id for hit in index.search(query, limit=8).hits]


def _in_turn(lists: Sequence[Sequence[str]]) -> list[str]:
    longest = max(map(len, lists))
    return list(dict.fromkeys(each[n] for n in range(longest) for each in lists if n < len(each)))


def _recalls(tools: ToolSet) -> Iterator[tuple[str, float]]:
    index = Index.build(map(tool_text, tools.tools))
    for name, likeness in _embedders(tools, index):
        yield (
            name,
            statistics.fmean(
                recall_at(row, _first_five(index, row["query"], likeness(row)), 5) for row in tools.servable
            ),
        )


def _models() -> Iterator[tuple[str, Embedder]]:
    """Yield the embedders that are installed here."""
    with suppress(DefinitionError):
        yield "static", StaticEmbedder()
    if folder := os.environ.get("PEGBOARD_MINILM"):
        yield "minilm", FastembedEmbedder(path=Path(folder))


def _first_five(index: Index, query: str, cosines: Vectors | Cosines | None) -> list[str]:
    likeness = Cosines(known=cosines) if isinstance(cosines, np.ndarray) else cosines
    return [hit.id for hit in index.search(query, limit=5, likeness=likeness).hits]


def _embedders(tools: ToolSet, index: Index) -> Iterator[tuple[str, Likeness]]:
    draw = np.random.default_rng(7)
    yield "words alone", lambda row: None
    for dimension in (64, 512):
        embedder = HashingEmbedder(dimension=dimension)
        known = asyncio.run(embedder.embed(index.meanings))
        rows = asyncio.run(embedder.embed([row["query"] for row in tools.servable]))
        by_request = dict(zip([row["query"] for row in tools.servable], rows, strict=True))
        yield f"hashed words, {dimension} places", lambda row, k=known, b=by_request: np.vecdot(k, b[row["query"]])
    for name, embedder in _models():
        known = asyncio.run(embedder.embed(index.meanings))
        rows = asyncio.run(embedder.embed([row["query"] for row in tools.servable]))
        by_request = dict(zip([row["query"] for row in tools.servable], rows, strict=True))
        knowledge = knowledge_of(asyncio.run(embedder.embed(PAIRED_TEXTS)))
        yield (
            name,
            lambda row, k=known, b=by_request, n=knowledge: Cosines(known=np.vecdot(k, b[row["query"]]), knowledge=n),
        )
    yield "chance", lambda row: draw.standard_normal(len(index)).astype(np.float32)
    letters = np.array([_letters(text) for text in index.meanings])
    yield "letters counted", lambda row: np.vecdot(letters, _letters(row["query"]))
    places = {id_: place for place, id_ in enumerate(index.ids)}
    for dimension in (384, 64):
        vectors = _unit(draw.standard_normal((len(index), dimension)))
        for blur in BLURS:
            yield f"an oracle of {dimension} places, blurred by {blur}", _oracle(vectors, places, blur, draw)


def _oracle(vectors: Vectors, places: dict[str, int], blur: float, draw: np.random.Generator) -> Likeness:
    def likeness(row: Row) -> Vectors:
        right = _unit(vectors[[places[name] for name in row["relevant"]]].sum(axis=0))
        noise = _unit(draw.standard_normal(vectors.shape[1]))
        return np.vecdot(vectors, _unit((1 - blur) * right + blur * noise))

    return likeness


def _letters(text: str) -> Vectors:
    counts = np.bincount([ord(letter) % 32 for letter in text.lower()], minlength=32)
    return _unit(counts)


def _unit(rows: NDArray[np.floating] | NDArray[np.integer]) -> Vectors:
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return (rows / np.maximum(lengths, 1e-9)).astype(np.float32)


def _costs(sets: dict[str, ToolSet]) -> Iterator[tuple[str, list[float]]]:
    draw = random.Random(5)
    tools = grown(sets["own"].tools, TOOLS)
    index = Index.build(map(tool_text, tools))
    scopes = list(_scopes(tools, index, draw))
    own = [row["query"] for row in sets["own"].servable]
    whole = [row["query"] for tools in sets.values() if tools.name != "own" for row in tools.servable]
    for kind, queries in (("one need, as an agent asks", own), ("a whole task", whole)):
        if queries:
            asked = draw.choices(queries, k=QUESTIONS)
            yield f"{kind}: words", _asked(index, scopes, asked, None)
            for dimension in (384, 1_536):
                vectors = _unit(np.random.default_rng(1).standard_normal((len(index), dimension)))
                yield f"{kind}: words and vectors of {dimension}", _asked(index, scopes, asked, vectors)


def _scopes(tools: list[Row], index: Index, draw: random.Random) -> Iterator[VisibleTools]:
    by_server: dict[str, list[str]] = {}
    for tool in tools:
        by_server.setdefault(tool["server"], []).append(tool["name"])
    for _ in range(SETS):
        share = draw.choice((0.05, 0.25, 0.5, 0.9))
        yield index.among({name for names in by_server.values() if draw.random() < share for name in names})


def _tool_vectors(vectors: Vectors) -> ToolVectors:
    tools = ToolVectors(vectors)
    if tools.wants_codes:
        centre = _unit(np.random.default_rng(2).standard_normal((16, vectors.shape[1]))).mean(axis=0)
        for _ in tools.coding(centre):
            pass
    return tools


def _asked(
    index: Index, scopes: Sequence[VisibleTools], queries: Sequence[str], vectors: Vectors | None
) -> list[float]:
    costs_ms: list[float] = []
    compared = None if vectors is None else _tool_vectors(vectors)
    for number, query in enumerate(queries):
        start = time.process_time()
        likeness = None if compared is None or vectors is None else compared.beside(vectors[number])
        index.search(query, visible=scopes[number % SETS], likeness=likeness)
        costs_ms.append((time.process_time() - start) * 1e3)
    return costs_ms
