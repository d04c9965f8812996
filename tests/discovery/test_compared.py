"""Thousands of long vectors are compared in two steps: what stands out is found as if all had been read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import numpy as np
import pytest

from pegboard import Catalog, ToolContext
from pegboard.discovery.meaning import Meaning
from pegboard.discovery.search import compared
from pegboard.discovery.search.compared import Cosines, ToolVectors
from tests.timing import PATIENCE_S

Rows = np.ndarray[Any, Any]
COUNT, DIMENSION = 2_000, 200
DRAW = np.random.default_rng(4)
BEGIN = DRAW.bit_generator.state


def unit(rows: Rows) -> Rows:
    return (rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)).astype(np.float32)


def normal(count: int = COUNT) -> Rows:
    return unit(DRAW.standard_normal((count, DIMENSION)))


KINDS: dict[str, Callable[[], Rows]] = {
    "in all directions": normal,
    "in clusters": lambda: unit(normal(50)[DRAW.integers(0, 50, COUNT)] + 0.8 * normal()),
    "in a narrow cone": lambda: unit(3 * normal(1) + normal()),
    "few numbers are not 0": lambda: unit((DRAW.random((COUNT, DIMENSION)) < 0.05) * normal()),
    "a few numbers outweigh all": lambda: unit(normal() * np.where(np.arange(DIMENSION) < 16, 20, 1)),
    "copies of a few": lambda: normal(40)[DRAW.integers(0, 40, COUNT)],
    "along the axes": lambda: unit(np.eye(DIMENSION)[DRAW.integers(0, DIMENSION, COUNT)] + 0.01 * normal()),
}


def coded(rows: Rows) -> ToolVectors:
    tools = ToolVectors(rows)
    for _ in tools.coding(rows[:16].mean(axis=0)):
        pass
    return tools


@pytest.fixture(autouse=True)
def _even_few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared, "_READ_ALL", 0)
    DRAW.bit_generator.state = BEGIN


@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_out_is_found_in_its_order(kind: str) -> None:
    rows = KINDS[kind]()
    tools = coded(rows)
    seen = np.flatnonzero(DRAW.random(COUNT) < 0.9)
    found = due = 0
    for place in DRAW.integers(0, COUNT, 20):
        request = unit(rows[place] + DRAW.choice([0.4, 0.8]) * normal(1)[0])
        beyond = tools.beside(request).standing(seen).beyond
        exactly = Cosines(known=np.vecdot(rows, request)).standing(seen).beyond
        # By what the others are judged is taken from a part of them, so who barely stands out may not.
        best = [n for n in np.argsort(-exactly, kind="stable")[:5] if exactly[n] > 0.1 + 0.1 * exactly.max()]
        due += len(best)
        found += [n for n in np.argsort(-beyond, kind="stable")[: len(best)] if beyond[n] > 0] == best
        assert abs(beyond.max() - exactly.max()) <= 0.25 + 0.15 * exactly.max()
    assert due >= 5
    assert found == 20


def test_hidden_tools_change_no_digit() -> None:
    rows = np.concatenate([KINDS["in clusters"](), KINDS["in a narrow cone"]()])
    centre = normal(16).mean(axis=0)
    seen = np.flatnonzero(DRAW.random(len(rows)) < 0.4)
    tools, alone = ToolVectors(rows), ToolVectors(rows[seen])
    for each in (tools, alone):
        for _ in each.coding(centre):
            pass
    standing = 0
    for place in seen[::97]:
        request = unit(rows[place] + 0.5 * normal(1)[0])
        among_others = tools.beside(request).standing(seen).beyond
        by_themselves = alone.beside(request).standing(np.arange(len(seen))).beyond
        standing += among_others.any()
        assert among_others.tobytes() == by_themselves.tobytes()
    assert standing >= 5


def test_where_estimates_tell_nothing_apart_all_are_read() -> None:
    rows = unit(30 * normal(1) + normal())
    tools, seen = ToolVectors(rows), np.arange(COUNT)
    for _ in tools.coding(np.zeros(DIMENSION, dtype=np.float32)):  # not the centre that these have
        pass
    beyond = tools.beside(rows[7]).standing(seen).beyond
    assert np.argmax(beyond) == 7
    assert beyond.tobytes() == Cosines(known=np.vecdot(rows, rows[7])).standing(seen).beyond.tobytes()


class Directions:
    """An embedder that gives each text a direction of its own; and says when it was asked what all texts have."""

    model_id = "directions"
    dimension: int | None = 64

    def __init__(self, *, fails_at: str = "") -> None:
        self.fails_at = fails_at
        self.was_asked_for_any = Event()

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if any("recipe without milk" in text for text in texts):
            self.was_asked_for_any.set()
            if self.fails_at:
                raise RuntimeError(self.fails_at)
        return [np.random.default_rng(sum(text[-12:].encode())).standard_normal(64).tolist() for text in texts]


@pytest.mark.parametrize("fails_at", ["", "no more today"])
async def test_a_catalog_answers_before_codes_are_made_and_where_they_never_are(
    fails_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A search on a busy machine would not wait for the thread of an embedder.
    defaults: Any = Meaning.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "wait_s", PATIENCE_S)
    catalog = Catalog("large")
    embedder = Directions(fails_at=fails_at)
    for n in range(40):

        @catalog.tool(name=f"tool_{n}", description=f"Serves purpose {n:04}.", groups="core")
        def tool() -> None: ...

    finder = catalog.discovery.finder
    finder.use_embedder(embedder)
    view = catalog.view(ToolContext(), include=["core"])
    await finder.read_meanings()
    before = await catalog.search(view, "zzyzx purpose 0007.")
    assert embedder.was_asked_for_any.wait(30)
    after = await catalog.search(view, "zzyzx purpose 0007.")
    for found in (before, after):
        assert found.words_alone is None
        assert found.tools[0].entry.wire_name == "tool_7"
