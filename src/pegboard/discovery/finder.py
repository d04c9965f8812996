"""Finder: the search index over a catalog, updated when it is used."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from pegboard.core.after_fork import is_held, renew_after_fork
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.json_text import json_bytes
from pegboard.core.ports import Embedder
from pegboard.core.registry import Registry
from pegboard.core.selections import SharedTools
from pegboard.core.snapshot import Snapshot
from pegboard.core.view import View
from pegboard.discovery.example_requests import ExampleRequests
from pegboard.discovery.limits import SEARCH_USUAL_HITS
from pegboard.lazy import LazyModule
from pegboard.model.json_types import is_object
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry

if TYPE_CHECKING:
    from pegboard.discovery import meaning as meanings
    from pegboard.discovery.learning import search_use
    from pegboard.discovery.learning.search_use import SearchUse
    from pegboard.discovery.meaning import Meaning
    from pegboard.discovery.search import index as indexing
    from pegboard.discovery.search.confidence import Confidence
    from pegboard.discovery.search.explanation import Explanation
    from pegboard.discovery.search.index import Index, ToolText, VisibleTools
else:
    search_use = LazyModule("pegboard.discovery.learning.search_use")
    meanings = LazyModule("pegboard.discovery.meaning")
    indexing = LazyModule("pegboard.discovery.search.index")

_MADE_AT_ONCE = 500  # tools whose visible ones are selected on the event loop, which takes less than a thread
SEARCH_VISIBLE_SETS = 256  # sets of visible tools kept for one snapshot


class FoundTool(Struct, frozen=True, kw_only=True):
    """A visible tool that matches a request, with the confidence that it is right.

    `score` is 0 … 1. If the first hit is `strong`, at least four in five answers have a right tool among the first
    five; if `fair`, about half; if `weak`, few.
    """

    entry: ToolEntry
    score: float
    confidence: Confidence


class Found(Struct, frozen=True, kw_only=True):
    """The answer to one request, best first; with the nearest visible namespaces if no tool has any of its words.

    `words_alone` is the reason for ignoring a configured embedder; `None` if it was used, or there is none.
    """

    query: str
    tools: tuple[FoundTool, ...] = ()
    near_namespaces: tuple[str, ...] = ()
    words_alone: str | None = None
    explanation: Explanation | None = None


class _Built(Struct, frozen=True, kw_only=True):
    """An index with its tools, and the cached sets of its callers."""

    snapshot: Snapshot
    known: frozenset[str]
    index: Index
    visible: BoundedCache[int, tuple[Sequence[ToolEntry], VisibleTools]] = field(
        default_factory=lambda: BoundedCache(max_entries=SEARCH_VISIBLE_SETS)
    )


class Finder:
    """Searches the tools of a view. All callers share one index; each gets answers from their visible tools only.

    The index is updated by the next search after a change, and reads only the changed tools.
    """

    def __init__(self, registry: Registry, *, embedder: Embedder | None = None) -> None:
        self._registry = registry
        self.use: SearchUse | None = None
        self.requests: Mapping[str, ExampleRequests] = {}
        self._meaning: Meaning | None = None
        self.use_embedder(embedder)
        self._built: _Built | None = None
        self._lock = threading.Lock()
        self.builds = 0
        """The number of times that an index was built or updated; for tests."""
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Read the tools again if a thread of the parent was reading them."""
        if is_held(self._lock):
            self._lock, self._built = threading.Lock(), None

    def use_embedder(self, embedder: Embedder | None) -> None:
        """Compare meanings with this embedder from now on; `None` means words only."""
        self.embedder = embedder
        self._meaning = None if embedder is None else meanings.Meaning(embedder)

    def use_requests(self, requests: Mapping[str, ExampleRequests]) -> None:
        """Index these example requests, by tool id, in addition to the tools' own texts."""
        with self._lock:
            self.requests = requests
            self._built = None

    def texts(self, view: View) -> list[ToolText]:
        """Return the texts of the tools of a prepared view, for writing example requests."""
        return [text_of(entry) for entry in view.tools()]

    def stale_requests(self, entries: Iterable[ToolEntry]) -> list[str]:
        """Return the ids of tools that have changed since their example requests were written."""
        texts = (text_of(entry) for entry in entries if entry.qualified_id in self.requests)
        return [text.id for text in texts if self.requests[text.id].is_stale(text)]

    async def read_meanings(self) -> None:
        """Wait until the embedder has read every tool; a search does not wait that long."""
        if self._meaning is not None:
            await self._meaning.read((await asyncio.to_thread(self._following, self._registry.snapshot())).index)

    async def search(
        self, view: View, queries: Iterable[str], *, limit: int = SEARCH_USUAL_HITS, explain: bool = False
    ) -> list[Found]:
        """Return which of the view's tools match each request. Hidden tools do not affect the answer.

        With `explain` the answers include the parts of each score.
        """
        built, snapshot = self._built, self._registry.snapshot()
        if built is None or built.snapshot is not snapshot:
            # Indexing thousands of tools takes a fraction of a second, so it runs in a thread.
            built = await asyncio.to_thread(self._following, snapshot)
        tools = await view.atools()
        by_id = {entry.qualified_id: entry for entry in tools}
        index, visible = await self._visible(tools, by_id, built)
        asked = list(queries)
        alike = await self._meaning.likeness(index, asked) if self._meaning is not None and by_id else None
        caller = view.ctx.caller
        learned = await self.use.learned(caller) if self.use is not None else ()
        unconnected = [
            entry.qualified_id
            for entry in snapshot.with_accounts
            if entry.qualified_id in by_id and view.connects_first(entry) is not None
        ]
        answers: list[Found] = []
        for place, query in enumerate(asked):
            likeness = None if alike is None or isinstance(alike, str) else alike[place]
            use = _used(by_id, search_use.use_of(query, learned, caller)) if learned else None
            hits = index.search(
                query,
                visible=visible,
                limit=limit,
                likeness=likeness,
                use=use,
                not_callable=unconnected,
                explain=explain,
            )
            answers.append(
                Found(
                    query=query,
                    tools=tuple(
                        FoundTool(entry=by_id[hit.id], score=hit.score, confidence=hit.confidence) for hit in hits.hits
                    ),
                    near_namespaces=hits.near_namespaces,
                    words_alone=alike if isinstance(alike, str) else None,
                    explanation=hits.explanation,
                )
            )
        return answers

    def note(self, view: View, searched: Iterable[Found]) -> None:
        """Record the search, so that the caller's next calls show its purpose, if the operator enabled learning."""
        if self.use is not None:
            answers = ((one.query, frozenset(tool.entry.qualified_id for tool in one.tools)) for one in searched)
            self.use.searched(view.ctx.caller, answers)

    def _following(self, snapshot: Snapshot) -> _Built:
        with self._lock:
            before = self._built
            if before is not None and before.snapshot is snapshot:
                return before
            known = {} if before is None else {entry.qualified_id: entry for entry in before.snapshot.entries}
            now = {entry.qualified_id: entry for entry in snapshot.entries if not _is_bundle(entry)}
            changed = [self._text(entry) for name, entry in now.items() if not _is_same(entry, known.get(name))]
            removed = known.keys() - now.keys()
            if before is None:
                index: Index = indexing.Index.build(changed)
            elif changed or removed:
                index = before.index.updated(changed=changed, removed=removed)
            else:
                index = before.index
            self.builds += 1
            self._built = built = _Built(snapshot=snapshot, known=frozenset(now), index=index)
            return built

    def _text(self, entry: ToolEntry) -> ToolText:
        text = text_of(entry)
        own = self.requests.get(text.id)
        return text if own is None or own.is_stale(text) else replace(text, requests=text.requests + own.requests)

    async def _visible(
        self, tools: Sequence[ToolEntry], by_id: Mapping[str, ToolEntry], built: _Built
    ) -> tuple[Index, VisibleTools]:
        cached = built.visible.get(id(tools))
        if cached is not None and cached[0] is tools:
            return built.index, cached[1]
        # One-off and bundled tools belong to this caller, who gets a separate index that includes them.
        own = [entry for name, entry in by_id.items() if name not in built.known]

        def make() -> tuple[Index, VisibleTools]:
            index = built.index.updated(changed=[self._text(entry) for entry in own]) if own else built.index
            return index, index.among(by_id.keys())

        index, visible = await asyncio.to_thread(make) if len(built.known) > _MADE_AT_ONCE else make()
        if not own and type(tools) is SharedTools:
            # Callers with the same selection share the list, unless it has tools made for one caller.
            built.visible.remember(id(tools), (tools, visible))
        return index, visible


