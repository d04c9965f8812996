"""Connection required: the error of a call whose person has no account. Apart from the records, it loads httpx2."""

from __future__ import annotations

from pegboard.egress.failures import EgressError


class ConnectionRequiredError(EgressError):
    """The caller's person must connect to the source first.

    A `CallError` of the kind `connection_required`. `details` has `source`, `scopes`, and with a page `url` and
    `expires_at`.
    """
