"""Loopback: serves an ASGI app on 127.0.0.1 in a separate thread, for tests."""

from __future__ import annotations

import asyncio
import logging
import socket  # noqa: TID251 - listens, and calls nobody
import threading
from contextlib import nullcontext
from typing import Any

from pegboard.server.listener import Listener, bound_to

# A script may cut an answer short; that is not an error.
_SILENT = logging.getLogger("pegboard.testing.loopback")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class LoopbackServer:
    """Serves from `start` to `stop`; `port` is the port it listens on."""

    def __init__(self, app: Any, port: int) -> None:
        self._app, self.port = app, port
        self._is_ready = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the server; return as soon as it accepts connections.

        Raises:
            OSError: another program uses the port.
        """
        try:
            listening = bound_to("127.0.0.1", self.port)
        except OSError as error:
            text = f"Cannot listen on port {self.port} of 127.0.0.1. Use another port, or 0 for any free one."
            raise OSError(error.errno, text) from None
        self.port = listening.getsockname()[1]
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(listening)), name="pegboard-loopback", daemon=True
        )
        self._thread.start()
        self._is_ready.wait()

    def stop(self) -> None:
        """Stop the server; answers in progress are cut short."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join()

    async def _serve(self, listening: socket.socket) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        listener = Listener(
            self._app, listening=listening, lifespan=nullcontext(), on_ready=self._is_ready.set, grace_s=0.0,
            errors=_SILENT,
        )  # fmt: skip
        await listener.serve(self._ending)
