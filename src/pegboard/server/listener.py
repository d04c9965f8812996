"""Listener: the uvicorn server of our app: says when it is ready, drains on a signal, and always ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket  # noqa: TID251 - listens, and calls nobody
import ssl
import threading
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from pegboard.model.bounds import Bounds
from pegboard.platforms import platform
from pegboard.server.access_log import AccessLog
from pegboard.server.access_log import log as access_log
from pegboard.server.host_guard import FORWARDED_HOST
from pegboard.server.http_connection import HttpConnection
from pegboard.server.process_exit import leave, leave_if_held
from pegboard.server.process_memory import Collector
from pegboard.server.proxy_settings import NO_PROXY, ProxySettings
from pegboard.server.workers import Worker

AFTER_GRACE_S = 2.0  # what stopped calls get to write their last answer
# A connection without a request is kept longer than any usual client or proxy keeps it (httpx 5 s, nginx and the load
# balancers 60 s): whoever closes first must be the one that sends, or a request meets a closed connection.
KEEP_ALIVE_S = 75
# A worker that ends takes no more connections, and what is on its way to it on those that it has arrives meanwhile.
LAST_REQUESTS_S = 0.5
ACCEPT_AGAIN_S = 0.5  # after a connection could not be taken, for want of files for example
ACCEPT_LATER_S = 0.001  # that a worker with more connections than another leaves the next to that
ACCEPT_LATER_TIMES = 10  # before it takes it nevertheless
CONNECTIONS_ENDED = 100  # and as many as are left, before what they took is given back to the system
GIVING_BACK_S = 5.0  # after this, in which their calls and streams have ended, too

log = logging.getLogger("pegboard.serve")
_UNIX = "unix"
_FOR_GROUP = 0o660


class TrustedProxies:
    """Tells where a request comes from, in the words of a proxy that is trusted; of others nothing is believed."""

    def __init__(self, app: ASGIApp, trusted: tuple[str, ...]) -> None:
        self._believe = ProxyHeadersMiddleware(cast("Any", app), trusted_hosts=[_UNIX, *trusted])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("client") is None:
            scope["client"] = (_UNIX, 0)
        if scope["type"] == "http" and scope["client"][0] in self._believe.trusted_hosts:
            hosts = [value.strip(b" \t") for name, value in scope["headers"] if name == b"x-forwarded-host"]
            # Of several proxies only the first knows it; which of them wrote what, nobody can tell.
            if len(hosts) == 1 and b"," not in hosts[0]:
                scope[FORWARDED_HOST] = hosts[0]
        await self._believe(cast("Any", scope), cast("Any", receive), cast("Any", send))


class Acceptor:
    """Takes connections from a socket that several workers share, one at each turn of the loop.

    A server of the loop takes all that wait, so that one worker may have every connection of a client.
    """

    def __init__(
        self,
        listening: socket.socket,
        connect: Callable[[], asyncio.Protocol],
        is_ahead: Callable[[], bool],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._tls = tls
        self._listening, self._connect, self._is_ahead = listening, connect, is_ahead
        self._left_to_others = 0
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[Any]] = set()
        self._loop.add_reader(listening, self._accept)

    def _accept(self) -> None:
        if self._left_to_others < ACCEPT_LATER_TIMES and self._is_ahead():
            self._left_to_others += 1
            self._pause(ACCEPT_LATER_S)
            return
        self._left_to_others = 0
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            # Another worker was faster, or the client has gone.
            return
        except OSError as error:
            log.error("A connection could not be taken: %s", error)
            self._pause(ACCEPT_AGAIN_S)
            return
        connection.setblocking(False)
        taking = self._loop.connect_accepted_socket(  # raw: it came in, and calls nobody
            self._connect, connection, ssl=self._tls
        )
        opening = self._loop.create_task(taking)
        self._opening.add(opening)
        opening.add_done_callback(self._opened)

    def _pause(self, pause_s: float) -> None:
        self._loop.remove_reader(self._listening)
        self._loop.call_later(pause_s, self._begin_again)

    def _begin_again(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening, self._accept)

    def _opened(self, opening: asyncio.Task[Any]) -> None:
        self._opening.discard(opening)
        if not opening.cancelled():
            opening.exception()

    def close(self) -> None:
        """Take no more."""
        self._loop.remove_reader(self._listening)
        self._listening.close()


class Listener(uvicorn.Server):
    """Ends streams and calls before uvicorn waits for its connections, which otherwise would be for ever."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_ready: Callable[[str], None],
        drain: Callable[[], Awaitable[None]],
        listening: socket.socket,
        worker: Worker | None = None,
        front: ProxySettings = NO_PROXY,
    ) -> None:
        super().__init__(config)
        self._front = front
        self._listening = listening
        self._acceptor: Acceptor | None = None
        self._connection_type = cast("type[HttpConnection]", config.http)
        self._on_ready, self._drain, self._worker = on_ready, drain, worker
        self._most_connections = 0
        self._collector = Collector()
        self._giving_back: asyncio.TimerHandle | None = None

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup([self._listening] if self._worker is None else [])
        if self.started:
            self._collector.begin()
            self._on_ready(address_of(self._listening, self._front))
            if self._worker is not None:
                self._acceptor = Acceptor(self._listening, self._connection, self._is_ahead, self.config.ssl)
                self._worker.ready()

    def _is_ahead(self) -> bool:
        """Tell whether another worker has so many fewer connections that it shall have the next."""
        assert self._worker is not None
        return self._worker.shares.is_ahead(self._worker.number, len(self.server_state.connections))

    async def on_tick(self, counter: int) -> bool:
        connections = len(self.server_state.connections)
        if self._worker is not None:
            self._worker.shares.write(self._worker.number, connections)
        self._most_connections = max(self._most_connections, connections)
        if self._giving_back is None and self._most_connections - connections >= max(CONNECTIONS_ENDED, connections):
            self._giving_back = asyncio.get_running_loop().call_later(GIVING_BACK_S, self._give_back)
        return await super().on_tick(counter)

    def _give_back(self) -> None:
        """Give back what many connections took that have ended: their streams are circles that nobody comes by."""
        self._giving_back, self._most_connections = None, len(self.server_state.connections)
        self._collector.give_back()

    def _connection(self) -> asyncio.Protocol:
        return self._connection_type(self.config, self.server_state, self.lifespan.state)

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        for server in self.servers:
            server.close()
        if self._acceptor is not None:
            self._acceptor.close()
            # Others take who comes now; what was sent to us already is answered, and its client told to come anew.
            self._connection_type.end_each()
            for connection in list(self.server_state.connections):
                cast("HttpConnection", connection).end_after_this()
            await asyncio.sleep(LAST_REQUESTS_S)
        draining = asyncio.ensure_future(self._drain())
        await super().shutdown([self._listening])
        await draining
        self._collector.end()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Take the first signal as a wish to end, the second as an order; uvicorn would raise it again at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with platform.signals_to(self._on_signal), self._listening_to_parent():
            yield

    @contextlib.contextmanager
    def _listening_to_parent(self) -> Generator[None]:
        worker, loop = self._worker, asyncio.get_running_loop()
        if worker is None:
            yield
            return

        def hear() -> None:
            word = worker.told()
            if word == "leave":
                leave()
            elif word:
                # A parent that is gone wishes nothing else.
                self.should_exit = True
                if word == "gone":
                    loop.remove_reader(worker.link)

        loop.add_reader(worker.link, hear)
        try:
            yield
        finally:
            loop.remove_reader(worker.link)

    def _on_signal(self) -> None:
        if self.should_exit:
            leave()
        self.should_exit = True


