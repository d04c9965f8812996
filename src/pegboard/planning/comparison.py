"""Comparison: the differences between two configs, for each profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from pegboard.catalog import Catalog
from pegboard.config import Config
from pegboard.core.validated_entry import enforced_schema
from pegboard.core.view import View
from pegboard.discovery.exposure import ExposedView, exposed_as
from pegboard.discovery.token_count import Tokenizer
from pegboard.model.context import ToolContext
from pegboard.model.json_types import JSON
from pegboard.model.profile import Profile
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry
from pegboard.planning.guard_change import (
    GuardChange,
    Guarded,
    guards_of_config,
    guards_of_profile,
    guards_of_tool,
)
from pegboard.planning.schema_change import SAME, SchemaChange, compare_schemas

EXPOSURES = ("direct", "two_tool", "search")
# How a gained tool came into a profile, by the code that hid it before.
_GAINED_BY: Mapping[str, str] = {
    "internal": "other code alone could call it before",
    "group": "the profile now includes it",
    "policy": "no rule denies it any more",
    "quarantine": "it has been accepted",
    "source": "its source can be read now",
    "connection": "it no longer needs a connected account to be listed",
    "factory": "the host now supplies its requirements",
    "available": "its condition now holds",
    "builder": "its builder no longer fails",
}


class Answer(NamedTuple):
    """The judge's answer for a name: the tool, if it is visible, or the code and reason."""

    entry: ToolEntry | None
    code: str
    reason: str


class Seen(Struct, frozen=True, kw_only=True):
    """The contents of one profile: an answer for each name, the tokens of its list, and how it is exposed."""

    profile: Profile
    names: tuple[str, ...]
    answers: Mapping[str, Answer]
    tokens: Mapping[str, int]
    shown_as: str


class Side(Struct, frozen=True, kw_only=True):
    """One of the two configs, with its catalog and who asks."""

    catalog: Catalog
    config: Config
    ctx: ToolContext

    def view(self, profile: str | None) -> View | None:
        """Return the view of a profile; `None` if this config has no such profile."""
        is_known = profile is None or profile in self.catalog.registry.profiles
        return self.catalog.view(self.ctx, profile=profile) if is_known else None

    @property
    def unlisted(self) -> frozenset[str]:
        """The sources whose tools are not known without asking them, and what is left out for a variable."""
        sources = self.catalog.registry.sources
        return frozenset(name for name in sources if not sources[name].entries()) | self.config.refused.namespaces

    def guarded(self, entry: ToolEntry) -> Guarded:
        return Guarded(entry=entry, catalog=self.catalog, config=self.config)


class Change(Struct, frozen=True, kw_only=True):
    """One row of a plan: what changed (`kind`), its tool or rule, and how it changed."""

    kind: str
    tool: str | None = None
    what: str = ""
    detail: str = ""
    example: str = ""


class ProfilePlan(Struct, frozen=True, kw_only=True):
    """The changes for one profile; `None` is all groups, in a config without profiles."""

    profile: str | None
    changes: tuple[Change, ...]
    tokens: Mapping[str, tuple[int, int]]
    shown_as: tuple[str, str]


class Plan(Struct, frozen=True, kw_only=True):
    """The changes for each profile and for all, and the parts that were not compared."""

    against: str
    profiles: tuple[ProfilePlan, ...]
    everywhere: tuple[Change, ...]
    not_compared: tuple[str, ...]

    def count(self, *kinds: str) -> int:
        """Return the number of changes of some kinds; a change that several profiles share counts once."""
        every = [*self.everywhere, *(change for profile in self.profiles for change in profile.changes)]
        return len({(c.kind, c.tool, c.what, c.detail) for c in every if c.kind in kinds})


async def compare(before: Side, after: Side, *, against: str, counting: Tokenizer, only: str | None = None) -> Plan:
    """Return the changes of the config `after` for each profile; with `only` for one."""
    declared = [*before.catalog.registry.profiles, *after.catalog.registry.profiles]
    names: list[str | None] = [only] if only is not None else list(dict.fromkeys(declared)) or [None]
    left_out = before.config.refused.profiles | after.config.refused.profiles
    plans = [await _profile_plan(name, before, after, counting) for name in names if name not in left_out]
    rules = (before.catalog.identity, after.catalog.identity)
    everywhere = tuple(_guard(change, None) for change in guards_of_config(before.config, after.config, rules))
    return Plan(
        against=against,
        profiles=tuple(plans),
        everywhere=everywhere,
        not_compared=tuple(_not_compared(before, after, against)),
    )


def _not_compared(before: Side, after: Side, against: str) -> Iterator[str]:
    for side, label in ((before, f"in {against}"), (after, "now")):
        for name in sorted(frozenset(side.catalog.registry.sources) & side.unlisted):
            yield f"the tools of {name!r}, which {label} are neither pinned in the lock nor in a file"
        for problem in side.config.left_out:
            yield f"{label}: {problem}"


