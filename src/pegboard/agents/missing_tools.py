"""Missing tools: the tools and groups that an agent declares and that one of its runs does not have."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pegboard.core.view import View
from pegboard.model.agent import AgentSpec
from pegboard.model.tool import ToolEntry


class MissingTool(Struct, frozen=True, kw_only=True):
    """A declared tool or group that a run does not have; `is_hidden` if it exists and a rule hides it."""

    name: str
    reason: str
    is_hidden: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({self.reason.rstrip('.')})"


async def missing_tools(
    spec: AgentSpec, view: View, own: Sequence[ToolEntry], tools: Sequence[ToolEntry]
) -> tuple[MissingTool, ...]:
    """Return the declared tools that an agent's view lacks, with the reason for each."""
    present = {entry.qualified_id for entry in tools}
    missing: list[MissingTool] = []
    for name in dict.fromkeys((*(entry.qualified_id for entry in own), *spec.shared)):
        if name not in present:
            decision = await view.awhy(name)
            is_hidden = view.snapshot.find(name) is not None
            missing.append(MissingTool(name=repr(name), reason=decision.reason, is_hidden=is_hidden))
    groups = {group for entry in tools for group in entry.spec.groups}
    existing = {group for entry in view.snapshot.entries for group in entry.spec.groups}
    for group in spec.groups:
        if group not in groups:
            reason = "all of its tools are hidden" if group in existing else "it has no tool now"
            missing.append(MissingTool(name=f"group {group!r}", reason=reason, is_hidden=group in existing))
    return tuple(missing)
