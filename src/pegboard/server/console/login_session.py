"""Login session: the sealed cookie of a person who is logged in, and the token that each form carries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from secrets import token_urlsafe
from typing import Any

import orjson

from pegboard.core.steady_clock import steady_time
from pegboard.model.record import CarriesCredentials
from pegboard.server.sealing import Sealing

SESSION_S = 8 * 3600.0  # seconds until a person must log in again
SESSION_COOKIE_CHARS = 3_800  # characters of a cookie; browsers drop longer ones

_COOKIE = "pegboard-console"
_SESSION, _FORM = "console session", "console form"


class Session(CarriesCredentials, frozen=True, kw_only=True):
    """A browser that opened the console. `key` is the credential that its person typed in; empty before the login.

    `is_local` marks the person who opened the link in the terminal of a server without authentication.
    """

    nonce: str
    since: float
    key: str = ""
    is_local: bool = False


class Sessions:
    """Seals sessions into cookies. The server keeps none of them.

    The cookie has the credential itself, encrypted, so that each request is authenticated as any other request with
    this credential is: a revoked key, an expired token or a changed rule ends the session with the next request.

    Args:
        sealing: the keys of the server.
        wall_clock: seconds since 1970.
    """

    def __init__(self, sealing: Sealing, *, wall_clock: Callable[[], float] = steady_time) -> None:
        self._sealing, self._clock = sealing, wall_clock

    def new(self, *, key: str = "", is_local: bool = False) -> Session:
        """Return a session that begins now."""
        return Session(nonce=token_urlsafe(16), since=self._clock(), key=key, is_local=is_local)

    def open(self, cookie: str | None) -> Session | None:
        """Return the session in a cookie; `None` if this server did not seal it, or if it is over."""
        payload = None if cookie is None else self._sealing.codec.open(cookie[:SESSION_COOKIE_CHARS])
        fields: Any = None if payload is None else sealed_fields(payload)
        if fields is None or fields[:2] != [_SESSION, self._sealing.audience]:
            return None
        session = Session(nonce=fields[2], since=fields[3], key=fields[4], is_local=fields[5])
        return session if 0 <= self._clock() - session.since < SESSION_S else None

    def sealed(self, session: Session) -> str:
        """Return the cookie's value.

        Raises:
            ValueError: the credential is too long for a cookie.
        """
        fields = [_SESSION, self._sealing.audience, session.nonce, session.since, session.key, session.is_local]
        cookie = self._sealing.codec.seal(orjson.dumps(fields))
        if len(cookie) > SESSION_COOKIE_CHARS:
            raise ValueError("This credential is too long for the cookie of a browser. Use an API key.")
        return cookie

    def form_token(self, nonce: str) -> str:
        """Return a token for the forms of one session; different each time, so that compression reveals nothing."""
        return self._sealing.codec.seal(self._form(nonce))

    def is_form_token(self, token: str, nonce: str) -> bool:
        """Tell whether a token was made for a form of this session."""
        return bool(nonce) and self._sealing.codec.open(token) == self._form(nonce)

    def _form(self, nonce: str) -> bytes:
        return orjson.dumps([_FORM, self._sealing.audience, nonce])


def sealed_fields(payload: bytes) -> list[Any] | None:
    """Return the fields of a session or login; `None` for other state that the server seals, which need not be JSON."""
    try:
        fields = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    return fields if isinstance(fields, list) else None  # pyright: ignore[reportUnknownVariableType] - JSON of ours


def login_cookie_name(scope: Mapping[str, Any]) -> str:
    """Return the name of the cookie of a login that is under way at an issuer."""
    return f"{cookie_name(scope)}-login"


def cookie_name(scope: Mapping[str, Any]) -> str:
    """Return the cookie's name, with the port: browsers send cookies to all ports of a host."""
    server = scope.get("server")
    port = server[1] if server else None
    return _COOKIE if port is None else f"{_COOKIE}-{port}"
