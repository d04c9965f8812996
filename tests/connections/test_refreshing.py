"""Refreshing: one request at the issuer however many workers ask, and no token that is lost or outlives its end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pegboard.connections.connection_required import ConnectionRequiredError
from pegboard.model.error import CallError
from pegboard.model.secret import Secret
from pegboard.storage.store_error import StoreError
from tests import forking
from tests.connections.agreeing import ANN, BOB, KEY, connect, settings_of
from tests.connections.stores import fresh_database
from tests.connections.test_connecting import world
from tests.timing import PATIENCE_S


async def test_many_calls_of_two_workers_make_one_request_at_the_issuer(store: Any) -> None:
    async with world(store) as here:
        await connect(here.workers[0], here.issuer)
        held = here.issuer.switches.held["token"] = asyncio.Event()
        token = await here.workers[0].token(ANN, "mail")
        asked = [asyncio.create_task(each.renewed(ANN, "mail", token)) for each in here.workers * 10]
        async with asyncio.timeout(PATIENCE_S):
            while not here.issuer.hits["token:refresh_token"]:
                await asyncio.sleep(0.01)
        held.set()
        got = await asyncio.gather(*asked)
        assert {(each.version, each.value.reveal()) for each in got} == {(2, got[0].value.reveal())}
        assert here.issuer.hits["token:refresh_token"] == 1
        assert here.issuer.hits["reused refresh token"] == 0
        assert here.issuer.good(got[0].value.reveal())


async def test_a_call_that_is_cancelled_in_a_refresh_does_not_lose_the_rotated_token(store: Any) -> None:
    async with world(store) as here:
        [one, two] = here.workers
        await connect(one, here.issuer)
        held = here.issuer.switches.held["token"] = asyncio.Event()
        token = await one.token(ANN, "mail")
        asked = asyncio.create_task(one.renewed(ANN, "mail", token))
        async with asyncio.timeout(PATIENCE_S):
            while not here.issuer.hits["token:refresh_token"]:
                await asyncio.sleep(0.01)
        asked.cancel()
        held.set()
        renewed = await two.renewed(ANN, "mail", token)
        assert (renewed.version, here.issuer.hits["token:refresh_token"]) == (2, 1)


async def test_an_issuer_that_is_away_does_not_end_a_connection(store: Any) -> None:
    async with world(store) as here:
        [one, two] = here.workers
        await connect(one, here.issuer)
        token = await one.token(ANN, "mail")
        here.issuer.switches.statuses["token"] = 503
        for worker in (one, two):
            with pytest.raises(CallError) as refused:
                await worker.renewed(ANN, "mail", token)
            assert (refused.value.error.kind, refused.value.error.retryable) == ("upstream_unavailable", True)
        # What is not refused is still good.
        assert await one.token(ANN, "mail") == token
        del here.issuer.switches.statuses["token"]
        assert (await two.renewed(ANN, "mail", token)).version == 2


async def test_a_refused_refresh_needs_a_new_agreement_and_is_not_asked_for_twice(store: Any) -> None:
    async with world(store) as here:
        [one, two] = here.workers
        await connect(one, here.issuer)
        token = await one.token(ANN, "mail")
        here.issuer.revoke_all()
        for worker in (one, two, one):
            with pytest.raises(ConnectionRequiredError):
                await worker.renewed(ANN, "mail", token)
        assert here.issuer.hits["token:refresh_token"] == 1
        assert [each.is_live for each in await one.listed()] == [False]
        assert (await connect(two, here.issuer)).is_live
        assert (await one.token(ANN, "mail")).value != token.value


async def test_a_token_is_refreshed_before_it_expires_and_used_on_while_that_fails(store: Any) -> None:
    async with world(store) as here:
        here.issuer.switches.expires_in = 100
        now = 1_000_000.0
        workers = [here.worker(), here.worker()]
        for each in workers:
            each._tokens._kept_s = 0.0
            each._store._clock = lambda: now  # type: ignore[attr-defined]
        await connect(workers[0], here.issuer)
        now += 89
        assert (await workers[0].token(ANN, "mail")).version == 1
        now += 2
        here.issuer.switches.statuses["token"] = 500
        assert (await workers[0].token(ANN, "mail")).version == 1
        del here.issuer.switches.statuses["token"]
        assert (await workers[1].token(ANN, "mail")).version == 2
        now += 1_000
        here.issuer.switches.statuses["token"] = 500
        with pytest.raises(CallError, match="cannot issue tokens now"):
            await workers[0].token(ANN, "mail")
        # One for the code, and one for each attempt.
        assert here.issuer.hits["token"] == 4


async def test_a_token_that_nothing_refreshes_is_used_to_its_end_and_then_the_person_is_not_connected(
    store: Any,
) -> None:
    async with world(store) as here:
        here.issuer.switches.expires_in, here.issuer.switches.sends_no_refresh_token = 100, True
        now = 1_000_000.0
        [one, _] = here.workers
        one._store._clock, one._tokens._kept_s = lambda: now, 0.0
        await connect(one, here.issuer)
        for passed_s in (0.0, 95.0, 4.0):
            now += passed_s
            assert (await one.token(ANN, "mail")).version == 1
            assert await one.connected(ANN) == {"mail"}
        now += 2.0
        with pytest.raises(ConnectionRequiredError):
            await one.token(ANN, "mail")
        assert await one.connected(ANN) == frozenset()


async def test_a_worker_that_dies_in_a_refresh_holds_the_others_up_for_its_lease_alone(store: Any) -> None:
    async with world(store) as here:
        one, two = here.worker(lease_s=0.3), here.worker(lease_s=0.3)
        await connect(one, here.issuer)
        token = await one.token(ANN, "mail")
        lease = await one._store.lease(token.connection_id, 1, by="the dead", for_s=0.3)  # type: ignore[attr-defined]
        assert lease.state == "mine"
        assert (await two.renewed(ANN, "mail", token)).version == 2


async def test_a_token_of_a_short_life_that_expires_on_the_way_is_refreshed_and_nobody_is_asked(store: Any) -> None:
    async with world(store) as here:
        [one, _] = here.workers
        now = 1_000_000.0
        one._store._clock, one._tokens._kept_s = lambda: now, 0.0
        here.issuer.switches.expires_in = 2
        await connect(one, here.issuer)
        token = await one.token(ANN, "mail")
        for version in (2, 3, 4):
            now += 2.01  # less than the seconds for which a fresh token is not refreshed again
            token = await one.renewed(ANN, "mail", token)
            assert token.version == version
        with pytest.raises(ConnectionRequiredError):
            await one.renewed(ANN, "mail", token)  # refused at once, as another one would be
        assert here.issuer.hits["token:refresh_token"] == 3


async def test_a_disconnection_during_a_refresh_revokes_what_the_issuer_answers_as_well(store: Any) -> None:
    async with world(store) as here:
        [one, two] = here.workers
        made = await connect(one, here.issuer)
        token = await one.token(ANN, "mail")
        held = here.issuer.switches.held["token"] = asyncio.Event()
        asked = asyncio.create_task(one.renewed(ANN, "mail", token))
        async with asyncio.timeout(PATIENCE_S):
            while not here.issuer.hits["token:refresh_token"]:
                await asyncio.sleep(0.01)
        outcome = await two.disconnect(made.id)
        assert outcome is not None
        held.set()
        with pytest.raises(ConnectionRequiredError):
            await asked
        assert not any(each.is_good for each in here.issuer.tokens)
        assert await two.listed() == []


async def test_a_disconnection_without_an_answer_deletes_all_the_same_and_says_so(store: Any) -> None:
    async with world(store) as here:
        [one, _] = here.workers
        made = await connect(one, here.issuer)
        here.issuer.switches.statuses["revoke"] = 500
        outcome = await one.disconnect(made.id)
        assert outcome is not None
        assert (outcome.is_revoked, "cannot issue tokens now" in outcome.reason) == (False, True)
        assert await one.listed() == []
        assert await one.disconnect(made.id) is None


async def test_a_wrong_secret_in_the_config_ends_nobodys_connection(store: Any) -> None:
    async with world(store) as here:
        [one, _] = here.workers
        redirects = ("http://127.0.0.1:8420/connections/callback",)
        here.issuer.add_client("app", redirects=redirects, secret="right-secret")

        def configured(secret: str) -> Any:
            settings = settings_of(
                here.issuer, here.upstream, issuer=here.issuer.url, client_id="app", client_secret=Secret(secret)
            )
            one.add(settings)
            return settings

        configured("right-secret")
        await connect(one, here.issuer)
        token = await one.token(ANN, "mail")
        configured("wrong-secret")
        with pytest.raises(CallError) as refused:
            await one.renewed(ANN, "mail", token)
        assert (refused.value.error.kind, "operator" in refused.value.error.message) == ("upstream_auth", True)
        assert [each.is_live for each in await one.listed()] == [True]
        # The issuer takes another secret from now on, and so does the config.
        here.issuer.clients["app"].secret = "next-secret"
        configured("next-secret")
        assert (await one.renewed(ANN, "mail", token)).version == 2


async def test_an_answer_that_no_issuer_gives_deletes_no_token(store: Any) -> None:
    async with world(store) as here:
        [one, _] = here.workers
        await connect(one, here.issuer)
        token = await one.token(ANN, "mail")
        # As a proxy in between may answer.
        here.issuer.switches.statuses["token"] = 404
        with pytest.raises(ConnectionRequiredError):
            await one.renewed(ANN, "mail", token)
        del here.issuer.switches.statuses["token"]
        assert (await one.renewed(ANN, "mail", token)).version == 2


async def test_a_disconnection_counts_in_another_worker_within_the_time_that_it_keeps_a_token(store: Any) -> None:
    async with world(store) as here:
        now = 0.0
        [one, _] = here.workers
        other = here.worker(clock=lambda: now)
        made = await connect(one, here.issuer)
        await other.token(ANN, "mail")
        await one.disconnect(made.id)
        with pytest.raises(ConnectionRequiredError):
            await one.token(ANN, "mail")
        now += 1.0
        with pytest.raises(ConnectionRequiredError):
            await other.token(ANN, "mail")


async def test_a_token_is_decrypted_once_and_used_until_its_own_row_changes(store: Any) -> None:
    async with world(store) as here:
        now, reads = 0.0, list[str]()
        [one, _] = here.workers
        other = here.worker(clock=lambda: now)
        await connect(one, here.issuer)
        read = other._store.current

        async def counted(*args: Any) -> Any:
            reads.append("read")
            return await read(*args)

        other._store.current = counted  # type: ignore[method-assign]
        first = await other.token(ANN, "mail")
        for _ in range(3):
            now += 10.0
            await connect(one, here.issuer, BOB)  # changes the store
            assert (await other.token(ANN, "mail")) is first
        assert len(reads) == 1
        assert (await one.renewed(ANN, "mail", first)).version == 2
        now += 1.0
        assert (await other.token(ANN, "mail")).version == 2
        assert len(reads) == 2


async def test_one_question_confirms_the_tokens_of_everybody_who_calls_and_no_call_waits(postgres_url: str) -> None:
    async with world(fresh_database(postgres_url, f"conn_{os.urandom(6).hex()}")) as here:
        now, asked = 0.0, list[int]()
        [one, _] = here.workers
        worker = here.worker(clock=lambda: now)
        for person in (ANN, BOB):
            await connect(one, here.issuer, person)
        versions = worker._store.versions

        async def counted(connection_ids: Any) -> Any:
            asked.append(len(connection_ids))
            return await versions(connection_ids)

        worker._store.versions = counted  # type: ignore[method-assign]
        for person in (ANN, BOB):
            await worker.token(person, "mail")
        for _ in range(20):
            now += 0.1
            for person in (ANN, BOB):
                await worker.token(person, "mail")
            check = worker._tokens._check
            if check is not None:
                await check
        assert asked == [2] * len(asked)
        assert 1 <= len(asked) <= 3, "once in three quarters of a second, for both"
        # After a pause calls wait, again for one question; a person who did not call since is not asked about.
        asked.clear()
        for _ in range(2):
            now += 60.0
            await asyncio.gather(*(worker.token(ANN, "mail") for _ in range(5)))
        assert asked == [2, 1]


async def test_a_check_that_began_before_does_not_speak_for_a_later_call(postgres_url: str) -> None:
    async with world(fresh_database(postgres_url, f"conn_{os.urandom(6).hex()}")) as here:
        now, may_answer, is_asked = 0.0, asyncio.Event(), asyncio.Event()
        [one, _] = here.workers
        worker = here.worker(clock=lambda: now)
        for person in (ANN, BOB):
            await connect(one, here.issuer, person)
            await worker.token(person, "mail")
        versions = worker._store.versions

        async def late(connection_ids: Any) -> Any:
            is_asked.set()
            await may_answer.wait()
            return await versions(connection_ids)

        worker._store.versions = late  # type: ignore[method-assign]
        now += 2.0
        of_ann = asyncio.create_task(worker.token(ANN, "mail"))
        await is_asked.wait()
        for made in await one.listed(person=BOB):
            await one.disconnect(made.id)
        of_bob = asyncio.create_task(worker.token(BOB, "mail"))
        may_answer.set()
        assert (await of_ann).version == 1
        with pytest.raises(ConnectionRequiredError):
            await of_bob


async def test_a_token_is_not_used_longer_while_the_store_does_not_answer(store: Any) -> None:
    async with world(store) as here:
        now = 0.0
        [one, _] = here.workers
        worker = here.worker(clock=lambda: now)
        await connect(one, here.issuer)
        token = await worker.token(ANN, "mail")

        async def unanswered(connection_ids: Any) -> Any:
            raise StoreError("away")

        worker._store.versions = unanswered  # type: ignore[method-assign]
        worker._store.version_at_once = lambda connection_id: None  # type: ignore[method-assign]
        for _ in range(9):
            now += 0.1
            assert await worker.token(ANN, "mail") is token
            await asyncio.sleep(0)
        now += 0.2
        with pytest.raises(CallError, match="does not answer"):
            await worker.token(ANN, "mail")


DYING = f"""
import asyncio, sys
from pegboard.connections.auth_settings import AuthSettings
from pegboard.connections.connection_records import Person
from pegboard.connections.connections import Connections
from pegboard.model.secret import Secret

