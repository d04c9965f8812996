"""Forged credentials at the doors, as an outside observer sees them: refused, run nothing, and are written nowhere."""

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest

from pegboard import http_app
from pegboard.auth.rules import AnonymousRule, IdentityRules
from tests.auth.parts import AUDIENCE, ISSUER, RSA_ONE, Issuer, bearer, rule
from tests.auth.test_tokens import BAD_CLAIMS, FORGED
from tests.server.doors import inside, post, workshop


def bad_tokens(issuer: Issuer) -> Iterator[tuple[str, str]]:
    yield from ((name, make(issuer)) for name, make in FORGED.items())
    right: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": int(time.time()) + 300}
    for name, claims in BAD_CLAIMS.items():
        said = {claim: value for claim, value in {**right, **claims}.items() if value is not None}
        yield name, jwt.api_jws.encode(json.dumps(said).encode(), RSA_ONE, algorithm="RS256", headers={"kid": "one"})


async def test_no_bad_token_gets_past_any_door_nor_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with Issuer().running() as issuer:
        catalog, seen = workshop()
        catalog.identity = IdentityRules(
            tokens=issuer.rules(),
            map=(rule(claim={"sub": "*"}, user="{sub}", profiles=("chat",)),),
            # Whoever shows a bad one does not become one of these.
            anonymous=AnonymousRule(profiles=("chat",)),
        )
        add: dict[str, Any] = {"a": 1, "b": 2}
        with caplog.at_level(logging.DEBUG, logger="pegboard"):
            async with inside(http_app(catalog)) as client:
                for name, token in bad_tokens(issuer):
                    heads = bearer(token)
                    answers = [
                        await post(client, "tools/call", {"name": "add", "arguments": add}, headers=heads),
                        await client.post("/v1/tools/add/call", json=add, headers=heads),
                        await client.get("/v1/events", headers=heads),
                        await client.get("/metrics", headers=heads),
                    ]
                    assert [answer.status_code for answer in answers] == [401] * 4, name
                    for answer in answers:
                        assert 'error="invalid_token"' in answer.headers["www-authenticate"], name
                        assert len(token) < 10 or token[-20:] not in answer.text + str(answer.headers)
                    assert len(token) < 10 or token[-20:] not in caplog.text
                assert seen.runs == []
                good = await client.post("/v1/tools/add/call", json=add, headers=bearer(issuer.token()))
        assert good.status_code == 200
    assert seen.runs == ["add"]