def bound_to(host: str, port: int) -> socket.socket:
    """Return a socket that has the address; uvicorn itself would end the process where it cannot be had.

    Raises:
        OSError: it cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    platform.take_address_again(listening)
    try:
        listening.bind((host.strip("[]"), port))
    except OSError as error:
        listening.close()
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
    return listening


def bound_to_file(path: Path) -> socket.socket:
    """Return a socket at a path, for programs of its owner and group; one that nobody listens at is replaced.

    Raises:
        OSError: something else is there, or somebody listens.
    """
    if path.is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            if asking.connect_ex(str(path)) == 0:
                raise OSError(errno.EADDRINUSE, "another server listens there", str(path))
        path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(path))
        path.chmod(_FOR_GROUP)
    except OSError:
        listening.close()
        raise
    return listening


def address_of(listening: socket.socket, front: ProxySettings = NO_PROXY) -> str:
    """Return where `/mcp` is, of a socket."""
    name = listening.getsockname()
    if isinstance(name, str):
        return f"unix:{name}:{front.root_path}/mcp"
    host, port = name[:2]
    scheme = "http" if front.certificate is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{front.root_path}/mcp"


def listen(
    app: ASGIApp,
    *,
    listening: socket.socket,
    bounds: Bounds,
    on_ready: Callable[[str], None],
    drain: Callable[[], Awaitable[None]],
    grace_s: float,
    worker: Worker | None = None,
    front: ProxySettings = NO_PROXY,
) -> None:
    """Serve an app on a bound socket until a signal; leaves the process with exit code 0 if threads would hold it."""
    logged = AccessLog(app) if access_log.isEnabledFor(logging.INFO) else app
    is_behind_a_proxy = front.trusted or isinstance(listening.getsockname(), str)
    config = uvicorn.Config(
        TrustedProxies(logged, front.trusted) if is_behind_a_proxy else logged,
        proxy_headers=False,
        root_path=front.root_path,
        ssl_certfile=front.certificate,
        ssl_keyfile=front.key,
        http=type("BoundedConnection", (HttpConnection,), {"header_s": bounds.header_s}),
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=round(grace_s + AFTER_GRACE_S) or 1,
    )
    server = Listener(config, on_ready=on_ready, drain=drain, listening=listening, worker=worker, front=front)
    with listening:
        server.run()
    leave_if_held()
