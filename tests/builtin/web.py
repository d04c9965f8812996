"""An HTTP server on 127.0.0.1 whose answers a test writes as functions of what was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import orjson

from tests.egress.loopback import RawServer, answer


@dataclass
class Asked:
    """One request as the server saw it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass
class Site:
    """What a server answers, and what it was asked."""

    reply: Callable[[Asked], bytes]
    asked: list[Asked] = field(default_factory=list)

    def server(self) -> RawServer:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head, *lines = server.heads[-1].rstrip().split("\r\n")
            method, target, _ = head.split(" ", 2)
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            request = Asked(method, target, headers, server.bodies[-1])
            self.asked.append(request)
            writer.write(self.reply(request))
            await writer.drain()

        server = RawServer(script)
        return server


def as_json(value: Any, *, status: str = "200 OK", headers: Sequence[str] = ()) -> bytes:
    return answer(orjson.dumps(value), status=status, headers=["Content-Type: application/json", *headers])


def page(body: str, *, status: str = "200 OK", kind: str = "text/html; charset=utf-8") -> bytes:
    return answer(body.encode(), status=status, headers=[f"Content-Type: {kind}"])


__all__ = ["Asked", "Site", "answer", "as_json", "page", "unquote"]
