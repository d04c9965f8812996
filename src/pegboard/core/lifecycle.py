"""Lifecycle: tools with an end date or a successor say so in lists and results, and steer once they have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from pegboard.core.names import fold
from pegboard.core.registry import ReadBuilt, Registry, seal
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.hook import Hook, Verdict
from pegboard.model.hook_call import HookCall
from pegboard.model.result import ToolResult
from pegboard.model.tool import ToolEntry, ToolSpec

Today = Callable[[], date]
_NAME = "pegboard.core.lifecycle"


class DatedRegistry(Registry):
    """A registry whose tools know their end; `today` tells the date of each call."""

    def __init__(self, *, today: Today, read_built: ReadBuilt, **options: Any) -> None:
        def read_dated(built: object, declared: ToolEntry) -> list[ToolEntry]:
            return [dated(entry, today) for entry in read_built(built, declared)]

        super().__init__(read_built=read_dated, **options)
        self._today = today

    def add(self, *entries: ToolEntry, replace_existing: bool = False) -> None:
        """Declare tools, as `Registry.add` does.

        Raises:
            DefinitionError: also for tools that replace each other, or are renamed in a circle.
        """
        if any(entry.spec.renamed_from or entry.spec.replaced_by for entry in entries):
            declared = {fold(known.qualified_id): known.spec for known in self._entries.values()}
            check_circles(declared | {fold(entry.qualified_id): entry.spec for entry in entries})
        super().add(*(dated(entry, self._today) for entry in entries), replace_existing=replace_existing)

    def add_dynamic(
        self, names: Callable[[], Sequence[str]], entries: Callable[[tuple[str, ...]], Sequence[ToolEntry]]
    ) -> None:
        super().add_dynamic(names, lambda known: [dated(entry, self._today) for entry in entries(known)])

    def _all_entries(self) -> list[ToolEntry]:
        # What sources list was not added here.
        return [
            seal(dated(entry, self._today), self.bounds) if entry.source and _is_ending(entry.spec) else entry
            for entry in super()._all_entries()
        ]


def _is_ending(spec: ToolSpec) -> bool:
    return spec.deprecated is not None or spec.replaced_by is not None


def dated(entry: ToolEntry, today: Today) -> ToolEntry:
    """Return a tool that says when it ends and what replaces it; any other tool as it is."""
    spec = entry.spec
    kept = tuple(hook for hook in entry.hooks if hook.name != _NAME)
    if not _is_ending(spec):
        return entry if len(kept) == len(entry.hooks) else replace(entry, hooks=kept, fingerprint="")

    def refuse_after_the_end(call: HookCall) -> Verdict | None:
        told = ended(spec, today(), known_as=call.wire_name)
        return None if told is None else Verdict("deny", told, None, "not_found")

    def note(call: HookCall, result: ToolResult) -> ToolResult:
        return result._replace(meta={**result.meta, "deprecated": end_of(spec)})

    hooks = (Hook(kind="before", run=refuse_after_the_end, name=_NAME), Hook(kind="after", run=note, name=_NAME))
    described = f"{plain_description(spec)}\n\n{end_of(spec)}".strip()
    return replace(entry, spec=replace(spec, description=described), hooks=(*hooks, *kept), fingerprint="")


def plain_description(spec: ToolSpec) -> str:
    """Return a description without what was said in it of the tool's end."""
    return spec.description.partition("\n\nDeprecated: ")[0]


def end_of(spec: ToolSpec) -> str:
    """Return when a tool ends and what to use instead, in a sentence."""
    when = "" if spec.deprecated is None else f" it ends on {spec.deprecated};"
    what = "no tool replaces it" if spec.replaced_by is None else f"use {spec.replaced_by!r} instead"
    return f"Deprecated:{when} {what}."


def ended(spec: ToolSpec, today: date, *, known_as: str) -> str | None:
    """Return what to tell who calls a tool after its end; `None` before."""
    if spec.deprecated is None or today < date.fromisoformat(spec.deprecated):
        return None
    instead = "Choose another tool." if spec.replaced_by is None else f"Call {spec.replaced_by!r} instead."
    return f"{known_as!r} ended on {spec.deprecated} and was not run. {instead}"


def check_circles(specs: Mapping[str, ToolSpec]) -> None:
    """Refuse tools that replace each other, or have each other's names as former ones.

    Raises:
        DefinitionError: with all of them.
    """
    by_name = {fold(name): spec for spec in specs.values() for name in (spec.name, spec.qualified_id)}
    problems = [
        Problem(where=spec.origin, path=spec.qualified_id, message=message)
        for spec in specs.values()
        for message in (*_replacing(spec, by_name), *_renaming(spec, by_name))
    ]
    if problems:
        raise DefinitionError(problems)


def _replacing(spec: ToolSpec, by_name: Mapping[str, ToolSpec]) -> Iterable[str]:
    seen, at = [spec.qualified_id], spec
    while at.replaced_by is not None and (following := by_name.get(fold(at.replaced_by))) is not None:
        seen.append(following.qualified_id)
        if following.qualified_id == spec.qualified_id:
            yield f"replaced_by leads back to itself: {' → '.join(seen)}; end it somewhere"
        if seen.count(following.qualified_id) > 1:
            return
        at = following


def _renaming(spec: ToolSpec, by_name: Mapping[str, ToolSpec]) -> Iterable[str]:
    own = (fold(spec.name), fold(spec.qualified_id))
    for former in spec.renamed_from:
        other = by_name.get(fold(former))
        if fold(former) in own:
            yield f"renamed_from={former!r} is its own name; remove it"
        elif other is not None and any(fold(name) in own for name in other.renamed_from):
            yield f"renamed_from={former!r}: {other.qualified_id!r} was renamed from this one; one of the two is wrong"
