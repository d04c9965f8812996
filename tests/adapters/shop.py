"""A catalog for every adapter's tests, two callers of it, and what outside observers saw."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pegboard import CallContext, Catalog, ImageContent, Profile, ToolContext
from pegboard.core.call.finished_call import FinishedCall, StartedCall
from pegboard.core.view import View
from pegboard.model.context import ToolContext as AnyContext
from pegboard.model.policy import Policy
from pegboard.model.record import replace
from pegboard.model.result import ToolResult
from pegboard.testing import EventRecorder

PICTURE = b"\x89PNG\r\n\x1a\n0000"


@dataclass
class Shop:
    """What is declared, and what really ran: an outside observer of the handlers."""

    catalog: Catalog
    events: EventRecorder
    ran: list[tuple[str, Any]] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: list[str] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    finished: list[Any] = field(default_factory=list)

    def view(self, user: str = "ann", profile: str = "clerk") -> View:
        return self.catalog.view(ToolContext(user_id=user), profile=profile)

    def names_run(self) -> list[str]:
        return [name for name, _ in self.ran]


class _Records:
    """An observer of calls, as an audit log is."""

    times_stages = False

    def __init__(self, kept: list[Any]) -> None:
        self._kept = kept

    def started(self, call: StartedCall) -> None: ...

    def finished(self, call: FinishedCall) -> None:
        self._kept.append((call.started.name, call.started.caller.user_id, call.kind, call.consent))


def open_shop() -> Shop:
    """Return a shop: `clerk` may not use `raid`, `guest` may only `price` and `whoami`."""
    catalog = Catalog("shop")
    shop = Shop(catalog, EventRecorder())

    @catalog.tool(read_only=True)
    def price(item: str, count: int = 1) -> dict[str, Any]:
        """Tell what some items cost.

        Args:
            item: What is wanted.
            count: How many.
        """
        shop.ran.append(("price", (item, count)))
        return {"item": item, "total": 3 * count}

    @catalog.tool(groups="clerks", consent="always")
    def refund(order: str) -> str:
        """Pay an order back."""
        shop.ran.append(("refund", order))
        return f"{order} is paid back"

    @catalog.tool(groups="clerks", name="raid")
    def raid(amount: int) -> str:
        """Empty the till."""
        shop.ran.append(("raid", amount))
        return "CANARY-raid"

    @catalog.tool(groups="clerks", read_only=True)
    async def wait_for_delivery() -> str:
        """Wait until the goods are here."""
        shop.ran.append(("wait_for_delivery", None))
        shop.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            shop.stopped.append("wait_for_delivery")
            shop.ended.set()
        return "never"

    @catalog.tool(read_only=True)
    def whoami(ctx: CallContext) -> str:
        """Tell who is served."""
        shop.ran.append(("whoami", ctx.user_id))
        return str(ctx.user_id)

    @catalog.tool(groups="clerks", read_only=True)
    async def bake(ctx: CallContext) -> str:
        """Bake bread."""
        shop.ran.append(("bake", None))
        await ctx.progress(0.25, "mixed")
        await ctx.progress(0.75, "in the oven")
        return "bread"

    @catalog.tool(groups="clerks", read_only=True)
    def photo() -> ImageContent:
        """Show the shop."""
        return ImageContent(PICTURE)

    @catalog.tool(groups="clerks")
    def label(tags: dict[str, str], note: str | None = None) -> str:
        """Write tags on a box."""
        shop.ran.append(("label", tags))
        return ",".join(f"{key}={value}" for key, value in sorted(tags.items()))

    catalog.profile(Profile(name="clerk", include=("core", "clerks"), policy=Policy(deny=("raid",))))
    catalog.profile(Profile(name="guest", include=("core",)))
    catalog.observe(shop.events)
    catalog.executor.record(_Records(shop.finished))
    return shop


class _RecordingRunner:
    """Writes down the calls of a view, and of every view that is made of it; the door itself runs them."""

    def __init__(self, door: Any, calls: list[Any]) -> None:
        self._door, self._calls = door, calls

    def call(self, view: View, name: str, args: object = None, **options: Any) -> Coroutine[Any, Any, ToolResult]:
        self._calls.append((name, args))
        return self._door.call(view, name, args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._door, name)


class RecordingView(View):
    """A View that writes down each question and each call that reaches it, or a view that an adapter makes of it.

    `calls` are the calls, `lists` what was asked for all tools, `questions` the names that were asked for.
    """

    __slots__ = ("calls", "lists", "plain", "questions")

    def __init__(self, plain: View, of: "RecordingView | None" = None) -> None:
        extra: Any = plain._extra
        self.calls: list[Any] = [] if of is None else of.calls
        self.lists: list[str] = [] if of is None else of.lists
        self.questions: list[str] = [] if of is None else of.questions
        runner: Any = _RecordingRunner(plain._parts.runner, self.calls)
        parts = replace(plain._parts, runner=runner)
        super().__init__(parts, plain.ctx, plain.selection, profile=plain.profile, extra=extra)
        self.plain = plain

    def renewed(self, ctx: AnyContext | None = None) -> View:
        return RecordingView(self.plain.renewed(ctx), self)

    def export(self, target: str) -> list[dict[str, Any]]:
        self.lists.append(target)
        return super().export(target)

    def tools(self, **options: Any) -> Any:
        self.lists.append("tools")
        return super().tools(**options)

    async def afind(self, name: str) -> Any:
        self.questions.append(name)
        return await super().afind(name)


def arguments_of(calls: Sequence[tuple[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """Return the arguments of the recorded calls of one tool."""
    return [args for called, args in calls if called == name]
