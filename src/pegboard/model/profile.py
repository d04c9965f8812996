"""Profile: a named slice of the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pegboard.model.policy import OPEN_POLICY, Policy
from pegboard.model.rate_limit import RateLimit


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """A named slice of the catalog for one kind of caller. `include=None` takes all groups.

    `hide_unconnected` hides tools that need an account which the caller has not connected; they are listed otherwise.
    """

    name: str
    include: tuple[str, ...] | None = None
    policy: Policy = OPEN_POLICY
    exposure: Literal["direct", "two_tool", "search", "auto"] = "auto"
    token_budget: int = 8_000
    hide_unconnected: bool = False
    pinned: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    require_context: bool = False
    rate_limit: RateLimit | None = None
    limits: Mapping[str, float] = field(default_factory=dict[str, float], hash=False)
    origin: str = ""
