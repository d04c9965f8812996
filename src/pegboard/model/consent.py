"""Consent: one concrete call that needs a person's yes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pegboard.model.json_types import JSONValue


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsentRequest:
    """One concrete call that needs a person's yes; it binds definition, arguments and person."""

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


Approve: TypeAlias = "Callable[[ConsentRequest], Awaitable[bool] | bool]"
