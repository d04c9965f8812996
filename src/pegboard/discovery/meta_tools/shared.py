"""Shared: the data that the three meta tools need to answer one caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from pegboard.core.ports import DocumentStore
from pegboard.core.view import View
from pegboard.discovery.finder import Finder
from pegboard.discovery.meta_tools.loop_guard import LoopGuard
from pegboard.discovery.meta_tools.specs import MetaNames
from pegboard.model.bounds import Bounds
from pegboard.model.call_context import CallContext
from pegboard.model.context import ToolContext
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.result import ToolResult

RunInner = Callable[[str, JSONValue, ToolContext, str, object], Awaitable[ToolResult]]
"""(qualified id, arguments, context of the call, call id, observer) -> result of one guarded call"""


class MetaTools(Struct, frozen=True, kw_only=True):
    """One caller's view without the meta tools, and the services that these use."""

    view: View
    names: MetaNames
    finder: Finder
    loop_guard: LoopGuard
    bounds: Bounds
    run: RunInner
    require_context: bool = False
    documents: DocumentStore | None = None

    @property
    def profile(self) -> str | None:
        return self.view.selection.profile

    def answer(self, ctx: CallContext, tool: str, request: JSON, answered: JSON) -> JSON:
        """Return a discovery answer, with a hint to call a tool if this session has asked the same twice before."""
        if not self.loop_guard.nudges(ctx, self.profile, tool, request):
            return answered
        nudge = f"You have asked this before and the answer is the same. Call {self.names.use} now, or ask differently."
        return {**answered, "nudge": nudge}
