"""Document quality: how well a search finds documents, on three sets, compared with two plain engines.

The sets, named before anything was tuned: `cranfield` (1,400 abstracts of `../shared`, 112 questions), `manuals` (2,387
manual pages in German, Japanese, French and English; questions written and judged by hand) and `apropos` (the same
pages, asked for by their own lines of summary, 100 for each language). `bench/manuals.py` makes the last two of Debian
packages. A document stands where its best passage does. bm25s (Porter stemmer, its English stop words) and SQLite's
FTS5 (`porter unicode61`, any of the words) index whole documents and run in the same run. `p` is that of a paired
permutation test on nDCG@10 against ours: below 0.05 the difference is significant; the sign says who is ahead.
`before` is an earlier run on this machine, if `build/bench/document_quality.before.json` has one.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from bench import manuals
from bench.documents import cranfield
from bench.measure import Effort
from pegboard.model.document import NewDocument, SearchMode
from pegboard.workspace.sqlite.sqlite_store import SqliteDocumentStore
from pegboard.workspace.store.document_store import SqlDocumentStore
from pegboard.workspace.store.writing import prepared
from pegboard.workspace.tools.search_documents import SEARCH_PASSAGES

Row = dict[str, Any]
Ranked = Callable[[str], Sequence[str]]
KEPT = Path(__file__).parent.parent / "build" / "bench"
LATEST, BEFORE = KEPT / "document_quality.json", KEPT / "document_quality.before.json"
BATCH, DRAWS = 200, 20_000


def sets() -> Iterator[tuple[str, Sequence[Row], Sequence[Row]]]:
    """Yield the name, the documents and the questions of each set that is here."""
    found = cranfield()
    if found is not None:
        yield "cranfield", *found
    pages = manuals.documents()
    if pages is not None:
        yield "manuals", pages, manuals.judged_questions()
        yield "apropos", pages, manuals.apropos(pages)


# ---- engines ---------------------------------------------------------------------------------------------------------


def filled(store: SqlDocumentStore, documents: Sequence[Row]) -> SqlDocumentStore:
    """Put documents into a store, all in one space."""
    scope = store.operator_scope("s1")

    async def fill() -> None:
        await store.begin_source(scope, "s1", "set", type_="folder", origin="")
        for start in range(0, len(documents), BATCH):
            some = [_new(each) for each in documents[start : start + BATCH]]
            await store.put(scope, "s1", "set", list(map(prepared, some)))
        await store.embed_missing(scope, "s1")

    asyncio.run(fill())
    return store


def _new(each: Row) -> NewDocument:
    return NewDocument(
        path=f"{each['id']}.txt",
        mime="text/plain",
        size_bytes=len(each["text"]),
        checksum=each["id"],
        text=f"{each['title']}\n\n{each['text']}",
        metadata={"title": each["title"]},
    )


def ours(store: SqlDocumentStore, documents: Sequence[Row], mode: SearchMode) -> Ranked:
    """Return a search over documents in a store of ours; a page's folder is its language."""
    scope = store.operator_scope("s1")
    by_name: dict[str, list[str]] = {}
    for each in documents:
        by_name.setdefault(each["id"].rpartition("/")[2], []).append(each["id"])
    ids: dict[str, str] = {}

    def ranked(query: str) -> Sequence[str]:
        answer = asyncio.run(store.search(scope, query, mode=mode, limit=SEARCH_PASSAGES))
        return list(dict.fromkeys(_id_of(store, scope, hit, by_name, ids) for hit in answer["hits"]))

    return ranked


def _id_of(store: SqlDocumentStore, scope: Any, hit: Row, by_name: Mapping[str, list[str]], ids: dict[str, str]) -> str:
    name = hit["name"].removesuffix(".txt")
    if len(by_name[name]) == 1:
        return by_name[name][0]
    document_id = hit["document_id"]
    if document_id not in ids:
        info = asyncio.run(store.document_info(scope, document_id=document_id))
        ids[document_id] = info["path"].strip("/").removesuffix(".txt")
    return ids[document_id]


