"""Hook call: the view of a call that a hook gets."""

from __future__ import annotations

from typing import Protocol

from pegboard.model.call_context import CallContext
from pegboard.model.json_types import JSON
from pegboard.model.tool import ToolSpec


class HookCall(Protocol):
    """The call as a hook gets it: the tool, its wire name, its arguments and the context."""

    @property
    def tool(self) -> ToolSpec: ...
    @property
    def wire_name(self) -> str: ...
    @property
    def args(self) -> JSON: ...
    @property
    def ctx(self) -> CallContext: ...
