"""Accounts: a source whose tools use an account of the caller, without a service behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pegboard import CallError
from pegboard.model.call_context import CallContext
from pegboard.model.caller import Caller
from pegboard.model.json_types import JSON
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry, ToolSpec


class Accounts:
    """A source with one tool; the users in `connected` have an account."""

    def __init__(self, name: str = "mail", *, connected: Sequence[str] = ("ann",), tool: str = "read") -> None:
        self.name, self.tool, self.connected, self.is_away = name, tool, set(connected), False

    async def run(self, ctx: CallContext, args: JSON, /) -> str:
        if ctx.user_id not in self.connected:
            raise await self.required(ctx.caller)
        return "a mail"

    def entries(self) -> Sequence[ToolEntry]:
        spec = ToolSpec(
            name=self.tool,
            namespace=self.name,
            description="Read the mail.",
            input_schema={"type": "object"},
            groups=("core",),
        )
        return [ToolEntry(spec=spec, handler=self.run, runs="async", source=self.name, account=self)]

    def groups(self) -> frozenset[str]:
        return frozenset({"core"})

    def state(self) -> SourceState:
        return SourceState()

    def subscribe(self, on_change: Callable[[], None]) -> None:
        pass

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def missing(self, caller: Caller) -> str | None:
        if self.is_away:
            raise CallError("storage_unavailable", "The store of connections does not answer.")
        return None if caller.user_id in self.connected else f"{caller.user_id!r} has no account at {self.name!r}"

    def fix(self) -> str:
        return f"connect {self.name}"

    async def required(self, caller: Caller) -> CallError:
        if self.is_away:
            raise CallError("storage_unavailable", "The store of connections does not answer.")
        url = f"https://gate.example/connections/{self.name}-{caller.user_id}"
        text = f"{caller.user_id!r} must connect to {self.name!r} first. Open {url} in a browser."
        return CallError("connection_required", text, details={"source": self.name, "url": url})