def bm25s_plain(documents: Sequence[Row]) -> Ranked:
    """Return bm25s with the Porter stemmer."""
    bm25s = import_module("bm25s")
    stemmer = import_module("Stemmer").Stemmer("porter")
    texts = [f"{each['title']}\n\n{each['text']}" for each in documents]
    index = bm25s.BM25()
    index.index(bm25s.tokenize(texts, stemmer=stemmer, stopwords="en", show_progress=False), show_progress=False)

    def ranked(query: str) -> Sequence[str]:
        tokens = bm25s.tokenize([query], stemmer=stemmer, stopwords="en", show_progress=False)
        found, scores = index.retrieve(tokens, k=10, show_progress=False)
        return [documents[int(place)]["id"] for place, score in zip(found[0], scores[0], strict=True) if score > 0]

    return ranked


def fts5_plain(documents: Sequence[Row]) -> Ranked:
    """Return SQLite's own full-text search, asked for any of the words."""
    apsw = import_module("apsw")
    db = apsw.Connection(":memory:")
    db.execute("create virtual table pages using fts5 (title, text, tokenize = 'porter unicode61')")
    db.executemany("insert into pages values (?, ?)", ((each["title"], each["text"]) for each in documents))

    def ranked(query: str) -> Sequence[str]:
        words = "".join(c if c.isalnum() else " " for c in query).split()
        if not words:
            return []
        match = " OR ".join(f'"{word}"' for word in words)
        rows = db.execute("select rowid from pages where pages match ? order by bm25(pages) limit 10", (match,))
        return [documents[int(n) - 1]["id"] for (n,) in rows]

    return ranked


# ---- measures --------------------------------------------------------------------------------------------------------


def ndcg(question: Row, ids: Sequence[str]) -> float:
    """Return nDCG@10 with binary judgements."""
    right = set(question["relevant"])
    gained = sum(1 / math.log2(place + 2) for place, each in enumerate(ids[:10]) if each in right)
    return gained / sum(1 / math.log2(place + 2) for place in range(min(10, len(right))))


def first_five(question: Row, ids: Sequence[str]) -> bool:
    """Return whether a right document is among the first five."""
    return not set(question["relevant"]).isdisjoint(ids[:5])


def recall(question: Row, ids: Sequence[str]) -> float:
    """Return the share of the right documents among the first ten."""
    return len(set(question["relevant"]) & set(ids[:10])) / len(set(question["relevant"]))


