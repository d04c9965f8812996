"""Index: one search index over all tools, filtered by the caller's visible tools at query time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from pegboard.discovery.limits import SEARCH_QUERY_CHARS, SEARCH_USUAL_HITS
from pegboard.discovery.search.compared import Compared
from pegboard.discovery.search.confidence import Confidence, chance_of, confidence_of, signs_of
from pegboard.discovery.search.explanation import Explanation, Judged, explained
from pegboard.discovery.search.last_resort import RESEMBLING_CHANCE, resembling, taking_turns, with_others
from pegboard.discovery.search.likeness import fused
from pegboard.discovery.search.name_beginnings import NameBeginnings, completed
from pegboard.discovery.search.postings import Postings, post, trigrams_of
from pegboard.discovery.search.query import Vocabulary, parse_query
from pegboard.discovery.search.ranking import Scope, Vector, rank, scope_of
from pegboard.discovery.search.terms import LANGUAGES, Languages, stem, words_of
from pegboard.discovery.search.tool_text import Entry, ToolText, read_tool
from pegboard.discovery.search.use_lift import lifted
from pegboard.model.record import replace

SEARCH_NEAR_NAMESPACES = 3  # namespaces suggested if no word was found

__all__ = ["Hit", "Hits", "Index", "ToolText", "VisibleTools"]

# The highest probability if no tool has a word of the request: fair.
_GUESSED = 0.5
# The score of a tool that cannot be called yet, as a share of its own: below that of an equal one.
_NOT_CALLABLE = 0.9
_NONE = np.zeros(0, dtype=np.int64)


class Hit(Struct, frozen=True, kw_only=True):
    """A found tool.

    `score` is 0 … 1. The first hit's score is the probability that a right tool is among the first five, assuming that
    half of all requests have one; later hits have lower scores. `confidence` is the same as a word.
    """

    id: str
    score: float
    confidence: Confidence


class Hits(Struct, frozen=True, kw_only=True):
    """The answer to one search, best first.

    If no visible tool has a word of the request, the hits are weak, and the nearest namespaces are listed.
    """

    hits: tuple[Hit, ...] = ()
    near_namespaces: tuple[str, ...] = ()
    explanation: Explanation | None = None


class VisibleTools(Struct, frozen=True, kw_only=True):
    """The tools of one caller in one index; made by `Index.among`."""

    seen: NDArray[np.int64]
    scope: Scope
    languages: Languages
    postings: Postings
    has_term: NDArray[np.bool_]

    def vocabulary(self) -> Vocabulary:
        """Return the terms for parsing a request."""
        number_of, has_term = self.postings.vocabulary, self.has_term

        def known(term: str) -> bool:
            number = number_of.get(term)
            return number is not None and bool(has_term[number])

        def together(first: str, second: str) -> bool:
            return bool(np.isin(self._holders(first), self._holders(second)).any())

        return Vocabulary(postings=self.postings, known=known, together=together, languages=self.languages)

    def _holders(self, term: str) -> NDArray[np.int64]:
        places = self.scope.columns[self.postings.tools[self.postings.span(term)]]
        return places[places >= 0]


class Index:
    """An immutable search index over tools: `Index.build` makes one, `updated` the next.

    Every statistic (rarity of a word, size of a namespace, languages, spellings) is taken over the visible tools only.
    So `search` returns exactly what an index of just those tools would return. Hidden tools can change only the time of
    an answer.

    It may be searched from several threads at once.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        ordered = sorted(entries, key=lambda entry: (entry.text.namespace, entry.text.id))
        namespaces = {namespace: n for n, namespace in enumerate(dict.fromkeys(e.text.namespace for e in ordered))}
        self._entries = {entry.text.id: entry for entry in ordered}
        self._ids = tuple(self._entries)
        self._places = {id_: place for place, id_ in enumerate(self._ids)}
        self._namespaces = tuple(namespaces)
        self._namespace_of = np.array([namespaces[entry.text.namespace] for entry in ordered], dtype=np.int64)
        self._language_bits = np.array([entry.language_bits for entry in ordered], dtype=np.int64)
        self._postings = post([entry.terms for entry in ordered])
        # Here and not in the first search, which runs on the event loop.
        self._beginnings = NameBeginnings(entry.beginnings for entry in ordered)
        self._namespace_trigrams = _trigrams_of(self._namespaces)

    @classmethod
    def build(cls, texts: Iterable[ToolText]) -> Index:
        """Index tools from scratch, each with a unique id, in any order.

        Raises:
            ValueError: two texts share an id.
        """
        return cls().updated(changed=texts)

    @property
    def meanings(self) -> tuple[str, ...]:
        """The text of each tool for an embedder, in the order of `VisibleTools.seen`."""
        return tuple(entry.text.meaning for entry in self._entries.values())

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the tools, in the same order."""
        return self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def updated(self, *, changed: Iterable[ToolText] = (), removed: Collection[str] = ()) -> Index:
        """Return the index with tools added, replaced and removed; unchanged texts are not read again.

        An unknown id in `removed` is ignored; an id that is also in `changed` stays.

        Raises:
            ValueError: two changed texts share an id.
        """
        entries = {id_: entry for id_, entry in self._entries.items() if id_ not in removed}
        changed_ids: set[str] = set()
        for text in changed:
            if text.id in changed_ids:
                raise ValueError(f"Two tools have the id {text.id!r}. Give each tool its own id.")
            changed_ids.add(text.id)
            before = self._entries.get(text.id)
            entries[text.id] = before if before is not None and before.text == text else read_tool(text)
        return Index(entries.values())

    def among(self, visible: Collection[str] | None = None) -> VisibleTools:
        """Return the tools with these ids (all when omitted), for several searches of one caller."""
        if visible is None:
            seen = np.arange(len(self._ids), dtype=np.int64)
        else:
            places = (place for place, id_ in enumerate(self._ids) if id_ in visible)
            seen = np.fromiter(places, dtype=np.int64)
        bits = int(np.bitwise_or.reduce(self._language_bits[seen])) if len(seen) else 0
        scope = scope_of(seen, self._namespace_of)
        return VisibleTools(
            seen=seen,
            scope=scope,
            has_term=self._postings.terms_of(scope.columns >= 0),
            languages=tuple(language for n, language in enumerate(LANGUAGES) if bits >> n & 1),
            postings=self._postings,
        )

    def search(
        self,
        query: str,
        *,
        visible: Collection[str] | VisibleTools | None = None,
        limit: int = SEARCH_USUAL_HITS,
        likeness: Compared | None = None,
        use: Mapping[str, float] | None = None,
        not_callable: Collection[str] = (),
        explain: bool = False,
    ) -> Hits:
        """Return the visible tools that match a request, with the confidence in them.

        If none matches, return the tools with the most similar spelling, then one of each namespace in turn, as weak.
        Only an empty request, or a caller without tools, gets no hits.

        Args:
            query: one need or a whole task, in any language.
            visible: the ids that the caller may see, or the result of `among`; all tools when omitted.
            limit: the most hits to return.
            likeness: the embedder's comparison of the request with each tool of this index, if there is one.
            use: how much tools were used for similar requests, 0 … 1, by id; hidden ids are ignored.
            not_callable: the ids of tools that the caller cannot call yet, which rank below equal ones.
            explain: whether to return the parts of each score.

        Raises:
            ValueError: `visible` was made by the `among` of another index.
        """
        tools = visible if isinstance(visible, VisibleTools) else self.among(visible)
        if tools.postings is not self._postings:
            raise ValueError("The visible tools belong to another index. Call `among` of the index that is searched.")
        if not len(tools.seen):
            return Hits()
        judged = self._judged(query, tools, likeness, use)
        near: tuple[str, ...] = ()
        if not judged.scores.any():
            order = self._nearest(query, tools)
            near = tuple(self._names_of(tools)[place] for place in order[:SEARCH_NEAR_NAMESPACES])
            if not words_of(query[:SEARCH_QUERY_CHARS]):
                return Hits(near_namespaces=near)
            judged = self._resembled(query, tools, judged, order)
            if likeness is not None and (alike := likeness.deviations(tools.seen)).any():
                judged = replace(judged, scores=taking_turns(judged.scores, alike))
        if not_callable:
            judged = replace(judged, scores=self._callable_first(judged.scores, not_callable, tools))
        best = _best(judged.scores, limit)
        hits = (self._hit(int(tools.seen[place]), float(judged.scores[place]) * judged.chance) for place in best)
        return Hits(
            hits=tuple(hits),
            near_namespaces=near,
            explanation=self._explained(judged, tools, best) if explain else None,
        )

    def _judged(
        self, query: str, tools: VisibleTools, likeness: Compared | None, use: Mapping[str, float] | None
    ) -> Judged:
        """Return the scores of the visible tools by words, likeness and use."""
        request = parse_query(query, tools.vocabulary())
        ranking = rank(request, self._postings, tools.scope) if request.groups else None
        signs = signs_of(request, ranking, tools.scope) if ranking is not None else None
        chance = chance_of(signs) if signs is not None else 0.0
        scores = ranking.scores if ranking is not None else np.zeros(tools.scope.count, dtype=np.float32)
        if not any(group.is_known for group in request.groups):
            chance = min(chance, _GUESSED)
        by_words = scores, chance
        begun = self._beginnings.scores(query, len(self._ids))
        if begun is not None and (begun := begun[tools.seen]).any():
            known = tools.vocabulary().known
            scores, chance = completed(scores, chance, begun, is_word=known(stem(query.strip().lower())))
        standing = None if likeness is None else likeness.standing(tools.seen)
        if likeness is not None and standing is not None:
            scores, chance = fused(scores, chance, standing, likeness.knowledge)
        used = self._used(use, tools) if use else None
        if used is not None:
            scores, chance = lifted(scores, chance, used)
        return Judged(
            request=request,
            ranking=ranking,
            signs=signs,
            by_words=by_words,
            begun=begun,
            likeness=None if standing is None else standing.beyond,
            use=used,
            scores=scores,
            chance=chance,
        )

    def _used(self, use: Mapping[str, float], tools: VisibleTools) -> Vector | None:
        used = np.zeros(tools.scope.count, dtype=np.float32)
        for id_, much in use.items():
            place = int(tools.scope.columns[self._places[id_]]) if id_ in self._places else -1
            if place >= 0:  # hidden tools are ignored
                used[place] = much
        return used if used.any() else None

    def _callable_first(self, scores: Vector, not_callable: Collection[str], tools: VisibleTools) -> Vector:
        """Return lower scores for tools that cannot be called yet. The best score, and so the probability, stays."""
        places = tools.scope.columns[[self._places[id_] for id_ in not_callable if id_ in self._places]]
        lower = scores.copy()
        lower[places[places >= 0]] *= _NOT_CALLABLE
        most = lower.max()
        return lower * (scores.max() / most) if most > 0 else scores

    def _explained(self, judged: Judged, tools: VisibleTools, best: Sequence[int]) -> Explanation:
        texts = [self._entries[self._ids[int(tools.seen[place])]].text for place in best]
        return explained(judged, best, texts, tools.scope.starts)

    def _hit(self, place: int, score: float) -> Hit:
        return Hit(id=self._ids[place], score=round(score, 4), confidence=confidence_of(score))

    def _resembled(self, query: str, tools: VisibleTools, judged: Judged, order: Sequence[int]) -> Judged:
        """Return scores by spelling, if words, likeness and use found nothing."""
        request = resembling(query, tools.vocabulary())
        ranking = rank(request, self._postings, tools.scope) if request.groups else None
        # Being in the same namespace as a similar tool does not make a tool more similar.
        scores = judged.scores if ranking is None else ranking.scores * (ranking.matched.max(axis=0) > 0)
        return replace(
            judged,
            request=request,
            ranking=ranking,
            scores=with_others(scores, tools.scope.starts, order),
            chance=RESEMBLING_CHANCE,
        )

    def _nearest(self, query: str, tools: VisibleTools) -> list[int]:
        """Return the visible namespaces, ordered by letters in common with a request, then by size."""
        table = self._namespace_trigrams
        runs = [table[gram] for gram in trigrams_of(query[:SEARCH_QUERY_CHARS].lower()) if gram in table]
        common = np.bincount(np.concatenate([_NONE, *runs]), minlength=len(self._namespaces))
        sizes = np.diff(np.append(tools.scope.starts, tools.scope.count))
        # Namespaces are sorted by name, which also decides between equal ones.
        return np.lexsort((-sizes, -common[self._namespace_of[tools.seen[tools.scope.starts]]])).tolist()

    def _names_of(self, tools: VisibleTools) -> list[str]:
        """Return the visible namespaces in index order."""
        return [self._namespaces[self._namespace_of[tools.seen[start]]] for start in tools.scope.starts]


def _trigrams_of(namespaces: Iterable[str]) -> dict[str, NDArray[np.int64]]:
    table: dict[str, list[int]] = {}
    for number, name in enumerate(namespaces):
        for gram in trigrams_of(name.lower()):
            table.setdefault(gram, []).append(number)
    return {gram: np.array(numbers, dtype=np.int64) for gram, numbers in table.items()}


def _best(scores: Vector, limit: int) -> list[int]:
    """Return the places of the best scores above 0, best first; equal scores keep their order."""
    if limit < 1:
        return []
    least = np.partition(scores, -limit)[-limit] if limit < len(scores) else 0.0
    places = np.flatnonzero((scores >= least) & (scores > 0))
    return places[np.argsort(-scores[places], kind="stable")][:limit].tolist()
