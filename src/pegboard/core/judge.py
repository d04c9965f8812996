"""Judge: decides whether one caller may use one tool now. List, search, schema, call and `why` all use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date
from functools import partial
from typing import NamedTuple, Protocol

from msgspec import Struct

from pegboard.core.lifecycle import has_ended
from pegboard.core.names import listing, matches_folded
from pegboard.core.predicates import Availability, States
from pegboard.model.context import ToolContext
from pegboard.model.decision import Blocked, Code, Decision, Fix
from pegboard.model.error import AsyncPredicateError, CallError
from pegboard.model.memo import Question
from pegboard.model.policy import OPEN_POLICY, Policy
from pegboard.model.profile import Profile
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry

VISIBLE = Decision("visible", "in the selection, allowed and available")
UP = SourceState()
CONNECTION_ASKED_S = 2.0  # time limit of the store of connections to say whether an account is connected, in seconds


class Selection(Struct, frozen=True, kw_only=True):
    """The selection of one caller: groups (`None` = all), a policy, internal tools opened by name, extra tools.

    `hides_unconnected`: whether tools are hidden whose caller has not connected their account. `narrowed` and
    `narrowed_groups` are what `View.only`, `skip` and `in_groups` took away. `policy` and `include` have it already; it
    is kept for a profile that changes under a view.
    """

    include: tuple[str, ...] | None = None
    policy: Policy = OPEN_POLICY
    internal: frozenset[str] = frozenset()
    extra: frozenset[str] = frozenset()
    profile: str | None = None
    origin: str = ""
    hides_unconnected: bool = False
    narrowed: Policy = OPEN_POLICY
    narrowed_groups: tuple[str, ...] | None = None

    def of_profile(self, profile: Profile) -> Selection:
        """Return the selection with the current declaration of its profile, narrowed as this one is."""
        own, include = self.narrowed_groups, profile.include
        if own is not None:
            include = own if include is None else tuple([group for group in own if group in include])
        policy, hides = profile.policy.intersect(self.narrowed), profile.hide_unconnected
        return replace(self, include=include, policy=policy, origin=profile.origin, hides_unconnected=hides)

    def narrowed_by(self, policy: Policy) -> Selection:
        """Return the selection of the tools that this policy allows, too."""
        narrowed = self.narrowed.intersect(policy)
        return replace(self, policy=self.policy.intersect(policy), narrowed=narrowed)

    def narrowed_to(self, groups: tuple[str, ...]) -> Selection:
        """Return the selection of these groups alone, which must be among its groups."""
        return replace(self, include=groups, narrowed_groups=groups)


class Catalogued(Protocol):
    """The part of a snapshot that the judge uses."""

    def find(self, name: str) -> ToolEntry | None: ...

    def availability(self, entry: ToolEntry) -> Availability: ...

    def build_question(self, entry: ToolEntry) -> Question: ...

    def today(self) -> date: ...


# ---------------------------------------------------------------- the two halves of the decision


def static_code(entry: ToolEntry, selection: Selection, own: Policy) -> Code | None:
    """Return the first code that hides `entry` in any state of the context: internal, group, policy."""
    spec = entry.spec
    if spec.internal_only and not _is_opened(entry, selection):
        return "internal"
    if selection.include is not None and not _in_groups(entry, selection.include, selection.extra):
        return "group"
    if not (selection.policy is OPEN_POLICY or permits(selection.policy, entry)):
        return "policy"
    if not (own is OPEN_POLICY or permits(own, entry)):
        return "policy"
    return None


def dynamic_code(
    entry: ToolEntry, snapshot: Catalogued, ctx: ToolContext, states: States, *, hides_unconnected: bool = False
) -> Code | None:
    """Return the first code that hides `entry` now: quarantine, source, connection, factory, available, builder.

    Raises:
        AsyncPredicateError: an async predicate has not been awaited in this context.
    """
    spec = entry.spec
    if entry.source is not None:
        state = states.get(entry.source, UP)
        if not hides_nothing(state):
            if spec.qualified_id in state.quarantined:
                return "quarantine"
            if not state.is_up:
                return "source"
    if hides_unconnected and missing_connection(entry, ctx) is not None:
        return "connection"
    if spec.factory is not None and spec.factory not in ctx.host.factories:
        return "factory"
    if spec.available is not None and not snapshot.availability(entry).answer(ctx, states).yes:
        return "available"
    if spec.deprecated is not None and has_ended(spec, snapshot.today()):
        return "available"
    if entry.builder is not None and build_fault(entry, snapshot, ctx):
        return "builder"
    return None


def connection_question(entry: ToolEntry) -> Question | None:
    """Return the question whether the caller's account is connected; `None` for a tool that uses none."""
    account, name = entry.account, entry.connects_to
    if account is None:
        return None

    async def ask(ctx: ToolContext) -> Blocked | None:
        try:
            reason = await account.missing(ctx.caller)
        except CallError as error:
            return Blocked(error.error.kind, error.error.message)
        if reason is None:
            return None
        return Blocked("connection_required", reason, fix=Fix("connection", name, account.fix()))

    return Question(account, f"connection to {name}", ask, is_async=True, limit_s=CONNECTION_ASKED_S)


