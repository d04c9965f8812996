"""Confidence: what the words `strong`, `fair` and `weak` of a search hit are worth.

The five numbers of the calibration are fitted on the requests of one set and judged on another, each way, beside the
shipped ones; on `examples` nothing was fitted, ever. Each request is asked in catalogs of 2 to 2,000 tools and of all.
Half of the requests can be served; for the others the right tools are taken away (`siblings`: others of their
namespaces stay, up to half of the catalog, and may serve a part), or their namespaces are (`hidden`); or they were made
for another set (`other`), or for none (`by hand`). `right` is the share of answers of which a right tool is among the
first five: `strong` promises 0.8 or more, `fair` 0.4 to 0.8, `weak` less. ECE is the expected calibration error of the
chance behind the words, over ten bins. The faults: `strong` for what no tool serves (by the way it was made
unservable), and `weak` where words put the right tool first; aims 5 % and 10 %. `few` are catalogs of at most 10 tools.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from math import exp
from typing import TypeVar

import numpy as np

from bench.discovery import ToolSet, tool_sets, tool_text
from bench.measure import Effort
from pegboard.discovery.search.confidence import OUTSET, WEIGHTS, Signs, confidence_of, signs_of
from pegboard.discovery.search.index import Index
from pegboard.discovery.search.last_resort import RESEMBLING_CHANCE
from pegboard.discovery.search.query import parse_query
from pegboard.discovery.search.ranking import rank

T = TypeVar("T")
Names = AbstractSet[str]
LEVELS = ("strong", "fair", "weak")
SHARES = {"served": 0.5, "siblings": 0.15, "hidden": 0.15, "other": 0.1, "by hand": 0.1}
PRIORS = (0.5, 0.8)
UNSERVED = tuple(kind for kind in SHARES if kind != "served")
SIZES = (2, 5, 10, 20, 50, 200, 2_000)
FEW = 10
REQUESTS = 200  # of one set, and of the others asked of it


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request in one scope: what the chance is judged by, and what came of it. No signs: no tool has a word of it.

    What is given then is given as weak, with a chance that nothing is fitted to.
    """

    kind: str
    tools: int
    signs: Signs | None
    is_right: bool = False
    is_first: bool = False
    is_nothing: bool = False


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Weights of the signs, and where they start from."""

    weights: Sequence[float]
    outset: float

    def chance(self, one: Asked) -> float:
        if one.signs is None:
            return 0.0 if one.is_nothing else RESEMBLING_CHANCE
        return 1 / (1 + exp(-(self.outset + float(np.dot(self.weights, one.signs.values)))))


SHIPPED = Calibration(weights=WEIGHTS, outset=OUTSET)


class Catalogs:
    """Catalogs of any size made of the tools of one set: whole namespaces, or tools drawn from all of them."""

    def __init__(self, tools: ToolSet) -> None:
        self.tools = tools
        self.index = Index.build(map(tool_text, tools.tools))
        self.server = {tool["name"]: tool["server"] for tool in tools.tools}
        self.sizes = (*(size for size in SIZES if size < 0.8 * len(self.server)), len(self.server))
        self._draw = random.Random(3)

    def of(
        self, size: int, *, core: Sequence[str] = (), beside: Names = frozenset(), without: Names = frozenset()
    ) -> Names:
        """Return names of so many tools: `core`, up to half from the namespaces `beside`, none of those `without`."""
        chosen = dict.fromkeys(core)
        near = [name for name in self.server if self.server[name] in beside and name not in without]
        self._draw.shuffle(near)
        chosen |= dict.fromkeys(near[: max((size - len(chosen)) // 2, 0) if size < len(self.server) else None])
        others = [name for name in self.server if self.server[name] not in beside and name not in without]
        self._draw.shuffle(others)
        if self._draw.random() < 0.5:
            first: dict[str, int] = {}
            for place, name in enumerate(others):
                first.setdefault(self.server[name], place)
            others.sort(key=lambda name: first[self.server[name]])
        chosen |= dict.fromkeys(others)
        return set(islice(chosen, size))

    def drawn(self, rows: Sequence[T]) -> Sequence[T]:
        return self._draw.sample(rows, min(len(rows), REQUESTS))


def asked_of(tools: ToolSet, others: Sequence[ToolSet]) -> list[Asked]:
    """Return the requests of one set, servable and not, judged in catalogs of every size."""
    catalogs = Catalogs(tools)
    draw = random.Random(5)
    out: list[Asked] = []
    for row in catalogs.drawn(tools.servable):
        twins = row.get("equiv", {})
        right = {name for gold in row["relevant"] for name in (gold, *twins.get(gold, ()))} & catalogs.server.keys()
        servers = {catalogs.server[name] for name in right}
        beside = {name for name, server in catalogs.server.items() if server in servers}
        for size in catalogs.sizes:
            is_all = size == len(catalogs.server)
            core = sorted(right) if is_all else [draw.choice(sorted(right))]
            near = servers if is_all or draw.random() < 0.5 else frozenset()
            scopes = {
                "served": catalogs.of(size, core=core, beside=near, without=right - set(core)),
                "siblings": catalogs.of(size, beside=servers, without=right),
                "hidden": catalogs.of(size, without=beside),
            }
            out += [judged(kind, catalogs, size, names, row["query"], right) for kind, names in scopes.items()]
    foreign = [row["query"] for other in others for row in other.servable]
    for kind, queries in (("by hand", tools.unservable), ("other", catalogs.drawn(foreign))):
        for query in queries:
            out += [judged(kind, catalogs, n, catalogs.of(n), query) for n in catalogs.sizes]
    return out


def judged(
    kind: str,
    catalogs: Catalogs,
    size: int,
    visible: Names,
    query: str,
    right: Names = frozenset(),
) -> Asked:
    """Ask one request of an index, where so many tools are visible."""
    tools = catalogs.index.among(visible)
    request = parse_query(query, tools.vocabulary())
    ranking = rank(request, tools.postings, tools.scope) if request.groups and visible else None
    answer = catalogs.index.search(query, visible=tools, limit=5)
    hits = [hit.id for hit in answer.hits]
    is_matched = ranking is not None and not answer.near_namespaces
    return Asked(
        kind=kind,
        tools=size,
        signs=signs_of(request, ranking, tools.scope) if ranking is not None and is_matched else None,
        is_right=not right.isdisjoint(hits),
        is_first=is_matched and hits[:1] != [] and hits[0] in right,
        is_nothing=not hits,
    )


def weights_of(asked: Sequence[Asked], *, prior: float = 0.5) -> list[float]:
    """Return what each request counts, so that every kind has its share at every size of catalog.

    `prior` is the share of requests that a tool serves.
    """
    counts = Counter((one.kind, one.tools) for one in asked)
    shares = {kind: share * 2 * (prior if kind == "served" else 1 - prior) for kind, share in SHARES.items()}
    return [shares[one.kind] / counts[one.kind, one.tools] for one in asked]


def fitted(asked: Sequence[Asked]) -> Calibration:
    """Return the calibration that these requests want: logistic regression, by Newton's method."""
    pairs = [(one, weight) for one, weight in zip(asked, weights_of(asked), strict=True) if one.signs is not None]
    signs = np.array([[*one.signs.values, 1.0] for one, _ in pairs if one.signs is not None])
    right = np.array([one.is_right for one, _ in pairs], dtype=float)
    counts = np.array([weight for _, weight in pairs])
    counts /= counts.sum()
    found = np.zeros(signs.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-signs @ found))
        slope = signs.T @ (counts * (chance - right)) + 1e-3 * np.append(found[:-1], 0)
        bend = (signs * (counts * chance * (1 - chance))[:, None]).T @ signs + 1e-3 * np.eye(len(found))
        found -= np.linalg.solve(bend, slope)
    return Calibration(weights=[float(weight) for weight in found[:-1]], outset=float(found[-1]))


