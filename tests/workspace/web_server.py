"""Web server: serves answers of a test on loopback, and records what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple


class Asked(NamedTuple):
    """A request: its path with the query, and its headers in lower case."""

    path: str
    headers: Mapping[str, str]


class Answer(NamedTuple):
    """An answer to send."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}


@contextmanager
def answering(answer: Callable[[Asked], Answer]) -> Iterator[tuple[str, list[Asked]]]:
    """Serve within the block; yield the URL of the server and the list of requests."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            pass

        def do_GET(self) -> None:
            request = Asked(self.path, {name.lower(): value for name, value in self.headers.items()})
            asked.append(request)
            given = answer(request)
            self.send_response(given.status)
            for name, value in {"content-length": str(len(given.body)), **given.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(given.body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()
