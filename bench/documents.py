"""Documents: how well a search by words finds them, and what taking them in costs.

Quality: nDCG and recall of ten on the set `documents/cranfield` of `../shared` (1,400 abstracts, 112 questions), of
`search_documents` with `mode: keyword`, beside bm25s with the Porter stemmer and its English stop words. No setting was
chosen on these questions. A document stands where its best passage does. Cost: processor time, of this process and its
children, for one-page Markdown files through `pegboard ingest`, for long texts made of those abstracts, and of one
search over what was taken in. Of a page most is what each file costs; of a long text, what each passage does.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.discovery import read_rows, shared_folder
from bench.measure import Effort
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.document import NewDocument, SearchMode
from pegboard.models.embedding.hashing import HashingEmbedder
from pegboard.workspace.ingest import SourceIngest
from pegboard.workspace.sources.folder_source import FolderSource
from pegboard.workspace.sqlite.sqlite_store import SqliteDocumentStore
from pegboard.workspace.store.writing import prepared
from pegboard.workspace.tools.search_documents import SEARCH_PASSAGES

Row = dict[str, Any]
Ranked = Callable[[str], Sequence[str]]
HELD_NDCG = 0.399
FILES = 10_000
TEXTS, TEXT_CHARS = 60, 100_000
HELD_PASSAGES_A_S = 1_000


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Means over the questions."""

    ndcg: float
    recall: float


def cranfield() -> tuple[list[Row], list[Row]] | None:
    """Return the documents and the questions; `None` where the shared folder is not there."""
    shared = shared_folder()
    folder = None if shared is None else shared.parent / "documents" / "cranfield"
    if folder is None or not folder.is_dir():
        return None
    return read_rows(folder / "documents.jsonl"), read_rows(folder / "queries.dev.jsonl")


def judged(questions: Sequence[Row], ranked: Ranked) -> Quality:
    """Return how well documents are ranked, ten for each question."""
    ndcg = recall = 0.0
    for question in questions:
        right, first = set(question["relevant"]), [*ranked(question["text"])][:10]
        gained = sum(1 / math.log2(place + 2) for place, name in enumerate(first) if name in right)
        ndcg += gained / sum(1 / math.log2(place + 2) for place in range(min(10, len(right))))
        recall += len(right & set(first)) / len(right)
    return Quality(ndcg=ndcg / len(questions), recall=recall / len(questions))


def ours(documents: Sequence[Row], folder: Path, mode: SearchMode) -> Ranked:
    """Return a search over the documents in a store of ours, with `hashing` where it is not by words alone."""
    embedder = None if mode == "keyword" else HashingEmbedder()
    store = SqliteDocumentStore(folder / f"{mode}.db", embedder=embedder)
    scope = store.operator_scope("s1")
    ready = [
        prepared(
            NewDocument(
                path=f"{each['id']}.txt",
                mime="text/plain",
                size_bytes=len(each["text"]),
                checksum=each["id"],
                text=f"{each['title']}\n\n{each['text']}",
                metadata={"title": each["title"]},
            )
        )
        for each in documents
    ]

    async def fill() -> None:
        await store.begin_source(scope, "s1", "cranfield", type_="folder", origin="")
        await store.put(scope, "s1", "cranfield", ready)
        await store.embed_missing(scope, "s1")

    asyncio.run(fill())

    def ranked(query: str) -> Sequence[str]:
        answer = asyncio.run(store.search(scope, query, mode=mode, limit=SEARCH_PASSAGES))
        return list(dict.fromkeys(hit["name"].removesuffix(".txt") for hit in answer["hits"]))

    return ranked


def plain_bm25s(documents: Sequence[Row]) -> Ranked:
    """Return the peer."""
    bm25s = import_module("bm25s")
    stemmer = import_module("Stemmer").Stemmer("porter")
    texts = [f"{each['title']}\n\n{each['text']}" for each in documents]
    index = bm25s.BM25()
    index.index(bm25s.tokenize(texts, stemmer=stemmer, stopwords="en", show_progress=False), show_progress=False)

    def ranked(query: str) -> Sequence[str]:
        tokens = bm25s.tokenize([query], stemmer=stemmer, stopwords="en", show_progress=False)
        found, _ = index.retrieve(tokens, k=10, show_progress=False)
        return [documents[int(place)]["id"] for place in found[0]]

    return ranked


