"""LoginLink: the link in the terminal that logs in one person, once, on a server without authentication."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable

LINK_S = 3600.0  # how long after the start the link may be opened, in seconds


class LoginLink:
    """A secret that is accepted once, within an hour of its creation.

    Args:
        token: the secret; an empty one is never accepted.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, token: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._token, self._clock, self._made_at = token.encode(), clock, clock()

    @property
    def is_open(self) -> bool:
        """Whether the link may still be used."""
        return bool(self._token) and self._clock() - self._made_at < LINK_S

    def use(self, token: str) -> bool:
        """Use the link up; `False` for another token, and for a link that was used or is too old."""
        is_right = self.is_open and hmac.compare_digest(token.encode(), self._token)
        if is_right:
            self._token = b""
        return is_right