def missing_connection(entry: ToolEntry, ctx: ToolContext) -> Blocked | None:
    """Return why calls of `entry` would be refused until an account is connected; `None` if they would not.

    Everything that shows this state asks here: lists, search, meta tools, `why`, and profiles that hide such tools.

    Raises:
        AsyncPredicateError: this has not been awaited in this context.
    """
    question = connection_question(entry)
    if question is None:
        return None
    try:
        return ctx.memo.answer(question, ctx)
    except TimeoutError:
        return Blocked("storage_unavailable", "The store of connections does not answer in time.")


def hides_nothing(state: SourceState) -> bool:
    """Tell whether a source in this state hides none of its tools; lists then need not check each of them."""
    return state.is_up and not state.quarantined


def build_fault(entry: ToolEntry, snapshot: Catalogued, ctx: ToolContext) -> str:
    """Return why the builder makes no such tool in this context; empty if it does. Runs at most once per context."""
    try:
        built: dict[str, ToolEntry] = ctx.memo.answer(snapshot.build_question(entry), ctx)
    except AsyncPredicateError:
        raise
    except BaseException as error:  # noqa: BLE001 - boundary: foreign code
        return f"{type(error).__name__}: {error}"
    made = built.get(entry.spec.name)
    return f"it ended on {made.spec.deprecated}" if made is not None and has_ended(made.spec, snapshot.today()) else ""


def without_builder(entry: ToolEntry) -> ToolEntry:
    """Return the entry for questions about names only: its builder must not run."""
    return entry if entry.builder is None else replace(entry, builder=None)


def _is_opened(entry: ToolEntry, selection: Selection) -> bool:
    return not selection.internal.isdisjoint((*entry.names, entry.spec.name))


def _in_groups(entry: ToolEntry, include: tuple[str, ...], extra: frozenset[str]) -> bool:
    for group in entry.spec.groups:
        if group in include:
            return True
    return entry.qualified_id in extra


def permits(policy: Policy, entry: ToolEntry) -> bool:
    """Tell whether the policy, and every policy it is within, allows the tool. Deny wins."""
    for layer in layers(policy):
        if _has_glob_for(entry, layer.deny) or (entry.denied_as and any(denies(glob, entry) for glob in layer.deny)):
            return False
        if layer.allow is not None and not _has_glob_for(entry, layer.allow):
            return False
    return True


def _has_glob_for(entry: ToolEntry, globs: Iterable[str]) -> bool:
    for glob in globs:  # noqa: SIM110 - a generator costs three times as much
        if applies(glob, entry):
            return True
    return False


