"""Resources and prompts of personal sources: each person's own, on two workers, and nothing of one for the other."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference

from pegboard import ToolContext, http_app, load_catalog
from pegboard.auth.keys import KeyStore
from pegboard.connections.connection_records import Person
from pegboard.sources.mcp.personal_resources import PersonalResources
from pegboard.sources.mcp.upstream_resources import ResourceRequest, UpstreamResources, offered_items
from tests.auth.parts import bearer
from tests.connections.agreeing import ANN, BOB, connect, sent_back
from tests.connections.test_auth_config import ENV
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import McpUpstream, mail_of
from tests.server.doors import served
from tests.upstream_mcp.parts import on_stdio

PEOPLE, OTHER = {"ann": ANN, "bob": BOB}, {"ann": "bob", "bob": "ann"}


@dataclass
class Two:
    """Two workers with one store."""

    issuer: ToyIssuer
    upstream: McpUpstream
    catalogs: list[Any]
    urls: list[str]
    keys: dict[str, str]

    @asynccontextmanager
    async def client(self, user: str, worker: int, era: Any) -> AsyncGenerator[Client]:
        async with (
            httpx2.AsyncClient(headers=bearer(self.keys[user]), timeout=60) as http,
            Client(streamable_http_client(f"{self.urls[worker]}/mcp", http_client=http), mode=era) as client,
        ):
            yield client


@asynccontextmanager
async def two(folder: Path, store: Any, *, timeout_s: int = 30, **profile: Any) -> AsyncGenerator[Two]:
    uri = f"sqlite:{store}" if isinstance(store, Path) else store
    async with (
        ToyIssuer(path="/tenant").running() as issuer,
        McpUpstream(issuer).running() as upstream,
        AsyncExitStack() as stack,
    ):
        config = {
            "name": "acme",
            "connections": {"key": "${CONNECTIONS_KEY}", "store": uri, "public_url": "http://127.0.0.1:8420"},
            "tools": [{"name": "mail", "type": "mcp",
                       "mcp": {"transport": "http", "url": upstream.resource, "timeout": timeout_s},
                       "auth": {"mode": "user", "issuer": issuer.url}}],
            "profiles": {"all": profile},
            "identity": {
                "api_keys": {"store": "sqlite:./keys.db"},
                "map": [{"when": {"key": user}, "user": user, "space": "acme", "profiles": ["all"]} for user in PEOPLE],
            },
        }  # fmt: skip
        path = folder / "pegboard.yaml"
        path.write_text(json.dumps(config))
        keys = {user: KeyStore(folder / "keys.db").add(user)[0] for user in PEOPLE}
        catalogs, urls = list[Any](), list[str]()
        for _ in range(2):
            catalog, loaded = load_catalog(path, env=ENV)
            urls.append(await stack.enter_async_context(served(http_app(catalog, config=loaded))))
            catalogs.append(catalog)
        yield Two(issuer, upstream, catalogs, urls, keys)
        assert upstream.crossed == []


async def everything(client: Client) -> tuple[Any, str]:
    """List, read, get and complete all that a client is offered; return the lists, and all that came."""
    resources, prompts = await client.list_resources(), await client.list_prompts()
    templates = await client.list_resource_templates()
    listed = {
        "resources": [str(item.uri) for item in resources.resources],
        "templates": [item.uri_template for item in templates.resource_templates],
        "prompts": [item.name for item in prompts.prompts],
    }
    answers: list[Any] = [resources, templates, prompts]
    answers += [await client.read_resource(uri) for uri in listed["resources"]]
    answers += [await client.read_resource(uri.replace("{word}", "rent")) for uri in listed["templates"]]
    answers += [
        await client.get_prompt(prompt.name, {each.name: "rent" for each in prompt.arguments or ()})
        for prompt in prompts.prompts
    ]
    return listed, repr(answers)


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_each_person_lists_and_reads_what_their_own_account_offers(store: Any, era: Any, tmp_path: Path) -> None:
    async with two(tmp_path, store) as here:
        async with here.client("ann", 0, era) as client:
            assert (await client.list_resources()).resources == []
            assert (await client.list_prompts()).prompts == []
        for person in PEOPLE.values():
            await connect(here.catalogs[0].connections, here.issuer, person, source="mail")
        for worker in (0, 1):
            for user, other in OTHER.items():
                async with here.client(user, worker, era) as client:
                    listed, text = await everything(client)
                    assert listed == {
                        "resources": [f"pegboard://mail/mail://{path}" for path in ("folder/" + user, "help", "inbox")],
                        "templates": ["pegboard://mail/mail://search/{word}"],
                        "prompts": ["mail__answer", f"mail__only_for_{user}"],
                    }
                    assert text.count(mail_of(user)) >= 6
                    assert mail_of(other) not in text
                    assert f"only_for_{other}" not in text
                    with pytest.raises(MCPError, match="available to this caller"):
                        await client.read_resource(f"pegboard://mail/mail://folder/{other}")
                    with pytest.raises(MCPError, match="available to this caller"):
                        await client.get_prompt(f"mail__only_for_{other}", {})


async def test_a_worker_that_does_not_know_a_person_yet_reads_for_them(tmp_path: Path) -> None:
    async with two(tmp_path, tmp_path / "c.db") as here:
        await connect(here.catalogs[0].connections, here.issuer, ANN, source="mail")
        async with here.client("ann", 0, "2026-07-28") as client:
            read = await client.read_resource("pegboard://mail/mail://inbox")
            assert mail_of("ann") in repr(read)
        async with here.client("ann", 1, "2026-07-28") as client:
            assert mail_of("ann") in repr(await client.get_prompt("mail__answer", {"topic": "rent"}))


async def test_an_attachment_that_a_tool_named_is_read_by_its_person_alone(tmp_path: Path) -> None:
    async with two(tmp_path, tmp_path / "c.db") as here:
        here.upstream.switches.links = True
        for person in PEOPLE.values():
            await connect(here.catalogs[0].connections, here.issuer, person, source="mail")
        async with here.client("ann", 0, "2026-07-28") as ann, here.client("bob", 0, "2026-07-28") as bob:
            await bob.list_resources()
            result = await ann.call_tool("mail__read_mail", {})
            [uri] = [str(each.uri) for each in result.content if each.type == "resource_link"]
            assert mail_of("ann") in repr(await ann.read_resource(uri))
            with pytest.raises(MCPError):
                await bob.read_resource(uri)


async def test_what_an_account_offered_is_gone_when_it_is_disconnected_or_replaced(tmp_path: Path) -> None:
    async with two(tmp_path, tmp_path / "c.db") as here:
        catalog = here.catalogs[0]
        made = await connect(catalog.connections, here.issuer, ANN, source="mail")
        async with here.client("ann", 0, "2026-07-28") as client:
            assert (await client.list_prompts()).prompts
            await catalog.connections.disconnect(made.id)
            assert (await client.list_prompts(cache_mode="refresh")).prompts == []
            with pytest.raises(MCPError, match="available to this caller"):
                await client.read_resource("pegboard://mail/mail://inbox")
            # Ann connects again, with an account that the service knows as Bob's.
            link = await catalog.connections.begin(ANN, "mail")
            await agree_as(catalog.connections, here.issuer, link.ticket.reveal(), "bob")
            prompts = (await client.list_prompts(cache_mode="refresh")).prompts
            assert [prompt.name for prompt in prompts] == ["mail__answer", "mail__only_for_bob"]


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_no_list_or_answer_has_the_token_that_a_server_repeats(tmp_path: Path, era: Any) -> None:
    async with two(tmp_path, tmp_path / "c.db") as here:
        here.upstream.switches.repeats_token = True
        [catalog, _] = here.catalogs
        for person in PEOPLE.values():
            await connect(catalog.connections, here.issuer, person, source="mail")
        texts = list[str]()
        for user in PEOPLE:
            async with here.client(user, 0, era) as client:
                listed, text = await everything(client)
                assert "pegboard://mail/mail://repeated" in listed["resources"]
                assert not any("mail://by/" in uri for uri in listed["resources"])
                reference = PromptReference(name="mail__answer")
                completed = await client.complete(reference, {"name": "topic", "value": "rent"})
                texts += [text, repr(completed), repr(await client.list_tools())]
            async with httpx2.AsyncClient(headers=bearer(here.keys[user]), timeout=60) as http:
                response = await http.get(f"{here.urls[0]}/v1/tools")
                assert "mail__whoami" in response.text
                texts.append(response.text)
        assert "repeated" in "".join(texts)
        for text in texts:
            for secret in here.issuer.secrets:
                assert secret not in text


async def test_a_rule_that_denies_a_name_denies_it_for_every_persons_item(tmp_path: Path) -> None:
    async with two(tmp_path, tmp_path / "c.db", deny=["prompt.mail__answer", "resource.mail__mail_inbox"]) as here:
        for person in PEOPLE.values():
            await connect(here.catalogs[0].connections, here.issuer, person, source="mail")
        for user in PEOPLE:
            async with here.client(user, 0, "2026-07-28") as client:
                listed, _ = await everything(client)
                assert listed["prompts"] == [f"mail__only_for_{user}"]
                assert "pegboard://mail/mail://inbox" not in listed["resources"]


async def test_a_server_that_is_away_leaves_the_lists_of_others_as_they_are(tmp_path: Path) -> None:
    async def listed(worker: int, user: str) -> list[str]:
        view = here.catalogs[worker].resources.view(ToolContext(user_id=user, space_id="acme"))
        return (await view.prepare()).names()

    # The lists wait for the server as long as its time limit.
    async with two(tmp_path, tmp_path / "c.db", timeout_s=5) as here:
        for person in PEOPLE.values():
            await connect(here.catalogs[0].connections, here.issuer, person, source="mail")
        of_ann, of_bob = await listed(0, "ann"), await listed(1, "bob")
        assert ("mail_inbox" in repr(of_ann), "mail_inbox" in repr(of_bob)) == (True, True)
        here.upstream.switches.status = 500
        # The second worker has not listed Ann's account yet.
        assert await listed(1, "ann") == []
        assert (await listed(1, "bob"), await listed(0, "ann")) == (of_bob, of_ann)


def test_the_lists_of_many_people_are_bounded_and_equal_items_are_one() -> None:
    async def run(_request: ResourceRequest, _ctx: Any) -> Any:
        raise AssertionError

    def items(*names: str) -> Any:
        prompts = [{"name": name} for name in names]
        return offered_items(UpstreamResources(prompts=prompts), on_stdio(), run)

    many = PersonalResources("mail", most=4)
    people = [Person(user_id=f"user{number}") for number in range(5)]
    assert many.remember(people[0], items("same", "own"))
    assert not many.remember(people[0], items("same", "own"))
    assert many.remember(people[1], items("same"))
    assert len(many.entries()) == 2
    assert many.remember(people[2], items("a", "b", "c"))
    assert [many.knows(person) for person in people] == [False, True, True, False, False]
    assert len(many.entries()) == 4
    many.clear()
    assert (many.entries(), many.forget(people[1])) == ((), False)


async def agree_as(connections: Any, issuer: ToyIssuer, ticket: str, account: str) -> None:
    """Let the person of a link log in with an account of another name."""
    issuer.user = account
    url = await connections.agree(ticket, browser="b")
    back = await sent_back(url)
    await connections.finish(back["state"], browser="b", code=back["code"], iss=back.get("iss"))
