"""Owners: whose a consent is. Three keys of one request, each a digest, so that no part of one passes for another's."""

from __future__ import annotations

from pegboard.core.digests import digest
from pegboard.model.consent import ConsentRequest


def owner_key(request: ConsentRequest) -> str:
    """Return who asks, in whatever session: questions are counted by it."""
    return digest([request.credential, request.address, request.user_id, request.space_id])


def principal_key(request: ConsentRequest) -> str:
    """Return who asks, in which session: a yes to one call serves nobody else."""
    return digest([owner_key(request), request.session_id])


def session_key(request: ConsentRequest) -> str:
    """Return the session in which a no is remembered; of a caller of whom nothing is known, the request alone."""
    known = (request.credential, request.address, request.user_id, request.space_id, request.session_id)
    return digest([principal_key(request), "" if any(known) else request.request_id])
