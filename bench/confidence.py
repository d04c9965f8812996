"""Confidence: what the words `strong`, `fair` and `weak` of a search hit are worth.

The four numbers of the calibration are fitted on the requests of one set and judged on another, each way, beside the
shipped ones. Half of the requests can be served; the others cannot, as the namespaces of their tools are hidden, or
they were made for another set, or for none. `right` is the share of answers of which a right tool is among the first
five: `strong` promises 0.8 or more, `fair` 0.4 to 0.8, `weak` less. ECE is the expected calibration error of the chance
behind the words, over ten bins. The faults: `strong` for what no tool serves (by the way it was made unservable), and
`weak` where the right tool stood first; aims 5 % and 10 %. `few` are catalogs of 1 to 8 tools, half of them from one
namespace.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp

import numpy as np

from bench.discovery import ToolSet, tool_sets, tool_text
from bench.measure import Effort
from pegboard.discovery.search.confidence import OUTSET, WEIGHTS, confidence_of, signs_of
from pegboard.discovery.search.index import Index
from pegboard.discovery.search.query import parse_query
from pegboard.discovery.search.ranking import rank

LEVELS = ("strong", "fair", "weak")
UNSERVED = ("hidden", "other", "by hand", "few hidden")
SHARES = {"served": 0.35, "few served": 0.15, "hidden": 0.15, "other": 0.15, "by hand": 0.1, "few hidden": 0.1}
OTHERS_ASKED = 150


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request in one scope: what the chance is judged by, and what came of it. No signs: nothing matched at all."""

    kind: str
    signs: tuple[float, float, float] | None
    is_right: bool = False
    is_first: bool = False


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Weights of the signs, and where they start from."""

    weights: Sequence[float]
    outset: float

    def chance(self, one: Asked) -> float:
        if one.signs is None:
            return 0.0
        return 1 / (1 + exp(-(self.outset + float(np.dot(self.weights, one.signs)))))


SHIPPED = Calibration(weights=WEIGHTS, outset=OUTSET)


def asked_of(tools: ToolSet, others: Sequence[ToolSet]) -> list[Asked]:
    """Return all requests of one set, servable and not, judged in their scopes."""
    draw = random.Random(3)
    index = Index.build(map(tool_text, tools.tools))
    server = {tool["name"]: tool["server"] for tool in tools.tools}
    names = list(server)
    out: list[Asked] = []
    for row in tools.servable:
        twins = row.get("equiv", {})
        right = {name for gold in row["relevant"] for name in (gold, *twins.get(gold, ()))} & server.keys()
        servers = {server[name] for name in right}
        one = draw.choice(sorted(right))
        beside = [name for name in names if server[name] == server[one] and name not in right]
        if draw.random() < 0.5 or not beside:
            beside = [name for name in names if name not in right]
        few = draw.sample(beside, min(len(beside), draw.randint(1, 8)))
        out.append(judged("served", index, names, row["query"], right))
        out.append(judged("hidden", index, [name for name in names if server[name] not in servers], row["query"]))
        out.append(judged("few served", index, [one, *few[1:]], row["query"], right))
        out.append(judged("few hidden", index, few, row["query"]))
    out += [judged("by hand", index, names, query) for query in tools.unservable]
    for other in others:
        queries = [row["query"] for row in other.servable]
        asked = draw.sample(queries, min(len(queries), OTHERS_ASKED))
        out += [judged("other", index, names, query) for query in asked]
    return out


def judged(kind: str, index: Index, visible: Sequence[str], query: str, right: set[str] | None = None) -> Asked:
    """Ask one request of an index, where so many tools are visible."""
    tools = index.among(set(visible))
    request = parse_query(query, tools.vocabulary())
    hits = [hit.id for hit in index.search(query, visible=tools, limit=5).hits]
    if not request.groups or not hits:
        return Asked(kind=kind, signs=None)
    signs = signs_of(request, rank(request, tools.postings, tools.scope), tools.scope)
    right = right or set()
    return Asked(kind=kind, signs=signs, is_right=not right.isdisjoint(hits), is_first=hits[0] in right)


def weights_of(asked: Sequence[Asked]) -> list[float]:
    """Return what each request counts, so that every kind has its share however many there are of it."""
    counts = {kind: sum(one.kind == kind for one in asked) for kind in SHARES}
    return [SHARES[one.kind] / counts[one.kind] for one in asked]


def fitted(asked: Sequence[Asked]) -> Calibration:
    """Return the calibration that these requests want: logistic regression, by Newton's method."""
    pairs = [(one, weight) for one, weight in zip(asked, weights_of(asked), strict=True) if one.signs is not None]
    signs = np.array([[*(one.signs or ()), 1.0] for one, _ in pairs])
    right = np.array([one.is_right for one, _ in pairs], dtype=float)
    counts = np.array([weight for _, weight in pairs])
    found = np.zeros(signs.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-signs @ found))
        slope = signs.T @ (counts * (chance - right)) + 1e-3 * np.append(found[:-1], 0)
        bend = (signs * (counts * chance * (1 - chance))[:, None]).T @ signs + 1e-3 * np.eye(len(found))
        found -= np.linalg.solve(bend, slope)
    return Calibration(weights=[float(weight) for weight in found[:-1]], outset=float(found[-1]))


def calibration_error(asked: Sequence[Asked], calibration: Calibration, *, bins: int = 10) -> float:
    """Return by how much the chance is wrong, over bins of it: the expected calibration error."""
    off = [0.0] * bins
    total = 0.0
    for one, weight in zip(asked, weights_of(asked), strict=True):
        chance = calibration.chance(one)
        off[min(int(chance * bins), bins - 1)] += weight * (chance - one.is_right)
        total += weight
    return sum(map(abs, off)) / total


def right_by_level(asked: Sequence[Asked], calibration: Calibration) -> dict[str, tuple[float, float]]:
    """Return for each level its share of all requests, and how often a right tool was among the first five."""
    sums = {level: [0.0, 0.0] for level in LEVELS}
    weights = weights_of(asked)
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
    """Yield the table."""
    sets = [tools for tools in tool_sets() if tools.servable]
    asked = {tools.name: asked_of(tools, [other for other in sets if other is not tools]) for tools in sets}
    yield "| judged on | fitted on | strong: share, right | fair | weak | ECE | strong though " + (
        ", ".join(UNSERVED) + " | weak though first: all, few | nothing though served |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for name, here in asked.items():
        others = {other: fitted(asked[other]) for other in asked if other != name}
        for source, calibration in {**others, "shipped": SHIPPED}.items():
            levels = right_by_level(here, calibration)
            wrong = [share_of([one for one in here if one.kind == kind], calibration, "strong") for kind in UNSERVED]
            missed = [
                share_of([one for one in here if one.kind == kind and one.is_first], calibration, "weak")
                for kind in ("served", "few served")
            ]
            nothing = sum(one.signs is None for one in here if one.kind == "served")
            cells = (
                name,
                source,
                *(f"{share:.0%}, {right:.2f}" for share, right in levels.values()),
                f"{calibration_error(here, calibration):.3f}",
                ", ".join(f"{share:.1%}" for share in wrong),
                ", ".join(f"{share:.1%}" for share in missed),
                str(nothing),
            )
            yield "| " + " | ".join(cells) + " |"
    yield ""
    yield "Fitted weights (evidence, logarithm of the tools, fifth's share; outset): " + "; ".join(
        f"{name} {', '.join(f'{weight:.2f}' for weight in fit.weights)}; {fit.outset:.2f}"
        for name, fit in ((name, fitted(here)) for name, here in asked.items())
    )
