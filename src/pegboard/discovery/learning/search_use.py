"""Search use: records the tools called after each search, and computes their use for the next search.

A caller's use counts only in the caller's own space. A single caller's use counts for that caller only; it counts for
others once at least two callers agree, so that nobody can promote a tool alone. A changed tool starts at zero.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from pegboard.core.after_fork import Threads
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.call.finished_call import FinishedCall, StartedCall
from pegboard.core.names import META_NAMESPACE
from pegboard.discovery.learning.use_store import Use, UseStore
from pegboard.lazy import LazyModule
from pegboard.model.caller import Caller

if TYPE_CHECKING:
    from pegboard.discovery.search import query as queries
else:
    queries = LazyModule("pegboard.discovery.search.query")

USE_WITHIN_S = 600.0  # how long after a search a call counts, in seconds
USE_CALLS = 5  # calls after a search that count
USE_SEARCHES = 10_000  # recent searches kept until their calls come
USE_UNWRITTEN = 1_000  # uses waiting to be written; further ones are dropped
USE_WAIT_S = 0.25  # seconds that a search waits for recorded use before it continues without
USE_FRESH_S = 5.0  # how long the use of a space is cached, in seconds
USE_SPACES_AT_HAND = 64  # spaces whose use is cached

log = logging.getLogger("pegboard")

# At least half of the words of both requests together must match. Weights: see docs/decisions/0047.
_LEAST_ALIKE = 0.5
_OWN_SHARE = 0.8
_OTHERS_SHARE = 0.5
_LEAST_OTHERS = 2

Learned = tuple[Use, ...]


@dataclass(kw_only=True, slots=True)
class _Search:
    """A caller's last search: each request's terms and results, and the calls made since."""

    at: float
    asked: tuple[tuple[frozenset[str], frozenset[str]], ...]
    calls: int = 0
    counted: set[str] = field(default_factory=set[str])


class SearchUse:
    """State of one catalog whose operator turned learning on; a `CallObserver`, which `Executor.record` is given.

    It writes and reads in its own thread. A failing file is logged once; searches then work without it.
    """

    times_stages = False

    def __init__(self, store: UseStore, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._threads = Threads(1, name="pegboard-search-use")
        self._searches = BoundedCache[tuple[str | None, ...], _Search](max_entries=USE_SEARCHES)
        self._at_hand = BoundedCache[str, tuple[float, Learned]](max_entries=USE_SPACES_AT_HAND)
        self._unwritten = 0
        self._was_said = False

    # ---- recording

    def searched(self, caller: Caller, answers: Iterable[tuple[str, frozenset[str]]]) -> None:
        """Record a caller's search; the next calls show its purpose.

        Args:
            caller: the caller.
            answers: each request, and the ids of the tools found for it.
        """
        key = _session(caller)
        if key is not None:
            asked = tuple((queries.telling_terms(query), tools) for query, tools in answers)
            self._searches.remember(key, _Search(at=self._clock(), asked=asked))

    def started(self, call: StartedCall) -> None:
        """Do nothing when a call starts."""

    def finished(self, call: FinishedCall) -> None:
        """Note a call that a caller's last search has led to."""
        if call.entry is None or call.kind != "ok" or not _is_asked_for(call.started):
            return
        if call.entry.spec.namespace == META_NAMESPACE:
            return  # a meta tool, not one of the tools that were found
        caller = call.started.caller
        key = _session(caller)
        search = None if key is None else self._searches.get(key)
        if search is None or self._clock() - search.at > USE_WITHIN_S or search.calls >= USE_CALLS:
            return
        tool = call.qualified_id
        search.calls += 1
        if tool in search.counted:
            return
        search.counted.add(tool)
        for terms in _led_to(tool, search):
            use = Use(caller=mark_of(caller), tool=tool, definition=call.definition_hash, terms=terms)
            self._write(space_of(caller), use)

    def _write(self, space: str, use: Use) -> None:
        if self._unwritten >= USE_UNWRITTEN:
            return  # the file is too slow, and calls do not wait for it
        self._unwritten += 1
        self._threads.executor.submit(self._written, space, use)

    def _written(self, space: str, use: Use) -> None:
        try:
            self._store.add(space, use)
            self._at_hand.pop(space, None)
        except OSError as error:
            self._say(error)
        finally:
            self._unwritten -= 1

    # ---- reading

    async def learned(self, caller: Caller) -> Learned:
        """Return the recorded use in a caller's space; nothing if the file does not respond in time."""
        space = space_of(caller)
        at_hand = self._at_hand.get(space)
        if at_hand is not None and self._clock() - at_hand[0] < USE_FRESH_S:
            return at_hand[1]
        reading = asyncio.get_running_loop().run_in_executor(self._threads.executor, self._store.of_space, space)
        try:
            async with asyncio.timeout(USE_WAIT_S):
                rows = await asyncio.shield(reading)
        except TimeoutError:
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())
            rows = () if at_hand is None else at_hand[1]
        except OSError as error:
            self._say(error)
            rows = ()
        # Also cached if the file failed, so that not every search asks it again.
        return self._at_hand.remember(space, (self._clock(), rows))[1]

    async def written(self) -> None:
        """Wait until all use recorded so far is written, or has failed to be."""
        await asyncio.get_running_loop().run_in_executor(self._threads.executor, lambda: None)

    def _say(self, error: OSError) -> None:
        if not self._was_said:
            self._was_said = True
            log.warning("The use of tools after searches cannot be stored, and does not affect rankings: %s.", error)


