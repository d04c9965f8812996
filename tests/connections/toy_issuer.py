"""Toy issuer: an authorization server on loopback, Authlib's, that can be told to misbehave, and counts every request.

It has authorization codes with PKCE S256, refresh tokens that may be used once, revocation (RFC 7009), registration
(RFC 7591), client ids that are documents (CIMD), client credentials with a secret or a signed assertion, token exchange
(RFC 8693), and identity assertions (ID-JAG, RFC 7523). Metadata is served as RFC 8414 and as OpenID Connect does.

Every token has the name of its person in it: `issuer.secrets` lists them all, to be searched for in every byte.
"""

# The stubs of Authlib that pyright has are of an earlier version.
# pyright: reportIncompatibleMethodOverride=false, reportCallIssue=false, reportArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2
from authlib.oauth2.rfc6749 import (
    AuthorizationServer,
    BaseGrant,
    InvalidGrantError,
    InvalidRequestError,
    JsonRequest,
    OAuth2Error,
    OAuth2Payload,
    OAuth2Request,
    TokenEndpointMixin,
    UnauthorizedClientError,
)
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant, ClientCredentialsGrant, RefreshTokenGrant
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7523 import JWTBearerClientAssertion
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.auth.parts import listening

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
SIGNED = "client_assertion_jwt"  # Authlib's word for `private_key_jwt`
METHODS = ["none", "client_secret_basic", "client_secret_post", SIGNED]


@dataclass
class Switches:
    """What the issuer does wrong, or lacks. As it stands, it does everything right."""

    says_issuer: str | None = None
    """Its metadata names another issuer."""
    sends_iss: str | None = ""
    """The `iss` of its answers (RFC 9207): its own if empty, none at all if None."""
    says_iss: bool = True
    """Whether the metadata promises an `iss`."""
    clock_ahead_s: int = 0
    """How far its clock is ahead when it reads the assertion of a client."""
    statuses: dict[str, int] = field(default_factory=dict)
    """What an endpoint (`token`, `metadata`, …) answers instead of working, e.g. 500."""
    held: dict[str, asyncio.Event] = field(default_factory=dict)
    """An endpoint that works, and answers once its event is set."""
    held_before: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    """An endpoint that begins to work once its event is set."""
    rewrites: Callable[[dict[str, Any]], Response] | None = None
    """Makes another answer of each good one of the token endpoint."""
    rewrites_refusals: Callable[[dict[str, Any]], Response] | None = None
    """Makes another answer of each refusal of the token endpoint."""
    refuses_resource: bool = False
    """It refuses every request that names a resource, as Microsoft Entra."""
    refuses_revoked: bool = False
    """It answers the revocation of a token that is revoked already with an error, as Google."""
    pkce_methods: tuple[str, ...] | None = ("S256",)
    """What its metadata say of PKCE; nothing if None."""
    drops_answers: bool = False
    """The token endpoint does its work, and its answer is lost: the connection ends."""
    expires_in: int | None = 3600
    keeps_refresh_tokens: bool = False
    """A refresh token may be used again and again."""
    sends_no_refresh_token: bool = False
    has_registration: bool = True
    has_documents: bool = True
    has_revocation: bool = True
    as_openid: bool = False
    """Metadata is found where OpenID Connect has it, and nowhere else."""
    checks_resource: bool = True
    resource_of_tokens: str | None = None
    """Its tokens are for this resource, whatever was asked for."""
    gives_scopes: str | None = None
    """The scopes that it gives, whatever was asked for."""
    asks: bool = False
    """A page asks the person who they are and whether they agree."""
    echoes: bool = False
    """An exchange gives the very token that was sent, or an assertion of the wrong type."""
    authorization_endpoint: str | None = None
    """The metadata names the login page of another issuer, or one with a query."""
    token_endpoint: str | None = None
    """The metadata names another token endpoint, e.g. on another host."""
    jwts_for: str | None = None
    """Its access tokens are JWTs for this audience, and with the scope `openid` it sends ID tokens."""
    account: str | None = None
    """The login in its ID tokens."""
    nonce: str | None = None
    """The nonce of its ID tokens, whatever was asked for; if empty, it sends none."""


