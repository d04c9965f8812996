"""Issuer login: people log in to the console at the issuer of `identity.jwt`: an authorization code with PKCE."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import orjson

from pegboard.auth.jwks import KeySet
from pegboard.auth.rejections import BadCredentialError, UnavailableError
from pegboard.auth.rules import ConsoleRules, TokenRules
from pegboard.auth.tokens import TokenReader
from pegboard.connections.auth_settings import AuthSettings
from pegboard.connections.connection_records import ConnectFailedError
from pegboard.connections.grants import GrantRefusedError, exchange_code
from pegboard.connections.issuer_discovery import issuer_metadata
from pegboard.connections.issuer_requests import IssuerRequests
from pegboard.connections.issuers import Issuer, OAuthClient, TokenAnswer
from pegboard.core.steady_clock import steady_time
from pegboard.egress.failures import EgressError
from pegboard.lazy import LazyModule
from pegboard.model.record import CarriesCredentials, replace
from pegboard.model.secret import Secret
from pegboard.server.console.login_session import sealed_fields
from pegboard.server.sealing import Sealing

if TYPE_CHECKING:
    from pegboard.connections import oauth_protocol as oauth
else:
    oauth = LazyModule("pegboard.connections.oauth_protocol")

LOGIN_S = 600.0  # seconds that a person may take at the issuer
LOGIN_STATE_CHARS = 4_000  # characters of the sealed state; browsers drop longer cookies
_LOGIN = "console login"
_OPENID = "openid"


class LoginFailedError(Exception):
    """A login that did not succeed, in words for the person; `status` is the HTTP status of the page."""

    def __init__(self, text: str, *, status: int = 403) -> None:
        super().__init__(text)
        self.text, self.status = text, status


class LoggedIn(CarriesCredentials, frozen=True, kw_only=True):
    """The access token of a person, and the page that they wanted."""

    key: str
    wanted: str


class IssuerLogin:
    """One client at one issuer. What a login needs until the person is back is sealed into a cookie of their browser.

    Args:
        rules: the client.
        tokens: the accepted tokens, with the issuer.
        sealing: the keys of the server, which also remember which logins were used.
        wall_clock: seconds since 1970.
    """

    def __init__(
        self, rules: ConsoleRules, tokens: TokenRules, sealing: Sealing, *,
        wall_clock: Callable[[], float] = steady_time,
    ) -> None:  # fmt: skip
        self._tokens, self._sealing, self._clock = tokens, sealing, wall_clock
        self._scopes = (_OPENID, *tokens.scopes) if rules.scopes is None else rules.scopes
        self._settings = AuthSettings(
            source="console", mode="user", server_url=tokens.issuer, issuer=tokens.issuer, client_id=rules.client_id,
            client_secret=rules.client_secret,
        )  # fmt: skip
        self._requests = IssuerRequests(self._settings)
        # Issuers that know several services make a token for the one that is named (RFC 8707).
        self._resource = tokens.audience if urlsplit(tokens.audience).scheme in ("https", "http") else ""

    async def begin(self, *, redirect_uri: str, wanted: str) -> tuple[str, str]:
        """Return the address to send the browser to, and the value of its cookie.

        Raises:
            LoginFailedError: the issuer cannot be used now.
        """
        issuer, pkce = await self._issuer(), oauth.PKCEParameters.generate()
        state, nonce = token_urlsafe(24), token_urlsafe(24)
        fields = [_LOGIN, self._sealing.audience, state, nonce, pkce.code_verifier, self._clock(), wanted]
        query = {
            "response_type": "code", "client_id": self._settings.client_id, "redirect_uri": redirect_uri,
            "scope": " ".join(self._scopes), "state": state, "code_challenge": pkce.code_challenge,
            "code_challenge_method": "S256", "resource": self._resource,
            "nonce": nonce if _OPENID in self._scopes else "",
        }  # fmt: skip
        sent = urlencode({name: value for name, value in query.items() if value})
        between = "&" if urlsplit(issuer.authorization_url).query else "?"
        cookie = self._sealing.codec.seal(orjson.dumps(fields))
        return f"{issuer.authorization_url}{between}{sent}", cookie

    async def finish(self, answer: Mapping[str, str], *, cookie: str | None, redirect_uri: str) -> LoggedIn:
        """Return the access token for the code in the issuer's answer. Works once for each login.

        Raises:
            LoginFailedError: the answer is of another login or issuer, or the issuer refuses.
        """
        payload = None if cookie is None else self._sealing.codec.open(cookie[:LOGIN_STATE_CHARS])
        fields: Any = None if payload is None else sealed_fields(payload)
        if fields is None or fields[:2] != [_LOGIN, self._sealing.audience]:
            raise LoginFailedError("This browser did not begin this login. Log in again.")
        state, nonce, verifier, since, wanted = fields[2:]
        if not hmac.compare_digest(answer.get("state", "").encode(), state.encode()):
            raise LoginFailedError("This answer belongs to another login. Log in again.")
        if not 0 <= self._clock() - since < LOGIN_S or not self._sealing.use_up(state):
            raise LoginFailedError("This login was used, or took longer than ten minutes. Log in again.")
        issuer = await self._issuer()
        # Another issuer could send its own code here (RFC 9207).
        if answer.get("iss", "" if issuer.sends_iss else issuer.issuer) != issuer.issuer:
            raise LoginFailedError("The answer came from another issuer than the one that was asked. Log in again.")
        if answer.get("error") or not answer.get("code"):
            raise LoginFailedError(f"The issuer did not log you in: {answer.get('error', 'it sent no code')[:100]}.")
        given = await self._exchanged(issuer, answer["code"], verifier=Secret(verifier), redirect_uri=redirect_uri)
        if _OPENID in self._scopes:
            await self._check_nonce(given, nonce)
        return LoggedIn(key=given.access.reveal(), wanted=wanted)

    async def _issuer(self) -> Issuer:
        try:
            return (await issuer_metadata(self._settings, self._requests, self._tokens.issuer))[0]
        except (ConnectFailedError, EgressError) as error:
            raise LoginFailedError(f"You cannot log in at the moment: {error}", status=503) from None

    async def _exchanged(self, issuer: Issuer, code: str, *, verifier: Secret, redirect_uri: str) -> TokenAnswer:
        client = OAuthClient(client_id=self._settings.client_id, secret=self._settings.client_secret)
        if client.secret is not None:
            is_basic = "client_secret_basic" in (issuer.token_auth_methods or ("client_secret_basic",))
            client = replace(client, method="client_secret_basic" if is_basic else "client_secret_post")
        try:
            return await exchange_code(
                self._requests, issuer, client, code=code, verifier=verifier, redirect_uri=redirect_uri,
                resource=self._resource,
            )  # fmt: skip
        except GrantRefusedError as error:
            raise LoginFailedError(f"The issuer did not log you in: {error.code}. Log in again.") from None
        except (ConnectFailedError, EgressError) as error:
            raise LoginFailedError(f"You cannot log in at the moment: {error}", status=503) from None

    async def _check_nonce(self, given: TokenAnswer, nonce: str) -> None:
        """Refuse an ID token of another login: somebody may have put their own code into the answer."""
        rules = TokenRules(
            issuer=self._tokens.issuer, audience=self._settings.client_id, jwks_url=self._tokens.jwks_url
        )
        try:
            token = "" if given.id_token is None else given.id_token.reveal()
            claims = (await TokenReader(rules, KeySet(rules.jwks_url)).credential(token)).claims
        except BadCredentialError as error:
            raise LoginFailedError(f"The issuer sent no valid ID token ({error.reason}). Log in again.") from None
        except UnavailableError:
            raise LoginFailedError("You cannot log in at the moment: the issuer's keys.", status=503) from None
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise LoginFailedError("The issuer’s answer is of another login. Log in again.")
