"""Known issuers: the differences of issuers that people use most, each with the `auth:` that its guide shows."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from starlette.responses import JSONResponse, Response

from pegboard import DefinitionError
from pegboard.connections.connection_records import ConnectFailedError
from tests.connections.agreeing import ANN, connect
from tests.connections.test_auth_config import loaded, said
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import ApiUpstream

REDIRECT = "http://127.0.0.1:8420/connections/callback"


class Here(NamedTuple):
    issuer: ToyIssuer
    api: ApiUpstream
    catalog: Any

    @property
    def connections(self) -> Any:
        return self.catalog.connections

    async def call(self) -> Any:
        """Return the answer of the tool to Ann."""
        return await said(self.catalog, "ann", "me")

    async def is_answered(self) -> bool:
        return (await self.call()).structured == {"user": "ann"}

    async def is_answered_after_expiry(self, minutes: int) -> bool:
        """Return whether a call is answered some minutes after the start, when every token has expired."""
        started_at = time.time()
        self.connections._store._clock = lambda: started_at + 60.0 * minutes
        self.issuer.expire_all()
        return await self.is_answered()

    async def end(self) -> tuple[bool, str]:
        """Disconnect Ann. Return whether her tokens were revoked, and why not."""
        [made] = await self.connections.listed(person=ANN)
        ended = await self.connections.disconnect(made.id)
        return ended.is_revoked, ended.reason


@asynccontextmanager
async def connected(
    folder: Path, *, path: str = "", endpoints: bool = False, auth: dict[str, Any] | None = None, **switches: Any
) -> AsyncGenerator[Here]:
    """Serve an issuer with these differences, and connect Ann to an API whose issuer it is."""
    toy = ToyIssuer(path=path, scopes=tuple((auth or {}).get("scopes", ())))
    async with toy.running() as issuer, ApiUpstream(issuer, scopes=toy.scopes).running() as api:
        issuer.add_client("app", redirects=(REDIRECT,), secret="hush-hush-secret")
        # These issuers name themselves in no answer, and know no resources.
        for name, value in {"checks_resource": False, "sends_iss": None, "says_iss": False, **switches}.items():
            setattr(issuer.switches, name, value)
        client = {"client_id": "app", "client_secret": "${SECRET}"}
        token_url = f"{issuer.url}/token".replace("127.0.0.1", "localhost")  # often another host, as Google's
        named = {"authorization_url": f"{issuer.url}/authorize", "token_url": token_url}
        where = named if endpoints else {"issuer": issuer.url}
        tool = {
            "name": "me", "type": "webhook", "description": "Say who calls.",
            "webhook": {"url": f"{api.origin}/me", "method": "GET"},
            "auth": {"mode": "user", **client, **where, **(auth or {})},
        }  # fmt: skip
        async with loaded(folder, tool) as catalog:
            await connect(catalog.connections, issuer, ANN, source="me")
            here = Here(issuer, api, catalog)
            assert await here.is_answered()
            yield here


async def test_entra_gets_no_resource_and_need_not_list_pkce(tmp_path: Path) -> None:
    auth = {
        "scopes": ["api://mail/read", "offline_access"], "sends_resource": False,
        "authorization_params": {"prompt": "select_account"},
    }  # fmt: skip
    differences = {"as_openid": True, "pkce_methods": None, "refuses_resource": True}
    async with connected(tmp_path, path="/tenant/v2.0", auth=auth, **differences) as here:
        here.issuer.expire_all()
        assert await here.is_answered()
        [asked] = here.issuer.seen["authorize"]
        # Consent for the whole company counts: each person is not asked again.
        assert (asked["prompt"], asked["code_challenge_method"]) == ("select_account", "S256")
        forms = [*here.issuer.seen["authorize"], *here.issuer.seen["token"]]
        assert (here.issuer.hits["token:refresh_token"], [form for form in forms if "resource" in form]) == (1, [])


@pytest.mark.parametrize("methods", [None, (), ("plain",)])
async def test_pkce_is_not_left_to_trust_without_a_secret_or_against_the_metadata(
    tmp_path: Path, methods: tuple[str, ...] | None
) -> None:
    async with ToyIssuer().running() as issuer, ApiUpstream(issuer).running() as api:
        issuer.switches.pkce_methods = methods
        secret = {} if methods is None else {"client_secret": "${SECRET}"}
        tool = {
            "name": "me", "type": "webhook", "description": "Say who calls.",
            "webhook": {"url": f"{api.origin}/me", "method": "GET"},
            "auth": {"mode": "user", "issuer": issuer.url, "client_id": "app", **secret},
        }  # fmt: skip
        async with loaded(tmp_path, tool) as catalog:
            with pytest.raises(ConnectFailedError, match="PKCE with S256, and without it"):
                await connect(catalog.connections, issuer, ANN, source="me")


async def test_github_answers_with_forms_and_refuses_with_status_200(tmp_path: Path) -> None:
    def as_form(body: dict[str, Any]) -> Response:
        fields = {"access_token": body["access_token"], "scope": "repo,read:org", "token_type": "bearer"}
        return Response(urlencode(fields), media_type="application/x-www-form-urlencoded; charset=utf-8")

    auth = {"scopes": ["repo", "read:org"]}
    differences = {"sends_iss": "", "rewrites": as_form, "sends_no_refresh_token": True, "expires_in": None}
    async with connected(tmp_path, endpoints=True, auth=auth, **differences) as here:
        [made] = await here.connections.listed()
        assert (made.scopes, made.expires_at) == (("repo", "read:org"), None)
        here.issuer.revoke_all()
        assert (await here.call()).error.kind == "connection_required"
        here.issuer.switches.rewrites = lambda _: JSONResponse({"error": "bad_verification_code"})
        with pytest.raises(ConnectFailedError, match=r"\(bad_verification_code\)"):
            await connect(here.connections, here.issuer, ANN, source="me")


async def test_google_gives_a_refresh_token_once_to_those_who_ask_for_offline_access(tmp_path: Path) -> None:
    def rewritten(body: dict[str, Any]) -> Response:
        asked, form = toy.seen["authorize"][-1], toy.seen["token"][-1]
        is_offline = (asked.get("access_type"), asked.get("prompt")) == ("offline", "consent")
        if form["grant_type"] == "refresh_token" or not is_offline:
            del body["refresh_token"]
        return JSONResponse(body)

    auth = {"scopes": ["mail"], "authorization_params": {"access_type": "offline", "prompt": "consent"}}
    differences = {"keeps_refresh_tokens": True, "refuses_revoked": True, "pkce_methods": ("plain", "S256")}
    async with connected(tmp_path, auth=auth, **differences) as here:
        toy = here.issuer
        toy.switches.rewrites = rewritten
        await connect(here.connections, toy, ANN, source="me")
        assert [await here.is_answered_after_expiry(minutes) for minutes in (1, 2)] == [True, True]
        # The access token ends together with the refresh token, and is refused when it is revoked on its own.
        assert await here.end() == (True, "")
        assert [form["token_type_hint"] for form in toy.seen["revoke"]] == ["refresh_token", "access_token"]


async def test_slack_puts_the_token_of_a_person_into_a_member_of_its_answer(tmp_path: Path) -> None:
    def of_user(body: dict[str, Any]) -> Response:
        given = {**body, "token_type": "user", "scope": "search:read,chat:write"}
        is_refresh = "refresh_token" in toy[0].seen["token"][-1] if toy else False
        return JSONResponse({"ok": True, **given} if is_refresh else {"ok": True, "authed_user": {"id": "U1", **given}})

    toy: list[ToyIssuer] = []
    auth = {"authorization_params": {"user_scope": "search:read,chat:write"}}
    async with connected(tmp_path, endpoints=True, auth=auth, rewrites=of_user) as here:
        toy.append(here.issuer)
        [made] = await here.connections.listed()
        assert made.scopes == ("search:read", "chat:write")
        here.issuer.expire_all()
        assert await here.is_answered()
        assert here.issuer.hits["token:refresh_token"] == 1
        for refused in ({"ok": False, "error": "invalid_code"}, {"ok": True, "authed_user": {"id": "U1"}}):
            here.issuer.switches.rewrites = lambda _, refused=refused: JSONResponse(refused)
            with pytest.raises(ConnectFailedError, match=r"\(invalid_(code|token_response)\)"):
                await connect(here.connections, here.issuer, ANN, source="me")


async def test_okta_rotates_refresh_tokens_of_a_server_below_a_path(tmp_path: Path) -> None:
    auth = {"scopes": ["mail", "offline_access"]}
    async with connected(tmp_path, path="/oauth2/default", auth=auth, as_openid=True) as here:
        assert [await here.is_answered_after_expiry(minutes) for minutes in (1, 2)] == [True, True]
        assert (here.issuer.hits["token:refresh_token"], here.issuer.hits["reused refresh token"]) == (2, 0)
        assert await here.end() == (True, "")


async def test_atlassian_wants_an_audience_and_blames_the_client_for_a_refresh_token_that_has_ended(
    tmp_path: Path,
) -> None:
    auth = {
        "scopes": ["read:jira-work", "offline_access"],
        "authorization_params": {"audience": "api.atlassian.com", "prompt": "consent"},
    }
    blames = {"error": "unauthorized_client", "error_description": "refresh_token is invalid"}
    differences = {"rewrites_refusals": lambda _: JSONResponse(blames, status_code=403)}
    async with connected(tmp_path, endpoints=True, auth=auth, **differences) as here:
        assert here.issuer.seen["authorize"][0]["audience"] == "api.atlassian.com"
        here.issuer.revoke_all()
        refused = await here.call()
        assert (refused.error.kind, "url" in refused.error.details) == ("connection_required", True)
        await connect(here.connections, here.issuer, ANN, source="me")
        assert await here.is_answered()


async def test_salesforce_does_not_say_when_a_token_expires(tmp_path: Path) -> None:
    def with_instance(body: dict[str, Any]) -> Response:
        more = {"instance_url": "https://acme.my.salesforce.com", "id": "https://login/id/1", "issued_at": "1700"}
        return JSONResponse({**body, **more, "scope": "api refresh_token"})

    differences = {"rewrites": with_instance, "expires_in": None}
    async with connected(tmp_path, endpoints=True, auth={"scopes": ["api", "refresh_token"]}, **differences) as here:
        here.issuer.expire_all()
        assert await here.is_answered()
        assert here.issuer.hits["token:refresh_token"] == 1


@pytest.mark.parametrize(
    ("auth", "problem"),
    [
        ({"authorization_params": {"state": "mine"}}, "'state' is set by Pegboard"),
        ({"authorization_params": {"request_uri": "urn:x"}}, "'request_uri' is set by Pegboard"),
        ({"authorization_params": {"scope": "all"}}, "Use `scopes`"),
        ({"authorization_params": {"resource": "https://x"}}, "Use the key `resource` of `auth`"),
        ({"resource": "https://api.example.com", "sends_resource": False}, "`sends_resource: false`"),
    ],
)
def test_parameters_that_bind_the_answer_cannot_be_replaced(tmp_path: Path, auth: dict[str, Any], problem: str) -> None:
    tool = {
        "name": "me", "type": "webhook", "description": "Say who calls.",
        "webhook": {"url": "https://api.example.com/me", "method": "GET"}, "auth": {"mode": "user", **auth},
    }  # fmt: skip
    with pytest.raises(DefinitionError, match=problem):
        loaded(tmp_path, tool)
