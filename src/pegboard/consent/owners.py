"""Owners: the keys of a consent's owner. Each is a digest of separate parts, so that no two can be confused."""

from __future__ import annotations

from pegboard.core.digests import digest
from pegboard.model.consent import ConsentRequest


def owner_key(request: ConsentRequest) -> str:
    """Return the key of the caller in any session, for counting questions."""
    return digest([request.credential, request.address, request.user_id, request.space_id])


def principal_key(request: ConsentRequest) -> str:
    """Return the key of the caller and the session, unless the session ends with its connection.

    A person may decide later, and the client has reconnected by then.
    """
    return digest([owner_key(request), None if request.is_session_brief else request.session_id])


def session_key(request: ConsentRequest) -> str:
    """Return the key of the session that remembers a denial; for an unknown caller, that of the request."""
    known = (request.credential, request.address, request.user_id, request.space_id, request.session_id)
    return digest([owner_key(request), request.session_id, "" if any(known) else request.request_id])
