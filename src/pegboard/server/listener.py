"""Listener: the HTTP server of our app: says when it is ready, drains on a signal, and always ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket  # noqa: TID251 - listens, and calls nobody
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from pegboard.model.bounds import DEFAULT_BOUNDS, Bounds
from pegboard.platforms import platform
from pegboard.server.access_log import AccessLog
from pegboard.server.access_log import log as access_log
from pegboard.server.http_connection import HttpConnection, ServerState
from pegboard.server.process_exit import exit_despite_threads, leave
from pegboard.server.process_memory import Collector
from pegboard.server.proxy_settings import NO_PROXY, ProxySettings
from pegboard.server.trusted_proxies import TrustedProxies
from pegboard.server.workers import Worker

try:
    from uvloop import new_event_loop
except ImportError:  # uvloop does not exist for Windows.
    from asyncio import new_event_loop

BACKLOG = 2048  # connections that wait to be accepted
AFTER_GRACE_S = 2.0  # what stopped calls get to write their last answer
# A stopping worker accepts no more connections; requests in transit on its open ones arrive meanwhile.
LAST_REQUESTS_S = 0.5
ACCEPT_AGAIN_S = 0.5  # pause after a connection could not be accepted, such as without free file descriptors
ACCEPT_LATER_S = 0.001  # wait of a worker with more connections than another before it accepts the next
ACCEPT_LATER_TIMES = 10  # waits before it accepts the connection anyway
CONNECTIONS_ENDED = 100  # memory is given back after so many connections have ended, but at least as many as are open
GIVING_BACK_S = 5.0  # seconds until then, so that their calls and streams end first

log = logging.getLogger("pegboard.serve")
_FOR_GROUP = 0o660


class Acceptor:
    """Takes connections from a socket that several workers share, one at each turn of the loop.

    The server of asyncio accepts all waiting connections at once, so one worker could get every connection of a client.
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
        """Stop accepting connections."""
        self._loop.remove_reader(self._listening)
        self._listening.close()