def calibration_error(asked: Sequence[Asked], calibration: Calibration, *, bins: int = 10, prior: float = 0.5) -> float:
    """Return by how much the chance is wrong, over bins of it: the expected calibration error."""
    off = [0.0] * bins
    total = 0.0
    for one, weight in zip(asked, weights_of(asked, prior=prior), strict=True):
        chance = calibration.chance(one)
        off[min(int(chance * bins), bins - 1)] += weight * (chance - one.is_right)
        total += weight
    return sum(map(abs, off)) / total


def right_by_level(
    asked: Sequence[Asked], calibration: Calibration, *, prior: float = 0.5
) -> dict[str, tuple[float, float]]:
    """Return for each level its share of all requests, and how often a right tool was among the first five."""
    sums = {level: [0.0, 0.0] for level in LEVELS}
    weights = weights_of(asked, prior=prior)
    for one, weight in zip(asked, weights, strict=True):
        level = sums[confidence_of(calibration.chance(one))]
        level[0] += weight
        level[1] += weight * one.is_right
    return {level: (share / sum(weights), right / share if share else 0.0) for level, (share, right) in sums.items()}


def share_of(asked: Sequence[Asked], calibration: Calibration, level: str) -> float:
    """Return the share of requests that get this level."""
    levels = [confidence_of(calibration.chance(one)) for one in asked]
    return sum(got == level for got in levels) / len(levels) if levels else 0.0


