"""Redis store: counts calls and costs in Redis or Valkey, shared by processes. Needs `pegboard[redis]`.

The package `limits` provides connections, keys and the form of the moving window. The scripts are ours, because the
library charges one window at a time, in whole seconds, and cannot undo a charge. See docs/decisions/0007 and 0090.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any
from urllib.parse import urlsplit

import orjson
from limits.aio.storage import RedisStorage
from limits.errors import ConfigurationError
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from pegboard.core.after_fork import leave_to_parent, renew_after_fork
from pegboard.limits.redis_link import RedisLink
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.budget import Charge, Counter
from pegboard.model.error import DefinitionError
from pegboard.model.rate_limit import RateLimit
from pegboard.model.secret import Secret

Hits = Sequence[tuple[tuple[str | None, ...], RateLimit]]

TRY_AGAIN_S = 0.05  # between two attempts to reach a store that was lost
_SCHEMES = ("redis", "rediss", "redis+unix")

# Each key is a list of times, newest first: full while entry number `limit` is inside the window. All windows or none.
_ASK_ALL = """
local now, longest = tonumber(ARGV[1]), 0
for i, key in ipairs(KEYS) do
  local last = redis.call('lindex', key, ARGV[2 * i + 1] - 1)
  if last then longest = math.max(longest, tonumber(last) + tonumber(ARGV[2 * i + 2]) - now) end
end
if longest == 0 and ARGV[2] == 'charge' then
  for i, key in ipairs(KEYS) do
    redis.call('lpush', key, ARGV[1])
    redis.call('ltrim', key, 0, ARGV[2 * i + 1] - 1)
    redis.call('expire', key, math.ceil(tonumber(ARGV[2 * i + 2])))
  end
end
return longest == 0 and 0 or string.format('%.17g', longest)
"""


# Each key is a hash of the amounts of one budget, unit and period. `list` returns the hashes. Otherwise each key has
# four arguments: field, amount, limit or nothing, and when the hash may be forgotten.
_CHARGE_BUDGETS = """
if ARGV[1] == 'list' then
  local all = {}
  for i, key in ipairs(KEYS) do all[i] = redis.call('hgetall', key) end
  return all
end
local used, fits = {}, true
for i, key in ipairs(KEYS) do
  used[i] = redis.call('hget', key, ARGV[4 * i - 2]) or '0'
  local limit = ARGV[4 * i]
  if limit ~= '' and tonumber(used[i]) >= tonumber(limit) then fits = false end
end
for i, key in ipairs(KEYS) do
  if ARGV[4 * i - 1] ~= '0' and (fits or ARGV[4 * i] == '') then
    redis.call('hincrby', key, ARGV[4 * i - 2], ARGV[4 * i - 1])
    redis.call('expireat', key, ARGV[4 * i + 1])
  end