def chance_of(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the two-sided p of a paired permutation test: how often random signs give so large a difference."""
    gaps = np.asarray(ours) - np.asarray(theirs)
    gaps = gaps[gaps != 0]
    if not len(gaps):
        return 1.0
    signs = np.random.default_rng(1).integers(0, 2, (DRAWS, len(gaps))) * 2 - 1
    return float((np.abs(signs @ gaps) >= abs(gaps.sum()) - 1e-9).mean())


def engines(documents: Sequence[Row], folder: Path) -> Iterator[tuple[str, Callable[[], Ranked]]]:
    """Yield the engines; ours first."""
    stores: list[SqlDocumentStore] = []

    def keyword() -> Ranked:
        stores.append(filled(SqliteDocumentStore(folder / "documents.db"), documents))
        return ours(stores[0], documents, "keyword")

    yield "pegboard, keyword", keyword
    yield "bm25s, Porter", lambda: bm25s_plain(documents)
    yield "SQLite FTS5, porter", lambda: fts5_plain(documents)


def lines(_: Effort) -> Iterator[str]:
    """Yield the tables."""
    if cranfield() is None:
        yield "* Without the shared folder (`PEGBOARD_SHARED`) `cranfield` is not measured."
    if manuals.documents() is None:
        yield f"* {manuals.ABSENT}"
    yield ""
    yield "| set | engine | nDCG@10 | recall@10 | right in first 5 | p against ours |"
    yield "|---|---|---:|---:|---:|---:|"
    before = json.loads(BEFORE.read_text()) if BEFORE.is_file() else {}
    kept: dict[str, dict[str, float]] = {}
    by_kind: dict[str, dict[str, list[bool]]] = {}
    last: tuple[int, dict[str, Ranked]] = (0, {})
    for name, documents, questions in sets():
        with tempfile.TemporaryDirectory() as folder:
            # Both sets of manuals have the same pages, which are read once.
            built = last[1] if last[0] == id(documents) else {}
            values: dict[str, list[float]] = {}
            for engine, build in engines(documents, Path(folder)):
                try:
                    ranked = built.get(engine) or build()
                except ImportError:
                    yield f"| {name} | {engine} | not installed | | | |"
                    continue
                built[engine] = ranked
                found = [ranked(question["text"]) for question in questions]
                pairs = [*zip(questions, found, strict=True)]
                values[engine] = scores = [ndcg(*pair) for pair in pairs]
                mine = values["pegboard, keyword"]
                p = "" if engine == "pegboard, keyword" else _signed(mine, scores)
                yield _line(name, engine, pairs, p)
                for question, ids in pairs:
                    by_kind.setdefault(f"{name}: {question.get('kind', 'all')}", {}).setdefault(engine, []).append(
                        first_five(question, ids)
                    )
                if engine.startswith("pegboard"):
                    key = f"{name}, {engine}"
                    kept[key] = dict(zip(map(_key, questions), scores, strict=True))
                    yield from _compared(name, engine, kept[key], before.get(key, {}))
            last = (id(documents), built)
    yield from _kinds(by_kind)
    KEPT.mkdir(parents=True, exist_ok=True)
    LATEST.write_text(json.dumps(kept))


def _key(question: Row) -> str:
    return str(question.get("qid") or question["id"])


def _compared(name: str, engine: str, now: Mapping[str, float], before: Mapping[str, float]) -> Iterator[str]:
    if before.keys() == now.keys():
        gaps = [now[key] - before[key] for key in now]
        rose, fell = sum(gap > 1e-9 for gap in gaps), sum(gap < -1e-9 for gap in gaps)
        was = [before[key] for key in now]
        p = _signed([*now.values()], was)
        yield f"| {name} | {engine}, before | {np.mean(was):.3f} | | {rose} rose, {fell} fell | {p} |"


def _signed(ours_: Sequence[float], theirs: Sequence[float]) -> str:
    gap = float(np.mean(ours_) - np.mean(theirs))
    return f"{chance_of(ours_, theirs):.3f} ({100 * gap:+.1f})"


def _line(name: str, engine: str, pairs: Sequence[tuple[Row, Sequence[str]]], p: str) -> str:
    quality = np.mean([ndcg(*pair) for pair in pairs]), np.mean([recall(*pair) for pair in pairs])
    five = sum(first_five(*pair) for pair in pairs)
    return f"| {name} | {engine} | {quality[0]:.3f} | {quality[1]:.3f} | {five} of {len(pairs)} | {p} |"


def _kinds(by_kind: Mapping[str, Mapping[str, Sequence[bool]]]) -> Iterator[str]:
    shown = {kind: found for kind, found in by_kind.items() if not kind.startswith("cranfield")}
    if not shown:
        return
    names = list(dict.fromkeys(engine for found in shown.values() for engine in found))
    yield ""
    yield "| a right document among the first five | " + " | ".join(names) + " |"
    yield "|---|" + "---:|" * len(names)
    for kind, found in shown.items():
        cells = (f"{sum(found[e])} of {len(found[e])}" if e in found else "" for e in names)
        yield f"| {kind} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    os.environ.setdefault("PEGBOARD_SHARED", str(Path(__file__).parents[2] / "shared"))
    from bench.measure import BRIEF

    for line in lines(BRIEF):
        print(line, flush=True)