def lines(_: Effort) -> Iterator[str]:
    """Yield the tables: each set by calibrations fitted on others, then by the size of the catalog."""
    sets = [tools for tools in tool_sets() if tools.servable]
    asked = {tools.name: asked_of(tools, [other for other in sets if other is not tools]) for tools in sets}
    fits = {name: fitted(here) for name, here in asked.items() if name != "examples"}
    judgings = [
        (name, source, here, calibration)
        for name, here in asked.items()
        for source, calibration in {**fits, "shipped": SHIPPED}.items()
        if source != name
    ]
    yield "| judged on | fitted on | strong: share, right | fair | weak | ECE | few: strong though " + (
        f"{', '.join(UNSERVED)}; all | more: the same | few: weak though first | more | nothing though served |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for name, source, here, calibration in judgings:
        few, more = ([one for one in here if (one.tools <= FEW) == is_few] for is_few in (True, False))
        nothing = [one.is_nothing for one in here if one.kind == "served"]
        cells = (
            name,
            source,
            *(f"{share:.0%}, {right:.2f}" for share, right in right_by_level(here, calibration).values()),
            f"{calibration_error(here, calibration):.3f}",
            *(_strong_though(part, calibration) for part in (few, more)),
            *(f"{_weak_though_first(part, calibration):.1%}" for part in (few, more)),
            f"{sum(nothing) / len(nothing):.1%}",
        )
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield "| judged on | fitted on | tools | strong: share, right | fair | weak | ECE | strong though unserved | "
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for name, source, here, calibration in judgings:
        if source == "own":
            continue
        for size in dict.fromkeys(one.tools for one in here):
            part = [one for one in here if one.tools == size]
            cells = (
                name,
                source,
                f"{size:,}",
                *(f"{share:.0%}, {right:.2f}" for share, right in right_by_level(part, calibration).values()),
                f"{calibration_error(part, calibration):.3f}",
                f"{_strong_of_unserved(part, calibration):.1%}",
            )
            yield "| " + " | ".join(cells) + " |"
    yield ""
    yield "As shipped, where half of the requests can be served, and where four in five can:"
    yield ""
    yield (
        "| judged on | servable | strong: share, right | fair | weak | ECE | servable requests that are told weak "
        "| of those right |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for name, here in asked.items():
        weak = [one for one in here if one.kind == "served" and confidence_of(SHIPPED.chance(one)) == "weak"]
        served = [one for one in here if one.kind == "served"]
        for prior in PRIORS:
            cells = (
                name,
                f"{prior:.0%}",
                *(f"{share:.0%}, {right:.2f}" for share, right in right_by_level(here, SHIPPED, prior=prior).values()),
                f"{calibration_error(here, SHIPPED, prior=prior):.3f}",
                f"{len(weak) / len(served):.0%}",
                f"{sum(one.is_right for one in weak) / max(len(weak), 1):.0%}",
            )
            yield "| " + " | ".join(cells) + " |"
    yield ""
    yield "Fitted weights (evidence, logarithm of the tools, fifth, tenth; outset): " + "; ".join(
        f"{name} {', '.join(f'{weight:.2f}' for weight in fit.weights)}; {fit.outset:.2f}" for name, fit in fits.items()
    )


def _strong_though(asked: Sequence[Asked], calibration: Calibration) -> str:
    shares = [share_of([one for one in asked if one.kind == kind], calibration, "strong") for kind in UNSERVED]
    return f"{', '.join(f'{share:.1%}' for share in shares)}; {_strong_of_unserved(asked, calibration):.1%}"


def _strong_of_unserved(asked: Sequence[Asked], calibration: Calibration) -> float:
    """Return the share of unservable requests that get `strong`, every kind with its share."""
    shares = [SHARES[k] * share_of([one for one in asked if one.kind == k], calibration, "strong") for k in UNSERVED]
    return sum(shares) / sum(SHARES[kind] for kind in UNSERVED)


def _weak_though_first(asked: Sequence[Asked], calibration: Calibration) -> float:
    return share_of([one for one in asked if one.kind == "served" and one.is_first], calibration, "weak")
