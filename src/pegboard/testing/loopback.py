"""Loopback: an ASGI app served on 127.0.0.1 by a thread of its own, for tests."""

from __future__ import annotations

import asyncio
import logging
import socket  # noqa: TID251 - listens, and calls nobody
import threading
from contextlib import nullcontext
from typing import Any

from pegboard.server.listener import Listener, bound_to

# A script may break an answer off, which is not an error.
_SILENT = logging.getLogger("pegboard.testing.loopback")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class LoopbackServer:
    """Serves from `start` to `stop`; `port` is the one it got."""

    def __init__(self, app: Any, port: int) -> None:
        self._app, self.port = app, port
        self._is_ready = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Return when it accepts connections.

        Raises:
            OSError: another program has the port.
        """
        try:
            listening = bound_to("127.0.0.1", self.port)
        except OSError as error:
            text = f"Cannot listen on port {self.port} of 127.0.0.1. Take another, or 0 for any that is free."
            raise OSError(error.errno, text) from None
        self.port = listening.getsockname()[1]
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(listening)), name="pegboard-loopback", daemon=True
        )
        self._thread.start()
        self._is_ready.wait()

    def stop(self) -> None:
        """End it, and break off what is still being answered."""
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
