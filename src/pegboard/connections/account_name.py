"""Account name: the person's name at a service, from the issuer's ID token."""

from __future__ import annotations

import base64
import binascii

from pegboard.core.json_reader import read_answer
from pegboard.model.json_types import JSON, is_list, is_object
from pegboard.model.secret import Secret

ACCOUNT_CHARS = 200  # of a name; longer ones are left out
_CLAIMS = ("preferred_username", "email", "name")
_LEEWAY_S = 300.0  # how far the clocks may differ, in seconds


def account_name(id_token: Secret | None, *, issuer: str, client_id: str, now: float) -> str | None:
    """Return the login, the address or the name in an ID token; `None` if it has none, or is not for this client.

    The signature is not checked: the token came from the issuer itself, over its own connection, and the name is shown
    to people and decides nothing.

    Source: OpenID Connect Core, 3.1.3.7 and 5.1.
    """
    claims: JSON = {} if id_token is None else _claims(id_token.reveal())
    audience, ends = claims.get("aud"), claims.get("exp")
    is_for_us = audience == client_id or (is_list(audience) and client_id in audience)
    is_valid = isinstance(ends, int | float) and ends > now - _LEEWAY_S
    if claims.get("iss") != issuer or not is_for_us or not is_valid:
        return None
    names = (name.strip() for claim in _CLAIMS if isinstance(name := claims.get(claim), str))
    return next((name for name in names if 0 < len(name) <= ACCOUNT_CHARS), None)


def _claims(token: str) -> JSON:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = read_answer(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return {}
    return claims if is_object(claims) else {}