@dataclass
class Client:
    """An application: registered, named by the config, or known by its document."""

    client_id: str
    redirects: tuple[str, ...] = ()
    secret: str | None = None
    methods: tuple[str, ...] = ("none",)
    keys: Any = None
    grants: tuple[str, ...] = ("authorization_code", "refresh_token", TOKEN_EXCHANGE, JWT_BEARER)

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> str:
        return self.redirects[0]

    def get_allowed_scope(self, scope: str | None) -> str:
        return scope or ""

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri in self.redirects

    def check_client_secret(self, client_secret: str) -> bool:
        return self.secret is not None and secrets.compare_digest(client_secret, self.secret)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method in self.methods

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in self.grants


@dataclass
class Token:
    """An access token, and the refresh token that came with it, if one did."""

    access: str
    refresh: str | None
    client_id: str
    user: str
    """Whose it is; for a token of the application itself, the client's id."""
    scope: str
    resource: str | None
    expires_at: float
    agreement: int
    """The same for all tokens that come from one agreement of a person."""
    is_revoked: bool = False
    is_refreshed: bool = False

    @property
    def is_good(self) -> bool:
        return not self.is_revoked and self.expires_at > time.time()

    def check_client(self, client: Client) -> bool:
        return self.client_id == client.client_id

    def get_scope(self) -> str:
        return self.scope


@dataclass
class Code:
    """An authorization code."""

    code: str
    client_id: str
    redirect_uri: str
    scope: str
    user: str
    resource: str | None
    code_challenge: str | None
    code_challenge_method: str | None
    nonce: str | None = None
    is_used: bool = False
    agreement: int = 0

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope


class _Payload(OAuth2Payload):
    def __init__(self, words: Mapping[str, Any]) -> None:
        self._words = dict(words)

    @property
    def data(self) -> dict[str, Any]:
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
        self.resource = self.payload.data.get("resource")
        self.agreement: int | None = None

    @property
    def args(self) -> Any:
        return self._query

    @property
    def form(self) -> Any:
        return self._form


class _Json(JsonRequest):
    def __init__(self, request: Request, body: dict[str, Any]) -> None:
        super().__init__(request.method, str(request.url), headers=request.headers)
        self.payload = _Payload(body)
        self.credential = None


class InvalidTargetError(OAuth2Error):
    """The resource is none that this issuer has tokens for (RFC 8707)."""

    error = "invalid_target"


class _Server(AuthorizationServer):
    def __init__(self, issuer: ToyIssuer) -> None:
        super().__init__(scopes_supported=issuer.scopes)
        self.issuer = issuer

    def query_client(self, client_id: str) -> Any:
        return self.issuer.clients.get(client_id)

    def save_token(self, token: dict[str, Any], request: Any) -> None:
        self.issuer.remember(token, request)

    def create_oauth2_request(self, request: Any) -> OAuth2Request:
        return request

    def create_json_request(self, request: Any) -> JsonRequest:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> Response:
        text = json.dumps(body) if isinstance(body, dict) else body or ""
        return Response(text, status_code=status, headers=dict(headers))

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        pass


class _Grant(BaseGrant):
    """What every grant here shares: its clients, and the check of the resource."""

    TOKEN_ENDPOINT_AUTH_METHODS = METHODS
    server: Any
    request: Any

    @property
    def issuer(self) -> ToyIssuer:
        return self.server.issuer


class _CodeGrant(_Grant, AuthorizationCodeGrant):
    def save_authorization_code(self, code: str, request: Any) -> None:
        asked = request.payload.data
        self.issuer.codes[code] = Code(
            code=code,
            client_id=request.client.client_id,
            redirect_uri=request.payload.redirect_uri,
            scope=request.scope or "",
            user=request.user,
            resource=asked.get("resource"),
            code_challenge=asked["code_challenge"],
            code_challenge_method=asked["code_challenge_method"],
            nonce=asked.get("nonce"),
        )

    def query_authorization_code(self, code: str, client: Any) -> Code | None:
        known = self.issuer.codes.get(code)
        if known is None or known.client_id != client.client_id:
            return None
        if known.is_used:
            # RFC 6749 4.1.2: what came of a code that is used twice is void.
            self.issuer.hits["replayed code"] += 1
            self.issuer.revoke_agreement(known.agreement)
            return None
        if self.issuer.switches.checks_resource and known.resource != self.request.resource:
            raise InvalidTargetError
        return known

    def delete_authorization_code(self, authorization_code: Code) -> None:
        authorization_code.is_used = True
        authorization_code.agreement = self.issuer.tokens[-1].agreement

    def authenticate_user(self, authorization_code: Code) -> str:
        return authorization_code.user


