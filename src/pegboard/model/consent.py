"""Consent: a call that needs a person's approval, and the stored answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from pegboard.model.json_types import JSONValue

ConsentState: TypeAlias = Literal["asked", "agreed", "declined"]


class ConsentRequest(Struct, frozen=True, kw_only=True):
    """A call that needs a person's approval, bound to the definition, the arguments and the person.

    `credential` names the verified credential of the caller, `address` the network of an unauthenticated caller, and
    `request_id` the request or turn of the call. If `is_session_brief`, the answer stays valid after the
    session ends.
    `approvals_needed` is the number of different people who must approve.
    """

    tool: str
    definition_hash: str
    args_digest: str
    arguments: Mapping[str, JSONValue]
    reason: str
    user_id: str | None
    space_id: str | None
    session_id: str | None
    agent: str | None
    call_id: str
    credential: str = ""
    address: str = ""
    request_id: str = ""
    is_session_brief: bool = False
    input_schema: Mapping[str, JSONValue] | None = None
    approvals_needed: int = 1


class Parameters(Struct, frozen=True, kw_only=True):
    """The arguments that a tool takes: all that it names, those of every call, and the defaults."""

    names: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    defaults: Mapping[str, JSONValue] = {}


class Consent(Struct, frozen=True, kw_only=True):
    """One record: a question to a person, the answer to it, or a limited grant. Times in seconds since 1970.

    `matching` is a JSON Schema for the arguments of calls under a grant; `None` for an answer to one call. `arguments`
    are redacted, and `None` if they are too long to store. `question` is the text that a person reads; for a grant,
    what it allows and leaves open. Grants of earlier versions have no text. `parameters` describes the tool of a
    question. `approvals_needed` different people must approve; `approvers` are the users who have. `edited` are the
    arguments that an approver set instead of those of the call; `edited_by` is the user or decider who did.
    `decline_reason` is what the person wrote who declined; `None` if they gave no reason.
    """

    id: str
    state: ConsentState
    tool: str
    definition_hash: str
    args_digest: str | None
    arguments: Mapping[str, JSONValue] | None
    matching: Mapping[str, JSONValue] | None
    question: str
    credential: str | None
    user_id: str | None
    space_id: str | None
    session_id: str | None
    agent: str | None
    asked_at: float
    decided_at: float | None
    decided_by: str | None
    expires_at: float
    uses_left: int
    uses: int
    parameters: Parameters | None = None
    approvals_needed: int = 1
    approvers: tuple[str, ...] = ()
    edited: Mapping[str, JSONValue] | None = None
    edited_by: str | None = None
    decline_reason: str | None = None

    @property
    def progress(self) -> str:
        """The approvals so far, such as `1 of 2`; empty if one person decides."""
        return f"{len(self.approvers)} of {self.approvals_needed}" if self.approvals_needed > 1 else ""

    @property
    def is_grant(self) -> bool:
        """Whether it approves all matching calls instead of one call."""
        return self.matching is not None


class Grant(Struct, frozen=True, kw_only=True):
    """Permission for up to `calls` calls of a tool, as declared now, with arguments that fit the schema `matching`.

    An argument that is neither a property of `matching` nor in `any` is absent from the calls, or has the default of
    `parameters`; `any_other` leaves all of them open. `user_id=None` is a caller without a user; `credential=None` is
    any credential of that user.
    """

    tool: str
    definition_hash: str
    calls: int
    lasts_s: float
    matching: Mapping[str, JSONValue]
    user_id: str | None
    space_id: str | None = None
    credential: str | None = None
    any: tuple[str, ...] = ()
    any_other: bool = False
    parameters: Parameters | None = None


class ConsentAnswer(NamedTuple):
    """A person's answer to a call, and the id of its record; with `edited`, the call runs with these arguments.

    `decline_reason` is the reason of a no; empty if the person gave none.
    """

    consent_id: str
    is_yes: bool
    edited: Mapping[str, JSONValue] | None = None
    decline_reason: str = ""


Stands: TypeAlias = "Callable[[str], Awaitable[bool]]"
"""Tells whether the approval with this id is still valid, i.e. has not been revoked."""
Approve: TypeAlias = "Callable[[ConsentRequest], Awaitable[bool | None] | bool | None]"
