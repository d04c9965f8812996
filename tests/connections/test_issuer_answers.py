"""Issuer answers: what an issuer says of lifetimes, scopes and errors, in the forms that issuers use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey
from starlette.responses import JSONResponse, Response

from pegboard.connections.auth_settings import AuthSettings
from pegboard.connections.connection_records import Challenge, ConnectFailedError
from pegboard.connections.connection_required import ConnectionRequiredError
from pegboard.connections.issuer_discovery import check_login_page
from pegboard.connections.issuers import Issuer
from pegboard.connections.limits import FRESH_TOKEN_S, REFRESH_LEASE_S
from pegboard.connections.upstream_credentials import ServiceCredentials
from pegboard.model.caller import NOBODY
from pegboard.model.error import CallError
from pegboard.model.record import replace
from pegboard.model.secret import Secret
from pegboard.storage.store_error import StoreError
from tests.connections.agreeing import ANN, connect, settings_of
from tests.connections.test_connecting import world
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import McpUpstream
from tests.timing import PATIENCE_S


def with_fields(**fields: Any) -> Callable[[dict[str, Any]], Response]:
    """Replace fields of an answer; `None` leaves one out."""

    def rewritten(body: dict[str, Any]) -> Response:
        return JSONResponse({name: value for name, value in {**body, **fields}.items() if value is not None})

    return rewritten


def as_form(body: dict[str, Any]) -> Response:
    """Encode an answer as GitHub does by default."""
    return Response(urlencode(body), media_type="application/x-www-form-urlencoded; charset=utf-8")


async def test_a_lifetime_that_says_nothing_is_unknown_and_makes_no_refreshes(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        worker = here.worker(clock=time.monotonic)
        worker._tokens._kept_s = 0.0
        lifetimes: list[tuple[Any, float | None]] = [
            (None, None), (0, None), (-3600, None), ("soon", None), ("-1", None), (True, None), ([3600], None),
            (10**15, None), (1e300, None), ("9" * 400, None),
            (3600, 3600.0), ("3600", 3600.0), ("0", None), (90.5, 90.5),
        ]  # fmt: skip
        for sent, expected_s in lifetimes:
            here.issuer.switches.rewrites = with_fields(expires_in=sent)
            made = await connect(worker, here.issuer)
            lifetime_s = None if made.expires_at is None else round(made.expires_at - made.created_at, 3)
            assert (sent, lifetime_s) == (sent, expected_s)
            tokens = [await worker.token(ANN, "mail") for _ in range(3)]
            assert {token.version for token in tokens} == {1}, sent
        assert here.issuer.hits["token:refresh_token"] == 0
        # The service decides when such a token has expired.
        here.issuer.switches.rewrites = with_fields(expires_in=0)
        made = await connect(worker, here.issuer)
        renewed = await worker.renewed(ANN, "mail", await worker.token(ANN, "mail"))
        assert (renewed.version, (await worker.token(ANN, "mail")).version) == (2, 2)
        assert here.issuer.hits["token:refresh_token"] == 1


@pytest.mark.parametrize("minutes", [-4, 4])
async def test_an_issuer_whose_clock_is_minutes_off_names_the_account_and_its_token_lives_as_long_as_it_said(
    tmp_path: Path, minutes: int
) -> None:
    async with world(tmp_path / "c.db") as here:
        [one, _] = here.workers

        def rewritten(body: dict[str, Any]) -> Response:
            now = int(time.time()) + minutes * 60
            claims = {
                "iss": here.issuer.url, "aud": here.issuer.seen["token"][-1]["client_id"], "sub": "7", "iat": now,
                "nbf": now, "exp": now + 60, "preferred_username": "ann-there",
            }  # fmt: skip
            token = jwt.encode({"alg": "ES256", "kid": here.issuer.key.kid}, claims, here.issuer.key)
            return JSONResponse({**body, "id_token": token})

        here.issuer.switches.rewrites = rewritten
        made = await connect(one, here.issuer)
        assert (made.account, (made.expires_at or 0) - made.created_at) == ("ann-there", 3600)
        assert (await one.token(ANN, "mail")).version == 1
        assert here.issuer.hits["token:refresh_token"] == 0


async def test_an_issuer_whose_clock_is_three_minutes_ahead_accepts_the_assertion_of_a_client() -> None:
    async with ToyIssuer().running() as issuer, McpUpstream(issuer).running() as upstream:
        key = ECKey.generate_key("P-256", {"kid": "ours"})
        issuer.add_client("robot", keys={"keys": [key.as_dict(private=False)]})
        issuer.switches.clock_ahead_s = 180
        settings = AuthSettings(
            source="mail", mode="client_credentials", server_url=upstream.resource, issuer=issuer.url,
            client_id="robot", private_key=Secret(key.as_pem(private=True).decode()), private_key_id="ours",
        )  # fmt: skip
        token = await ServiceCredentials(settings).token(NOBODY)
        assert issuer.good(token.value.reveal()) is not None


async def test_the_granted_scopes_are_stored_and_a_step_up_that_is_not_granted_asks_once_a_call(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        [one, _] = here.workers
        here.issuer.scopes.append("email")
        asked_for = ("read", "write", "offline_access")
        one.add(settings_of(here.issuer, here.upstream, scopes=(*asked_for, "email")))
        for sent, stored, refused in (
            # Google sends its own name for `email`.
            ("read write urn:g:email", ("read", "write", "urn:g:email"), ()),
            ("read", ("read",), ("write",)),
            ("read,admin", ("read", "admin"), ("write",)),
            ("", (), ("read", "write")),
            (None, (*asked_for, "email"), ()),
        ):
            here.issuer.switches.rewrites = with_fields(scope=sent)
            made = await connect(one, here.issuer)
            assert (made.scopes, made.refused_scopes) == (stored, refused)
            [listed] = await one.listed()
            assert (listed.scopes, (await one.token(ANN, "mail")).scopes) == (stored, stored)
        here.issuer.switches.rewrites = with_fields(scope="read")
        more = Challenge(scopes=("write",), error="insufficient_scope", resource_metadata=here.upstream.metadata_url)
        for _ in range(2):
            made = await connect(one, here.issuer, challenge=more)
            assert (made.scopes, made.refused_scopes) == (("read",), ("write",))
            asked = here.issuer.seen["authorize"][-1]["scope"].split()
            assert sorted(asked) == ["email", "offline_access", "read", "write"]
        assert here.issuer.hits["token:refresh_token"] == 0


async def test_an_error_in_an_answer_with_status_200_is_an_error(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        [one, _] = here.workers
        switches = here.issuer.switches
        for answer in (JSONResponse({"error": "bad_verification_code"}), as_form({"error": "bad_verification_code"})):
            switches.rewrites = lambda _, answer=answer: answer
            with pytest.raises(ConnectFailedError, match=r"\(bad_verification_code\)"):
                await connect(one, here.issuer)
        for text in ("", "[]", "null", "access_token", "<html>"):
            switches.rewrites = lambda _, text=text: Response(text, media_type="application/x-www-form-urlencoded")
            with pytest.raises(ConnectFailedError, match=r"\(invalid_token_response\)"):
                await connect(one, here.issuer)
        assert await one.listed() == []
        switches.rewrites, switches.keeps_refresh_tokens = None, True
        await connect(one, here.issuer)
        token = await one.token(ANN, "mail")
        # What may pass ends no connection, whatever its status.
        switches.rewrites = lambda _: JSONResponse({"error": "temporarily_unavailable"})
        with pytest.raises(CallError) as refused:
            await one.renewed(ANN, "mail", token)
        assert (refused.value.error.kind, refused.value.error.retryable) == ("upstream_unavailable", True)
        assert [each.is_live for each in await one.listed()] == [True]
        switches.rewrites = lambda _: JSONResponse({"error": "bad_refresh_token"})
        with pytest.raises(ConnectionRequiredError):
            await one.renewed(ANN, "mail", token)
        assert [each.is_live for each in await one.listed()] == [False]


@pytest.mark.parametrize("kind", ["DPoP", "mac", "N_A", "", ["Bearer"]])
async def test_a_token_of_another_type_is_not_sent_as_a_bearer_token(kind: Any, tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        [one, _] = here.workers
        await connect(one, here.issuer)
        before = await one.token(ANN, "mail")
        here.issuer.switches.rewrites = with_fields(token_type=kind)
        with pytest.raises(ConnectionRequiredError):
            await one.renewed(ANN, "mail", before)
        with pytest.raises(ConnectFailedError, match=r"\(invalid_token_response\)"):
            await connect(one, here.issuer)


async def test_a_login_page_with_a_query_keeps_it_and_gets_no_parameter_twice(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        query = "?tenant=a%20b&resource=https%3A%2F%2Fissuer.example&state=theirs"
        here.issuer.switches.authorization_endpoint = f"{here.issuer.url}/authorize{query}"
        await connect(here.workers[0], here.issuer)
        [asked] = here.issuer.seen["authorize"]
        assert (asked["tenant"], asked["resource"], asked["state"] == "theirs") == (
            "a b",
            here.upstream.resource,
            False,
        )


def test_an_issuer_may_move_its_own_token_endpoint_but_use_no_other_ones_login_page() -> None:
    settings = AuthSettings(source="mail", mode="user", server_url="https://mail.example/mcp")
    stored = Issuer(
        issuer="https://a.example", authorization_url="https://a.example/login", token_url="https://a.example/token"
    )
    check_login_page(settings, replace(stored, token_url="https://api.a.example/token"), [stored])
    evil = replace(stored, issuer="https://evil.example", token_url="https://evil.example/token")
    with pytest.raises(ConnectFailedError, match=r"the login page of 'https://a.example'"):
        check_login_page(settings, evil, [stored])


async def test_an_answer_that_is_encoded_as_a_form_connects_and_refreshes(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        [one, _] = here.workers
        here.issuer.switches.rewrites = as_form
        made = await connect(one, here.issuer)
        assert (made.scopes, (made.expires_at or 0) - made.created_at) == (("read", "offline_access"), 3600)
        renewed = await one.renewed(ANN, "mail", await one.token(ANN, "mail"))
        assert (renewed.version, here.issuer.good(renewed.value.reveal()) is not None) == (2, True)


async def test_a_refresh_without_a_new_refresh_token_goes_on_with_the_old_one(tmp_path: Path) -> None:
    async with world(tmp_path / "c.db") as here:
        [one, _] = here.workers
        await connect(one, here.issuer)
        switches = here.issuer.switches
        switches.keeps_refresh_tokens = True
        now = 1_000_000.0
        one._store._clock = lambda: now
        for refresh_token in (None, "", None):
            switches.rewrites = with_fields(refresh_token=refresh_token)
            before = await one.token(ANN, "mail")
            renewed = await one.renewed(ANN, "mail", before)
            assert renewed.version == before.version + 1
            now += 60.0
        sent = {form["refresh_token"] for form in here.issuer.seen["token"] if "refresh_token" in form}
        assert (len(sent), here.issuer.hits["token:refresh_token"]) == (1, 3)


async def test_a_rotated_token_is_stored_once_the_store_answers_again(store: Any) -> None:
    async with world(store) as here:
        [one, two] = here.workers
        await connect(one, here.issuer)
        token = await one.token(ANN, "mail")
        renew, failures = one._store.renew, ["away", "away"]

        async def sometimes(*args: Any, **options: Any) -> Any:
            if failures:
                raise StoreError(failures.pop())
            return await renew(*args, **options)

        one._store.renew = sometimes  # type: ignore[method-assign]
        assert (await one.renewed(ANN, "mail", token)).version == 2
        # The next refresh has the rotated token: the old one would end the agreement.
        assert (await two.token(ANN, "mail")).version == 2
        assert (here.issuer.hits["token:refresh_token"], here.issuer.hits["reused refresh token"]) == (1, 0)


async def test_nobody_uses_the_earlier_refresh_token_while_the_rotated_one_waits_for_the_store(store: Any) -> None:
    async with world(store) as here:
        [one, two] = here.workers
        now = 1_000_000.0
        for worker in here.workers:
            worker._store._clock = worker._clock = worker._tokens._clock = lambda: now
        await connect(one, here.issuer)
        token = await one.token(ANN, "mail")
        renew, tries, is_away = one._store.renew, 0, True

        async def sometimes(*args: Any, **options: Any) -> Any:
            nonlocal tries
            tries += 1
            if is_away:
                raise StoreError("away")
            return await renew(*args, **options)

        async def tried_again() -> None:
            before = tries
            async with asyncio.timeout(PATIENCE_S):
                while tries < before + 2:
                    await asyncio.sleep(0.01)

        one._store.renew = sometimes  # type: ignore[method-assign]
        asked = [asyncio.create_task(one.renewed(ANN, "mail", token))]
        await tried_again()
        now += REFRESH_LEASE_S - 0.5  # also the last moment at which the first worker tries
        asked.append(asyncio.create_task(two.renewed(ANN, "mail", token)))
        await tried_again()
        is_away = False
        assert [each.version for each in await asyncio.gather(*asked)] == [2, 2]
        assert (here.issuer.hits["token:refresh_token"], here.issuer.hits["reused refresh token"]) == (1, 0)
        # After its lease it tries no more.
        now += FRESH_TOKEN_S
        is_away = True
        last = asyncio.create_task(one.renewed(ANN, "mail", await one.token(ANN, "mail")))
        await tried_again()
        now += REFRESH_LEASE_S
        with pytest.raises(CallError, match="does not answer"):
            await last
