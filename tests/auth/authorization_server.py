"""Authorization server: a real one, Authlib's, on loopback: authorization codes with PKCE, and client credentials."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from authlib.oauth2.rfc6749 import AuthorizationServer, OAuth2Error, OAuth2Payload, OAuth2Request
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant, ClientCredentialsGrant
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from joserfc.jwk import KeySet
from jwt.algorithms import RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.auth.parts import jwk_of, listening

SECRET = "the client's own secret"
REDIRECT = "http://127.0.0.1:9/callback"


@dataclass
class Client:
    """An application that is registered; without a secret it is a public one."""

    name: str
    secret: str | None = None

    def get_client_id(self) -> str:
        return self.name

    def get_default_redirect_uri(self) -> str:
        return REDIRECT

    def get_allowed_scope(self, scope: str | None) -> str:
        return scope or ""

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri == REDIRECT

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == self.secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return (method == "none") == (self.secret is None)

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == ("authorization_code" if self.secret is None else "client_credentials")


@dataclass
class User:
    """A person, who has signed in here."""

    name: str

    def get_user_id(self) -> str:
        return self.name


@dataclass
class Code:
    """An authorization code, until it is used."""

    code: str
    client_id: str
    redirect_uri: str
    scope: str
    user: User
    code_challenge: str | None
    code_challenge_method: str | None
    nonce: None = None
    auth_time: float = field(default_factory=time.time)

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope


class _Payload(OAuth2Payload):
    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = dict(words)

    @property
    def data(self) -> dict[str, str]:
        return self._words

    @property
    def datalist(self) -> Any:
        return defaultdict(list, {key: [value] for key, value in self._words.items()})


class _Request(OAuth2Request):
    def __init__(self, request: Request, form: Mapping[str, str]) -> None:
        # Authlib wants TLS; on loopback there is none.
        super().__init__(request.method, str(request.url).replace("http://", "https://", 1), headers=request.headers)
        self._query, self._form = dict(request.query_params), dict(form)
        self.payload = _Payload({**self._query, **self._form})

    @property
    def args(self) -> Any:
        return self._query

    @property
    def form(self) -> Any:
        return self._form


class _Tokens(JWTBearerTokenGenerator):
    def __init__(self, login: Login) -> None:
        super().__init__(issuer=login.issuer, alg="RS256")
        self._login = login

    def get_jwks(self) -> Any:
        return KeySet.import_key_set({"keys": [{**json.loads(self._login.private), "kid": "login-1"}]})

    def get_audiences(self, client: Any, user: Any, scope: Any) -> str:
        return self._login.audience

    def get_extra_claims(self, client: Any, grant_type: str, user: Any, scope: Any) -> dict[str, Any]:
        return {"team": self._login.teams.get(client.name if user is None else user.name, "")}


class _Server(AuthorizationServer):
    def __init__(self, login: Login) -> None:
        super().__init__(scopes_supported=["tools"])
        self.login = login

    def query_client(self, client_id: str) -> Any:
        return self.login.clients.get(client_id)

    def save_token(self, token: dict[str, Any], request: Any) -> None:
        self.login.tokens.append(token["access_token"])

    def create_oauth2_request(self, request: Any) -> OAuth2Request:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> Response:
        text = json.dumps(body) if isinstance(body, dict) else body or ""
        return Response(text, status_code=status, headers=dict(headers))

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        pass


class _CodeGrant(AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["none"]  # noqa: RUF012

    def save_authorization_code(self, code: str, request: Any) -> None:
        said = request.payload.data
        self.server.login.codes[code] = Code(
            code=code,
            client_id=request.client.name,
            redirect_uri=request.payload.redirect_uri,
            scope=request.scope or "",
            user=request.user,
            code_challenge=said.get("code_challenge"),
            code_challenge_method=said.get("code_challenge_method"),
        )

    def query_authorization_code(self, code: str, client: Any) -> Code | None:
        found = self.server.login.codes.get(code)
        return found if found is not None and found.client_id == client.name else None

    def delete_authorization_code(self, authorization_code: Code) -> None:
        del self.server.login.codes[authorization_code.code]

    def authenticate_user(self, authorization_code: Code) -> User:
        return authorization_code.user


class _CredentialsGrant(ClientCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "client_secret_post"]  # noqa: RUF012


class Login:
    """Where people and programs get tokens for one server. `user` is who sits in front of the browser."""

    def __init__(self, private: Any, *, audience: str) -> None:
        self.private = RSAAlgorithm.to_jwk(private)
        self.public = jwk_of(private, "login-1")
        self.audience, self.issuer, self.user = audience, "", User("ann")
        self.clients = {"app": Client("app"), "robot": Client("robot", SECRET)}
        self.teams = {"ann": "support", "robot": "machines"}
        self.codes: dict[str, Code] = {}
        self.tokens: list[str] = []
        self.resources: list[str | None] = []

    def _routes(self) -> list[Route]:
        return [
            Route("/.well-known/oauth-authorization-server/login", self._metadata),
            Route("/login/jwks", self._jwks),
            Route("/login/authorize", self._authorize),
            Route("/login/token", self._token, methods=["POST"]),
        ]

    async def _metadata(self, _request: Request) -> Response:
        return JSONResponse({
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "client_credentials"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
            "scopes_supported": ["tools"],
        })  # fmt: skip

    async def _jwks(self, _request: Request) -> Response:
        return JSONResponse({"keys": [self.public]})

    async def _authorize(self, request: Request) -> Response:
        asked: Any = _Request(request, {})
        self.resources.append(asked.payload.data.get("resource"))
        try:
            grant = self._server.get_consent_grant(asked, self.user)
        except OAuth2Error as error:
            return JSONResponse(dict(error.get_body()), status_code=400)
        return self._server.create_authorization_response(asked, grant_user=self.user, grant=grant)

    async def _token(self, request: Request) -> Response:
        form = {key: str(value) for key, value in (await request.form()).items()}
        self.resources.append(form.get("resource"))
        return self._server.create_token_response(_Request(request, form))

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Login]:
        """Serve on loopback for the time of the block."""
        async with listening(Starlette(routes=self._routes())) as url:
            self.issuer = f"{url}/login"
            server = _Server(self)
            server.register_grant(_CodeGrant, [CodeChallenge(required=True)])
            server.register_grant(_CredentialsGrant)
            server.register_token_generator("default", _Tokens(self))
            self._server: Any = server
            yield self
