"""Redis store: counts calls in moving windows in Redis or Valkey, shared by processes. Needs `pegboard[redis]`.

The package `limits` provides connections, keys and the form of the moving window. The script is ours, because the
library charges one window at a time, in whole seconds, and cannot undo a charge. See docs/decisions/0007 and 0090.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
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
from pegboard.limits.redis_link import LIMIT_STORE_SILENCE_S, RedisLink
from pegboard.model.error import DefinitionError
from pegboard.model.rate_limit import RateLimit
from pegboard.model.secret import Secret

Hits = Sequence[tuple[tuple[str | None, ...], RateLimit]]

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


class RedisLimitStore:
    """Counts accepted calls in moving windows on Redis or Valkey; implements `pegboard.core.ports.LimitStore`.

    A store that does not respond within 30 ms, or responds with an error, raises `ConnectionError`. The next call tries
    it again, so it is used as soon as it is back. It connects on the first call. Windows use the wall clocks of the
    processes, so the clocks of several hosts must agree.

    Args:
        uri: `redis://[user:password@]host:port/database`; `rediss://`, `redis+unix://`, and the same with `valkey`.
        key_prefix: prefix of every key; processes that share limits use the same one.
        wall_clock: seconds since 1970, the same for all who share the store.

    Raises:
        DefinitionError: the URI is invalid.
    """

    def __init__(
        self, uri: str | Secret, *, key_prefix: str = "pegboard", wall_clock: Callable[[], float] = time.time
    ) -> None:
        text = uri.reveal() if isinstance(uri, Secret) else uri
        self._uri = "async+" + text.replace("valkey", "redis", 1) if text.startswith("valkey") else "async+" + text
        self._prefix, self._clock = key_prefix, wall_clock
        self._shown_uri = _shown(self._uri.removeprefix("async+"))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._link: RedisLink | None = None
        self._open()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave the connection to the parent: an answer on it could belong to either process."""
        leave_to_parent(self._link, self._loop)
        self._link = self._loop = None

    def _open(self) -> None:
        options: dict[str, Any] = {"retry": Retry(NoBackoff(), 0)}
        try:
            storage = RedisStorage(self._uri, implementation="redispy", key_prefix=self._prefix, **options)
        except (ConfigurationError, ValueError, TypeError) as error:
            raise DefinitionError(f"the URI of the store cannot be used: {type(error).__name__}") from None
        bridge: Any = storage.bridge
        self._key: Callable[[str], str] = bridge.prefixed_key
        self._connection: Callable[[], AbstractConnection] = bridge.get_connection().connection_pool.make_connection

    async def wait_s(self, hits: Hits, *, charge: bool) -> float | None:
        """Return seconds until one more call fits all windows, 0.0 if now, `None` if never; see `ports.LimitStore`.

        Raises:
            ConnectionError: the store is unreachable, slow, or has another kind of value under one of the keys.
        """
        keys: list[bytes] = []
        arguments = [repr(self._clock()).encode(), b"charge" if charge else b"look"]
        for key, limit in hits:
            if limit.max_calls == 0:
                return None
            keys.append(self._key(orjson.dumps(key).decode()).encode())
            arguments += b"%d" % limit.max_calls, repr(limit.window_s).encode()
        try:
            return float(await self._open_link().ask(keys, arguments))
        except ResponseError as error:
            # The answer to this call only; other calls are not affected.
            raise ConnectionError(f"{self._shown_uri} refused: {error}") from error
        except (RedisError, OSError) as error:
            is_silent = isinstance(error, TimeoutError)
            why = f" within {LIMIT_STORE_SILENCE_S * 1000:g} ms" if is_silent else f": {error}"
            raise ConnectionError(f"{self._shown_uri} did not answer{why}") from error

    def _open_link(self) -> RedisLink:
        """Return this loop's connection, or a new one if there is none or it is over."""
        loop, link = asyncio.get_running_loop(), self._link
        if link is None or link.is_over or loop is not self._loop:
            link = self._link = RedisLink(self._connection(), _ASK_ALL)
            self._loop = loop
        return link

    async def close(self) -> None:
        """Close the connection. The next request opens another."""
        link, self._link = self._link, None
        if link is not None and self._loop is asyncio.get_running_loop():
            await link.close()


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
