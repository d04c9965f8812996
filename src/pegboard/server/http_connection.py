"""HttpConnection: one HTTP connection that has a deadline and a size for its headers, which uvicorn's own has not."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pegboard.model.bounds import DEFAULT_BOUNDS, HEADER_BYTES
from pegboard.server.access_log import log_request

_BAD_REQUEST = 400  # not a limit: a status of HTTP


class HttpConnection(HttpToolsProtocol):
    """Closes connections that send their headers too slowly, or too many of them."""

    header_s: float = DEFAULT_BOUNDS.header_s
    _deadline: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _is_in_head = True
    _is_last = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._is_in_head:
            return
        if self._head_bytes > HEADER_BYTES:
            self.send_400_response("The headers are too long.")
        elif self._deadline is None:
            self._expect_head()

    def on_message_begin(self) -> None:
        self._is_in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._forget_deadline()
        super().on_headers_complete()
        if self._is_last:
            self.end_after_this()

    @classmethod
    def end_each(cls) -> None:
        """Have every connection end with its next answer."""
        cls._is_last = True

    def end_after_this(self) -> None:
        """Tell the client, with the answer that is due, to come again by another connection."""
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:
        # It gets no further than this, so nobody else will log it.
        log_request(self.client, "-", "-", _BAD_REQUEST, 0.0)
        super().send_400_response(msg)

    def _expect_head(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(self.header_s, self.transport.close)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