class Listener:
    """Serves an app on one socket, once: starts the app, answers until the end, and lets running requests finish.

    `run` serves until a signal, or until the parent of a worker says so; `serve` until an event is set.

    Args:
        app: an ASGI app.
        listening: a bound socket, which the end closes.
        lifespan: entered before the first connection is accepted, and left after the last has been closed.
        on_ready: called once requests are answered.
        drain: run when no more connections are accepted, to end streams and calls, which otherwise may last for ever.
        grace_s: for answers to be completed after the end began; then their connections are closed.
        collector: the garbage collector of the process, if the server may set it.
        on_replaced: run before the end of a worker that another has replaced.
    """

    def __init__(
        self,
        app: Any,
        *,
        listening: socket.socket,
        lifespan: AbstractAsyncContextManager[object],
        on_ready: Callable[[], None],
        drain: Callable[[], Awaitable[None]] | None = None,
        grace_s: float,
        header_s: float = DEFAULT_BOUNDS.header_s,
        root_path: str = "",
        tls: ssl.SSLContext | None = None,
        errors: logging.Logger = log,
        worker: Worker | None = None,
        collector: Collector | None = None,
        on_replaced: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._server = ServerState(app, header_s=header_s, root_path=root_path, on_count=self._on_count, errors=errors)
        self._listening, self._lifespan, self._tls = listening, lifespan, tls
        self._on_ready, self._drain, self._grace_s = on_ready, drain, grace_s
        self._worker, self._collector, self._on_replaced = worker, collector, on_replaced
        self._is_replaced = False
        self._most_connections = 0
        self._giving_back: asyncio.TimerHandle | None = None

    def run(self) -> None:
        """Serve in a new loop until SIGTERM or SIGINT; a second signal ends the process at once."""
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._until_stopped())

    async def serve(self, ending: asyncio.Event) -> None:
        """Serve until `ending` is set."""
        draining: asyncio.Future[None] | None = None
        telling: asyncio.Future[None] | None = None
        async with self._lifespan:
            if self._collector is not None:
                self._collector.begin()
            accepting = await self._accept()
            self._on_ready()
            if self._worker is not None:
                self._worker.ready()
            await ending.wait()
            accepting.close()
            self._listening.close()
            self._server.is_ending = True
            if self._worker is not None:
                # Other workers accept new connections; requests that are on their way to this one are still answered.
                for connection in list(self._server.connections):
                    connection.end_after_this()
                await asyncio.sleep(LAST_REQUESTS_S)
            if self._is_replaced and self._on_replaced is not None:
                telling = asyncio.ensure_future(self._on_replaced())
            if self._drain is not None:
                draining = asyncio.ensure_future(self._drain())
            await self._close_connections()
        if draining is not None:
            await draining
        if telling is not None:
            await asyncio.wait([telling])
        if self._collector is not None:
            self._collector.end()

    async def _accept(self) -> asyncio.Server | Acceptor:
        if self._worker is None:
            return await asyncio.get_running_loop().create_server(
                self._connection, sock=self._listening, ssl=self._tls, backlog=BACKLOG
            )
        self._worker.shares.write(self._worker.number, 0)
        return Acceptor(self._listening, self._connection, self._is_ahead, self._tls)

    def _connection(self) -> HttpConnection:
        return HttpConnection(self._server)

    async def _close_connections(self) -> None:
        for connection in list(self._server.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self._grace_s):
                await self._server.until_done()
        except TimeoutError:
            self._server.errors.error("Requests that still run are cancelled: %d", len(self._server.tasks))
            for task in self._server.tasks:
                task.cancel()
            for connection in list(self._server.connections):
                connection.abort()

    # -- connections are counted

    def _is_ahead(self) -> bool:
        """Return True if another worker should take the next connection, because it has many fewer."""
        assert self._worker is not None
        return self._worker.shares.is_ahead(self._worker.number, len(self._server.connections))

    def _on_count(self, connections: int) -> None:
        if self._worker is not None and not self._server.is_ending:
            self._worker.shares.write(self._worker.number, connections)
        self._most_connections = max(self._most_connections, connections)
        has_fallen = self._most_connections - connections >= max(CONNECTIONS_ENDED, connections)
        if has_fallen and self._giving_back is None and self._collector is not None:
            self._giving_back = asyncio.get_running_loop().call_later(GIVING_BACK_S, self._give_back, self._collector)

    def _give_back(self, collector: Collector) -> None:
        """Give back the memory of many connections that have ended: only a full collection frees their streams."""
        self._giving_back, self._most_connections = None, len(self._server.connections)
        collector.give_back()

    # -- the end

    async def _until_stopped(self) -> None:
        ending = asyncio.Event()

        def end() -> None:
            if ending.is_set():
                leave()
            ending.set()

        if threading.current_thread() is not threading.main_thread():
            await self.serve(ending)
            return
        with platform.signals_to(end), self._listening_to_parent(ending):
            await self.serve(ending)

    @contextlib.contextmanager
    def _listening_to_parent(self, ending: asyncio.Event) -> Generator[None]:
        worker, loop = self._worker, asyncio.get_running_loop()
        if worker is None:
            yield
            return

        def obey() -> None:
            word = worker.order()
            if word == "leave":
                leave()
            elif word:
                # Without its parent a worker ends too.
                self._is_replaced = self._is_replaced or word == "replaced"
                ending.set()
                if word == "gone":
                    loop.remove_reader(worker.link)

        loop.add_reader(worker.link, obey)
        try:
            yield
        finally:
            loop.remove_reader(worker.link)


def bound_to(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address.

    Raises:
        OSError: the address cannot be bound.
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
    """Return a Unix socket at a path, usable by its owner and group. A stale socket is replaced.

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
    """Return the URL of `/mcp` on a socket."""
    name = listening.getsockname()
    if isinstance(name, str):
        return f"unix:{name}:{front.root_path}/mcp"
    host, port = name[:2]
    scheme = "http" if front.certificate is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{front.root_path}/mcp"


def listen(
    app: Starlette,
    *,
    listening: socket.socket,
    bounds: Bounds,
    on_ready: Callable[[str], None],
    drain: Callable[[], Awaitable[None]],
    grace_s: float,
    worker: Worker | None = None,
    on_replaced: Callable[[], Coroutine[Any, Any, None]] | None = None,
    front: ProxySettings = NO_PROXY,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve an app on a bound socket until a signal; leaves the process with exit code 0 if threads would hold it."""
    served = AccessLog(app) if access_log.isEnabledFor(logging.INFO) else app
    if front.trusted or isinstance(listening.getsockname(), str):
        served = TrustedProxies(served, front.trusted)
    address = address_of(listening, front)
    listener = Listener(
        served,
        listening=listening,
        lifespan=app.router.lifespan_context(app),
        on_ready=lambda: on_ready(address),
        drain=drain,
        grace_s=grace_s + AFTER_GRACE_S,
        header_s=bounds.header_s,
        root_path=front.root_path,
        tls=tls,
        worker=worker,
        collector=Collector(),
        on_replaced=on_replaced,
    )
    with listening:
        listener.run()
    exit_despite_threads()
