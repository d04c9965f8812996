"""Grants: requests, refreshes and revokes tokens. Each is one POST."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote

import orjson

from pegboard.connections.auth_settings import SubjectTokenType
from pegboard.connections.issuer_requests import IssuerRequests
from pegboard.connections.issuers import Issuer, OAuthClient, TokenAnswer
from pegboard.core.identifiers import new_id
from pegboard.core.json_reader import read_answer
from pegboard.egress.failures import EgressError
from pegboard.egress.responses import Response, media_type, retry_after_s
from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError, PegboardError
from pegboard.model.json_types import is_object
from pegboard.model.secret import Secret

if TYPE_CHECKING:
    import jwt
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
else:
    jwt = LazyModule("jwt")
    serialization = LazyModule("cryptography.hazmat.primitives.serialization")
    ec = LazyModule("cryptography.hazmat.primitives.asymmetric.ec")
    rsa = LazyModule("cryptography.hazmat.primitives.asymmetric.rsa")

TOKEN_CHARS = 65_536  # characters of one token
# How long an assertion of the client is valid, as in the MCP SDK: the clock of an issuer may be minutes ahead.
ASSERTION_S = 300
LONGEST_LIFETIME_S = 10 * 365 * 86_400.0  # seconds of the longest lifetime of a token that is believed
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_URN = "urn:ietf:params:oauth:token-type:"
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_FORM_TYPE = "application/x-www-form-urlencoded"
_MOST_FIELDS = 100  # fields of an answer that is a form
_ERROR_CODE = re.compile(r"[a-z_]{1,64}")
CLIENT_FAULTS = frozenset({"invalid_client", "unauthorized_client"})
"""Codes of an issuer that refuse the client, whatever it asks for."""
ENDED = frozenset({"invalid_grant", "bad_refresh_token", "invalid_refresh_token", "token_revoked", "token_expired"})
"""Codes of an issuer for an agreement that has ended: the standard's, and those of GitHub and Slack."""
# Codes of an issuer that cannot decide now.
_LATER = frozenset({"temporarily_unavailable", "slow_down", "server_error"})
# Slack names the owner of a token instead of its type. All of them are sent as bearer tokens.
_BEARER_TYPES = frozenset({"bearer", "user", "bot"})
_SLACK_USER = "authed_user"  # where Slack has the token of the person, if a bot gets none
_TOKEN = re.compile(r"[\x21-\x7e]+")


class GrantRefusedError(PegboardError):
    """The issuer refused a grant, and would refuse it again. `code` is its error code, such as `invalid_grant`."""

    def __init__(self, issuer: str, code: str) -> None:
        super().__init__(f"The issuer {issuer!r} refused: {code}.")
        self.code = code


async def exchange_code(
    requests: IssuerRequests,
    issuer: Issuer,
    client: OAuthClient,
    *,
    code: str,
    verifier: Secret,
    redirect_uri: str,
    resource: str,
) -> TokenAnswer:
    """Return the tokens for an authorization code (RFC 6749, 4.1.3; RFC 7636).

    Raises:
        GrantRefusedError: the issuer refuses the code.
        EgressError: it cannot be reached, or cannot decide now.
    """
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier.reveal(),
        **({"resource": resource} if resource else {}),
    }
    return await _tokens(requests, issuer, client, fields)


async def refresh(
    requests: IssuerRequests, issuer: Issuer, client: OAuthClient, *, refresh_token: Secret, resource: str
) -> TokenAnswer:
    """Return new tokens for a refresh token (RFC 6749, 6), which may be used up.

    Raises:
        GrantRefusedError, EgressError: as for `exchange_code`.
    """
    fields = {
        "grant_type": "refresh_token",
        "refresh_token": refresh_token.reveal(),
        **({"resource": resource} if resource else {}),
    }
    return await _tokens(requests, issuer, client, fields)


async def client_credentials(
    requests: IssuerRequests, issuer: Issuer, client: OAuthClient, *, scopes: Sequence[str], resource: str
) -> TokenAnswer:
    """Return a token of the client itself (RFC 6749, 4.4).

    Raises:
        GrantRefusedError, EgressError: as for `exchange_code`.
    """
    fields = {
        "grant_type": "client_credentials",
        **({"scope": " ".join(scopes)} if scopes else {}),
        **({"resource": resource} if resource else {}),
    }
    return await _tokens(requests, issuer, client, fields)


async def exchange_token(
    requests: IssuerRequests,
    issuer: Issuer,
    client: OAuthClient,
    *,
    subject: Secret,
    subject_type: SubjectTokenType,
    audience: str,
    resource: str,
    scopes: Sequence[str],
    actor: Secret | None = None,
) -> TokenAnswer:
    """Return an access token in exchange for a person's token (RFC 8693). `actor` is a token of the client itself.

    Raises:
        GrantRefusedError, EgressError: as for `exchange_code`.
    """
    fields = {
        **_exchange_fields(subject, subject_type, "access_token", audience, resource, scopes),
        **({"actor_token": actor.reveal(), "actor_token_type": f"{_URN}access_token"} if actor else {}),
    }
    return await _tokens(requests, issuer, client, fields)


