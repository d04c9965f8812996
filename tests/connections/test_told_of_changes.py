"""A person's clients hear when their own account is connected; clients of others hear nothing of it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.auth.parts import bearer
from tests.connections.agreeing import ANN, BOB, connect
from tests.connections.test_personal_resources import Two, two
from tests.timing import PATIENCE_S

LISTS = {f"notifications/{what}/list_changed" for what in ("tools", "prompts", "resources")}


class Ears:
    """A client of one person, and what it hears."""

    def __init__(self, here: Two, user: str, era: str) -> None:
        self._here, self._user, self._era = here, user, era
        self.heard: set[str] = set()

    async def __call__(self, message: Any) -> None:
        self.heard.add(getattr(message, "method", type(message).__name__))

    async def open(self, stack: AsyncExitStack) -> Client:
        headers = bearer(self._here.keys[self._user])
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=60))
        transport = streamable_http_client(f"{self._here.urls[0]}/mcp", http_client=http)
        client = await stack.enter_async_context(Client(transport, mode=self._era, message_handler=self))
        if self._era != "legacy":
            wanted: dict[str, Any] = {f"{what}_list_changed": True for what in ("tools", "prompts", "resources")}
            events = await stack.enter_async_context(client.listen(**wanted))
            stack.callback(asyncio.create_task(self._listen(events)).cancel)
        return client

    async def _listen(self, events: Any) -> None:
        async for event in events:
            self.heard.add(f"notifications/{type(event).__name__.removesuffix('ListChanged').lower()}/list_changed")


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_a_person_who_connects_is_told_of_their_lists_and_nobody_else_is(era: str, tmp_path: Path) -> None:
    async with two(tmp_path, tmp_path / "c.db") as here, AsyncExitStack() as stack:
        connections = here.catalogs[0].connections
        # The tools of the server are pinned already, so a profile does not change with Ann's account.
        await connect(connections, here.issuer, BOB, source="mail")
        ann, bob = Ears(here, "ann", era), Ears(here, "bob", era)
        of_bob, of_ann = await bob.open(stack), await ann.open(stack)
        await of_bob.list_tools()
        await of_ann.list_tools()
        await of_bob.list_resources()
        async with asyncio.timeout(PATIENCE_S):
            while (ann.heard, bob.heard) != (LISTS, set()):
                # Bob's own lists were new before; an earlier client opens its stream next to its first requests.
                ann.heard.clear()
                bob.heard.clear()
                await connect(connections, here.issuer, ANN, source="mail")
                for _ in range(20):
                    await asyncio.sleep(0.01)
