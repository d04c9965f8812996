"""Caller: the identity behind a request, from a verified credential or from host code."""

from __future__ import annotations

from dataclasses import dataclass, field

from pegboard.model.policy import OPEN_POLICY, Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """The identity behind a request. Hashable; all requests with one credential and profile share one value.

    `credential` names the verified credential; it is empty for host code. `address` is the network of an
    unauthenticated request: it is used for shared limits and gives no rights. `is_session_brief` means that the session
    lasts as long as a connection (MCP revisions before 2026-07-28 over HTTP), so the same caller gets another one next
    time. `proof` is the part of the credential from which a task can look up the current rights again; empty if that is
    impossible. `key` is the name of the API key, for logs; callers are not compared by it.
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
    key: str = field(default="", compare=False)


NOBODY = Caller()