async def identity_assertion(
    requests: IssuerRequests,
    issuer: Issuer,
    client: OAuthClient,
    *,
    subject: Secret,
    subject_type: SubjectTokenType,
    audience: str,
    resource: str,
    scopes: Sequence[str],
) -> Secret:
    """Return an identity assertion (ID-JAG) for the issuer `audience`, in exchange for a person's token.

    Raises:
        GrantRefusedError, EgressError: as for `exchange_code`.

    Source: MCP Enterprise-Managed Authorization, 4; draft-ietf-oauth-identity-assertion-authz-grant, 4.3.
    """
    fields = _exchange_fields(subject, subject_type, "id-jag", audience, resource, scopes)
    response = await _post(requests, issuer, client, issuer.token_url, fields)
    if response.status_code not in (200, 201):
        raise _refusal(response, issuer)
    body = _json(response)
    assertion, kind = body.get("access_token"), body.get("issued_token_type")
    if not (isinstance(assertion, str) and _is_token(assertion) and kind == f"{_URN}id-jag"):
        raise GrantRefusedError(issuer.issuer, _code(body) or "invalid_token_response")
    return Secret(assertion)


async def assert_identity(
    requests: IssuerRequests,
    issuer: Issuer,
    client: OAuthClient,
    *,
    assertion: Secret,
    resource: str,
    scopes: Sequence[str],
    is_on_behalf_of: bool = False,
) -> TokenAnswer:
    """Return an access token for an assertion about a person (RFC 7523, 2.1).

    With `is_on_behalf_of` the assertion is the caller's token, as Microsoft Entra exchanges it.

    Raises:
        GrantRefusedError, EgressError: as for `exchange_code`.
    """
    fields = {
        "grant_type": _JWT_BEARER,
        "assertion": assertion.reveal(),
        **({"scope": " ".join(scopes)} if scopes else {}),
        **({"resource": resource} if resource else {}),
        **({"requested_token_use": "on_behalf_of"} if is_on_behalf_of else {}),
    }
    return await _tokens(requests, issuer, client, fields)


def _exchange_fields(
    subject: Secret, subject_type: str, requested_type: str, audience: str, resource: str, scopes: Sequence[str]
) -> dict[str, str]:
    return {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": subject.reveal(),
        "subject_token_type": f"{_URN}{subject_type}",
        "requested_token_type": f"{_URN}{requested_type}",
        **({"audience": audience} if audience else {}),
        **({"resource": resource} if resource else {}),
        **({"scope": " ".join(scopes)} if scopes else {}),
    }


async def revoke(requests: IssuerRequests, issuer: Issuer, client: OAuthClient, *, token: Secret, hint: str) -> None:
    """Revoke a token (RFC 7009). `hint` is `refresh_token` or `access_token`.

    Raises:
        GrantRefusedError, EgressError: as for `exchange_code`.
    """
    response = await _post(
        requests, issuer, client, issuer.revocation_url, {"token": token.reveal(), "token_type_hint": hint}
    )
    # RFC 7009 answers 200 for tokens that are not valid. Google answers with an error, also for the access token of a
    # refresh token that was revoked before.
    if response.status_code not in (200, 204) and _code(_json(response)) != "invalid_token":
        raise _refusal(response, issuer)


async def _tokens(
    requests: IssuerRequests, issuer: Issuer, client: OAuthClient, fields: Mapping[str, str]
) -> TokenAnswer:
    response = await _post(requests, issuer, client, issuer.token_url, fields)
    if response.status_code not in (200, 201) or _code(_json(response)):
        # GitHub answers a refused code with 200 and an error.
        raise _refusal(response, issuer)
    return _answer(response, issuer)


async def _post(
    requests: IssuerRequests, issuer: Issuer, client: OAuthClient, url: str, fields: Mapping[str, str]
) -> Response:
    own, headers = _credentials(client, issuer)
    return await requests.post_form(url, {**fields, **own}, headers=headers)


