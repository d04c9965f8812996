"""Connect login: the proof that a person who is logged in to the console began to connect in this browser."""

from __future__ import annotations

from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from pegboard.connections.connection_records import Person
from pegboard.server.sealing import Sealing

CONNECT_COOKIE_S = 600  # how long the browser keeps its cookies, in seconds; links are valid as long

_COOKIE: Final = "pegboard_connect_login"
_COOKIE_CHARS = 2_000
_KIND = "connect login"


class _Proof(Struct, array_like=True, frozen=True):
    """The content of the cookie; the first three fields bind it to a server and a link."""

    kind: str
    audience: str
    ticket_digest: str
    user: str
    space: str | None


_decoder = msgspec.json.Decoder(_Proof)


class ConnectLogin:
    """Seals the person of a link into a cookie, so that the page of the link need not ask for their key.

    The cookie counts for this one link alone. A link that was stolen, or sent to somebody else, is opened in a browser
    without it, and then its page asks for the key.
    """

    def __init__(self, sealing: Sealing) -> None:
        self._sealing = sealing

    def remember(self, response: Response, *, ticket: str, person: Person, public_url: str) -> None:
        """Set the cookie; only after the console has checked the session and the form token of this person."""
        place = urlsplit(public_url)
        proof = _Proof(*self._bound_to(ticket), person.user_id, person.space_id)
        response.set_cookie(
            _COOKIE, self._sealing.codec.seal(msgspec.json.encode(proof)), max_age=CONNECT_COOKIE_S,
            path=f"{place.path}/connections", secure=place.scheme == "https", httponly=True, samesite="strict",
        )  # fmt: skip

    def person(self, request: Request, ticket: str) -> Person | None:
        """Return the person who began this link in this browser, if the console knows."""
        cookie = request.cookies.get(_COOKIE, "")
        payload = self._sealing.codec.open(cookie) if 0 < len(cookie) <= _COOKIE_CHARS else None
        if payload is None:
            return None
        try:
            proof = _decoder.decode(payload)
        except msgspec.DecodeError:
            # Other state that this server sealed.
            return None
        if (proof.kind, proof.audience, proof.ticket_digest) != self._bound_to(ticket):
            return None
        return Person(user_id=proof.user, space_id=proof.space)

    def _bound_to(self, ticket: str) -> tuple[str, str, str]:
        return _KIND, self._sealing.audience, sha256(ticket.encode()).hexdigest()
