"""Caller: the identity behind a request, from a verified credential or from host code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from pegboard.model.error import DefinitionError
from pegboard.model.policy import OPEN_POLICY, Policy
from pegboard.model.secret import Secret


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """The identity behind a request. Hashable; all requests with one credential and profile share one value.

    `credential` names the verified credential; it is empty for host code. `address` is the network of an
    unauthenticated request: it is used for shared limits and gives no rights. `is_session_brief` means that the session
    lasts as long as a connection (MCP revisions before 2026-07-28 over HTTP), so the same caller gets another one next
    time. `proof` is the part of the credential that a task needs to look up the current rights again; empty if that is
    impossible. `key` is the name of the API key, for logs. `subject_token` is the token that the caller presented, if
    sources exchange it for tokens of other services; it is never sent to them. Callers are not compared by either.

    Raises:
        DefinitionError: `subject_token` is not wrapped in `Secret`.
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
    subject_token: Secret | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.subject_token), Secret | None):  # pragma: no cover - tests/connections
            raise DefinitionError("The `subject_token` of a caller is plain text: wrap it, Secret(…).")


NOBODY = Caller()