def processor_s() -> float:
    """Return what this process and the children that have ended have used."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def pages(folder: Path, count: int) -> None:
    """Write one-page Markdown files of words that few or many of them have."""
    dice = random.Random(1)
    words = [f"w{number:x}" for number in range(20_000)]
    weights = [1 / (place + 1) for place in range(len(words))]
    for number in range(count):
        picked = dice.choices(words, weights, k=400)
        paragraphs = [" ".join(picked[start : start + 50]) + "." for start in range(0, len(picked), 50)]
        path = folder / f"{number % 100:02}" / f"{number:05}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# Page {number}\n\n" + "\n\n".join(paragraphs), encoding="utf-8")


def texts(folder: Path, documents: Sequence[Row], count: int) -> None:
    """Write long files of paragraphs that somebody wrote."""
    dice = random.Random(1)
    for number in range(count):
        paragraphs, chars = list[str](), 0
        while chars < TEXT_CHARS:
            paragraphs.append(dice.choice(documents)["text"])
            chars += len(paragraphs[-1])
        (folder / f"{number:03}.txt").write_text("\n\n".join(paragraphs), encoding="utf-8")


async def taken_in(folder: Path, store: SqliteDocumentStore) -> int:
    """Ingest a folder; return how many passages there are then."""
    report = await SourceIngest(
        store=store,
        scope=store.operator_scope("s1"),
        space="s1",
        name="pages",
        source=FolderSource(folder),
        max_file_bytes=DEFAULT_BOUNDS.upload_bytes,
    ).run()
    assert not report.bad, report.bad
    [space] = await store.statistics()
    return space["chunks"]


def peak_mib(count: int) -> float:
    """Return the most memory that `pegboard ingest` of so many files has at once; its children have their own."""
    with tempfile.TemporaryDirectory() as named:
        folder = Path(named)
        (folder / "pages").mkdir()
        pages(folder / "pages", count)
        (folder / "pegboard.yaml").write_text("workspace: {store: 'sqlite:documents.db'}\n", encoding="utf-8")
        program = "import sys; from pegboard.cli import main; sys.exit(main())"
        words = [sys.executable, "-c", program, "ingest", "pages", "--space", "s1"]
        process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return usage.ru_maxrss / 1024


def lines(effort: Effort) -> Iterator[str]:
    """Yield the tables."""
    found = cranfield()
    if found is None:
        yield "Without the shared folder (`PEGBOARD_SHARED`) quality is not measured."
    else:
        documents, questions = found
        yield from ("| engine | nDCG@10 | recall@10 | |", "|---|---:|---:|---|")
        with tempfile.TemporaryDirectory() as folder:
            quality = judged(questions, ours(documents, Path(folder), "keyword"))
            hybrid = judged(questions, ours(documents, Path(folder), "hybrid"))
        verdict = "PASS" if quality.ndcg >= HELD_NDCG else "short"
        yield f"| pegboard, keyword | {quality.ndcg:.3f} | {quality.recall:.3f} | {verdict} (≥ {HELD_NDCG}) |"
        verdict = "PASS" if hybrid.ndcg >= quality.ndcg else "short"
        yield f"| pegboard, hybrid (hashing) | {hybrid.ndcg:.3f} | {hybrid.recall:.3f} | {verdict} (≥ keyword) |"
        try:
            peer = judged(questions, plain_bm25s(documents))
        except ImportError:
            yield "| bm25s, Porter | not installed | | |"
        else:
            yield f"| bm25s, Porter | {peer.ndcg:.3f} | {peer.recall:.3f} | beside |"
    yield from ("", "| what | processor time | |", "|---|---:|---|")
    if found is not None:
        with tempfile.TemporaryDirectory() as named:
            folder, count = Path(named), effort.times(TEXTS)
            (folder / "texts").mkdir()
            texts(folder / "texts", found[0], count)
            began = processor_s()
            chunks = asyncio.run(taken_in(folder / "texts", SqliteDocumentStore(folder / "documents.db")))
            spent = processor_s() - began
            verdict = "PASS" if chunks / spent >= HELD_PASSAGES_A_S else "short"
            held = f"{spent:.1f} s: {chunks / spent:,.0f} passages/s | {verdict} (≥ {HELD_PASSAGES_A_S:,}/s)"
            yield f"| ingest {count} texts of {TEXT_CHARS:,} characters, {chunks:,} passages | {held} |"
    count = effort.times(FILES)
    with tempfile.TemporaryDirectory() as named:
        folder = Path(named)
        (folder / "pages").mkdir()
        pages(folder / "pages", count)
        store = SqliteDocumentStore(folder / "documents.db")
        began = processor_s()
        chunks = asyncio.run(taken_in(folder / "pages", store))
        spent = processor_s() - began
        verdict = "PASS" if spent * FILES / count <= 60 else "short"
        yield f"| ingest {count:,} one-page files, {chunks:,} passages | {spent:.1f} s | {verdict} (10,000 in ≤ 60 s) |"
        began = processor_s()
        asyncio.run(taken_in(folder / "pages", store))
        yield f"| once more, nothing changed | {processor_s() - began:.1f} s | |"
        few, many = effort.times(500), effort.times(4_000)
        peaks = peak_mib(few), peak_mib(many)
        verdict = "PASS" if peaks[1] <= 1.25 * peaks[0] else "short"
        held = f"{peaks[0]:.0f}, {peaks[1]:.0f} MiB | {verdict} (≤ 1.25×)"
        yield f"| memory of an ingest, {few:,} and {many:,} files | {held} |"
        scope, times = store.operator_scope("s1"), effort.times(200)
        began = processor_s()
        for number in range(times):
            query = f"w{number % 50 + 20:x} w{number * 7 % 3000:x} w{number * 13 % 20000:x}"
            asyncio.run(store.search(scope, query, mode="keyword", limit=10))
        cost_ms = (processor_s() - began) / times * 1e3
        yield f"| one search of three words in {chunks:,} passages of one space | {cost_ms:.1f} ms | |"
