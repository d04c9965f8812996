"""Access tokens: what proves who somebody is, and what does not."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import jwt
import pytest

from pegboard.auth.jwks import JWKS_FRESH_S, JWKS_PAUSE_S, JWKS_STALE_S, KeySet
from pegboard.auth.rejections import BadCredentialError, InsufficientScopeError, UnavailableError
from pegboard.auth.tokens import TOKEN_LEEWAY_S, TOKENS_REMEMBERED, TokenReader
from tests.auth.parts import AUDIENCE, EC_ONE, ISSUER, RSA_ONE, RSA_TWO, Issuer, jwk_of, part, pem_of


@pytest.fixture(name="issuer")
async def _issuer() -> AsyncGenerator[Issuer]:
    async with Issuer().running() as issuer:
        yield issuer


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def reader(issuer: Issuer, clock: Callable[[], float] = time.monotonic, **rules: Any) -> TokenReader:
    return TokenReader(issuer.rules(**rules), KeySet(issuer.jwks_url, clock=clock))


async def test_a_token_of_the_issuer_for_this_server_says_who_asks(issuer: Issuer) -> None:
    credential = await reader(issuer).credential(issuer.token(team="support", client_id="app"))
    assert (credential.key, credential.claims["sub"], credential.claims["team"]) == (None, "ann", "support")


@pytest.mark.parametrize(
    ("key", "alg", "kid"), [(RSA_ONE, "RS512", "one"), (RSA_ONE, "PS256", None), (EC_ONE, "ES256", "ec")]
)
async def test_every_public_key_signature_is_taken(issuer: Issuer, key: Any, alg: str, kid: str | None) -> None:
    issuer.keys = [jwk_of(EC_ONE, "ec"), jwk_of(RSA_TWO, "two"), jwk_of(RSA_ONE, "one")]
    assert (await reader(issuer).credential(issuer.token(key=key, alg=alg, kid=kid))).claims["sub"] == "ann"


async def test_an_audience_among_others_is_taken(issuer: Issuer) -> None:
    assert await reader(issuer).credential(issuer.token(aud=["https://other.example", AUDIENCE]))


NOW = int(time.time())
BAD_CLAIMS: dict[str, dict[str, Any]] = {
    "expired": {"exp": NOW - 3600},
    "never ends": {"exp": None},
    "not yet": {"nbf": NOW + 7200},
    "issued in the future": {"iat": NOW + 7200},
    "wrong audience": {"aud": "https://other.example/mcp"},
    "audience with more behind": {"aud": f"{AUDIENCE}/admin"},
    "no audience": {"aud": None},
    "audience is an object": {"aud": {"a": AUDIENCE}},
    "wrong issuer": {"iss": "https://evil.example"},
    "issuer with a slash": {"iss": f"{ISSUER}/"},
    "no issuer": {"iss": None},
    "nobody": {"sub": None},
    "empty subject": {"sub": ""},
    "subject is a number": {"sub": 5},
    "end is a word": {"exp": "tomorrow"},
}


@pytest.mark.parametrize("claims", BAD_CLAIMS.values(), ids=BAD_CLAIMS.keys())
async def test_a_token_with_a_wrong_claim_proves_nothing(issuer: Issuer, claims: dict[str, Any]) -> None:
    said: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": int(time.time()) + 300, **claims}
    said = {name: value for name, value in said.items() if value is not None}
    # By the bytes: PyJWT would refuse to sign some of these.
    token = jwt.api_jws.encode(json.dumps(said).encode(), RSA_ONE, algorithm="RS256", headers={"kid": "one"})
    with pytest.raises(BadCredentialError):
        await reader(issuer).credential(token)


def forged(head: dict[str, Any], issuer: Issuer, signature: str = "") -> str:
    body = issuer.token().split(".")[1]
    return f"{part(head)}.{body}.{signature}"


FORGED: dict[str, Callable[[Issuer], str]] = {
    "alg none": lambda i: forged({"alg": "none", "kid": "one"}, i),
    "alg None": lambda i: forged({"alg": "None", "typ": "JWT"}, i),
    "alg nOnE": lambda i: forged({"alg": "nOnE"}, i, "AAAA"),
    "no alg": lambda i: forged({"kid": "one"}, i, "AAAA"),
    "alg is a list": lambda i: forged({"alg": ["RS256"], "kid": "one"}, i, "AAAA"),
    "HMAC with the public key": lambda i: hmac_with(pem_of(RSA_ONE), i),
    "HMAC with the modulus": lambda i: hmac_with(jwk_of(RSA_ONE, "one")["n"].encode(), i),
    "a key of the token's own": lambda i: i.token(key=RSA_TWO, head={"jwk": jwk_of(RSA_TWO, "one")}),
    "a key from an address": lambda i: i.token(key=RSA_TWO, head={"jku": "http://127.0.0.1:1/jwks"}),
    "a certificate of its own": lambda i: i.token(key=RSA_TWO, head={"x5c": ["AAAA"], "x5u": "http://127.0.0.1:1"}),
    "another key under a known id": lambda i: i.token(key=RSA_TWO, kid="one"),
    "a known key under an unknown id": lambda i: i.token(kid="two"),
    "a key id that is a path": lambda i: i.token(kid="../../../../dev/null"),
    "a key id that is SQL": lambda i: i.token(kid="one' UNION SELECT 'x"),
    "another kind of key under the id": lambda i: i.token(key=EC_ONE, alg="ES256", kid="one"),
    "key id is a number": lambda i: forged({"alg": "RS256", "kid": 1}, i, "AAAA"),
    "an extension nobody knows": lambda i: i.token(head={"crit": ["b64x"], "b64x": True}),
    "another kind of token": lambda i: i.token(head={"typ": "logout+jwt"}),
    "changed after signing": lambda i: swapped(i),
    "cut": lambda i: i.token()[:-10],
    "signature left out": lambda i: i.token().rpartition(".")[0] + ".",
    "two parts": lambda i: i.token().rpartition(".")[0],
    "five parts": lambda i: "a.b.c.d.e",
    "100 KB": lambda i: i.token(note="x" * 100_000),
    "no token": lambda i: "hunter2",
    "dots": lambda i: "..",
    "deep head": lambda i: f"{part({'alg': 'RS256'})[:-2]}{'W' * 2000}.e30.e30",
}


def hmac_with(secret: bytes, issuer: Issuer) -> str:
    import base64
    import hashlib
    import hmac

    signed = f"{part({'alg': 'HS256', 'typ': 'JWT', 'kid': 'one'})}.{issuer.token().split('.')[1]}"
    mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def swapped(issuer: Issuer) -> str:
    head, _, signature = issuer.token().split(".")
    return f"{head}.{issuer.token(sub='root').split('.')[1]}.{signature}"


@pytest.mark.parametrize("made", FORGED.values(), ids=FORGED.keys())
async def test_a_forged_token_proves_nothing(
    issuer: Issuer, made: Callable[[Issuer], str], caplog: pytest.LogCaptureFixture
) -> None:
    token = made(issuer)
    with caplog.at_level(logging.DEBUG), pytest.raises(BadCredentialError) as refused:
        await reader(issuer).credential(token)
    assert token[:40] not in f"{caplog.text} {refused.value}" or len(token) < 10
    assert await reader(issuer).credential(issuer.token())


async def test_a_private_or_shared_key_among_the_published_is_never_used(issuer: Issuer) -> None:
    secret = "s" * 43
    issuer.keys = [{"kty": "oct", "k": secret, "kid": "one", "alg": "HS256"}, jwk_of(RSA_ONE, "enc", use="enc")]
    for token in (hmac_with(secret.encode(), issuer), issuer.token(kid="enc")):
        with pytest.raises(BadCredentialError):
            await reader(issuer).credential(token)


async def test_a_token_needs_every_scope(issuer: Issuer) -> None:
    asked = reader(issuer, scopes=("tools:call", "tools:list"))
    assert await asked.credential(issuer.token(scope="tools:list other tools:call"))
    assert await asked.credential(issuer.token(scp=["tools:list", "tools:call"]))
    for scope in ("tools:call", "", "tools:callx tools:list", None):
        with pytest.raises(InsufficientScopeError):
            await asked.credential(issuer.token(scope=scope))


async def test_the_same_person_with_another_client_is_another_owner(issuer: Issuer) -> None:
    judge = reader(issuer)
    tokens = [issuer.token(client_id="a"), issuer.token(client_id="a", jti="2"), issuer.token(client_id="b")]
    one, again, other = [(await judge.credential(token)).owner for token in tokens]
    assert one == again != other
    assert (await judge.credential(issuer.token(sub="bob", client_id="a"))).owner not in (one, other)


# -- the issuer's keys


async def test_keys_are_fetched_once_for_many_tokens(issuer: Issuer) -> None:
    judge = reader(issuer)
    await asyncio.gather(*(judge.credential(issuer.token()) for _ in range(20)))
    assert issuer.asked == 1


async def test_a_new_key_is_found_when_its_first_token_comes(issuer: Issuer) -> None:
    clock = Clock()
    judge = reader(issuer, clock)
    await judge.credential(issuer.token())
    issuer.keys.append(jwk_of(RSA_TWO, "two"))
    clock.now += JWKS_PAUSE_S
    assert await judge.credential(issuer.token(key=RSA_TWO, kid="two"))
    assert await judge.credential(issuer.token())
    assert issuer.asked == 2


@pytest.mark.parametrize("kid", ["one", None])
async def test_a_new_key_without_an_id_of_its_own_is_found_too(issuer: Issuer, kid: str | None) -> None:
    clock = Clock()
    judge = reader(issuer, clock)
    await judge.credential(issuer.token(kid=kid))
    issuer.keys = [jwk_of(RSA_TWO, "one")]
    clock.now += JWKS_PAUSE_S
    assert await judge.credential(issuer.token(key=RSA_TWO, kid=kid))
    with pytest.raises(BadCredentialError):
        await judge.credential(issuer.token(kid=kid))
    assert issuer.asked == 2


async def test_a_key_that_was_taken_back_is_soon_good_for_nothing(issuer: Issuer) -> None:
    clock = Clock()
    judge = reader(issuer, clock)
    await judge.credential(issuer.token())
    issuer.keys = [jwk_of(RSA_TWO, "two")]
    clock.now += JWKS_FRESH_S
    with pytest.raises(BadCredentialError):
        await judge.credential(issuer.token())


async def test_invented_key_ids_do_not_make_us_ask_again_and_again(issuer: Issuer) -> None:
    clock = Clock()
    judge = reader(issuer, clock)
    for number in range(50):
        with pytest.raises(BadCredentialError):
            await judge.credential(issuer.token(key=RSA_TWO, kid=f"made-up-{number}"))
        clock.now += JWKS_PAUSE_S / 10
    assert issuer.asked <= 6


FAULTS: dict[str, tuple[int, bytes | None]] = {
    "error": (500, None),
    "moved": (302, b""),
    "no JSON": (200, b"<html>"),
    "no keys": (200, b"{}"),
    "keys are not a list": (200, b'{"keys": {}}'),
    "endless": (200, b'{"keys": [' + b" " * 300_000 + b"]}"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_without_the_issuers_keys_nobody_can_tell(issuer: Issuer, fault: tuple[int, bytes | None]) -> None:
    clock = Clock()
    issuer.status, issuer.raw = fault
    judge = reader(issuer, clock)
    for _ in range(3):
        with pytest.raises(UnavailableError):
            await judge.credential(issuer.token())
    assert issuer.asked == 1
    issuer.status, issuer.raw = 200, None
    clock.now += JWKS_PAUSE_S
    assert await judge.credential(issuer.token())


async def test_known_keys_serve_while_the_issuer_is_away_but_not_for_ever(issuer: Issuer) -> None:
    clock = Clock()
    judge = reader(issuer, clock)
    await judge.credential(issuer.token())
    issuer.status = 503
    clock.now += JWKS_FRESH_S + 1
    assert await judge.credential(issuer.token())
    clock.now += JWKS_STALE_S
    with pytest.raises(UnavailableError):
        await judge.credential(issuer.token())


async def test_an_issuer_that_is_not_there_makes_nobody_known() -> None:
    issuer = Issuer()
    issuer.jwks_url = "http://127.0.0.1:9/jwks"
    with pytest.raises(UnavailableError):
        await reader(issuer).credential(issuer.token())


async def test_those_who_wait_for_a_slow_issuer_do_not_ask_it_one_after_the_other(issuer: Issuer) -> None:
    clock = Clock()
    judge = reader(issuer, clock)
    await judge.credential(issuer.token())
    clock.now += JWKS_PAUSE_S

    async def slow() -> None:
        clock.now += JWKS_PAUSE_S

    issuer.on_asked = slow
    tokens = [issuer.token(key=RSA_TWO, kid=f"made-up-{number}") for number in range(10)]
    refused = await asyncio.gather(*map(judge.credential, tokens), return_exceptions=True)
    assert {type(one) for one in refused} == {BadCredentialError}
    assert issuer.asked == 2


async def test_known_keys_serve_while_new_ones_are_on_their_way(issuer: Issuer) -> None:
    clock, asked, answer = Clock(), asyncio.Event(), asyncio.Event()
    judge = reader(issuer, clock)
    await judge.credential(issuer.token())
    clock.now += JWKS_FRESH_S

    async def hang() -> None:
        asked.set()
        await answer.wait()

    issuer.on_asked = hang
    first = asyncio.create_task(judge.credential(issuer.token()))
    await asked.wait()
    assert await judge.credential(issuer.token())
    assert not first.done()
    answer.set()
    assert await first


# -- tokens that were seen before


async def test_a_token_that_was_good_is_not_judged_again_until_the_keys_are_fetched_anew(issuer: Issuer) -> None:
    clock = Clock()
    tokens, token = reader(issuer, clock), issuer.token()
    first = await tokens.credential(token)
    assert await tokens.credential(token) is first
    clock.now += JWKS_FRESH_S
    again = await tokens.credential(token)
    assert (again, again is first) == (first, False)


async def test_a_token_that_was_good_ends_at_its_time(issuer: Issuer) -> None:
    clock = Clock()
    clock.now = time.time()
    tokens = TokenReader(issuer.rules(), KeySet(issuer.jwks_url), wall_clock=clock)
    token = issuer.token(exp=int(clock.now) + 60)
    first = await tokens.credential(token)
    clock.now += 60 + TOKEN_LEEWAY_S - 2
    assert await tokens.credential(token) is first
    clock.now += 2
    # For PyJWT, which reads the clock of the machine, it is still valid.
    with pytest.raises(BadCredentialError, match="ExpiredSignatureError"):
        await tokens.credential(token)


async def test_who_was_good_makes_no_change_of_it_good(issuer: Issuer) -> None:
    tokens, token = reader(issuer), issuer.token()
    await tokens.credential(token)
    head, body, signature = token.split(".")
    other_body = issuer.token(sub="bob").split(".")[1]
    for forged in (
        f"{head}.{other_body}.{signature}",
        f"{head}.{body}.{signature[:-4]}AAAA",
        f"{head}.{body}.",
        f"{token} ",
    ):
        with pytest.raises(BadCredentialError):
            await tokens.credential(forged)


async def test_a_token_that_was_good_with_a_key_is_good_for_nothing_when_that_key_is_gone(issuer: Issuer) -> None:
    clock = Clock()
    tokens, token = reader(issuer, clock), issuer.token()
    await tokens.credential(token)
    issuer.keys = [jwk_of(RSA_TWO, "two")]
    # Another token, of a key that is not known yet, has the keys fetched anew before their time.
    clock.now += JWKS_PAUSE_S
    await tokens.credential(issuer.token(key=RSA_TWO, kid="two"))
    with pytest.raises(BadCredentialError):
        await tokens.credential(token)


async def test_no_more_tokens_are_kept_than_a_number(issuer: Issuer) -> None:
    issuer.keys = [jwk_of(RSA_ONE, "one"), jwk_of(EC_ONE, "ec")]
    tokens, first = reader(issuer), issuer.token()
    kept = await tokens.credential(first)
    assert await tokens.credential(first) is kept
    for number in range(TOKENS_REMEMBERED):
        await tokens.credential(issuer.token(key=EC_ONE, alg="ES256", kid="ec", jti=str(number)))
    assert await tokens.credential(first) is not kept
