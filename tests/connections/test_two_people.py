"""Two people: whatever they do at once, on one worker or two, not a byte of one reaches the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pegboard import ToolContext
from tests.connections.agreeing import ANN, BOB, connect
from tests.connections.test_auth_config import loaded
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import ApiUpstream, McpUpstream, mail_of
from tests.sizes import examples

PEOPLE = {"ann": ANN, "bob": BOB}
OTHER = {"ann": "bob", "bob": "ann"}
OPS = ("connect", "disconnect", "expire", "list", "search", "why", "mcp", "api", "hook", "other's tool", "both")
CALLS = {"mcp": "mail__read_mail", "api": "post__readMail", "hook": "me", "other's tool": "mail__only_for_{other}"}


class Worlds:
    """Workers with one store, an issuer, and an upstream of each kind."""

    def __init__(self, issuer: ToyIssuer, mcp: McpUpstream, workers: list[Any]) -> None:
        self.issuer, self.mcp, self.workers = issuer, mcp, workers
        self.answers: list[tuple[str, str, str]] = []

    async def do(self, worker: int, user: str, op: str) -> None:
        catalog = self.workers[worker % len(self.workers)]
        if op == "both":
            await asyncio.gather(*(self.do(worker + i, who, "mcp") for i, who in enumerate(PEOPLE)))
            return
        said = await self._done(catalog, user, op)
        self.answers.append((user, op, said))
        other = OTHER[user]
        for canary in (mail_of(other), f"only_for_{other}", *self._tokens_of(other)):
            if op in CALLS and f"only_for_{other}" == canary:
                continue  # named in the error, as the caller named it
            assert canary not in said, (user, op, canary, said[-2_000:])
        for secret in self.issuer.secrets:
            assert secret not in said, (user, op, said[-2_000:])

    def _tokens_of(self, user: str) -> list[str]:
        return [token.access for token in self.issuer.tokens if token.user == user]

    async def _done(self, catalog: Any, user: str, op: str) -> str:
        connections, person = catalog.connections, PEOPLE[user]
        view = await catalog.aview(ToolContext(user_id=user, space_id="acme"))
        if op == "connect":
            for source in ("mail", "post", "me"):
                await connect(connections, self.issuer, person, source=source)
            return ""
        if op == "disconnect":
            held = await connections.listed(person=person)
            return repr([await connections.disconnect(each.id) for each in held[:1]])
        if op == "expire":
            self.issuer.expire_all()
            return ""
        if op == "list":
            return json.dumps([view.export("mcp"), view.names()], default=repr)
        if op == "search":
            return repr(await catalog.search(view, f"a tool of {user} alone, mail"))
        if op == "why":
            return repr([view.why(name) for name in (*view.names(), "mail__whoami")])
        result = await view.call(CALLS[op].format(other=OTHER[user]), {})
        if result.error is None and op != "other's tool":
            assert user in json.dumps([result.text, result.structured]), (user, op, result)
        return repr(result)


@asynccontextmanager
async def worlds(folder: Path, workers: int) -> AsyncGenerator[Worlds]:
    async with (
        ToyIssuer().running() as issuer,
        McpUpstream(issuer).running() as mcp,
        ApiUpstream(issuer).running() as api,
        AsyncExitStack() as stack,
    ):
        auth = {"mode": "user", "issuer": issuer.url}
        tools: list[dict[str, Any]] = [
            {"name": "mail", "type": "mcp", "mcp": {"transport": "http", "url": mcp.resource}, "auth": auth},
            {"name": "post", "type": "openapi", "auth": auth,
             "openapi": {"spec": f"{api.origin}/openapi.json", "base_url": api.origin}},
            {"name": "me", "type": "webhook", "description": "Say who calls.", "auth": auth,
             "webhook": {"url": f"{api.origin}/mail", "method": "GET"}},
        ]  # fmt: skip
        catalogs = [await stack.enter_async_context(loaded(folder, *tools)) for _ in range(workers)]
        yield Worlds(issuer, mcp, catalogs)
        assert mcp.crossed == []


STEP = st.tuples(st.integers(0, 1), st.sampled_from(sorted(PEOPLE)), st.sampled_from(OPS))


@pytest.mark.hypothesis  # its property is an inner function, which `make soak` would not find
@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_of_one_person_reaches_the_other(tmp_path_factory: pytest.TempPathFactory, workers: int) -> None:
    @settings(
        max_examples=examples(1),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.lists(st.lists(STEP, min_size=1, max_size=4), min_size=3, max_size=8))
    def people(rounds: list[list[tuple[int, str, str]]]) -> None:
        async def run() -> None:
            async with worlds(tmp_path_factory.mktemp("people"), workers) as here:
                for user in PEOPLE:
                    await here.do(0, user, "connect")
                    await here.do(0, user, "mcp")
                for steps in rounds:
                    # At the same time; a person at the issuer is one at a time, as browsers are.
                    alone = [step for step in steps if step[2] == "connect"]
                    for step in alone:
                        await here.do(*step)
                    await asyncio.gather(*(here.do(*step) for step in steps if step not in alone))
                # Both can still do everything: what was refused above was refused for a reason.
                for user in PEOPLE:
                    await here.do(0, user, "connect")
                    for op in ("list", "list", "mcp", "api", "hook"):
                        await here.do(0, user, op)
                    for _, op, said in here.answers[-3:]:
                        assert mail_of(user) in said, (user, op, said)

        asyncio.run(run())

    people()
