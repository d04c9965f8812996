"""Owners: whose a consent is. Three keys of one request, each a digest, so that no part of one passes for another's."""

from __future__ import annotations

from pegboard.core.digests import digest
from pegboard.model.consent import ConsentRequest


def owner_key(request: ConsentRequest) -> str:
    """Return who asks, in whatever session: questions are counted by it."""
    return digest([request.credential, request.address, request.user_id, request.space_id])


def principal_key(request: ConsentRequest) -> str:
    """Return who asks, in which session, if that is more than a connection: a yes to one call serves nobody else.

    A person decides when they find the time, and the client has connected anew by then.
    """
    return digest([owner_key(request), None if request.is_session_brief else request.session_id])


def session_key(request: ConsentRequest) -> str:
    """Return the session in which a no is remembered; of a caller of whom nothing is known, the request alone."""
    known = (request.credential, request.address, request.user_id, request.space_id, request.session_id)
    return digest([owner_key(request), request.session_id, "" if any(known) else request.request_id])
