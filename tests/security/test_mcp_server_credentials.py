"""The shared cases of the MCP server and of permission that concern credentials, named after their ids."""

import asyncio
import logging
import statistics
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pegboard import Catalog, http_app
from pegboard.auth.rules import IdentityRules
from pegboard.config import load_catalog
from tests.auth.parts import AUDIENCE, RSA_TWO, Issuer, bearer, guarded, part, rule
from tests.auth.test_tokens import FORGED
from tests.server.doors import Seen, call, inside, post, served, workshop
from tests.timing import CPU, is_within

CASES: dict[str, Callable[[Issuer], str | None]] = {
    "none": lambda _: None,
    "expired": lambda i: i.token(exp=int(time.time()) - 3600),
    "wrong audience": lambda i: i.token(aud="https://other.example/mcp"),
    "alg none": FORGED["alg none"],
    "HS256 with the RSA public key": FORGED["HMAC with the public key"],
    "kid path traversal": lambda i: i.token(kid="../../../../etc/passwd"),
    "kid of another key": lambda i: i.token(key=RSA_TWO, kid="one"),
    "future nbf": lambda i: i.token(nbf=int(time.time()) + 7200),
    "wrong issuer": lambda i: i.token(iss="https://evil.example"),
    "100 KB": lambda i: f"{part({'alg': 'RS256', 'kid': 'one'})}.{'A' * 100_000}.AAAA",
}


@asynccontextmanager
async def tokens_only(folder: Path) -> AsyncGenerator[tuple[Catalog, Seen, Issuer]]:
    catalog, seen, _, _ = guarded(folder)
    async with Issuer().running() as issuer:
        catalog.identity = IdentityRules(
            tokens=issuer.rules(), map=(rule(claim={"sub": "*"}, user="{sub}", profiles=("chat",)),)
        )
        yield catalog, seen, issuer


@pytest.mark.parametrize("made", CASES.values(), ids=CASES.keys())
async def test_mcps_04_a_bad_token_is_refused_with_a_challenge_and_no_reason(
    tmp_path: Path, made: Callable[[Issuer], str | None]
) -> None:
    async with (
        tokens_only(tmp_path) as (catalog, seen, issuer),
        served(http_app(catalog)) as url,
        httpx2.AsyncClient(base_url=url) as client,
    ):
        token = made(issuer)
        headers = {} if token is None else bearer(token)
        error = "" if token is None else 'error="invalid_token", '
        where = "https://tools.example.com/.well-known/oauth-protected-resource/mcp"
        for meta in ({}, {"progressToken": 1}):
            params = {"name": "add", "arguments": {"a": 1, "b": 2}}
            answer = await post(client, "tools/call", params, headers=headers, meta=meta)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (
                401,
                f'Bearer {error}resource_metadata="{where}"',
            )
            if token is not None:
                assert answer.json()["error"] == {"code": -32600, "message": "The credential is not valid."}
        assert seen.runs == []
        params = {"name": "add", "arguments": {"a": 1, "b": 2}}
        assert (await post(client, "tools/call", params, headers=bearer(issuer.token()))).status_code == 200


async def test_mcps_04_a_wrong_key_takes_as_long_as_another_wrong_key(tmp_path: Path) -> None:
    catalog, _, _, keys = guarded(tmp_path)
    good = keys["ann-laptop"]
    unknown = "pgb_" + "0" * 16 + "_" + "A" * 43
    first, last = (good[:at] + ("A" if good[at] != "A" else "B") + good[at + 1 :] for at in (21, len(good) - 1))
    async with inside(http_app(catalog)) as client:
        taken: dict[str, list[float]] = {unknown: [], first: [], last: []}
        for _ in range(60):
            for key, times in taken.items():
                began = time.process_time()
                assert (await post(client, "tools/list", headers=bearer(key))).status_code == 401
                times.append(time.process_time() - began)
    medians = [statistics.median(times) for times in taken.values()]
    assert is_within(max(medians) - min(medians), 0.002, CPU)


# -- MCPS-05


class Listening:
    """An app in front of another that keeps every byte it is sent."""

    def __init__(self, app: Starlette) -> None:
        self._app, self.state, self.heard = app, app.state, list[str]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.heard.append(f"{scope.get('path')} {scope.get('query_string')} {scope.get('headers')}")

        async def listened() -> Any:
            message = await receive()
            self.heard.append(repr(message))
            return message

        await self._app(scope, listened, send)


