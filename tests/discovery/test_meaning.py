"""Search with an embedder: what it wins, what a poor one costs, and that no search waits or fails for it."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from bench.discovery import recall_at, tool_text
from pegboard import Catalog, ToolContext
from pegboard.discovery.finder import Finder
from pegboard.discovery.meaning import NO_ANSWER, STILL_READING, Meaning
from pegboard.discovery.meaning_pairs import PAIRED_TEXTS, knowledge_of
from pegboard.discovery.search.compared import Cosines
from pegboard.discovery.search.index import Index, ToolText
from pegboard.models.embedding.hashing import HashingEmbedder
from pegboard.models.embedding.static_embedder import StaticEmbedder
from tests.discovery.calling import say
from tests.discovery.shops import shop
from tests.timing import PATIENCE_S

REQUESTS = Path(__file__).parents[2] / "bench" / "requests"


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (REQUESTS / name).read_text(encoding="utf-8").splitlines()]


TOOLS, SERVABLE = rows("tools.jsonl"), rows("servable.jsonl")
INDEX = Index.build(map(tool_text, TOOLS))


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    # A search on a busy machine would not wait for the thread of an embedder.
    defaults: Any = Meaning.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "wait_s", PATIENCE_S)


class Concepts:
    """An embedder over three concepts, which remembers what it was asked."""

    model_id = "concepts"
    dimension: int | None = 4
    WORDS = (("cash", "money", "fund"), ("cat", "feline"), ("rain", "shower"))

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked.extend(texts)
        return [[*(float(any(word in text.lower() for word in words)) for words in self.WORDS), 0.1] for text in texts]


def bank() -> Catalog:
    """Twenty tools, of which one moves funds and one feeds a feline."""
    catalog = Catalog("bank")
    described = ["Moves funds.", "Feeds a feline.", *(f"Does thing number {n}." for n in range(18))]
    for n, text in enumerate(described):
        add(catalog, f"tool_{n}", text)
    return catalog


def add(catalog: Catalog, name: str, description: str) -> None:
    @catalog.tool(name=name, description=description, groups="core")
    def tool() -> None: ...


async def first_hit(catalog: Catalog, query: str) -> str | None:
    found = await catalog.search(catalog.view(ToolContext(), include=["core"]), query)
    return found.tools[0].entry.wire_name if found.tools else None


# ---- what it wins, and what it costs ---------------------------------------------------------------------------------


def seeded(text: str, dimension: int) -> np.ndarray[Any, Any]:
    drawn = np.random.default_rng(crc32(text.encode())).standard_normal(dimension)
    return drawn / np.linalg.norm(drawn)


def known(likeness: Callable[[dict], Any] | None, row: dict) -> Cosines | None:
    return None if likeness is None else Cosines(known=likeness(row))


def recall_of_five(likeness: Callable[[dict], Any] | None, queries: Sequence[dict] = SERVABLE) -> float:
    return fmean(
        recall_at(
            row,
            [
                hit.id
                for hit in INDEX.search(row["query"], limit=5, likeness=likeness and Cosines(known=likeness(row))).hits
            ],
            5,
        )
        for row in queries
    )


NAMES = [tool.id for tool in (INDEX._entries[id_].text for id_ in INDEX._ids)]
VECTORS = {name: seeded(name, 96) for name in NAMES}
MATRIX = np.stack([VECTORS[name] for name in NAMES]).astype(np.float32)
# Requests that say nothing in words, so that there is something to win on these small sets.
PARAPHRASED = [{**row, "query": f"{row['query'].split()[0]} zzyzx"} for row in SERVABLE[::2]]


def oracle(blur: float) -> Callable[[dict], Any]:
    """Likeness to a request as one who knows the right tools would see it, through noise."""

    def likeness(row: dict) -> Any:
        gold = np.sum([VECTORS[name] for name in row["relevant"]], axis=0)
        seen = (1 - blur) * gold / np.linalg.norm(gold) + blur * seeded(f"noise of {row['qid']}", 96)
        return (MATRIX @ (seen / np.linalg.norm(seen))).astype(np.float32)

    return likeness


def test_the_less_an_oracle_is_blurred_the_more_is_found() -> None:
    alone = recall_of_five(None, PARAPHRASED)
    found = [recall_of_five(oracle(blur), PARAPHRASED) for blur in (0.9, 0.75, 0.65, 0.5, 0.0)]
    assert found == sorted(found)
    assert len(set(found)) >= 4
    assert found[0] >= alone - 0.01
    assert found[-1] > alone + 0.2


async def test_a_poor_embedder_costs_at_most_a_point() -> None:
    hashing = HashingEmbedder(dimension=64)
    hashed = await hashing.embed(INDEX.meanings)
    vectors = await hashing.embed([row["query"] for row in SERVABLE])
    asked = {row["qid"]: vector for row, vector in zip(SERVABLE, vectors, strict=True)}
    alone = recall_of_five(None)
    poor: dict[str, Callable[[dict], Any]] = {
        "64 hashed places": lambda row: hashed @ asked[row["qid"]],
        "chance": lambda row: MATRIX @ seeded(row["query"], 96).astype(np.float32),
        "the same for all": lambda _: np.full(len(MATRIX), 0.7, dtype=np.float32),
        "length of the text": lambda row: np.array([len(text) for text in INDEX.meanings], dtype=np.float32) / 1e3,
    }
    for name, likeness in poor.items():
        assert recall_of_five(likeness) >= alone - 0.01, name


async def test_a_poor_embedder_makes_no_request_strong_that_no_tool_serves() -> None:
    hashing = HashingEmbedder(dimension=64)
    hashed = await hashing.embed(INDEX.meanings)
    queries = [row["query"] for row in rows("unservable.jsonl")][::2]
    levels: list[str] = []
    for query, vector in zip(queries, await hashing.embed(queries), strict=True):
        levels += [hit.confidence for hit in INDEX.search(query, limit=1, likeness=Cosines(known=hashed @ vector)).hits]
    assert levels.count("strong") <= 0.05 * len(queries)


def test_likeness_to_hidden_tools_changes_nothing() -> None:
    draw = random.Random(2)
    for row in SERVABLE[:40]:
        visible = draw.sample(NAMES, 50)
        likeness = oracle(0.5)(row)
        alone = Index.build(tool_text(tool) for tool in TOOLS if tool["name"] in visible)
        places = [NAMES.index(id_) for id_ in alone._ids]
        assert INDEX.search(row["query"], visible=visible, likeness=Cosines(known=likeness)) == alone.search(
            row["query"], likeness=Cosines(known=likeness[places])
        )


# ---- through the catalog ---------------------------------------------------------------------------------------------


async def test_an_embedder_finds_what_shares_no_word() -> None:
    catalog = bank()
    assert await first_hit(catalog, "a cat") != "tool_1"
    catalog.discovery.finder.use_embedder(Concepts())
    assert await first_hit(catalog, "send cash") == "tool_0"
    assert await first_hit(catalog, "a cat") == "tool_1"


async def test_one_that_is_not_async_is_taken_too() -> None:
    def embed(texts: Sequence[str]) -> Any:
        return [[float("cash" in text or "funds" in text), 0.1] for text in texts]

    catalog = bank()
    catalog.discovery.finder.use_embedder(Broken(embed))
    assert await first_hit(catalog, "send cash") == "tool_0"


async def test_only_changed_tools_are_read_again_and_a_request_once() -> None:
    embedder = Concepts()
    catalog = bank()
    catalog.discovery.finder.use_embedder(embedder)
    await first_hit(catalog, "send cash")
    # The tools, the request, and once the pairs by which it shows how well it knows meanings.
    assert len(embedder.asked) == 21 + len(PAIRED_TEXTS)
    embedder.asked.clear()
    add(catalog, "new", "Makes a shower.")
    assert await first_hit(catalog, "send cash") == "tool_0"
    assert embedder.asked == ["new: Makes a shower."]


def test_the_catalog_takes_an_embedder() -> None:
    embedder = Concepts()
    assert Catalog("c", embedder=embedder).discovery.finder.embedder is embedder


# ---- one that does not work ------------------------------------------------------------------------------------------


async def hangs(texts: Sequence[str]) -> Any:
    await asyncio.sleep(3_600)


async def blocks(texts: Sequence[str]) -> Any:
    released.wait()
    return [[1.0]] * len(texts)


async def fails(texts: Sequence[str]) -> Any:
    raise RuntimeError("CANARY of a stack")


async def answers_another_dimension(texts: Sequence[str]) -> Any:
    return [[1.0] * (2 + len(texts))] * len(texts)


async def answers_nothing(texts: Sequence[str]) -> Any:
    return []


async def answers_no_numbers(texts: Sequence[str]) -> Any:
    return [["x"]] * len(texts)


async def leaves(texts: Sequence[str]) -> Any:
    raise asyncio.CancelledError


async def answers_nan(texts: Sequence[str]) -> Any:
    return [[float("nan"), 1.0]] * len(texts)


async def ends_the_process(texts: Sequence[str]) -> Any:
    raise SystemExit(3)


async def ends_itself(texts: Sequence[str]) -> Any:
    raise GeneratorExit


class UnsaidError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words for it")


async def fails_without_words(texts: Sequence[str]) -> Any:
    raise UnsaidError


released = threading.Event()


@pytest.fixture
def _released() -> Iterator[None]:
    released.clear()
    yield
    released.set()


class Broken:
    model_id = "broken"
    dimension: int | None = None

    def __init__(self, embed: Callable[[Sequence[str]], Awaitable[Any]]) -> None:
        self.embed = embed


@pytest.mark.usefixtures("_released")
@pytest.mark.parametrize(
    "embed",
    [
        hangs,
        blocks,
        fails,
        answers_another_dimension,
        answers_nothing,
        answers_no_numbers,
        answers_nan,
        leaves,
        ends_the_process,
        ends_itself,
        fails_without_words,
    ],
)
async def test_a_search_answers_by_words_alone_and_says_so(
    embed: Callable[[Sequence[str]], Awaitable[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    catalog = shop(things=("photo", "ticket"))
    finder: Finder = catalog.discovery.finder
    finder.use_embedder(Broken(embed))
    finder._meaning = Meaning(Broken(embed), wait_s=0.05)
    answer: dict[str, Any] = {}
    with caplog.at_level(logging.WARNING, logger="pegboard"):
        for _ in range(3):
            [answer] = (await say(catalog, "searchTools", queries=["rename a photo"]))["data"]["results"]
            assert answer["hits"][0]["tool"] == "rename_photo"
            assert answer["note"] == f"Searched by words alone: {NO_ANSWER}."
    assert len(caplog.records) == 1
    assert "CANARY" not in json.dumps(answer)


async def test_one_that_failed_is_left_alone_and_asked_again_later() -> None:
    now = [0.0]
    embedder = Concepts()
    is_up = False

    async def embed(texts: Sequence[str]) -> Any:
        if not is_up:
            embedder.asked.append("failed")
            raise OSError("away")
        return await Concepts.embed(embedder, texts)

    broken = Broken(embed)
    meaning = Meaning(broken, rest_s=30, clock=lambda: now[0])
    index = Index.build(map(tool_text, TOOLS[:5]))
    for _ in range(3):
        assert await meaning.likeness(index, ["cash"]) == NO_ANSWER
    assert embedder.asked == ["failed"], "each search would wait for it otherwise"
    is_up = True
    assert await meaning.likeness(index, ["cash"]) == NO_ANSWER
    now[0] = 31.0
    assert not isinstance(await meaning.likeness(index, ["cash"]), str)


async def test_one_that_does_not_even_say_its_name_fails_no_search() -> None:
    class Unnamed(Broken):
        @property
        def model_id(self) -> str:  # type: ignore[override]
            raise RuntimeError("no name")

    catalog = shop(things=("photo",))
    catalog.discovery.finder.use_embedder(Unnamed(fails))  # type: ignore[arg-type]
    [answer] = (await say(catalog, "searchTools", queries=["rename a photo"]))["data"]["results"]
    assert answer["hits"][0]["tool"] == "rename_photo"


async def test_one_that_asked_for_the_end_of_the_process_is_asked_again() -> None:
    asked = 0

    async def ends_once(texts: Sequence[str]) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise SystemExit(1)
        return [[1.0, 2.0]] * len(texts)

    meaning = Meaning(Broken(ends_once), rest_s=0, wait_s=30)
    assert await meaning.likeness(INDEX, ["a"]) == NO_ANSWER
    assert not isinstance(await meaning.likeness(INDEX, ["a"]), str)


def hurrying(step_s: float) -> Callable[[], float]:
    """Return a clock by which all time of a search is over once its request is read, however long that took."""
    return itertools.count(0.0, step_s).__next__


async def test_tools_that_take_long_to_read_are_read_behind_the_searches() -> None:
    may_read = threading.Event()

    class Slow(Concepts):
        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            while len(texts) > 1 and not may_read.is_set():
                await asyncio.sleep(0.001)
            return await super().embed(texts)

    meaning = Meaning(Slow(), wait_s=30, clock=hurrying(30))
    assert await meaning.likeness(INDEX, ["cash"]) == STILL_READING
    assert await meaning.likeness(INDEX, ["money"]) == STILL_READING
    may_read.set()
    await meaning.read(INDEX)
    assert not isinstance(await meaning.likeness(INDEX, ["cash"]), str)


async def test_an_embedder_that_computes_does_not_hold_the_event_loop() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    class Computing(Concepts):
        async def embed(self, texts: Sequence[str]) -> list[list[float]]:
            seen = ticks
            until = time.monotonic() + 5  # not reached: the loop of the searches goes on meanwhile
            while ticks < seen + 10 and time.monotonic() < until:
                time.sleep(0)
            assert ticks >= seen + 10
            return await super().embed(texts)

    ticking = asyncio.ensure_future(tick())
    catalog = bank()
    catalog.discovery.finder.use_embedder(Computing())
    assert await first_hit(catalog, "send cash") == "tool_0"
    ticking.cancel()


async def test_a_model_exchanged_for_one_of_another_dimension_is_read_anew() -> None:
    now, dimension = [0.0], [4]

    async def embed(texts: Sequence[str]) -> Any:
        return [[1.0] * dimension[0]] * len(texts)

    meaning = Meaning(Broken(embed), clock=lambda: now[0])
    index = Index.build(map(tool_text, TOOLS[:5]))
    assert not isinstance(await meaning.likeness(index, ["a"]), str)
    dimension[0] = 6
    assert await meaning.likeness(index, ["b"]) == NO_ANSWER
    now[0] = 60.0
    assert not isinstance(await meaning.likeness(index, ["b"]), str)


async def test_a_forked_child_reads_for_itself_what_its_parent_was_reading() -> None:
    may_answer = threading.Event()

    async def embed(texts: Sequence[str]) -> Any:
        while len(texts) > 1 and not may_answer.is_set():
            await asyncio.sleep(0.001)
        return await Concepts.embed(Concepts(), texts)

    meaning = Meaning(Broken(embed), wait_s=30, clock=hurrying(30))
    index = Index.build(map(tool_text, TOOLS[:5]))
    assert await meaning.likeness(index, ["cash"]) == STILL_READING
    # What `os.register_at_fork` calls in a child, where neither thread nor reading goes on.
    meaning.after_fork()
    meaning._thread.after_fork()
    may_answer.set()
    await meaning.read(index)
    assert not isinstance(await meaning.likeness(index, ["cash"]), str)


# ---- how much it counts ----------------------------------------------------------------------------------------------


async def test_an_embedder_counts_more_if_it_knows_sentences_that_mean_the_same() -> None:
    assert knowledge_of(np.asarray(await HashingEmbedder().embed(PAIRED_TEXTS))) == 0.0
    pairs = np.eye(len(PAIRED_TEXTS) // 2, dtype=np.float32)
    assert knowledge_of(np.concatenate([pairs, pairs])) == 1.0
    static = knowledge_of(np.asarray(await StaticEmbedder().embed(PAIRED_TEXTS)))
    assert 0.5 < static < 0.8
    # All have the same words, and one is a little more alike, within what chance gives.
    texts = (ToolText(id=f"t{n}", name=f"t{n}", description="Sends a report.", namespace="n") for n in range(9))
    index = Index.build(texts)
    cosines = np.array([0.1, 0.2, 0.1, 0.22, 0.1, 0.15, 0.1, -0.1, 0.19], dtype=np.float32)

    def first(knowledge: float) -> str:
        return index.search("send the report", likeness=Cosines(known=cosines, knowledge=knowledge)).hits[0].id

    assert (first(0.0), first(1.0)) == ("t0", "t3")


async def test_the_embedder_that_comes_with_a_package_needs_no_network_and_knows_meanings() -> None:
    embedder = StaticEmbedder()
    texts = ["send cash to a friend", "moves funds to another account", "a cat sleeps", ""]
    vectors = await embedder.embed(texts)
    assert vectors.shape == (4, 256)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    assert not vectors[3].any()
    assert embedder.model_id.startswith("static/wordllama-")
    catalog = bank()
    catalog.discovery.finder.use_embedder(embedder)
    await catalog.discovery.finder.read_meanings()
    assert await first_hit(catalog, "send cash") == "tool_0"
