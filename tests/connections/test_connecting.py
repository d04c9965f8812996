"""Connecting: one person's act, over any process, whose every step is bound to person, source, browser and issuer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pegboard.connections.connection_records import (
    Challenge,
    ConnectFailedError,
    Person,
)
from pegboard.connections.connection_required import ConnectionRequiredError
from pegboard.connections.connections import Connections
from pegboard.connections.limits import OPEN_FLOWS
from pegboard.model.secret import Secret
from tests.connections.agreeing import ANN, BOB, BROWSER, KEY, connect, connections_in, sent_back, settings_of
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import McpUpstream


@dataclass
class World:
    issuer: ToyIssuer
    upstream: McpUpstream
    store: Any
    workers: list[Connections]
    made: list[Connections] = field(default_factory=list[Connections])

    def worker(self, **options: Any) -> Connections:
        made = connections_in(self.store, **options)
        made.add(settings_of(self.issuer, self.upstream))
        self.made.append(made)
        return made


@asynccontextmanager
async def world(store: Any) -> AsyncGenerator[World]:
    async with ToyIssuer(path="/tenant").running() as issuer, McpUpstream(issuer).running() as upstream:
        made = World(issuer, upstream, store, [])
        made.workers = [made.worker(), made.worker()]
        yield made
        for each in made.made:
            await each.close()


async def test_a_person_connects_in_three_steps_in_three_processes(store: Any) -> None:
    async with world(store) as here:
        with pytest.raises(ConnectionRequiredError) as refused:
            await here.workers[0].token(ANN, "mail")
        details: Any = refused.value.error.details
        ticket = details["url"].rpartition("/")[2]
        asked = await here.workers[1].opened(ticket)
        assert (asked.person, asked.source, asked.issuer) == (ANN, "mail", here.issuer.url)
        assert (asked.resource, asked.scopes) == (here.upstream.resource, ("read", "offline_access"))
        back = await sent_back(await here.workers[0].agree(ticket, browser=BROWSER))
        made = await here.workers[1].finish(back["state"], browser=BROWSER, code=back["code"], iss=back["iss"])
        token = await here.workers[0].token(ANN, "mail")
        assert here.issuer.good(token.value.reveal()).user == "ann"  # type: ignore[union-attr]
        assert [each.id for each in await here.workers[0].listed()] == [made.id]
        with pytest.raises(ConnectionRequiredError):
            await here.workers[0].token(BOB, "mail")
        with pytest.raises(ConnectionRequiredError):
            await here.workers[0].token(Person(user_id="ann", space_id="other"), "mail")


async def test_nothing_that_is_stored_or_shown_has_a_token_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    async with world(tmp_path / "c.db") as here:
        [one, _] = here.workers
        link = await one.begin(ANN, "mail")
        connection = await connect(one, here.issuer)
        token = await one.token(ANN, "mail")
        shown = repr((connection, token, one, one._store, await one.listed(), dict(one.sources)))  # type: ignore[attr-defined]
        stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        logged = "".join(record.getMessage() for record in caplog.records if record.name.startswith("pegboard"))
        secrets = [
            *here.issuer.secrets,
            link.ticket.reveal(),
            KEY.reveal(),
            here.issuer.seen["token"][0]["code_verifier"],
        ]
        for secret in secrets:
            assert secret not in shown
            assert secret.encode() not in stored
            assert secret not in logged


async def test_a_link_works_once_and_in_one_browser_and_for_its_person(store: Any) -> None:
    async with world(store) as here:
        [one, two] = here.workers
        ticket = (await one.begin(ANN, "mail")).ticket.reveal()
        with pytest.raises(ConnectFailedError, match="you are 'bob'"):
            await two.opened(ticket, person=BOB)
        back = await sent_back(await one.agree(ticket, browser=BROWSER))
        for step in (
            two.agree(ticket, browser="a thief's"),
            two.finish(back["state"], browser="a thief's", code=back["code"]),
        ):
            with pytest.raises(ConnectFailedError, match="another browser") as refused:
                await step
            assert refused.value.failure == "other_browser"
        await two.finish(back["state"], browser=BROWSER, code=back["code"], iss=back["iss"])
        for again in (
            two.finish(back["state"], browser=BROWSER, code=back["code"], iss=back["iss"]),
            two.opened(ticket),
            two.agree(ticket, browser=BROWSER),
        ):
            with pytest.raises(ConnectFailedError, match="was used"):
                await again
        assert here.issuer.hits["token:authorization_code"] == 1


async def test_the_same_refused_call_gives_the_same_link_until_it_is_opened(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        [one, two] = here.workers
        first, again = await one.begin(ANN, "mail"), await two.begin(ANN, "mail")
        assert first == again
        await one.agree(first.ticket.reveal(), browser=BROWSER)
        assert (await two.begin(ANN, "mail")).ticket != first.ticket
        assert (await two.begin(BOB, "mail")).ticket != first.ticket


async def test_a_person_with_too_many_open_links_is_told_so_and_gets_no_more(store: Any) -> None:
    async with world(store) as here:
        [one, _] = here.workers
        for number in range(OPEN_FLOWS):
            await one.begin(ANN, "mail", Challenge(scopes=(f"scope-{number}",), error="insufficient_scope"))
        refused = await one.required(ANN, "mail")
        assert refused.error.kind == "connection_required"
        assert ("url" in refused.error.details, "links to connect wait" in str(refused)) == (False, True)
        assert "url" in (await one.required(BOB, "mail")).error.details


async def test_an_answer_of_another_issuer_connects_nobody(store: Any) -> None:
    async with world(store) as here:
        [one, _] = here.workers
        for iss in ("https://evil.example", here.issuer.url + "/", None):
            link = await one.begin(ANN, "mail")
            back = await sent_back(await one.agree(link.ticket.reveal(), browser=BROWSER))
            with pytest.raises(ConnectFailedError) as refused:
                await one.finish(back["state"], browser=BROWSER, code=back["code"], iss=iss)
            assert refused.value.failure == "issuer_changed"
            # The state is used up by the attempt.
            with pytest.raises(ConnectFailedError, match="was used"):
                await one.finish(back["state"], browser=BROWSER, code=back["code"], iss=back["iss"])
        assert here.issuer.hits["token"] == 0
        assert await one.listed() == []


@pytest.mark.parametrize("swap", ["issuer", "resource", "metadata"])
async def test_a_swapped_issuer_or_resource_is_refused_before_anybody_is_asked(tmp_path: Path, swap: str) -> None:
    async with world(tmp_path / "c.db") as here, ToyIssuer().running() as evil:
        [one, _] = here.workers
        link = await one.begin(ANN, "mail")
        if swap == "issuer":
            # The metadata of the other one are not where its name says.
            here.upstream.switches.issuer = evil.url + "/elsewhere"
        elif swap == "resource":
            here.upstream.switches.resource = "https://bank.example/mcp"
        else:
            here.issuer.switches.says_issuer = evil.url
        with pytest.raises(ConnectFailedError) as refused:
            await one.opened(link.ticket.reveal())
        assert refused.value.failure in ("issuer_changed", "issuer_unavailable", "not_supported")
        assert (here.issuer.hits["authorize"], evil.hits["authorize"]) == (0, 0)


async def test_a_configured_issuer_is_compared_to_the_last_character(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        [one, _] = here.workers
        one.add(settings_of(here.issuer, here.upstream, issuer=here.issuer.url + "/"))
        link = await one.begin(ANN, "mail")
        with pytest.raises(ConnectFailedError, match="to the last character"):
            await one.opened(link.ticket.reveal())
        one.add(settings_of(here.issuer, here.upstream, issuer=here.issuer.url))
        assert (await one.opened(link.ticket.reveal())).issuer == here.issuer.url


async def test_what_a_link_was_opened_with_stays_when_the_service_names_another_issuer(store: Any) -> None:
    async with world(store) as here, ToyIssuer().running() as evil:
        [one, two] = here.workers
        link = await one.begin(ANN, "mail")
        await one.opened(link.ticket.reveal())
        here.upstream.switches.issuer = evil.url
        url = await two.agree(link.ticket.reveal(), browser=BROWSER)
        assert url.startswith(here.issuer.url)
        back = await sent_back(url)
        await two.finish(back["state"], browser=BROWSER, code=back["code"], iss=back["iss"])
        here.issuer.expire_all()
        token = await two.token(ANN, "mail")
        await two.renewed(ANN, "mail", token)
        assert here.issuer.hits["token:refresh_token"] == 1
        assert evil.hits == {}


async def test_a_redirect_to_another_port_or_path_is_never_asked_for(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        here.issuer.add_client("app", redirects=("http://127.0.0.1:8420/connections/callback",))
        [one, _] = here.workers
        one.add(settings_of(here.issuer, here.upstream, client_id="app"))
        link = await one.begin(ANN, "mail")
        url = await one.agree(link.ticket.reveal(), browser=BROWSER)
        assert parse_qs(urlsplit(url).query)["redirect_uri"] == ["http://127.0.0.1:8420/connections/callback"]
        back = await sent_back(url)
        await one.finish(back["state"], browser=BROWSER, code=back["code"], iss=back["iss"])
        assert here.issuer.seen["token"][-1]["redirect_uri"] == "http://127.0.0.1:8420/connections/callback"


async def test_a_person_who_says_no_is_told_so(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        [one, _] = here.workers
        link = await one.begin(ANN, "mail")
        url = await one.agree(link.ticket.reveal(), browser=BROWSER)
        state = parse_qs(urlsplit(url).query)["state"][0]
        with pytest.raises(ConnectFailedError, match="access_denied") as refused:
            await one.finish(state, browser=BROWSER, error="access_denied", iss=here.issuer.url)
        assert refused.value.failure == "denied"
        link = await one.begin(ANN, "mail")
        await one.decline(link.ticket.reveal(), browser=BROWSER)
        with pytest.raises(ConnectFailedError, match="was used"):
            await one.opened(link.ticket.reveal())


async def test_a_metadata_document_is_the_client_id_where_the_issuer_takes_it(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        public = here.worker(public_url="https://tools.example.com")
        link = await public.begin(ANN, "mail")
        url = await public.agree(link.ticket.reveal(), browser=BROWSER)
        asked = parse_qs(urlsplit(url).query)
        assert asked["client_id"] == ["https://tools.example.com/.well-known/pegboard-client.json"]
        assert public.client_document() == {
            "client_id": asked["client_id"][0],
            "client_name": "Pegboard",
            "redirect_uris": asked["redirect_uri"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
        assert here.issuer.hits["register"] == 0


async def test_pegboard_registers_once_and_uses_the_registered_client_for_everybody(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        await connect(here.workers[0], here.issuer, ANN)
        await connect(here.workers[1], here.issuer, BOB)
        assert here.issuer.hits["register"] == 1


async def test_an_issuer_without_registration_asks_the_operator_for_a_client(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        here.issuer.switches.has_registration = False
        [one, _] = here.workers
        link = await one.begin(ANN, "mail")
        with pytest.raises(ConnectFailedError, match="with the redirect URI"):
            await one.agree(link.ticket.reveal(), browser=BROWSER)


async def test_a_step_up_asks_for_the_new_scope_and_keeps_the_old_ones(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        [one, _] = here.workers
        await connect(one, here.issuer)
        more = Challenge(scopes=("write",), error="insufficient_scope", resource_metadata=here.upstream.metadata_url)
        refused = await one.required(ANN, "mail", more)
        assert "with the scopes 'write'" in str(refused)
        made = await connect(one, here.issuer, challenge=more)
        assert made.scopes == ("read", "offline_access", "write")
        assert len(await one.listed()) == 1


async def test_an_old_key_still_opens_and_the_next_refresh_uses_the_new_one(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        [one, _] = here.workers
        await connect(one, here.issuer)
        new = Secret("another-key-of-connections-that-is-long-enough")
        rotated = here.worker(keys=(new, KEY))
        token = await rotated.token(ANN, "mail")
        await rotated.renewed(ANN, "mail", token)
        only_new = here.worker(keys=(new,))
        assert (await only_new.token(ANN, "mail")).version == 2
        with pytest.raises(ConnectionRequiredError):
            await one.token(ANN, "mail")


async def test_a_row_moved_to_another_person_opens_for_nobody(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        [one, _] = here.workers
        connection = await connect(one, here.issuer, ANN)
        await connect(one, here.issuer, BOB)

        def move(run: Any) -> None:
            [(sealed,)] = run("select sealed from connections where id = :id", id=connection.id)
            run("update connections set sealed = :sealed where user_id = 'bob'", sealed=sealed)

        with one._store.database.transaction() as run:  # type: ignore[attr-defined]
            move(run)
        with pytest.raises(ConnectionRequiredError):
            await one.token(BOB, "mail")


async def test_both_stores_hold_the_same(postgres_url: str, tmp_path: Path) -> None:
    for store in (tmp_path / "c.db", postgres_url):
        async with world(store) as here:
            [one, two] = here.workers
            made = await connect(one, here.issuer)
            token = await two.token(ANN, "mail")
            renewed = await two.renewed(ANN, "mail", token)
            assert (renewed.connection_id, renewed.version) == (made.id, 2)
            assert await one.connected(ANN) == {"mail"}
            outcome = await one.disconnect(made.id)
            assert outcome is not None
            assert outcome.is_revoked, outcome.reason
            assert here.issuer.good(renewed.value.reveal()) is None
            assert await two.listed() == []