async def _page(_request: Request) -> Response:
    return PlainTextResponse("fine")


CONFIG = """\
tools:
  - name: http_request
    type: builtin
    config: {{allow_private: true, allow_hosts: ["127.0.0.1"]}}
  - {{name: up, type: mcp, mcp: {{transport: http, url: "{url}/mcp", trust: any}}}}
profiles: {{chat: {{}}}}
identity:
  api_keys: {{store: "sqlite:keys.db"}}
  jwt: {{issuer: "https://login.example.com", audience: "{audience}", jwks_url: "{jwks}"}}
  map:
    - {{when: {{key: ann-laptop}}, user: ann, profiles: [chat]}}
    - {{when: {{claim: {{sub: "*"}}}}, user: "{{sub}}", profiles: [chat]}}
"""


@pytest.mark.parametrize("meta", [{}, {"progressToken": 1}], ids=["door", "sdk"])
async def test_mcps_05_no_upstream_ever_sees_the_credential_of_a_caller(
    tmp_path: Path, meta: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    _, _, _, keys = guarded(tmp_path)
    inner = http_app(workshop()[0])
    inner.router.routes.insert(0, Route("/page", _page))
    upstream = Listening(inner)
    async with Issuer().running() as issuer, served(cast("Starlette", upstream)) as url:
        config = tmp_path / "pegboard.yaml"
        config.write_text(CONFIG.format(url=url, audience=AUDIENCE, jwks=issuer.jwks_url))
        catalog, loaded = load_catalog(config, env={})
        with caplog.at_level(logging.DEBUG):
            async with inside(http_app(catalog, config=loaded)) as client:
                credentials = [keys["ann-laptop"], issuer.token()]
                async with asyncio.timeout(60):
                    while catalog.snapshot().find("up.add") is None:
                        await asyncio.sleep(0.02)
                for credential in credentials:
                    who = bearer(credential)
                    fetched = await call(
                        client, "http_request", {"method": "GET", "url": f"{url}/page"}, headers=who, meta=meta
                    )
                    assert fetched["result"]["isError"] is False, fetched
                    added = await call(client, "up__add", {"a": 1, "b": 2}, headers=who, meta=meta)
                    assert added["result"]["isError"] is False, added
    heard = "".join(upstream.heard)
    assert "/page" in heard
    assert "tools/call" in heard
    for credential in credentials:
        assert credential[-24:] not in heard
        assert credential[-24:] not in caplog.text
    assert "authorization" not in heard.lower()


# -- PERM-11


@pytest.mark.parametrize("meta", [{}, {"progressToken": 1}], ids=["door", "sdk"])
async def test_perm_11_nothing_but_the_credential_says_who_asks(tmp_path: Path, meta: dict[str, Any]) -> None:
    catalog, _, _, keys = guarded(tmp_path)
    claims = {"user": "root", "user_id": "root", "roles": ["operator"], "groups": ["admin"], "profile": "admin"}
    forged = {
        "x-groups": "admin", "x-user": "root", "x-forwarded-user": "root", "x-roles": "operator", "remote-user": "root",
        "x-profile": "admin", "cookie": f"authorization=Bearer {keys['ann-laptop']}", "x-api-key": keys["ann-laptop"],
        "proxy-authorization": f"Bearer {keys['ann-laptop']}",
    }  # fmt: skip
    client_info = {"io.modelcontextprotocol/clientInfo": {"name": "admin-console", "version": "1"}}
    async with inside(http_app(catalog)) as client:
        who = {**bearer(keys["bob-phone"]), **forged}
        for path in ("/mcp", f"/mcp?access_token={keys['ann-laptop']}&profile=admin", "/mcp/chat?user=root"):
            answer = await call(client, "whoami", {}, path=path, headers=who, meta={**meta, **client_info, **claims})
            assert answer["result"]["structuredContent"] == {"user": "bob", "space": "s1", "roles": []}
        lying = await call(client, "whoami", {"context": claims, **claims}, headers=who, meta=meta)
        assert lying.get("result", {}).get("structuredContent", {}).get("user") != "root"
        assert (await call(client, "wipe", {"what": "x"}, headers=who, meta=meta))["error"]["code"] == -32602
        # Without the header that counts, none of the others lets anybody in.
        assert (await post(client, "tools/list", headers=forged)).status_code == 401
        assert (await post(client, "tools/list", path=f"/mcp?access_token={keys['ann-laptop']}")).status_code == 401