def applies(glob: str, entry: ToolEntry) -> bool:
    """Tell whether a policy glob applies to this tool: to one of its names, or to its whole toolset."""
    if entry.is_toolset and glob.casefold() == entry.spec.namespace.casefold():
        return True
    return matches_folded(glob, entry.folded_names)


def denies(glob: str, entry: ToolEntry) -> bool:
    """Tell whether a glob on a deny-list means this tool: a private one also by the catalog's tool that it hides."""
    return applies(glob, entry) or matches_folded(glob, entry.denied_as)


# ---------------------------------------------------------------- the judge


def decide(name: str, snapshot: Catalogued, ctx: ToolContext, selection: Selection, source_states: States) -> Decision:
    """Return whether the caller may use the tool `name` now, the reason, the smallest fix, and the next code.

    Raises:
        AsyncPredicateError: a relevant async predicate has not been awaited in this context.
    """
    entry = snapshot.find(name)
    if entry is None:
        return undeclared(name, partial(listing, (), label="Declared"), source_states)
    return decide_entry(entry, snapshot, ctx, selection, source_states)


def undeclared(name: str, ending: Callable[[], str], states: States) -> Decision:
    """Judge an undeclared name. The tools of a source that is down are unknown.

    `ending` returns the end of the message: a similar name, or the known names.
    """
    source = name.partition("__")[0].partition(".")[0]
    if states.get(source, UP).status == "ok":
        return Decision("unknown", f"No tool named {name!r} is declared.{ending()}")
    reason, fix, _ = _explain_source(source, states)
    return Decision("source", f"{name!r} is not known, as {reason}", Fix("source", source, fix))


def decide_entry(
    entry: ToolEntry, snapshot: Catalogued, ctx: ToolContext, selection: Selection, source_states: States
) -> Decision:
    """Judge a tool that was already found; see `decide`."""
    at = _At(snapshot, ctx, selection, ctx.caller.policy, source_states)
    code = _code(entry, at)
    if code == "visible":
        return VISIBLE
    reason, fix, subject = _explain(code, entry, at)
    made = Decision(code, reason, Fix(code, subject, fix))
    fixed = _fixed(code, entry, at)
    if fixed is None:
        return made
    after = _code(*fixed)
    return made._replace(next=after, next_reason="" if after == "visible" else _explain(after, *fixed)[0])


class _At(NamedTuple):
    """The circumstances of a decision."""

    snapshot: Catalogued
    ctx: ToolContext
    selection: Selection
    own: Policy
    states: States


def _code(entry: ToolEntry, at: _At) -> Code:
    hidden = static_code(entry, at.selection, at.own) or dynamic_code(
        entry, at.snapshot, at.ctx, at.states, hides_unconnected=at.selection.hides_unconnected
    )
    return hidden or "visible"


def _fixed(code: Code, entry: ToolEntry, at: _At) -> tuple[ToolEntry, _At] | None:
    """Return the same question with the fix applied; `None` if only a real change can show what comes next."""
    selection = at.selection
    match code:
        case "internal":
            return entry, at._replace(selection=replace(selection, internal=selection.internal | {entry.qualified_id}))
        case "group":
            include = (*(selection.include or ()), entry.spec.groups[0])
            return entry, at._replace(selection=replace(selection, include=include))
        case "policy":
            allowing = replace(selection, policy=permitting(selection.policy, entry))
            return entry, at._replace(selection=allowing, own=permitting(at.own, entry))
        case "connection":
            return entry, at._replace(selection=replace(selection, hides_unconnected=False))
        case "factory":
            # The factory cannot be tried, so a builder that needs it is assumed to work.
            return replace(entry, builder=None, spec=replace(entry.spec, factory=None)), at
        case _:
            return None


