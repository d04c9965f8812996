"""Parts: an issuer of tokens with its keys on loopback, and a workshop that asks callers who they are."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pegboard import CallContext, Catalog
from pegboard.auth.claim_templates import Template
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import IdentityRules, MapRule, TokenRules
from tests.server.doors import Seen, workshop

AUDIENCE = "https://tools.example.com/mcp"
ISSUER = "https://login.example.com"


def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


RSA_ONE, RSA_TWO = rsa_key(), rsa_key()
EC_ONE = ec.generate_private_key(ec.SECP256R1())


def jwk_of(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    """Return the public half of a key as a JWK."""
    algorithm: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, **more}


def pem_of(key: rsa.RSAPrivateKey) -> bytes:
    """Return the public half of a key as everybody can read it."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def part(value: Any) -> str:
    """Return JSON as a part of a token."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


class Issuer:
    """Hands out keys at `jwks_url`, and signs tokens."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [jwk_of(RSA_ONE, "one")]
        self.asked = 0
        self.status = 200
        self.raw: bytes | None = None
        self.jwks_url = ""
        self.on_asked: Callable[[], Awaitable[object]] | None = None

    def rules(self, **more: Any) -> TokenRules:
        return TokenRules(issuer=ISSUER, audience=AUDIENCE, jwks_url=self.jwks_url, **more)

    def token(
        self, *, key: Any = RSA_ONE, alg: str = "RS256", kid: str | None = "one", head: Any = None, **claims: Any
    ) -> str:
        """Return a token; a claim of `None` is left out."""
        now = int(time.time())
        said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 300, **claims}
        said = {name: value for name, value in said.items() if value is not None}
        heads = {**({} if kid is None else {"kid": kid}), **(head or {})}
        return jwt.encode(said, key, algorithm=alg, headers=heads)

    async def answer(self, _request: Request) -> Response:
        self.asked += 1
        if self.on_asked is not None:
            await self.on_asked()
        if self.raw is not None:
            return Response(self.raw, status_code=self.status)
        return JSONResponse({"keys": self.keys}, status_code=self.status)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Issuer]:
        """Answer on loopback for the time of the block."""
        async with listening(Starlette(routes=[Route("/jwks", self.answer)])) as url:
            self.jwks_url = f"{url}/jwks"
            yield self


@asynccontextmanager
async def listening(app: Starlette) -> AsyncGenerator[str]:
    """Serve a small app on loopback; gives `http://127.0.0.1:PORT`."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none", lifespan="off"))
    running = asyncio.create_task(server._serve())
    try:
        while not server.started:
            if running.done():
                running.result()
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


def bearer(credential: str) -> dict[str, str]:
    return {"authorization": f"Bearer {credential}"}


def rule(*, key: str | None = None, claim: Any = None, user: str | None = None, space: str | None = None,
         roles: tuple[str, ...] = (), profiles: tuple[str, ...] = ()) -> MapRule:  # fmt: skip
    return MapRule(
        key=key,
        claims=claim,
        user=None if user is None else Template(user),
        space=None if space is None else Template(space),
        roles=tuple(map(Template, roles)),
        profiles=tuple(map(Template, profiles)),
    )


KEY_RULES = (
    rule(key="ann-laptop", user="ann", space="s1", roles=("operator",), profiles=("admin", "chat")),
    rule(key="bob-phone", user="bob", space="s1", profiles=("chat",)),
)


def guarded(folder: Path) -> tuple[Catalog, Seen, KeyStore, dict[str, str]]:
    """Return a workshop that takes two keys: Ann's for `admin` and `chat`, Bob's for `chat`."""
    catalog, seen = workshop()

    @catalog.tool(groups="core")
    async def whoami(ctx: CallContext) -> dict[str, object]:
        """Tell who asks."""
        return {"user": ctx.user_id, "space": ctx.space_id, "roles": sorted(ctx.roles)}

    store = KeyStore(folder / "keys.db")
    keys = {name: store.add(name)[0] for name in ("ann-laptop", "bob-phone")}
    catalog.identity = IdentityRules(key_store=store.path, map=KEY_RULES)
    return catalog, seen, store, keys