def text_of(entry: ToolEntry) -> ToolText:
    """Return the text that the index reads of a tool, without example requests from a file."""
    spec = entry.spec
    requests = tuple(example for example in spec.examples if isinstance(example, str))
    return indexing.ToolText(
        id=entry.qualified_id,
        name=spec.name,
        title=spec.title or "",
        description=spec.description,
        namespace=spec.namespace,
        parameters=tuple(_parameters(spec.input_schema)),
        examples=tuple(
            json_bytes(example, default=str).decode() for example in spec.examples if not isinstance(example, str)
        ),
        requests=requests,
    )


def _parameters(schema: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    properties: Any = schema.get("properties")
    for name, inner in properties.items() if is_object(properties) else ():
        description: Any = inner.get("description") if is_object(inner) else None
        yield name, description if isinstance(description, str) else ""


def _used(by_id: Mapping[str, ToolEntry], used: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Return the use of visible tools whose definitions have not changed since."""
    return {
        id_: much
        for (id_, definition), much in used.items()
        if (entry := by_id.get(id_)) is not None and entry.fingerprint == definition
    }


def _is_bundle(entry: ToolEntry) -> bool:
    return entry.builder is not None and entry.builder.is_bundle


def _is_same(entry: ToolEntry, known: ToolEntry | None) -> bool:
    return known is not None and entry.fingerprint == known.fingerprint and entry.spec.examples == known.spec.examples