class _RefreshGrant(_Grant, RefreshTokenGrant):
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token: str) -> Token | None:
        known = next((token for token in self.issuer.tokens if token.refresh == refresh_token), None)
        if known is None or known.is_revoked:
            return None
        if known.is_refreshed and not self.issuer.switches.keeps_refresh_tokens:
            # RFC 9700 4.14: somebody else has it, so nobody may go on.
            self.issuer.hits["reused refresh token"] += 1
            self.issuer.revoke_agreement(known.agreement)
            return None
        if self.issuer.switches.checks_resource and self.request.resource not in {None, known.resource}:
            raise InvalidTargetError
        self.request.resource, self.request.agreement = known.resource, known.agreement
        return known

    def authenticate_user(self, refresh_token: Token) -> str:
        return refresh_token.user

    def revoke_old_credential(self, refresh_token: Token) -> None:
        refresh_token.is_refreshed = True


class _CredentialsGrant(_Grant, ClientCredentialsGrant):
    def validate_token_request(self) -> None:
        super().validate_token_request()
        self.issuer.check_resource(self.request.resource)


class _ExchangeGrant(_Grant, TokenEndpointMixin):
    """RFC 8693: the token of a person for one of another kind; an identity assertion, if that is asked for."""

    GRANT_TYPE = TOKEN_EXCHANGE

    def validate_token_request(self) -> None:
        form = self.request.form
        self.request.client = self.authenticate_token_endpoint_client()
        if not self.request.client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClientError
        if not form.get("subject_token") or not form.get("subject_token_type"):
            raise InvalidRequestError("Missing 'subject_token' or 'subject_token_type'")
        user = self.issuer.person_of(form["subject_token"])
        if user is None:
            raise InvalidGrantError("The 'subject_token' is not good here.")
        if bool(form.get("actor_token")) != bool(form.get("actor_token_type")):
            raise InvalidRequestError("'actor_token' and 'actor_token_type' go together")
        if form.get("actor_token") and self.issuer.person_of(form["actor_token"]) is None:
            raise InvalidGrantError("The 'actor_token' is not good here.")
        self.request.user = user
        if form.get("requested_token_type") == ID_JAG:
            if not form.get("audience"):
                raise InvalidRequestError("Missing 'audience'")
        else:
            self.issuer.check_resource(self.request.resource)

    def create_token_response(self) -> tuple[int, dict[str, Any], Any]:
        form = self.request.form
        if form.get("requested_token_type") == ID_JAG:
            assertion = self.issuer.identity_assertion(
                user=self.request.user, client_id=form.get("resource_client_id", self.request.client.client_id),
                audience=form["audience"], resource=form.get("resource"), scope=form.get("scope"),
            )  # fmt: skip
            kind = ACCESS_TOKEN if self.issuer.switches.echoes else ID_JAG
            body = {"access_token": assertion, "issued_token_type": kind, "token_type": "N_A", "expires_in": 300}
            return 200, body, self.TOKEN_RESPONSE_HEADER
        token = self.generate_token(user=self.request.user, scope=form.get("scope"), include_refresh_token=False)
        if self.issuer.switches.echoes:
            token["access_token"] = form["subject_token"]
        self.save_token(token)
        return 200, {**token, "issued_token_type": ACCESS_TOKEN}, self.TOKEN_RESPONSE_HEADER


class _AssertionGrant(_Grant, TokenEndpointMixin):
    """RFC 7523 with an ID-JAG, which an issuer that is trusted here signed for this client; or a person's own token."""

    GRANT_TYPE = JWT_BEARER

    def validate_token_request(self) -> None:
        self.request.client = self.authenticate_token_endpoint_client()
        if not self.request.client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClientError
        assertion = self.request.form.get("assertion", "")
        if self.request.form.get("requested_token_use") == "on_behalf_of":
            # As Microsoft Entra: the assertion is the token of a person, for whom the scope says which service.
            self.request.user, self.request.resource = self.issuer.person_of(assertion), None
            self._scope = self.request.form.get("scope")
            if self.request.user is None or self.request.form.get("resource"):
                raise InvalidGrantError("The assertion is not good here.")
            return
        claims = self.issuer.read_assertion(assertion)
        if claims.get("client_id") != self.request.client.client_id:
            raise InvalidGrantError("The assertion is for another client.")
        self.request.user, self.request.resource = claims["sub"], claims.get("resource")
        self.issuer.check_resource(self.request.resource)
        self._scope = claims.get("scope")

    def create_token_response(self) -> tuple[int, dict[str, Any], Any]:
        token = self.generate_token(user=self.request.user, scope=self._scope, include_refresh_token=False)
        self.save_token(token)
        return 200, token, self.TOKEN_RESPONSE_HEADER


