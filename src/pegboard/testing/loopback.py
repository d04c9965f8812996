"""Loopback: an ASGI app served on 127.0.0.1 by a thread of its own, for tests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# A script may break an answer off, which is no news to anybody.
_UNHEARD = logging.getLogger("pegboard.testing.loopback")
_UNHEARD.addHandler(logging.NullHandler())
_UNHEARD.propagate = False


class _QuietConnection(HttpToolsProtocol):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.logger = _UNHEARD


class _AnnouncedServer(uvicorn.Server):
    """Says when it serves, and under which port."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[int], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, *arguments: Any, **options: Any) -> None:
        await super().startup(*arguments, **options)
        self._on_started(self.servers[0].sockets[0].getsockname()[1])


class LoopbackServer:
    """Serves from `start` to `stop`; `port` is the one it got."""

    def __init__(self, app: Any, port: int) -> None:
        config = uvicorn.Config(
            app, port=port, http=_QuietConnection, ws="none", lifespan="off", log_config=None, access_log=False
        )
        self.port = port
        self._is_up = threading.Event()
        self._server = _AnnouncedServer(config, self._started)
        self._thread = threading.Thread(target=self._run, name="pegboard-loopback", daemon=True)

    def start(self) -> None:
        """Return when it takes connections.

        Raises:
            OSError: the port cannot be had.
        """
        self._thread.start()
        self._is_up.wait()
        if not self._server.started:
            raise OSError(f"The port {self.port} of 127.0.0.1 cannot be had. Take another, or 0 for any that is free.")

    def stop(self) -> None:
        """End it, with whatever is still being answered."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()

    def _run(self) -> None:
        try:
            self._server.run()
        except SystemExit:
            # uvicorn logs why and would end the process.
            pass
        finally:
            self._is_up.set()

    def _started(self, port: int) -> None:
        self.port = port
        self._is_up.set()
