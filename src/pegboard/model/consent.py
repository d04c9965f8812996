"""Consent: one concrete call that needs a person's yes, and what is remembered of the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from pegboard.model.json_types import JSONValue

ConsentState: TypeAlias = Literal["asked", "agreed", "declined"]


class ConsentRequest(Struct, frozen=True, kw_only=True):
    """One concrete call that needs a person's yes; it binds definition, arguments and person.

    `credential` names what was verified of the caller, `address` the network of one whom nobody vouches for, and
    `request_id` the request or turn that the call is a part of. What people decide later outlives a session that
    `is_session_brief`.
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


class Consent(Struct, frozen=True, kw_only=True):
    """One record: a question to a person, their answer to it, or a bounded grant. Times in seconds since 1970.

    `matching` is the JSON Schema that the arguments of a grant's calls must fit; `None` for an answer to one call.
    `arguments` are without secrets, and `None` where they are too long to be kept; `question` is what a person reads.
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

    @property
    def is_grant(self) -> bool:
        """Whether it is good for all calls that match, and not for one concrete call."""
        return self.matching is not None


class Grant(Struct, frozen=True, kw_only=True):
    """Up to `calls` calls of a tool, as it is declared now, whose arguments fit the schema `matching`.

    For one principal: `None` is a caller without user or space; `credential=None` is any credential of that user.
    """

    tool: str
    definition_hash: str
    calls: int
    lasts_s: float
    matching: Mapping[str, JSONValue]
    user_id: str | None
    space_id: str | None = None
    credential: str | None = None


class ConsentAnswer(NamedTuple):
    """A person's answer to a call, and the id of the record that it stands in."""

    consent_id: str
    is_yes: bool


Stands: TypeAlias = "Callable[[str], Awaitable[bool]]"
"""Tells by its id whether a yes is there still, or a person has taken it back."""
Approve: TypeAlias = "Callable[[ConsentRequest], Awaitable[bool | None] | bool | None]"
