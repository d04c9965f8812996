"""Guard-only view: a View of tools that an SDK runs itself; calls pass every guard, but do not run the tool."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pegboard.core.hooks import hooks_of
from pegboard.core.judge import static_code
from pegboard.core.schema import compile_schema
from pegboard.core.snapshot import Plan, Snapshot
from pegboard.core.view import View
from pegboard.model.context import ToolContext
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry

_ANY_OBJECT: JSON = {"type": "object"}


class GuardOnlyView(View):
    """The tools of a View that are mirrored or come from a source, under the names that an SDK uses for them.

    These are `mcp__<server>__<tool>`, or a mirrored name such as `Bash`. Made for one call.
    """

    __slots__ = ("_passed", "_plain")

    def __init__(self, plain: View, passed: list[JSON] | None = None) -> None:
        super().__init__(plain._parts, plain.ctx, plain.selection, profile=plain.profile)
        self._plain = plain
        self._passed: list[JSON] = [] if passed is None else passed

    @property
    def passed(self) -> JSON | None:
        """The arguments that the tool may run with; `None` if a guard refused."""
        return self._passed[-1] if self._passed else None

    def renewed(self, ctx: ToolContext | None = None) -> View:
        # If a person was asked, the outcome is read from the view that the call began with.
        return GuardOnlyView(self._plain.renewed(ctx), self._passed)

    def knows(self, name: str) -> bool:
        """Tell whether the name is mirrored, for any caller."""
        return name in self._mirrors()

    def find(self, name: str, *, within: Snapshot | None = None, can_wait: bool = False) -> ToolEntry | None:
        """Return the tool for a name of the SDK if this caller may use it now, else `None`."""
        snapshot = within or self.snapshot
        entry = self._only_match(name, snapshot)
        if entry is None or static_code(entry, self.selection, self.ctx.caller.policy) is not None:
            return None
        if can_wait:
            return self.ctx.memo.deferring(partial(self.find, name, within=snapshot))
        if self._dynamic_code(entry, snapshot, self._parts.registry.states()) is not None:
            return None
        return entry

    def _only_match(self, name: str, snapshot: Snapshot) -> ToolEntry | None:
        mirror = self._mirrors().get(name)
        if mirror is not None:
            fingerprint = name if mirror.listed is None else mirror.listed.fingerprint
            return self._run_elsewhere(replace(mirror.entry(name), fingerprint=fingerprint))
        if not name.startswith("mcp__"):
            return None
        parts = name.split("__")[1:]
        # Both parts may contain double underscores: if two readings match tools, the name is ambiguous and refused.
        entries: list[ToolEntry] = []
        for place in range(1, len(parts)):
            server, tool = "__".join(parts[:place]), "__".join(parts[place:])
            entry = snapshot.find(f"{server}.{tool}")
            if entry is not None and entry.source == server and entry.spec.name == tool and entry.builder is None:
                entries.append(entry)
        return self._run_elsewhere(entries[0]) if len(entries) == 1 else None

    def _run_elsewhere(self, entry: ToolEntry) -> ToolEntry:
        """Return the entry with all of its guards, but without result handling, since there is no result."""
        spec = replace(
            entry.spec, output_schema=None, output_check=None, task="forbidden", max_concurrency=None, timeout_s=None
        )
        return replace(
            entry, spec=spec, handler=self._note, runs="async", needs_context=True, builder=None, exact_output=None
        )

    async def _note(self, ctx: ToolContext, args: JSON) -> None:
        self._passed.append(args)

    def plan(self, entry: ToolEntry, snapshot: Snapshot) -> Plan:
        """Return the data for a call; the schemas of an SDK's own tools are unknown."""
        hooks = replace(hooks_of(entry, snapshot.declared.hooks), after=())
        if entry.source is None:
            return Plan(entry, compile_schema(_ANY_OBJECT), None, hooks)
        return replace(snapshot.plan(entry), hooks=hooks)

    async def _answer_for(self, name: str) -> None:
        snapshot = self.snapshot
        entry = self._only_match(name, snapshot)
        entries: Sequence[ToolEntry] = () if entry is None else (entry,)
        await self._answer(snapshot.conditions(entries), entries, snapshot)
