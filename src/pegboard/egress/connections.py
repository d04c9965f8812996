"""Connections: resolve a name once, check every address, and connect to a checked address."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar, cast

import httpcore2
from httpcore2 import SOCKET_OPTION

from pegboard.core.after_fork import Threads
from pegboard.egress.destinations import Destinations
from pegboard.egress.failures import EgressError

ADDRESSES_TRIED = 4  # addresses of one host name that are tried
NAME_LOOKUPS = 8  # simultaneous name lookups, each in a thread

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host name: `(host, port)` to addresses, in the order to try them. Raises OSError."""

# Separate threads: a name server that hangs must not block the threads of tools.
_LOOKUPS = Threads(NAME_LOOKUPS, name="pegboard-lookup")
Connection = TypeVar("Connection")
_LAST_ROUNDS = 20  # loop turns between a socket event and the task that waits for it, at most


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """Use the system's resolver, which reads every spelling of an address (`127.1`, `0x7f.1`, `2130706433`)."""
    if (address := _literal(host)) is not None:
        return [address]
    loop = asyncio.get_running_loop()
    entries = await loop.run_in_executor(
        _LOOKUPS.executor, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    )
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def _literal(host: str) -> str | None:
    """Return a host that is a literal address, which needs no lookup."""
    try:
        return str(ipaddress.ip_address(host)) if "%" not in host else None
    except ValueError:
        return None


@asynccontextmanager
async def within_time(timeout_s: float | None) -> AsyncGenerator[None]:
    """End the block with `TimeoutError` after a number of seconds.

    Data that arrived in time is still accepted if the loop was too busy to process it: the loop gets a few more turns
    before the block ends.
    """
    if timeout_s is None:
        yield
        return
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:

        def over(rounds: int) -> None:
            nonlocal timer
            if rounds:
                timer = loop.call_soon(over, rounds - 1)
            else:
                limit.reschedule(loop.time())

        timer: asyncio.Handle = loop.call_later(timeout_s, over, _LAST_ROUNDS)
        try:
            yield
        finally:
            timer.cancel()


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """The network backend for httpcore2.

    It connects to the address that was checked, so a name that resolves differently after the check has no effect. TLS
    and `Host` use the name.
    """

    def __init__(self, destinations: Destinations, resolve: Resolve = system_resolve) -> None:
        self._destinations = destinations
        self._resolve = resolve
        self._sockets = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (the signature is httpcore2's)
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address that responds; all are checked first.

        Raises:
            EgressError: blocked_destination, upstream_unavailable, or timeout.
        """

        async def connect(address: str, share_s: float | None) -> httpcore2.AsyncNetworkStream:
            try:
                async with within_time(share_s):
                    return await self._sockets.connect_tcp(
                        address, port, local_address=local_address, socket_options=socket_options
                    )
            except TimeoutError as error:
                raise httpcore2.ConnectTimeout(str(error)) from error

        return await self._connect_to_first(host, port, timeout, connect)

    async def open_socket(self, host: str, port: int, *, timeout_s: float) -> socket.socket:
        """Return a connected socket, for protocols other than HTTP. The caller closes it.

        Raises:
            EgressError: blocked_destination, upstream_unavailable, or timeout.
            OSError: no address responds.
        """

        async def connect(address: str, share_s: float | None) -> socket.socket:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            opened = socket.socket(family, socket.SOCK_STREAM)
            opened.setblocking(False)
            try:
                async with within_time(share_s):
                    await asyncio.get_running_loop().sock_connect(opened, (address, port))
            except BaseException:
                opened.close()
                raise
            return opened

        return await self._connect_to_first(host, port, timeout_s, connect)

    async def addresses(self, host: str, port: int, *, timeout_s: float | None) -> Sequence[str]:
        """Return the addresses of an allowed host, for a program that connects by itself.

        Raises:
            EgressError: blocked_destination, upstream_unavailable, or timeout.
        """
        self._destinations.check_name(host, port)
        addresses = await self._look_up(host, port, timeout_s)
        self._destinations.check_addresses(host, port, addresses)
        return addresses

    async def _connect_to_first(
        self,
        host: str,
        port: int,
        timeout_s: float | None,
        connect: Callable[[str, float | None], Awaitable[Connection]],
    ) -> Connection:
        """Return the connection to the first address that responds; all are checked first."""
        started = asyncio.get_running_loop().time()
        addresses = await self.addresses(host, port, timeout_s=timeout_s)
        # Only the first addresses, each with an equal share of the time, so that a dead one does not use all of it.
        tried = addresses[:ADDRESSES_TRIED]
        for position, address in enumerate(tried):
            share = None
            if timeout_s is not None:
                left = started + timeout_s - asyncio.get_running_loop().time()
                share = max(left / (len(tried) - position), 0.001)
            try:
                return await connect(address, share)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout, OSError):
                if position == len(tried) - 1:
                    raise
        raise EgressError("upstream_unavailable", f"The host {host!r} has no address. Check the name.")

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109  (the signature is httpcore2's)
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Refuse: no request may leave through a socket file."""
        raise EgressError(
            "blocked_destination", f"The socket file {path!r} is refused: only http and https are allowed."
        )

    async def sleep(self, seconds: float) -> None:
        """Wait; httpcore2 calls this between attempts."""
        await asyncio.sleep(seconds)

    async def _look_up(self, host: str, port: int, timeout_s: float | None) -> Sequence[str]:
        try:
            async with within_time(timeout_s):
                return await self._resolve(host.rstrip("."), port)
        except TimeoutError:
            raise EgressError("timeout", f"The host name {host!r} was not resolved in time. Try again later.") from None
        except (OSError, UnicodeError):
            text = f"The host name {host!r} cannot be found. Check the name."
            raise EgressError("upstream_unavailable", text) from None