def _credentials(client: OAuthClient, issuer: Issuer) -> tuple[dict[str, str], dict[str, str]]:
    """Return the fields and headers that authenticate the client."""
    secret = client.secret.reveal() if client.secret is not None else ""
    match client.method:
        case "client_secret_basic":
            pair = f"{quote(client.client_id, safe='')}:{quote(secret, safe='')}"
            # Servers on the Python SDK look the client up by the field before they read the header.
            return {"client_id": client.client_id}, {
                "authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"
            }
        case "client_secret_post":
            return {"client_id": client.client_id, "client_secret": secret}, {}
        case "private_key_jwt":
            assertion = signed_assertion(client, audience=issuer.issuer)
            own = {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": assertion}
            return {"client_id": client.client_id, **own}, {}
        case "none":
            return {"client_id": client.client_id}, {}


def signed_assertion(client: OAuthClient, *, audience: str, clock: Callable[[], float] = time.time) -> str:
    """Return a JWT that authenticates the client (RFC 7523, 2.2)."""
    assert client.private_key is not None
    now = int(clock())
    claims = {
        "iss": client.client_id, "sub": client.client_id, "aud": audience, "iat": now, "exp": now + ASSERTION_S,
        "jti": new_id(),
    }  # fmt: skip
    headers = {"kid": client.private_key_id} if client.private_key_id else None
    key = client.private_key.reveal()
    return jwt.encode(claims, key, algorithm=algorithm_of(client.private_key), headers=headers)


def algorithm_of(private_key: Secret) -> str:
    """Return the signature algorithm of a private key.

    Raises:
        DefinitionError: it is not a PEM private key, or of an unknown kind.
    """
    try:
        key = serialization.load_pem_private_key(private_key.reveal().encode(), password=None)
    except (ValueError, TypeError):
        raise DefinitionError("private_key: it is not a PEM private key without a password") from None
    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    if isinstance(key, ec.EllipticCurvePrivateKey):
        curves = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
        if (algorithm := curves.get(key.curve.name)) is not None:
            return algorithm
    if type(key).__name__ in ("_Ed25519PrivateKey", "Ed25519PrivateKey"):
        return "EdDSA"
    raise DefinitionError("private_key: use an RSA, an elliptic curve (P-256, P-384, P-521) or an Ed25519 key")


def _answer(response: Response, issuer: Issuer) -> TokenAnswer:
    """Return the tokens in a successful answer.

    Raises:
        GrantRefusedError: `invalid_token_response`: it has no bearer token, or one that a header cannot hold.
    """
    body = _json(response)
    if "access_token" not in body and is_object(nested := body.get(_SLACK_USER)):
        body = nested
    access, kind = body.get("access_token"), body.get("token_type", "Bearer")
    if not (isinstance(access, str) and _is_token(access) and isinstance(kind, str) and kind.lower() in _BEARER_TYPES):
        raise GrantRefusedError(issuer.issuer, "invalid_token_response")
    id_token = body.get("id_token")
    refresh_token, scope, expires_in = body.get("refresh_token"), body.get("scope"), body.get("expires_in")
    if refresh_token is not None and not (isinstance(refresh_token, str) and _is_token(refresh_token)):
        refresh_token = None
    return TokenAnswer(
        access=Secret(access),
        refresh=Secret(refresh_token) if refresh_token else None,
        expires_in_s=_seconds(expires_in),
        # Some issuers separate scopes by commas. GitHub sends an empty text if it grants none.
        scopes=tuple(dict.fromkeys(filter(None, re.split(r"[\s,]+", scope))))[:200] if isinstance(scope, str) else None,
        id_token=Secret(id_token) if isinstance(id_token, str) and _is_token(id_token) else None,
    )


def _is_token(text: str) -> bool:
    return len(text) <= TOKEN_CHARS and _TOKEN.fullmatch(text) is not None


def _seconds(value: object) -> float | None:
    """Return a lifetime; `None` for values that are none. The service then decides when the token has expired.

    Some issuers send 0 for a token that does not expire: if it were taken literally, each call would refresh the token.
    """
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:20])
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LONGEST_LIFETIME_S:
        return None
    return float(value)


def _refusal(response: Response, issuer: Issuer) -> GrantRefusedError | EgressError:
    status, code = response.status_code, _code(_json(response))
    if status >= 500 or status in (408, 429) or code in _LATER:
        text = f"The issuer {issuer.issuer!r} answered {status}: it cannot issue tokens now. Try again later."
        return EgressError("upstream_unavailable", text, retry_after_s=retry_after_s(response))
    return GrantRefusedError(issuer.issuer, code or f"status {status}")


def _json(response: Response) -> Mapping[str, object]:
    """Return the members of an answer, empty if it cannot be read. Some issuers send a form in spite of `accept`."""
    if media_type(response) == _FORM_TYPE:
        return _form(response.body)
    try:
        body = read_answer(response.body)
    except (ValueError, orjson.JSONDecodeError):
        return {}
    return body if is_object(body) else {}


def _form(raw: bytes) -> Mapping[str, object]:
    try:
        fields = parse_qsl(raw.decode(), strict_parsing=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        return {}
    # Two readers of a repeated field may see different values.
    return dict(fields) if len(dict(fields)) == len(fields) else {}


def _code(body: Mapping[str, object]) -> str:
    code = body.get("error")
    return code if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""
