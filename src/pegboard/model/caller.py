"""Caller: who asks, as a verified credential or host code says it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pegboard.model.policy import OPEN_POLICY, Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """Who asks: hashable, and one value for all requests of a credential through a profile.

    `credential` names what was verified; empty where host code says who asks. `address` is the network that a request
    came from which nobody vouches for: it counts for what callers share, and gives no rights. `is_session_brief`: the
    session is that of a connection, as in the earlier revisions over HTTP; the same caller has another one next time.
    `proof` is what is kept of the credential, so that a task can ask for its rights again; empty where nobody can say.
    """

    user_id: str | None = None
    space_id: str | None = None
    session_id: str | None = None
    agent: str | None = None
    roles: frozenset[str] = frozenset()
    policy: Policy = OPEN_POLICY
    credential: str = ""
    address: str = ""
    is_session_brief: bool = False
    proof: str = field(default="", repr=False)


NOBODY = Caller()