async def main(store, server_url, host, stops):
    one = Connections.open(store, keys=[Secret({KEY.reveal()!r})])
    one._lease_s = 0.5
    if stops:
        async def never(*args, **options):
            print("answered", flush=True)
            await asyncio.Event().wait()
        one._store.renew = never
    one.add(AuthSettings(source="mail", mode="user", server_url=server_url, hosts=(host,)))
    person = Person(user_id="ann", space_id="acme")
    await one.renewed(person, "mail", await one.token(person, "mail"))
    print("stored", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "phase",
    ["before the issuer works", "before its answer", "before the token is stored", "after the token is stored"],
)
async def test_kill_minus_nine_in_the_middle_of_a_refresh_ends_in_a_known_way_in_each_phase(
    store: Any, tmp_path: Path, phase: str
) -> None:
    async with world(store) as here:
        [one, _] = here.workers
        await connect(one, here.issuer)
        token = await one.token(ANN, "mail")
        switches, hits, held = here.issuer.switches, here.issuer.hits, asyncio.Event()
        if phase == "before the issuer works":
            switches.held_before["token"] = held
        elif phase == "before its answer":
            switches.held["token"] = held
        uri = store if isinstance(store, str) else f"sqlite:{store}"
        script = tmp_path / "dying.py"
        script.write_text(DYING)
        printed = tmp_path / "printed"
        with printed.open("wb") as out:
            stops = "yes" if phase == "before the token is stored" else ""
            words = ["python", str(script), uri, here.upstream.resource, here.issuer.url.split("/")[2], stops]
            process = await asyncio.to_thread(forking.fork, words, files=(0, out.fileno(), 2))

        def is_in_phase() -> bool:
            if phase == "after the token is stored":
                return printed.read_bytes() == b"stored\n"
            if phase == "before the token is stored":
                return printed.read_bytes() == b"answered\n"
            # One for the code. The issuer counts a request before it holds it.
            return hits["token"] >= 2 and (phase == "before the issuer works" or hits["token:refresh_token"] > 0)

        async with asyncio.timeout(PATIENCE_S):
            while not is_in_phase():
                await asyncio.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert await asyncio.to_thread(process.wait) == -signal.SIGKILL
        if phase == "before the issuer works":
            # The request that died with its process is not worked on either.
            switches.statuses["token"] = 503
        held.set()
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_S):
            while here.issuer.waiting:
                await asyncio.sleep(0.01)
        switches.statuses.clear()
        switches.held.clear()
        switches.held_before.clear()
        is_lost = phase in ("before its answer", "before the token is stored")
        if is_lost:
            # The answer died with the process, and a refresh token works once: the person is asked again.
            with pytest.raises(ConnectionRequiredError):
                await one.renewed(ANN, "mail", token)
            # The issuer has ended the agreement, and a new one works.
            assert [each.is_live for each in await one.listed()] == [False]
            await connect(one, here.issuer)
        else:
            assert (await one.renewed(ANN, "mail", token)).version == 2
        assert hits["reused refresh token"] == int(is_lost)
        assert hits["token:refresh_token"] == (2 if is_lost else 1)
