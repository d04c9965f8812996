"""Source state: how a source of tools is."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from pegboard.model.error import ToolError

SourceStatus = Literal["ok", "connecting", "unreachable", "auth_required", "quarantined"]


class SourceState(Struct, frozen=True, kw_only=True):
    """How one source is. `is_up` decides code `source`: it stays true while a grace period runs.

    `quarantined` are qualified ids to hide; `changed` are those that stay listed with their
    pinned definition while calls answer `needs_review`. `fault` is what calls answer now, although it is up.
    """

    status: SourceStatus = "ok"
    is_up: bool = True
    reason: str = ""
    quarantined: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    fault: ToolError | None = None
