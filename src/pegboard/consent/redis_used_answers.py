"""Redis used answers: used answers in a Redis or Valkey shared by several machines. Needs `pegboard[redis]`."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from pegboard.consent.limits import CONSENT_STORE_BUSY_S
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret


class RedisAnswerStore:
    """Marks answers as used in Redis; implements `pegboard.core.ports.UsedAnswers`.

    Each answer opens and closes its own connection, since people answer rarely. A store that loses data (evicted keys,
    an early failover to a replica) would accept an answer twice.

    Args:
        uri: as in `rate_limits.store`.
        key_prefix: prefix of every key; processes that share answers use the same one.

    Raises:
        DefinitionError: the URI is invalid.
    """

    def __init__(self, uri: str | Secret, *, key_prefix: str = "pegboard") -> None:
        text = uri.reveal() if isinstance(uri, Secret) else uri
        self._uri = text.replace("valkey", "redis", 1) if text.startswith("valkey") else text
        self._prefix = key_prefix
        try:
            self._client()
        except (ValueError, TypeError) as error:
            raise DefinitionError(f"the URI of the store cannot be used: {type(error).__name__}") from None

    def _client(self) -> Any:
        patience: Any = {"socket_timeout": CONSENT_STORE_BUSY_S, "socket_connect_timeout": CONSENT_STORE_BUSY_S}
        return Redis.from_url(self._uri, **patience)  # pyright: ignore[reportUnknownMemberType] - redis types it so

    async def probe(self) -> None:
        """Send a PING; see `core.ports.Probed`.

        Raises:
            ConnectionError: the store is unreachable or does not respond.
        """
        try:
            async with self._client() as client:
                await client.ping()
        except (RedisError, OSError) as error:
            raise ConnectionError(f"the store of consents did not answer: {type(error).__name__}") from error

    async def use_up(self, mark: str, *, keep_s: float) -> bool:
        """Mark an answer as used; see `ports.UsedAnswers`.

        Raises:
            ConnectionError: the store is unreachable or does not respond.
        """
        try:
            async with self._client() as client:
                return bool(await client.set(f"{self._prefix}:answer:{mark}", b"1", nx=True, px=round(keep_s * 1000)))
        except (RedisError, OSError) as error:
            raise ConnectionError(f"the store of consents did not answer: {type(error).__name__}") from error
