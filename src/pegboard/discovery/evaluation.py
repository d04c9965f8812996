"""Evaluation: how well tool search finds the tools that your own requests need."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from pegboard.core.json_text import json_bytes
from pegboard.core.view import View
from pegboard.discovery.finder import Finder
from pegboard.discovery.meta_tools.search_tools import answers
from pegboard.discovery.token_count import Tokenizer
from pegboard.model.json_types import JSON

EVAL_DEPTH = 10  # hits of each request that are looked at
EVAL_CONFUSIONS = 20  # pairs of tools that are reported

RECALLED = (1, 5, 10)


class JudgedRequest(Struct, frozen=True, kw_only=True):
    """A request and the ids of the tools that serve it, all of which it needs; none if no tool does.

    `queries` are its needs one by one, as a model would search for them; without them `query` is searched for.
    """

    query: str
    tools: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()


class RequestOutcome(Struct, frozen=True, kw_only=True):
    """The answer of a search to one request: the ids found, and the confidence of the first hit of each query."""

    request: JudgedRequest
    found: tuple[str, ...]
    confidence: str
    tokens: int

    def recall(self, k: int) -> float:
        """Return the share of the right tools among the first `k` hits; those of several queries take turns."""
        right = set(self.request.tools)
        return len(right & set(self.found[:k])) / len(right)

    @property
    def is_right(self) -> bool:
        """Whether a right tool is among the first five."""
        return not set(self.request.tools).isdisjoint(self.found[:5])


class Evaluation(Struct, frozen=True, kw_only=True):
    """The outcomes of all requests with one way of searching, and how it searched."""

    how: str
    outcomes: tuple[RequestOutcome, ...]

    @property
    def servable(self) -> Sequence[RequestOutcome]:
        """The outcomes of requests that a tool serves."""
        return [each for each in self.outcomes if each.request.tools]

    def recall(self, k: int) -> float | None:
        """Return the mean recall; `None` without servable requests."""
        return statistics.fmean(each.recall(k) for each in self.servable) if self.servable else None

    def confusions(self) -> list[tuple[str, str, int]]:
        """Return pairs of a right tool and a wrong one ranked before it, with the number of requests, most first."""
        counts = Counter[tuple[str, str]]()
        for each in self.servable:
            for right in each.request.tools:
                place = each.found.index(right) if right in each.found else len(each.found)
                counts.update((right, wrong) for wrong in each.found[:place] if wrong not in each.request.tools)
        # The first five show what a model reads first.
        listed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return [(right, wrong, count) for (right, wrong), count in listed[:EVAL_CONFUSIONS]]

    def as_json(self) -> JSON:
        """Return the figures, the missed requests and the confusions."""
        by_confidence = {
            level: {
                "requests": len(some := [each for each in self.outcomes if each.confidence == level]),
                "right": sum(each.is_right for each in some if each.request.tools),
                "unserved": sum(not each.request.tools for each in some),
            }
            for level in ("strong", "fair", "weak")
        }
        return {
            "how": self.how,
            "requests": len(self.outcomes),
            "servable": len(self.servable),
            "recall": {str(k): None if (got := self.recall(k)) is None else round(got, 4) for k in RECALLED},
            "confidence": by_confidence,
            "tokens": round(statistics.fmean(each.tokens for each in self.outcomes)) if self.outcomes else 0,
            "missed": [
                {
                    "query": each.request.query,
                    "tools": list(each.request.tools),
                    "found": list(each.found[:5]),
                    "confidence": each.confidence,
                }
                for each in self.servable
                if each.recall(5) < 1
            ],
            "confused": [{"tool": a, "with": b, "requests": count} for a, b, count in self.confusions()],
        }


async def evaluated(
    finder: Finder, view: View, requests: Sequence[JudgedRequest], *, how: str, counting: Tokenizer
) -> Evaluation:
    """Search for each request as `searchTools` does, and return what was found."""
    await finder.read_meanings()
    by_call: dict[str, str] = {entry.wire_name: entry.qualified_id for entry in view.tools()}
    outcomes: list[RequestOutcome] = []
    for request in requests:
        shown = await answers(finder, view, request.queries or (request.query,), limit=EVAL_DEPTH)
        calls: list[list[str]] = [[hit["call"] for hit in answer["hits"]] for answer in shown]
        listed = [[by_call.get(call, call) for call in each] for each in calls]
        confidences = [answer["hits"][0]["confidence"] for answer in shown if answer["hits"]]
        outcomes.append(
            RequestOutcome(
                request=request,
                found=tuple(_in_turn(listed)),
                confidence=min(confidences, key=("weak", "fair", "strong").index, default="weak"),
                tokens=counting.count(json_bytes({"success": True, "data": {"results": shown}}).decode()),
            )
        )
    return Evaluation(how=how, outcomes=tuple(outcomes))


def _in_turn(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return the items of lists in turn, each once."""
    longest = max(map(len, lists), default=0)
    return list(dict.fromkeys(each[n] for n in range(longest) for each in lists if n < len(each)))
