"""Meta: what the three meta tools share for one caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pegboard.base.bounds import Bounds
from pegboard.base.content import ToolResult
from pegboard.base.model import JSON, JSONValue
from pegboard.core.call_context import CallContext
from pegboard.core.context import ToolContext
from pegboard.core.view import View
from pegboard.discovery.finder import Finder
from pegboard.discovery.loops import LoopBreaker
from pegboard.discovery.wording import MetaNames

RunInner = Callable[[str, JSONValue, ToolContext, str, object], Awaitable[ToolResult]]
"""(qualified id, arguments, context of the call, call id, observer) -> result of one guarded call"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Meta:
    """One caller's view, without the meta tools themselves, and what they need beside it."""

    view: View
    names: MetaNames
    finder: Finder
    loops: LoopBreaker
    bounds: Bounds
    run: RunInner
    require_context: bool = False

    @property
    def profile(self) -> str | None:
        return self.view.selection.profile

    def answer(self, ctx: CallContext, tool: str, request: JSON, answered: JSON) -> JSON:
        """Return a discovery answer; with a nudge to call when this session has asked the same twice before."""
        if not self.loops.nudges(ctx, self.profile, tool, request):
            return answered
        nudge = f"You have asked this before and the answer is the same. Call {self.names.use} now, or ask differently."
        return {**answered, "nudge": nudge}