class _S256(CodeChallenge):
    SUPPORTED_CODE_CHALLENGE_METHOD = ["S256"]  # noqa: RUF012

    def validate_code_challenge(self, grant: Any, redirect_uri: str) -> None:
        if grant.request.payload.data.get("code_challenge_method") != "S256":
            raise InvalidRequestError("Missing 'code_challenge' with method S256")
        super().validate_code_challenge(grant, redirect_uri)


class _Revocation(RevocationEndpoint):
    CLIENT_AUTH_METHODS = METHODS

    def query_token(self, token_string: str, token_type_hint: str | None) -> Token | None:
        tokens = self.server.issuer.tokens
        return next((token for token in tokens if token_string in {token.access, token.refresh}), None)

    def revoke_token(self, token: Token, request: Any) -> None:
        self.server.issuer.revoke_agreement(token.agreement)


class _Registration(ClientRegistrationEndpoint):
    def authenticate_token(self, request: Any) -> str:
        return "anybody may"

    def get_server_metadata(self) -> dict[str, Any]:
        return {}

    def generate_client_info(self, request: Any) -> dict[str, Any]:
        return {"client_id": f"registered-{secrets.token_hex(6)}", "client_id_issued_at": int(time.time())}

    def save_client(self, client_info: dict[str, Any], client_metadata: dict[str, Any], request: Any) -> Client:
        issuer: ToyIssuer = self.server.issuer
        return issuer.add_client(client_info["client_id"], redirects=tuple(client_metadata.get("redirect_uris", ())))


class _SignedClients(JWTBearerClientAssertion):
    def __init__(self, issuer: ToyIssuer) -> None:
        super().__init__(leeway=0)
        self._issuer, self._used = issuer, set[str]()

    def verify_claims(self, claims: Any) -> None:
        ahead_s = self._issuer.switches.clock_ahead_s
        super().verify_claims({name: value - ahead_s if name in ("iat", "exp") else value
                              for name, value in claims.items()})  # fmt: skip

    def get_audiences(self) -> list[str]:
        return [self._issuer.url, f"{self._issuer.url}/token"]

    def validate_jti(self, claims: Any, jti: str) -> bool:
        is_new, _ = jti not in self._used, self._used.add(jti)
        return is_new

    def resolve_client_public_key(self, client: Client) -> Any:
        return KeySet.import_key_set(client.keys or {"keys": []})


