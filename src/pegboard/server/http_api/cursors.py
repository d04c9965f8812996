"""Cursors: where a list goes on, signed, so that a cursor serves the caller and the list it was made for."""

from __future__ import annotations

import base64
import hmac
import secrets

from pegboard.core.digests import canonical_json
from pegboard.model.bounds import API_CURSOR_CHARS
from pegboard.server.http_api.problem_details import not_found


class Cursors:
    """Makes and opens cursors.

    Args:
        keys: secrets of 32 bytes or more, the first signs, all open; by default one for this process.
    """

    def __init__(self, keys: tuple[bytes, ...] = ()) -> None:
        self._keys = keys or (secrets.token_bytes(32),)

    def make(self, owner: object, generation: str, place: int) -> str:
        """Return the cursor of a place in one caller's list."""
        signed = b"%d." % place + _mark(self._keys[0], owner, generation, place)
        return base64.urlsafe_b64encode(signed).decode()

    def open(self, cursor: str, owner: object, generation: str) -> int:
        """Return the place.

        Raises:
            ProblemError: it is none, or was made for another caller or list.
        """
        try:
            number, _, mark = base64.b64decode(cursor[:API_CURSOR_CHARS], altchars=b"-_", validate=True).partition(b".")
            place = int(number) if number.isdigit() else -1
        except ValueError:
            place, mark = -1, b""
        if place < 0 or not any(hmac.compare_digest(mark, _mark(key, owner, generation, place)) for key in self._keys):
            raise not_found("Unknown cursor, or the list has changed. Start again without a cursor.")
        return place


def _mark(key: bytes, owner: object, generation: str, place: int) -> bytes:
    return hmac.digest(key, canonical_json(["pegboard cursor", owner, generation, place]), "sha256")