end
return used
"""
_KEPT_AFTER_S = 3600  # how long a counter is kept after its period, in seconds, since clocks differ


class RedisScript:
    """One script on Redis or Valkey, for many callers over one connection.

    A call waits up to `silence_s` for the store, and tries a second connection after half of that, so that a restart or
    a failover refuses no call. Then the store counts as away: calls raise `ConnectionError` at once, and it is tried
    in the background until it answers. It connects on the first call. Windows use the wall clocks of the processes, so
    the clocks of several hosts must agree. A call that was charged but whose answer was lost is charged again.

    Args:
        uri: `redis://[user:password@]host:port/database`; `rediss://`, `redis+unix://`, and the same with `valkey`.
        script: the Lua script of each request.
        key_prefix: prefix of every key; processes that share the store use the same one.
        silence_s: seconds that a call waits for the store; `limit_store_s` of the limits in a config.

    Raises:
        DefinitionError: the URI is invalid.
    """

    def __init__(
        self,
        uri: str | Secret,
        script: str,
        *,
        key_prefix: str = "pegboard",
        silence_s: float = DEFAULT_BOUNDS.limit_store_s,
    ) -> None:
        text = uri.reveal() if isinstance(uri, Secret) else uri
        self._uri = "async+" + text.replace("valkey", "redis", 1) if text.startswith("valkey") else "async+" + text
        self._prefix, self._script, self._silence_s = key_prefix, script, silence_s
        self._shown_uri = _shown(self._uri.removeprefix("async+"))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._link: RedisLink | None = None
        self._fault: Exception | None = None
        self._looking: asyncio.Task[None] | None = None
        self._open()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave the connection to the parent: an answer on it could belong to either process."""
        leave_to_parent(self._link, self._loop)
        self._link = self._loop = self._looking = self._fault = None

    @property
    def is_up(self) -> bool:
        """Whether the store answered when it was last asked; true before the first call."""
        return self._fault is None

    def _open(self) -> None:
        options: dict[str, Any] = {"retry": Retry(NoBackoff(), 0)}
        try:
            storage = RedisStorage(self._uri, implementation="redispy", key_prefix=self._prefix, **options)
        except (ConfigurationError, ValueError, TypeError) as error:
            raise DefinitionError(f"the URI of the store cannot be used: {type(error).__name__}") from None
        bridge: Any = storage.bridge
        self._key: Callable[[str], str] = bridge.prefixed_key
        self._connection: Callable[[], AbstractConnection] = bridge.get_connection().connection_pool.make_connection

    def key(self, *parts: object) -> bytes:
        """Return the key for these parts, with the prefix."""
        return self._key(orjson.dumps(parts).decode()).encode()

    async def run(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Any:
        """Run the script and return its answer.

        Raises:
            ConnectionError: the store is away, or has another kind of value under one of the keys.
        """
        if (fault := self._fault) is not None and self._is_looking():
            # A caller that tries again at once would otherwise never let the loop look.
            await asyncio.sleep(0)
            raise self._unreachable(fault)
        try:
            return await self._ask(keys, arguments)
        except ResponseError as error:
            # The answer to this call only; other calls are not affected.
            raise ConnectionError(f"{self._shown_uri} refused: {error}") from error
        except (RedisError, OSError) as error:
            self._fault = error
            if not self._is_looking():
                loop = asyncio.get_running_loop()
                # In an empty context, since that of this call would be kept alive for as long as the store is away.
                self._looking = loop.create_task(self._look(), context=Context())
            raise self._unreachable(error) from error

    async def _ask(self, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Any:
        """Ask the store, on one connection after the other until `silence_s` is over."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._silence_s
        while True:
            try:
                answer = await self._open_link().ask(keys, arguments)
            except ResponseError:
                self._fault = None
                raise
            except (RedisError, OSError):
                if loop.time() + TRY_AGAIN_S >= ends_at:
                    raise
                await asyncio.sleep(TRY_AGAIN_S)
            else:
                self._fault = None
                return answer

    async def _look(self) -> None:
        """Try the store until it answers. The script has no keys, so it counts nothing."""
        while self._fault is not None:
            await asyncio.sleep(TRY_AGAIN_S)
            try:
                await self._open_link().ask((), (b"0", b"look"))
            except ResponseError:
                break
            except (RedisError, OSError) as error:
                self._fault = error
            else:
                break
        self._fault = None

    def _is_looking(self) -> bool:
        looking = self._looking
        return looking is not None and not looking.done() and self._loop is asyncio.get_running_loop()

    def _unreachable(self, error: Exception) -> ConnectionError:
        why = f" within {self._silence_s:g} s" if isinstance(error, TimeoutError) else f": {error}"
        return ConnectionError(f"{self._shown_uri} did not answer{why}")

    async def probe(self) -> None:
        """Send a PING on a new connection; see `core.ports.Probed`.

        Raises:
            ConnectionError: the store is unreachable, or does not accept our credentials.
        """
        connection = self._connection()
        try:
            await connection.connect()
            await connection.send_command("PING")
            await connection.read_response()
        except (RedisError, OSError) as error:
            raise ConnectionError(f"{self._shown_uri} did not answer: {type(error).__name__}") from error
        finally:
            await connection.disconnect(nowait=True)

    def _open_link(self) -> RedisLink:
        """Return this loop's connection, or a new one if there is none or it is over."""
        loop, link = asyncio.get_running_loop(), self._link
        if link is None or link.is_over or loop is not self._loop:
            link = self._link = RedisLink(self._connection(), self._script, silence_s=self._silence_s / 2)
            self._loop = loop
        return link

    async def close(self) -> None:
        """Close the connection. The next request opens another."""
        looking, self._looking = self._looking, None
        link, self._link = self._link, None
        if self._loop is not asyncio.get_running_loop():
            return
        if looking is not None:
            looking.cancel()
            await asyncio.wait({looking})
        if link is not None:
            await link.close()


class RedisLimitStore(RedisScript):
    """Counts accepted calls in moving windows on Redis or Valkey; implements `pegboard.core.ports.LimitStore`.

    Args:
        uri: as for `RedisScript`.
        key_prefix: prefix of every key; processes that share limits use the same one.
        silence_s: seconds that a call waits for the store.
        wall_clock: seconds since 1970, the same for all who share the store.

    Raises:
        DefinitionError: the URI is invalid.
    """

    def __init__(
        self,
        uri: str | Secret,
        *,
        key_prefix: str = "pegboard",
        silence_s: float = DEFAULT_BOUNDS.limit_store_s,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(uri, _ASK_ALL, key_prefix=key_prefix, silence_s=silence_s)
        self._clock = wall_clock

    async def wait_s(self, hits: Hits, *, charge: bool) -> float | None:
        """Return seconds until one more call fits all windows, 0.0 if now, `None` if never; see `ports.LimitStore`.

        Raises:
            ConnectionError: the store is away, or has another kind of value under one of the keys.
        """
        keys: list[bytes] = []
        arguments = [repr(self._clock()).encode(), b"charge" if charge else b"look"]
        for key, limit in hits:
            if limit.max_calls == 0:
                return None
            keys.append(self.key(*key))
            arguments += b"%d" % limit.max_calls, repr(limit.window_s).encode()
        return float(await self.run(keys, arguments))


class RedisBudgetStore(RedisScript):
    """Counts calls and costs of budgets on Redis or Valkey; implements `pegboard.core.ports.BudgetStore`.

    Args:
        uri: as for `RedisScript`.
        key_prefix: prefix of every key; processes that share budgets use the same one.
        silence_s: seconds that a call waits for the store.

    Raises:
        DefinitionError: the URI is invalid.
    """

    def __init__(
        self, uri: str | Secret, *, key_prefix: str = "pegboard", silence_s: float = DEFAULT_BOUNDS.limit_store_s
    ) -> None:
        super().__init__(uri, _CHARGE_BUDGETS, key_prefix=key_prefix, silence_s=silence_s)

    async def charge(self, charges: Sequence[Charge]) -> Sequence[int]:
        """Return the amounts before, and add what fits; see `ports.BudgetStore`."""
        arguments = [b"charge"]
        for charge in charges:
            limit = b"" if charge.limit is None else b"%d" % charge.limit
            forgotten = b"%d" % (charge.counter.ends_s + _KEPT_AFTER_S)
            arguments += orjson.dumps(charge.counter.who), b"%d" % charge.amount, limit, forgotten
        return [int(used) for used in await self.run([self._period(charge.counter) for charge in charges], arguments)]

    async def counters(self, periods: Sequence[Counter]) -> Sequence[Charge]:
        """Return the amounts of these periods; see `ports.BudgetStore`."""
        found = await self.run([self._period(period) for period in periods], [b"list"])
        return [
            Charge(period._replace(who=tuple(orjson.loads(who))), int(amount))
            for period, cells in zip(periods, found, strict=True)
            for who, amount in zip(cells[::2], cells[1::2], strict=True)
        ]

    def _period(self, counter: Counter) -> bytes:
        return self.key("budget", counter.budget, counter.unit, counter.begins_s, counter.ends_s)


def _shown(uri: str) -> str:
    """Return a URI without user and password, for messages.

    Raises:
        DefinitionError: it is not a Redis or Valkey URI.
    """
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port or 6379
    except ValueError:
        raise DefinitionError("the URI of the store cannot be read; write for example redis://localhost:6379") from None
    if parts.scheme not in _SCHEMES or not (host or parts.path):
        raise DefinitionError(
            f"{parts.scheme + '://'!r} leads to no store for limits; write redis://host:port, or rediss, redis+unix "
            "or valkey instead of redis"
        )
    return f"the limit store at {host}:{port}" if host else f"the limit store at {parts.path!r}"