def use_of(query: str, learned: Iterable[Use], caller: Caller) -> Mapping[tuple[str, str], float]:
    """Return how much each tool was used for similar requests, 0 … 1, by its id and definition."""
    terms, own = queries.telling_terms(query), mark_of(caller)
    alike: dict[tuple[str, str], dict[str, float]] = {}
    for use in learned:
        share = len(terms & use.terms) / (len(terms | use.terms) or 1)
        if share >= _LEAST_ALIKE:
            by_caller = alike.setdefault((use.tool, use.definition), {})
            by_caller[use.caller] = max(by_caller.get(use.caller, 0.0), share)
    return {tool: worth for tool, by_caller in alike.items() if (worth := _worth(by_caller, own)) > 0}


def _worth(by_caller: Mapping[str, float], own: str) -> float:
    rest = 1 - _OWN_SHARE * by_caller.get(own, 0.0)
    others = [share for who, share in by_caller.items() if who != own]
    if len(others) >= _LEAST_OTHERS:
        for share in others:
            rest *= 1 - _OTHERS_SHARE * share
    return 1 - rest


def _led_to(tool: str, search: _Search) -> list[frozenset[str]]:
    """Return the requests that a call was for: those that found the tool; else the only request, if it came next."""
    finding = [terms for terms, tools in search.asked if terms and tool in tools]
    if finding or len(search.asked) > 1 or search.calls > 1:
        return finding
    return [terms for terms, _ in search.asked if terms]


def _is_asked_for(call: StartedCall) -> bool:
    """Tell whether a model requested a call, directly or in a batch; nested calls of tools do not count."""
    return call.parent_call_id is None or call.call_id.rpartition(".")[0] == call.parent_call_id


def _session(caller: Caller) -> tuple[str | None, ...] | None:
    """Return the key of the session that a search belongs to; `None` if it could be anybody's."""
    who = (caller.user_id, caller.session_id, caller.credential or None)
    return (*who, caller.space_id, caller.agent) if any(who) else None


def space_of(caller: Caller) -> str:
    """Return a caller's space; empty for callers without one."""
    return "" if caller.space_id is None else f"={caller.space_id}"


def mark_of(caller: Caller) -> str:
    """Return a digest that distinguishes callers without naming them. Sessions are ignored: a caller can have many."""
    if caller.user_id:
        return mark_of_user(caller.user_id)
    return _mark("other", caller.credential or caller.address)


def mark_of_user(user: str) -> str:
    """Return the digest of every caller with this user."""
    return _mark("user", user)


def _mark(kind: str, who: str) -> str:
    return sha256(f"{kind}\0{who}".encode(errors="replace")).hexdigest()[:16]