class ToyIssuer:
    """An authorization server; `running()` serves it. `user` is the person at the browser, until the page asks.

    `hits` has the requests for each endpoint, those for tokens also by grant (`token:refresh_token`), and what was
    refused for a reason that a test may look for: `replayed code`, `reused refresh token`. `seen` has the form of every
    request, by endpoint.
    """

    def __init__(self, *, path: str = "", scopes: tuple[str, ...] = ("read", "write", "offline_access")) -> None:
        self.path, self.scopes = path, list(scopes)
        self.url = ""
        self.user = "ann"
        self.switches = Switches()
        self.clients: dict[str, Client] = {}
        self.codes: dict[str, Code] = {}
        self.tokens: list[Token] = []
        self.resources: set[str] = set()
        self.people: dict[str, str] = {}
        """Tokens of another login, and whose they are: what may be exchanged here besides its own."""
        self.trusted: dict[str, ECKey] = {}
        """Issuers whose identity assertions are good here, and their keys."""
        self.key = ECKey.generate_key("P-256", {"kid": "toy-1"})
        self.documents: dict[str, str] = {}
        """Where a client's document is fetched in truth, by its beginning: `https://name` → `http://127.0.0.1:port`."""
        self.hits: Counter[str] = Counter()
        self.waiting = 0
        """The requests that are not answered yet."""
        self.seen: defaultdict[str, list[dict[str, str]]] = defaultdict(list)

    # ---- what a test says and asks ----------------------------------------------------------------------------------

    @property
    def secrets(self) -> list[str]:
        """Return every token and code that was ever given out."""
        given = [part for token in self.tokens for part in (token.access, token.refresh) if part]
        return given + list(self.codes)

    def add_client(self, client_id: str, *, redirects: tuple[str, ...] = (), secret: str | None = None,
                   keys: Any = None, grants: tuple[str, ...] | None = None) -> Client:  # fmt: skip
        """Add an application; with a secret or keys (a JWKS) it must prove itself, and has tokens of its own."""
        methods = ("client_secret_basic", "client_secret_post") if secret else (SIGNED,) if keys else ("none",)
        chosen = grants or (Client.grants if methods == ("none",) else (*Client.grants, "client_credentials"))
        client = Client(client_id, redirects, secret, methods, keys, chosen)
        self.clients[client_id] = client
        return client

    def good(self, access: str) -> Token | None:
        """Return what is known of an access token that is good now."""
        return next((token for token in self.tokens if token.access == access and token.is_good), None)

    def expire_all(self) -> None:
        """Let every access token run out; refresh tokens stay good."""
        for token in self.tokens:
            token.expires_at = 0.0

    def revoke_all(self) -> None:
        for token in self.tokens:
            token.is_revoked = True

    def revoke_agreement(self, agreement: int) -> None:
        for token in self.tokens:
            token.is_revoked |= token.agreement == agreement

    # ---- what the grants ask ----------------------------------------------------------------------------------------

    def check_resource(self, resource: str | None) -> None:
        if self.switches.checks_resource and resource not in self.resources:
            raise InvalidTargetError

    def person_of(self, token: str) -> str | None:
        known = self.good(token)
        return known.user if known is not None else self.people.get(token)

    def new_token(self, *, grant_type: str, client: Client, user: str | None = None, scope: str | None = None,
                  expires_in: int | None = None, include_refresh_token: bool = True) -> dict[str, Any]:  # fmt: skip
        whose = user or client.client_id
        refresh = include_refresh_token and grant_type != "client_credentials"
        token: dict[str, Any] = {
            "token_type": "Bearer",
            "access_token": f"access-{whose}-{secrets.token_hex(8)}",
            "scope": self.switches.gives_scopes if self.switches.gives_scopes is not None else scope or "",
        }
        if self.switches.expires_in is not None:
            token["expires_in"] = self.switches.expires_in
        if refresh and not self.switches.sends_no_refresh_token:
            token["refresh_token"] = f"refresh-{whose}-{secrets.token_hex(8)}"
        return token

    def remember(self, token: dict[str, Any], request: Any) -> None:
        agreement = len(self.tokens) + 1 if request.agreement is None else request.agreement
        code = getattr(request, "authorization_code", None)
        resource = code.resource if code is not None else request.resource
        expires_in = token.get("expires_in")
        self.tokens.append(Token(
            access=token["access_token"], refresh=token.get("refresh_token"), client_id=request.client.client_id,
            user=request.user or request.client.client_id, scope=token["scope"],
            resource=self.switches.resource_of_tokens or resource,
            expires_at=time.time() + (1e9 if expires_in is None else expires_in), agreement=agreement,
        ))  # fmt: skip

    def identity_assertion(self, *, user: str, client_id: str, audience: str, resource: str | None,
                           scope: str | None) -> str:  # fmt: skip
        now = int(time.time())
        claims = {"iss": self.url, "sub": user, "aud": audience, "client_id": client_id, "jti": secrets.token_hex(8),
                  "iat": now, "exp": now + 300}  # fmt: skip
        claims |= {key: value for key, value in (("resource", resource), ("scope", scope)) if value is not None}
        return jwt.encode({"alg": "ES256", "typ": "oauth-id-jag+jwt", "kid": self.key.kid}, claims, self.key)

    def read_assertion(self, assertion: str) -> dict[str, Any]:
        for issuer, key in self.trusted.items():
            try:
                token = jwt.decode(assertion, key, algorithms=["ES256"])
                registry = jwt.JWTClaimsRegistry(
                    iss={"essential": True, "value": issuer}, aud={"essential": True, "value": self.url},
                    sub={"essential": True}, exp={"essential": True},
                )  # fmt: skip
                registry.validate(token.claims)
            except (JoseError, ValueError):
                continue
            if token.header.get("typ") == "oauth-id-jag+jwt":
                return token.claims
        raise InvalidGrantError("The assertion is not good here.")

    # ---- its endpoints ----------------------------------------------------------------------------------------------

    def _routes(self) -> list[Route]:
        path, well_known = self.path, "/.well-known"
        return [
            Route(f"{well_known}/oauth-authorization-server{path}", self._at("metadata", self._oauth_metadata)),
            Route(f"{well_known}/openid-configuration{path}", self._at("metadata", self._openid_metadata)),
            *([Route(f"{path}{well_known}/openid-configuration", self._at("metadata", self._openid_metadata))]
              if path else []),
            Route(f"{path}/jwks", self._at("jwks", self._jwks)),
            Route(f"{path}/authorize", self._at("authorize", self._authorize), methods=["GET", "POST"]),
            Route(f"{path}/token", self._at("token", self._token), methods=["POST"]),
            Route(f"{path}/revoke", self._at("revoke", self._revoke), methods=["POST"]),
            Route(f"{path}/register", self._at("register", self._register), methods=["POST"]),
        ]  # fmt: skip

    def _at(self, name: str, answer: Any) -> Any:
        async def counted(request: Request) -> Response:
            self.hits[name] += 1
            self.waiting += 1
            try:
                if name in self.switches.held_before:
                    await self.switches.held_before[name].wait()
                if name in self.switches.statuses:
                    return Response("broken", status_code=self.switches.statuses[name])
                response = await answer(request)
                if name in self.switches.held:
                    await self.switches.held[name].wait()
                return response
            finally:
                self.waiting -= 1

        return counted

    async def _oauth_metadata(self, request: Request) -> Response:
        return Response(status_code=404) if self.switches.as_openid else await self._openid_metadata(request)

    async def _openid_metadata(self, _request: Request) -> Response:
        switches, url = self.switches, self.url
        endpoints: dict[str, Any] = {
            "code_challenge_methods_supported": switches.pkce_methods,
            "registration_endpoint": f"{url}/register" if switches.has_registration else None,
            "revocation_endpoint": f"{url}/revoke" if switches.has_revocation else None,
        }
        return JSONResponse({
            "issuer": switches.says_issuer or url,
            "authorization_endpoint": switches.authorization_endpoint or f"{url}/authorize",
            "token_endpoint": switches.token_endpoint or f"{url}/token",
            "jwks_uri": f"{url}/jwks",
            "response_types_supported": ["code"],
            "grant_types_supported": [*Client.grants, "client_credentials"],
            "token_endpoint_auth_methods_supported":
                ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"],
            "token_endpoint_auth_signing_alg_values_supported": ["ES256", "RS256"],
            "scopes_supported": self.scopes,
            "client_id_metadata_document_supported": switches.has_documents,
            "authorization_response_iss_parameter_supported": switches.says_iss,
            "authorization_grant_profiles_supported": ["urn:ietf:params:oauth:grant-profile:id-jag"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
            **{name: endpoint for name, endpoint in endpoints.items() if endpoint is not None},
        })  # fmt: skip

    async def _jwks(self, _request: Request) -> Response:
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})

    async def _authorize(self, request: Request) -> Response:
        form = {key: str(value) for key, value in (await request.form()).items()}
        asked: Any = _Request(request, form)
        words = asked.payload.data
        self.seen["authorize"].append(dict(words))
        await self._read_document(words.get("client_id", ""))
        if self.switches.refuses_resource and "resource" in words:
            return JSONResponse({"error": "invalid_request"}, status_code=400)
        try:
            grant = self._server.get_consent_grant(asked, self.user)
            self.check_resource(words.get("resource"))
        except OAuth2Error as error:
            return JSONResponse(dict(error.get_body()), status_code=400)
        if self.switches.asks and "who" not in form:
            return HTMLResponse(self._page(words))
        if form.get("who") == "":
            refused = {"error": "access_denied", "state": words.get("state", "")}
            return self._back(f"{grant.request.payload.redirect_uri}?{urlencode(refused)}", 302)
        response = self._server.create_authorization_response(asked, grant_user=form.get("who", self.user), grant=grant)
        location = response.headers.get("location")
        return response if location is None else self._back(location, 302)

    def _back(self, location: str, status: int) -> Response:
        iss = self.url if self.switches.sends_iss == "" else self.switches.sends_iss
        more = "" if iss is None else f"{'&' if '?' in location else '?'}{urlencode({'iss': iss})}"
        return RedirectResponse(location + more, status_code=status)

    def _page(self, words: Mapping[str, str]) -> str:
        fields = "".join(f'<input type="hidden" name="{escape(k)}" value="{escape(v)}">' for k, v in words.items())
        people = "".join(f'<button name="who" value="{who}">I am {who}</button>' for who in ("ann", "bob"))
        asks = f"{escape(words['client_id'])} asks for {escape(words.get('scope', ''))}"
        return (
            f"<!doctype html><title>Toy issuer</title><h1>{asks}</h1>"
            f'<form method="post" action="{self.path}/authorize">{fields}{people}'
            '<button name="who" value="">No</button></form>'
        )

    async def _token(self, request: Request) -> Response:
        form = {key: str(value) for key, value in (await request.form()).items()}
        self.seen["token"].append({**form, "authorization": request.headers.get("authorization", "")})
        self.hits[f"token:{form.get('grant_type', '')}"] += 1
        if self.switches.refuses_resource and "resource" in form:
            return JSONResponse({"error": "invalid_request"}, status_code=400)
        response = self._server.create_token_response(_Request(request, form))
        if self.switches.jwts_for is not None and response.status_code == 200:
            response = self._with_jwts(json.loads(response.body), self.codes[form["code"]], self.switches.jwts_for)
        if self.switches.rewrites is not None and response.status_code == 200:
            response = self.switches.rewrites(json.loads(response.body))
        if self.switches.rewrites_refusals is not None and response.status_code != 200:
            response = self.switches.rewrites_refusals(json.loads(response.body))
        if self.switches.drops_answers:
            raise ConnectionAbortedError
        return response

    def _with_jwts(self, body: dict[str, Any], code: Code, audience: str) -> Response:
        """Return the answer with a JWT as its access token, and with an ID token if the client asked for one."""
        now = int(time.time())
        claims: dict[str, Any] = {"iss": self.url, "sub": code.user, "iat": now, "exp": now + 600}
        head = {"alg": "ES256", "kid": self.key.kid}
        body["access_token"] = jwt.encode(head, {**claims, "aud": audience, "jti": secrets.token_hex(4)}, self.key)
        self.tokens[-1].access = body["access_token"]
        if "openid" in code.scope.split() and self.switches.nonce != "":
            own = {"aud": code.client_id, "nonce": self.switches.nonce or code.nonce}
            own |= {} if self.switches.account is None else {"preferred_username": self.switches.account}
            body["id_token"] = jwt.encode(head, {**claims, **own}, self.key)
        return JSONResponse(body)

    async def _revoke(self, request: Request) -> Response:
        form = {key: str(value) for key, value in (await request.form()).items()}
        self.seen["revoke"].append(form)
        if not self.switches.has_revocation:
            return Response(status_code=404)
        known = [each for each in self.tokens if form.get("token") in {each.access, each.refresh}]
        if self.switches.refuses_revoked and all(each.is_revoked for each in known):
            return JSONResponse({"error": "invalid_token"}, status_code=400)
        return self._server.create_endpoint_response("revocation", _Request(request, form))

    async def _register(self, request: Request) -> Response:
        if not self.switches.has_registration:
            return Response(status_code=404)
        body = await request.json()
        self.seen["register"].append(body)
        return self._server.create_endpoint_response("client_registration", _Json(request, body))

    async def _read_document(self, client_id: str) -> None:
        """Fetch the document that a client id names (CIMD), as it is now."""
        if not client_id.startswith("https://") or not self.switches.has_documents:
            return
        start = f"https://{urlsplit(client_id).netloc}"
        async with httpx2.AsyncClient() as client:
            response = await client.get(client_id.replace(start, self.documents.get(start, start), 1))
        document = response.json() if response.status_code == 200 else {}
        if document.get("client_id") == client_id:
            self.hits["document"] += 1
            self.add_client(client_id, redirects=tuple(document["redirect_uris"]))

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[ToyIssuer]:
        """Serve on loopback for the time of the block."""
        async with listening(Starlette(routes=self._routes())) as origin:
            self.url = f"{origin}{self.path}"
            server = _Server(self)
            server.register_grant(_CodeGrant, [_S256(required=True)])
            for grant in (_RefreshGrant, _CredentialsGrant, _ExchangeGrant, _AssertionGrant):
                server.register_grant(grant)
            server.register_endpoint(_Revocation)
            server.register_endpoint(_Registration)
            server.register_client_auth_method(SIGNED, _SignedClients(self))
            server.register_token_generator("default", self.new_token)
            self._server: Any = server
            yield self
