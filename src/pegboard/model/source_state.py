"""Source state: the health of a source of tools, and its tools that are held back."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from pegboard.model.error import ToolError
from pegboard.model.json_types import JSON

SourceStatus = Literal["ok", "connecting", "unreachable", "auth_required", "quarantined"]


class SourceState(Struct, frozen=True, kw_only=True):
    """The state of one source. `is_up` decides code `source`; it stays true during a grace period.

    `quarantined` are the qualified ids to hide. `changed` are tools that stay listed with their pinned definition while
    calls to them fail with `needs_review`. `flagged` are those of both that look like an attack: a look-alike name, a
    text that steers the model or is hidden from people. `fault` is the error that calls get although the source is up.
    """

    status: SourceStatus = "ok"
    is_up: bool = True
    reason: str = ""
    quarantined: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    flagged: frozenset[str] = frozenset()
    fault: ToolError | None = None


class HeldDefinition(Struct, frozen=True, kw_only=True):
    """A tool that differs from its accepted definition.

    `changes` are kinds such as `new`, `gone` or `description`. `accepted` is `None` for a new tool, `offered` for one
    that is gone.
    """

    id: str
    changes: tuple[str, ...]
    accepted: JSON | None
    offered: JSON | None
