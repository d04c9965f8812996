"""Redis transport: the bus of workers on a Redis or Valkey, by its channels. Needs `pegboard[redis]`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret
from pegboard.server.bus import stop_if_cancelled
from pegboard.server.limits import BUS_AGAIN_S, BUS_PING_S, BUS_SOCKET_S

log = logging.getLogger("pegboard.serve")


class RedisTransport:
    """Fills `pegboard.server.bus.Transport`. Nothing is connected before the first message.

    Args:
        uri: as `rate_limits.store` has it.
        key_prefix: the beginning of every channel's name.

    Raises:
        DefinitionError: the URI cannot be used.
    """

    def __init__(self, uri: str | Secret, *, key_prefix: str) -> None:
        text = uri.reveal() if isinstance(uri, Secret) else uri
        self._uri = text.replace("valkey", "redis", 1) if text.startswith("valkey") else text
        self._prefix = key_prefix
        self._client: Any = None
        try:
            self._new_client(socket_timeout=BUS_SOCKET_S)
        except (ValueError, TypeError) as error:
            raise DefinitionError(f"the URI of the bus cannot be used: {type(error).__name__}") from None

    def _new_client(self, **more: Any) -> Any:
        # A connection that is silent for long may be gone without a word.
        return Redis.from_url(  # pyright: ignore[reportUnknownMemberType] - redis types it so
            self._uri, socket_connect_timeout=BUS_SOCKET_S, health_check_interval=BUS_PING_S, **more
        )

    async def listen(self, channels: Sequence[str], hear: Callable[[bytes], None], is_listening: asyncio.Event) -> None:
        """Receive messages until cancelled, and connect again after a lost connection; see `bus.Transport`."""
        is_away = False
        while True:
            client = self._new_client()
            try:
                async with client.pubsub(ignore_subscribe_messages=True) as messages:
                    await messages.subscribe(*(f"{self._prefix}:{channel}" for channel in channels))
                    is_listening.set()
                    if is_away:
                        log.warning("The bus of the workers is back.")
                    is_away = False
                    while True:
                        message = await messages.get_message(timeout=BUS_PING_S)
                        stop_if_cancelled()
                        if message is not None:
                            hear(message["data"])
            except (RedisError, OSError) as error:
                stop_if_cancelled()
                if not is_away:
                    log.warning("The bus of the workers is not reachable, so they are not connected: %s", error)
                is_away = True
                await asyncio.sleep(BUS_AGAIN_S)
            finally:
                await client.aclose()

    async def probe(self) -> None:
        """Send a PING on a new connection; see `core.ports.Probed`.

        Raises:
            ConnectionError: the store is away or silent.
        """
        try:
            async with self._new_client(socket_timeout=BUS_SOCKET_S) as client:
                await client.ping()
        except (RedisError, OSError) as error:
            raise ConnectionError(f"the bus did not answer ({type(error).__name__})") from error

    async def publish(self, channel: str, message: bytes) -> int:
        """Send a message; see `bus.Transport`.

        Raises:
            ConnectionError: the store is away or silent.
        """
        if self._client is None:
            self._client = self._new_client(socket_timeout=BUS_SOCKET_S)
        try:
            return int(await self._client.publish(f"{self._prefix}:{channel}", message))
        except (RedisError, OSError) as error:
            raise ConnectionError(f"the bus did not answer ({type(error).__name__})") from error

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
