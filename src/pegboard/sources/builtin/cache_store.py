"""cache_store: keep values between calls, separately for each space."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Literal, NamedTuple

from pydantic import Field

from pegboard.core.json_text import json_bytes, json_value
from pegboard.model.bounds import KIB, MIB
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.tool import Annotations, Handler
from pegboard.sources.builtin.kind import BuiltinConfig, BuiltinKind, Services, tool_spec

CACHE_ENTRY_BYTES = 1 * KIB  # bytes of memory per cached value in addition to its key and text


class CacheConfig(BuiltinConfig):
    """The limits of the cache, and the callers that share it."""

    max_entries: int = Field(
        10_000, gt=0, description="The number of values per scope; the least recently used is dropped."
    )
    max_value_bytes: int = Field(
        1 * MIB, gt=0, alias="max_value", description="The size limit of one value, in bytes of JSON."
    )
    max_total_bytes: int = Field(256 * MIB, gt=0, description="The memory limit for all scopes together, in bytes.")
    scope: Literal["space", "user", "session"] = Field("space", description="Who shares values.")


SPEC = tool_spec(
    "cache_store",
    "Keep a value under a key for later calls, get it back, or delete it. A missing key gives null and found false.",
    arguments={
        "action": {"type": "string", "enum": ["get", "set", "delete"]},
        "key": {"type": "string", "minLength": 1, "maxLength": 512, "description": "The name of the value."},
        "value": {"description": "Any JSON; for set."},
        "ttl_s": {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": "Seconds until the value expires; only for `set`.",
        },
    },
    required=("action", "key"),
    result={
        "key": {"type": "string"},
        "found": {"type": "boolean", "description": "Whether the key was there before this call."},
        "value": {"description": "The value, for get; null where there is none."},
    },
    always=("key", "found"),
    annotations=Annotations(read_only=False, destructive=True, idempotent=True, open_world=False),
    examples=(
        {"action": "set", "key": "draft", "value": {"title": "Plan"}, "ttl_s": 3600},
        {"action": "get", "key": "draft"},
    ),
)

Scope = tuple[str | None, ...]


class CachedValue(NamedTuple):
    """A value as JSON, and its expiry on the cache's clock."""

    text: bytes
    expires_s: float | None

    def is_expired(self, now_s: float) -> bool:
        return self.expires_s is not None and self.expires_s <= now_s


class Cache:
    """Values by scope and key, in memory. A key is only visible in its own scope."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._scopes: dict[Scope, OrderedDict[str, CachedValue]] = {}
        self._bytes: Counter[Scope] = Counter()
        self._total_bytes = 0

    def get(self, scope: Scope, key: str) -> CachedValue | None:
        """Return the value, unless it has expired; it counts as used now."""
        values = self._scopes.get(scope)
        cached = None if values is None else values.get(key)
        if values is None or cached is None:
            return None
        if cached.is_expired(self._clock()):
            self.delete(scope, key)
            return None
        values.move_to_end(key)
        return cached

    def set(self, scope: Scope, key: str, text: bytes, ttl_s: float | None, *, config: CacheConfig) -> None:
        """Store a value, displacing older ones of the same scope if necessary.

        Raises:
            CallError: storage_unavailable if the values of other scopes leave no room.
        """
        values = self._scopes.get(scope)
        before = None if values is None else values.pop(key, None)
        if before is not None:
            self._count(scope, -_cost(key, before.text))
        size, cap = _cost(key, text), config.max_total_bytes
        if self._total_bytes + size > cap:
            self._forget_expired()
        if self._total_bytes - self._bytes[scope] + size > cap:
            # This also removes the scope, if it was the only value.
            self.delete(scope, key)
            raise CallError("storage_unavailable", f"There is no room to keep {key!r}. Try again later.")
        while self._total_bytes + size > cap or len(self._scopes.get(scope, ())) >= config.max_entries:
            self.delete(scope, next(iter(self._scopes[scope])))
        expires_s = None if ttl_s is None else self._clock() + ttl_s
        self._scopes.setdefault(scope, OrderedDict())[key] = CachedValue(text, expires_s)
        self._count(scope, size)

    def delete(self, scope: Scope, key: str) -> None:
        """Delete a value, if it exists."""
        values = self._scopes.get(scope)
        cached = None if values is None else values.pop(key, None)
        if cached is not None:
            self._count(scope, -_cost(key, cached.text))
        if not values:
            self._scopes.pop(scope, None)
            self._bytes.pop(scope, None)

    def _count(self, scope: Scope, size: int) -> None:
        self._bytes[scope] += size
        self._total_bytes += size

    def _forget_expired(self) -> None:
        now = self._clock()
        expired = [
            (scope, key) for scope, values in self._scopes.items() for key in values if values[key].is_expired(now)
        ]
        for scope, key in expired:
            self.delete(scope, key)


class CacheStore:
    """The handler. Its limits come from its own config; its values survive a change of it."""

    def __init__(self, config: CacheConfig, cache: Cache) -> None:
        self._config, self._cache = config, cache

    def carry_on(self, before: object) -> None:
        """Take over the values of the previous handler, unless other people share them now."""
        if isinstance(before, CacheStore) and before._config.scope == self._config.scope:
            self._cache = before._cache

    def __call__(self, ctx: CallContext, args: JSON) -> JSON:
        """Do what the arguments say."""
        scope, key, cache = _scope(ctx, self._config.scope), args["key"], self._cache
        if args["action"] == "set":
            text = _as_json(args, self._config.max_value_bytes)
            was_there = cache.get(scope, key) is not None
            cache.set(scope, key, text, args.get("ttl_s"), config=self._config)
            return {"key": key, "found": was_there}
        if "value" in args or "ttl_s" in args:
            text = f"'value' and 'ttl_s' belong to action 'set', not {args['action']!r}. Leave them out."
            raise CallError("invalid_arguments", text)
        cached = cache.get(scope, key)
        if args["action"] == "delete":
            cache.delete(scope, key)
            return {"key": key, "found": cached is not None}
        value: JSONValue = None if cached is None else json_value(cached.text)
        return {"key": key, "found": cached is not None, "value": value}


def make(config: CacheConfig, services: Services) -> Handler:
    """Return the handler with a separate cache."""
    return CacheStore(config, Cache(services.clock))


def _cost(key: str, text: bytes) -> int:
    """Return the memory that a value uses, including overhead."""
    return sys.getsizeof(key) + sys.getsizeof(text) + CACHE_ENTRY_BYTES


def _scope(ctx: CallContext, scope: str) -> Scope:
    caller = ctx.caller
    if scope == "space":
        return (caller.space_id,)
    if (caller.user_id if scope == "user" else caller.session_id) is None:
        text = f"This cache is separate for each {scope}, and this caller has no {scope}. Ask the operator."
        raise CallError("tool_error", text)
    return (
        (caller.space_id, caller.user_id) if scope == "user" else (caller.space_id, caller.user_id, caller.session_id)
    )


def _as_json(args: JSON, max_bytes: int) -> bytes:
    if "value" not in args:
        raise CallError("invalid_arguments", "Action 'set' needs 'value'. Give it.")
    # A copy: orjson's buffer has some unused kilobytes at its end.
    text = bytes(memoryview(json_bytes(args["value"])))
    if len(text) > max_bytes:
        refusal = f"The value has {len(text)} bytes as JSON; at most {max_bytes} are kept. Keep less."
        raise CallError("invalid_arguments", refusal)
    return text


KIND = BuiltinKind(spec=SPEC, config=CacheConfig, make=make, runs="inline")