def permitting(policy: Policy, entry: ToolEntry) -> Policy:
    """Return the policy with the smallest change that allows `entry`."""
    deny = tuple(glob for glob in policy.deny if not denies(glob, entry))
    allow = policy.allow
    if allow is not None and not _has_glob_for(entry, allow):
        allow = (*allow, entry.qualified_id)
    return replace(policy, allow=allow, deny=deny, within=policy.within and permitting(policy.within, entry))


# ---------------------------------------------------------------- explanations


def _explain(code: Code, entry: ToolEntry, at: _At) -> tuple[str, str, str]:
    """Return (reason, fix, subject) for a code."""
    spec, name = entry.spec, entry.qualified_id
    match code:
        case "internal":
            return (
                f"{name!r} is internal-only{_in_origin(spec.origin)}",
                f"host code names it: internal=[{name!r}]",
                name,
            )
        case "group":
            asked = (
                f" of profile {at.selection.profile!r}{_in_origin(at.selection.origin)}" if at.selection.profile else ""
            )
            reason = f"not in include={list(at.selection.include or ())}{asked}; its groups are {list(spec.groups)}"
            return reason, f"include {spec.groups[0]!r}", spec.groups[0]
        case "policy":
            return _explain_policy(entry, at)
        case "quarantine":
            return f"{name!r} is new or suspicious since its source was pinned", f"pegboard lock accept {name}", name
        case "source":
            return _explain_source(entry.source or "", at.states)
        case "connection":
            return _explain_connection(entry, at)
        case "factory":
            fix = f"supply ToolContext(factories={{{spec.factory!r}: …}})"
            return f"no factory {spec.factory!r} in the context", fix, spec.factory or ""
        case "available":
            availability = at.snapshot.availability(entry)
            answer = availability.answer(at.ctx, at.states)
            if answer.yes:
                after = "remove it" if spec.replaced_by is None else f"call {spec.replaced_by!r}"
                return f"ended on {spec.deprecated}{_in_origin(spec.origin)}", f"{after}, or give it a later end", name
            return answer.why, f"make this true: {availability.words}", name
        case _:
            fault = build_fault(entry, at.snapshot, at.ctx)
            return f"its builder failed{_in_origin(spec.origin)}: {fault}", "correct the builder", name


def _explain_source(source: str, states: States) -> tuple[str, str, str]:
    state = states.get(source, UP)
    reason = f"source {source!r} is {state.status}" + (f": {state.reason}" if state.reason else "")
    return reason, f"bring source {source!r} up (pegboard doctor)", source


def _explain_connection(entry: ToolEntry, at: _At) -> tuple[str, str, str]:
    missing = missing_connection(entry, at.ctx)
    assert missing is not None  # the code says so
    hidden = f"profile {at.selection.profile!r} hides tools without a connected account (`hide_unconnected`)"
    reason = f"{missing.reason.rstrip('.')}; {hidden}{_in_origin(at.selection.origin)}"
    fix = "try again later" if missing.fix is None else missing.fix.text
    return reason, fix, entry.connects_to


def _explain_policy(entry: ToolEntry, at: _At) -> tuple[str, str, str]:
    faults: list[str] = []
    changes: list[str] = []
    for layer in layers(at.selection.policy, at.own):
        denied = [glob for glob in layer.deny if denies(glob, entry)]
        if denied:
            faults.append(f"denied by {denied}{_in_origin(layer.origin)}")
            changes.append(f"remove {denied} from deny")
        if layer.allow is not None and not _has_glob_for(entry, layer.allow):
            faults.append(f"not in allow={list(layer.allow)}{_in_origin(layer.origin)}")
            changes.append(f"add {entry.qualified_id!r} to allow")
    return "; ".join(faults), " and ".join(changes), entry.qualified_id


def _in_origin(origin: str) -> str:
    return f" ({origin})" if origin else ""


def layers(*policies: Policy) -> Iterator[Policy]:
    """Yield a policy and all policies it is within."""
    for policy in policies:
        layer: Policy | None = policy
        while layer is not None:
            yield layer
            layer = layer.within