async def _profile_plan(name: str | None, before: Side, after: Side, counting: Tokenizer) -> ProfilePlan:
    views = [side.view(name) for side in (before, after)]
    wanted: list[str] = []
    for view in views:
        if view is not None:
            await view.prepare()
            wanted += [entry.wire_name for entry in (*view.tools(), *view.app_tools())]
    wanted = list(dict.fromkeys(wanted))
    old, new = [
        await _profile_tools(view, wanted, side, counting, name)
        for view, side in zip(views, (before, after), strict=True)
    ]
    changes = [*_visibility_changes(old, new, before, after)]
    if views[0] is not None and views[1] is not None:
        changes += [_guard(change, None) for change in guards_of_profile(old.profile, new.profile)]
    for tool in wanted:
        first, second = old.answers[tool].entry, new.answers[tool].entry
        if first is not None and second is not None:
            changes += _changes_of_tool(tool, before.guarded(first), after.guarded(second))
    tokens = {key: (old.tokens[key], new.tokens[key]) for key in EXPOSURES}
    return ProfilePlan(profile=name, changes=tuple(changes), tokens=tokens, shown_as=(old.shown_as, new.shown_as))


async def _profile_tools(
    view: View | None, names: Sequence[str], side: Side, counting: Tokenizer, profile: str | None
) -> Seen:
    if view is None:
        answer = Answer(None, "profile", f"there is no profile {profile!r}")
        return Seen(
            profile=Profile(name=profile or ""),
            names=(),
            answers=dict.fromkeys(names, answer),
            tokens=dict.fromkeys(EXPOSURES, 0),
            shown_as="",
        )
    answers: dict[str, Answer] = {}
    for name in names:
        entry = await view.afind(name)
        if entry is not None:
            answers[name] = Answer(entry, "visible", "")
        else:
            decision = await view.awhy(name)
            answers[name] = Answer(None, decision.code, decision.reason)
    declared = view.profile or Profile(name="", exposure="direct")
    discovery = side.catalog.discovery
    tokens = {
        exposure: counting.count(
            exposed_as(view, replace(declared, exposure=exposure), discovery).export_bytes("mcp").decode()
        )
        for exposure in EXPOSURES
    }
    in_force = exposed_as(view, declared, discovery)
    return Seen(
        profile=declared,
        names=tuple(name for name in names if answers[name].entry is not None),
        answers=answers,
        tokens=tokens,
        shown_as=in_force.mode if isinstance(in_force, ExposedView) else "direct",
    )


def _visibility_changes(old: Seen, new: Seen, before: Side, after: Side) -> Iterator[Change]:
    for name in old.names:
        answer = new.answers[name]
        if answer.entry is None and not _is_unlisted(old.answers[name].entry, after):
            detail = "it is no longer declared" if answer.code == "unknown" else answer.reason
            yield Change(kind="lost", tool=name, what=answer.code, detail=detail)
    for name in new.names:
        answer = old.answers[name]
        if answer.entry is None and not _is_unlisted(new.answers[name].entry, before):
            yield Change(kind="gained", tool=name, what=answer.code, detail=_gained_by(answer))


def _gained_by(before: Answer) -> str:
    """Return what lets a profile have a tool now; the old reason alone would read as if the tool were still hidden."""
    if before.code == "unknown":
        return "it was not declared"
    if before.code == "profile":
        return "the profile is new"
    return f"{_GAINED_BY.get(before.code, 'it is no longer hidden')}; the reason before: {before.reason}"


def _is_unlisted(entry: ToolEntry | None, other: Side) -> bool:
    """Tell whether nobody can say if the other config has this tool."""
    return entry is not None and not {entry.source, entry.spec.name, entry.spec.namespace}.isdisjoint(other.unlisted)


def _changes_of_tool(name: str, before: Guarded, after: Guarded) -> Iterator[Change]:
    yield from _schema("input", name, compare_schemas(enforced_schema(before.entry), enforced_schema(after.entry)))
    lost_aliases = sorted(before.entry.spec.aliases.keys() - after.entry.spec.aliases.keys())
    if lost_aliases:
        yield Change(kind="breaking", tool=name, what="input", detail=f"no longer accepted: {', '.join(lost_aliases)}")
    yield from _output(name, _published(before.entry), _published(after.entry))
    for change in guards_of_tool(before, after):
        yield _guard(change, name)


def _published(entry: ToolEntry) -> JSON | None:
    return entry.exact_output or entry.spec.output_schema


def _output(name: str, before: JSON | None, after: JSON | None) -> Iterator[Change]:
    """Compare what clients may rely on in results: each new result must be one that the old schema allows."""
    if before is None:
        if after is not None:
            yield Change(kind="compatible", tool=name, what="output", detail="an output schema is new")
    elif after is None:
        yield Change(kind="breaking", tool=name, what="output", detail="the output schema is gone")
    else:
        change = compare_schemas(after, before)
        if change != SAME:
            difference = compare_schemas(before, after)
            yield from _schema("output", name, replace(change, differences=difference.differences))


def _schema(what: str, name: str, change: SchemaChange) -> Iterator[Change]:
    if change.verdict != "same":
        detail = "; ".join(change.differences)
        yield Change(kind=change.verdict, tool=name, what=what, detail=detail, example=change.example)


def _guard(change: GuardChange, tool: str | None) -> Change:
    detail = f"{change.before} → {change.after}" if change.before or change.after else ""
    return Change(kind=change.verdict, tool=tool, what=change.guard, detail=detail)
