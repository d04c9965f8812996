"""Replayed calls: judge recorded calls under another config, without running anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

import msgspec
from msgspec import Struct

from pegboard.agents.access import agent_view, caller_of, may_run
from pegboard.audit.audit_query import AuditFilter
from pegboard.audit.audit_row import AuditRow
from pegboard.audit.call_rows import place_in
from pegboard.auth.rule_matching import grant_of
from pegboard.auth.rules import Credential
from pegboard.config import context_for
from pegboard.core.call.arguments import unaliased
from pegboard.core.call.finished_call import AUDIT_WAIT
from pegboard.core.call.limit_keys import Key
from pegboard.core.call.rate_limit import windows_of
from pegboard.core.call.record import Prospect
from pegboard.core.digests import digest
from pegboard.core.judge import UP
from pegboard.core.redaction import REDACTED
from pegboard.core.view import AgentTools, View
from pegboard.model.agent import RUN_PREFIX
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_object
from pegboard.model.rate_limit import RateLimit
from pegboard.model.tool import ToolEntry
from pegboard.planning.comparison import Side
from pegboard.planning.recorded_limits import TimedCall, limited

Then = Literal["ran", "asked", "limited", "refused", "stopped", "unknown"]
"""The recorded outcome: `stopped` is a refusal for load, an outage or a hook; `unknown` is a call without an end."""
Now = Literal["allowed", "asked", "limited", "refused", "unclear"]
Kind = Literal["same", "refused", "limited", "asked", "allowed", "unclear"]

_NO_ARGUMENTS = digest({})
_ASKED = frozenset({"consent_required", "consent_declined", "consent_expired", "consent_mismatch"})
_REFUSED = frozenset({"not_found", "invalid_arguments", "needs_review"})
# The stages before the limits: a call spends time in them before it is counted.
_BEFORE_LIMITS = (AUDIT_WAIT, "begin", "resolve", "arguments", "before_hooks", "consent")


class Verdict(NamedTuple):
    """The outcome of a call under another config; `code` is the code of `pegboard why`, or the kind of the error."""

    now: Now
    code: str = ""
    reason: str = ""
    rule: str = ""


class Replayed(Struct, frozen=True, kw_only=True):
    """One recorded call, what happened, and what the other config does with it."""

    row: AuditRow
    kind: Kind
    then: Then
    verdict: Verdict


class Replay(Struct, frozen=True, kw_only=True):
    """The calls that another config treats differently or that cannot be judged, and the number of unchanged ones."""

    changes: tuple[Replayed, ...]
    calls: int
    counts: Mapping[Kind, int]
    assumed: Mapping[str, int]
    """The assumptions that something was as it was then, and the number of calls for each."""


def kind_of(then: Then, now: Now, *, had_yes: bool) -> Kind:
    """Return the change for a call; `had_yes` means that a person approved it."""
    if now == "unclear":
        return "unclear"
    if now == "asked" and had_yes:
        return "same"
    if now == "allowed":
        return "allowed" if then in ("asked", "limited", "refused") else "same"
    if then == "stopped" or (then, now) in {("asked", "asked"), ("limited", "limited"), ("refused", "refused")}:
        return "same"
    if then in ("ran", "unknown") or now == "asked":
        return now
    # It was not run before either, for another reason.
    return "same"


def then_of(row: AuditRow) -> Then:
    """Return the outcome of a recorded call."""
    if row.event == "begin":
        return "unknown"
    if row.has_run:
        return "ran"
    if row.outcome in _ASKED:
        return "asked"
    if row.outcome in _REFUSED:
        return "refused"
    # A refusal in another stage comes from the guards against repeated and invalid calls.
    return "limited" if row.outcome == "rate_limited" and "rate_limit" in row.stage_s else "stopped"


class _PendingCall(NamedTuple):
    """A call that waits for the decision of the limits."""

    row: AuditRow
    then: Then
    verdict: Verdict


class Replayer:
    """Judges the rows of one record under one config. Nothing is run and no store is asked.

    Feed it with `add`, in any order, then take `finished`. Calls that `wanted` does not accept only count for limits.
    """

    def __init__(self, side: Side, wanted: AuditFilter) -> None:
        self._wanted = wanted
        self._side, self._registry = side, side.catalog.registry
        self._unlisted = side.unlisted
        self._changes: list[Replayed] = []
        self._counts = Counter[Kind]()
        self._assumed: dict[str, set[str]] = {}
        self._timed: list[TimedCall] = []
        self._held: dict[int, _PendingCall] = {}
        self._profiles: dict[str, tuple[str, str]] = {}
        """The surrounding call and the profile of each call."""
        self._runs: dict[str, str] = {}
        """The profile of each agent's run that no call surrounds, by the id of its request."""
        self._of_agents: list[AuditRow] = []
        self._tools: dict[str, AgentTools] = {}
        self._contexts: dict[tuple[Any, ...], ToolContext] = {}

    async def add(self, row: AuditRow) -> None:
        """Judge a call. Calls of agents are judged at the end, when the profile of their run is known."""
        self._profiles[row.call_id] = (row.parent_call_id, row.profile)
        if row.request_id and row.name.startswith(RUN_PREFIX):
            self._runs[row.request_id] = row.profile
        if row.agent:
            self._of_agents.append(row)
        else:
            self._take(row, *await self._judged(row, row.profile or None))

    async def finished(self) -> Replay:
        """Judge the remaining calls, and return the changes."""
        for row in self._of_agents:
            self._take(row, *await self._judged_for_agent(row))
        for decided in limited(self._timed):
            row, then, verdict = self._held.pop(decided.number)
            if decided.refused_by is not None:
                verdict = self._limited(row, *decided.refused_by)
            elif not decided.is_known:
                text = "it was limited then, and older calls that count are not in the record"
                verdict = Verdict("unclear", "rate_limited", text)
            self._count(row, then, verdict)
        return Replay(
            changes=tuple(sorted(self._changes, key=lambda replayed: (replayed.row.at, replayed.row.call_id))),
            calls=sum(self._counts.values()),
            counts=self._counts,
            assumed={assumption: len(ids) for assumption, ids in self._assumed.items()},
        )

    # ---------------------------------------------------------------- one call

    async def _judged(self, row: AuditRow, profile: str | None) -> tuple[Verdict, View | None, ToolEntry | None]:
        registry = self._registry
        if profile is not None and profile not in registry.profiles:
            if profile in self._side.config.refused.profiles:
                return _unclear("the profile is left out, because it needs a variable that is not set"), None, None
            return Verdict("refused", "profile", f"there is no profile {profile!r}"), None, None
        identity = self._identified(row, profile)
        if isinstance(identity, Verdict):
            return identity, None, None
        view = self._side.catalog.view(identity, profile=profile)
        if row.name.startswith(RUN_PREFIX) and await view.afind(row.name) is None:
            return await self._run_decided(row, view), None, None
        return await self._decided(row, self._side.catalog.exposed(view))

    async def _run_decided(self, row: AuditRow, view: View) -> Verdict:
        """Judge the run of an agent that no call surrounds."""
        agent = row.name.removeprefix(RUN_PREFIX)
        if agent not in self._registry.declarations.agents:
            return _undeclared(agent) if row.tool else Verdict("refused", "not_found", f"there is no agent {agent!r}")
        # Host code may run any agent.
        if not row.door or await may_run(agent, view):
            return Verdict("allowed")
        return Verdict("refused", "policy", f"the profile denies the agent {agent!r}, or includes no tool that runs it")

    async def _judged_for_agent(self, row: AuditRow) -> tuple[Verdict, View | None, ToolEntry | None]:
        agent = self._registry.declarations.agents.get(row.agent)
        if agent is None:
            return _undeclared(row.agent), None, None
        profile = self._profile_of_run(row)
        known = tuple(self._registry.profiles)
        if profile is not None and profile not in known:
            return Verdict("refused", "profile", f"there is no profile {profile!r}"), None, None
        # Without a record of it, every profile may have started the run.
        judged: list[tuple[Verdict, View | None, ToolEntry | None]] = []
        for each in (profile,) if profile is not None else known or (None,):
            identity = self._identified(row, each)
            if isinstance(identity, Verdict):
                judged.append((identity, None, None))
                continue
            caller = caller_of(self._side.catalog.view(identity, profile=each))
            tools = self._tools.setdefault(row.agent, AgentTools(self._registry, agent))
            view = agent_view(self._side.catalog.runtime.view_parts, tools, self._registry, caller)
            judged.append(await self._decided(row, view))
        if len({verdict.now for verdict, _, _ in judged}) > 1:
            return _unclear(f"it depends on the profile that started the run of agent {row.agent!r}"), None, None
        return judged[0]

    def _profile_of_run(self, row: AuditRow) -> str | None:
        """Return the profile of the nearest surrounding call or run that has one."""
        seen = {row.call_id}
        parent = row.parent_call_id
        while parent and parent not in seen and parent in self._profiles:
            seen.add(parent)
            parent, profile = self._profiles[parent]
            if profile:
                return profile
        return self._runs.get(row.request_id) or None

    def _identified(self, row: AuditRow, profile: str | None) -> ToolContext | Verdict:
        """Return the context that the rules give to the caller of a row, or the refusal."""
        rules = self._side.catalog.identity
        user, space, roles = row.user or None, row.space or None, row.roles
        if rules is not None and row.key:
            grant = grant_of(rules.map, Credential(owner="", key=row.key)) if rules.key_store is not None else None
            if grant is None:
                return Verdict("refused", "identity", f"no rule of identity.map gives rights to the key {row.key!r}")
            if profile is not None and profile not in grant.profiles:
                text = f"identity.map does not let the key {row.key!r} into profile {profile!r}"
                return Verdict("refused", "identity", text)
            user, space, roles = grant.user, grant.space, grant.roles
        elif rules is not None and row.credential == "anonymous":
            if rules.anonymous is None or (profile is not None and profile not in rules.anonymous.profiles):
                return Verdict("refused", "identity", "identity lets no caller without a credential into this profile")
        elif rules is not None and row.credential:
            if rules.tokens is None:
                return Verdict("refused", "identity", "identity accepts no tokens")
            self._assume("the claims of tokens are not recorded, so the rules give the same rights as then", row)
        key = (user, space, tuple(roles), row.session, row.agent)
        ctx = self._contexts.get(key)
        if ctx is None:
            config, session, agent = self._side.config, row.session or None, row.agent or None
            ctx = context_for(config, user=user, space=space, roles=tuple(roles), session=session, agent=agent)
            self._contexts[key] = ctx
        return ctx

    async def _decided(self, row: AuditRow, view: View) -> tuple[Verdict, View | None, ToolEntry | None]:
        entry = await view.afind(row.name)
        if entry is None:
            return await self._hidden(row, view), None, None
        if entry.is_for_apps_alone and row.outcome == "not_found":
            return Verdict("refused", "not_found", "it is for interfaces alone"), None, None
        source = entry.source
        if source is not None and entry.qualified_id in self._registry.states().get(source, UP).changed:
            return Verdict("refused", "needs_review", "its definition waits for a review"), None, None
        return self._of_arguments(row, view, entry) or self._of_guards(row, view, entry), view, entry

    async def _hidden(self, row: AuditRow, view: View) -> Verdict:
        decision = await view.awhy(row.name)
        namespace = (row.tool or row.name).partition(".")[0].partition("__")[0]
        if namespace in self._unlisted or row.name in self._unlisted:
            return _unclear(f"the tools of {namespace!r} are neither pinned in the lock nor in a file")
        if decision.code == "source":
            return _unclear(decision.reason)
        if decision.code in ("factory", "internal") and then_of(row) == "ran":
            # Host code lent the factory or opened the tool, and the record does not say whether it still would.
            return _unclear(f"{decision.reason}; code of the host made it callable then")
        return Verdict("refused", decision.code, decision.reason, place_in(decision.reason))

    def _of_arguments(self, row: AuditRow, view: View, entry: ToolEntry) -> Verdict | None:
        """Return the refusal of the recorded arguments; `None` if they are valid."""
        args = self._arguments(row)
        is_same = bool(row.definition) and row.definition == entry.fingerprint
        if is_same:
            if row.outcome == "invalid_arguments":
                return Verdict("refused", "invalid_arguments", "the schema is the same as then", entry.spec.origin)
            return None
        if args is None:
            return _unclear("the definition is another, and the arguments are not recorded")
        compiled = view.plan(entry, view.snapshot).arguments
        try:
            plain = unaliased(args, entry.spec.aliases)
        except CallError as error:
            return Verdict("refused", "invalid_arguments", error.error.message, entry.spec.origin)
        if compiled.is_valid(plain):
            return None
        # Messages of the validator contain values, which are none of the reader's business.
        places = "; ".join(sorted({f"{problem.path} ({problem.rule})" for problem in compiled.problems(plain)[:10]}))
        if REDACTED in str(args):
            return _unclear(f"a secret was removed from the recorded arguments, which are invalid now: {places}")
        if entry.spec.repair:
            return _unclear(f"the recorded arguments are invalid now, and may be repaired: {places}")
        return Verdict("refused", "invalid_arguments", f"invalid now: {places}", entry.spec.origin)

    def _arguments(self, row: AuditRow) -> JSON | None:
        """Return the recorded arguments; `None` if there are none. Invalid ones are never recorded."""
        if row.outcome == "invalid_arguments":
            return None
        if is_object(row.arguments):
            return row.arguments
        return {} if row.arguments_digest == _NO_ARGUMENTS and row.event == "call" else None

    def _of_guards(self, row: AuditRow, view: View, entry: ToolEntry) -> Verdict:
        if view.plan(entry, view.snapshot).hooks.before:
            if "before_hooks" not in row.stage_s:
                return _unclear("a hook before the call is new, and hooks are not run")
            self._assume("hooks before the call are not run, so they decide as then", row)
        rule = entry.spec.consent
        if not callable(rule):
            if entry.asks_because is not None:
                return Verdict("asked", "consent_required", f"it {entry.asks_because}", entry.spec.origin)
            return Verdict("allowed")
        args = self._arguments(row)
        if args is None:
            was_asked = bool(row.consent)
            self._assume("a consent rule needs arguments that are not recorded, so it asks as then", row)
            return Verdict("asked", "consent_required", "it asked then") if was_asked else Verdict("allowed")
        try:
            asks = rule(cast("Any", args)) is not False
        except Exception:  # noqa: BLE001 - boundary: foreign code; as at run time, a person is asked
            asks = True
        text = "it needs approval for these arguments"
        return Verdict("asked", "consent_required", text, entry.spec.origin) if asks else Verdict("allowed")

    # ---------------------------------------------------------------- the result

    def _assume(self, assumption: str, row: AuditRow) -> None:
        if self._wanted.accepts(row):
            self._assumed.setdefault(assumption, set()).add(row.call_id)

    def _limited(self, row: AuditRow, key: Key, limit: RateLimit) -> Verdict:
        profile = self._registry.profiles.get(row.profile)
        is_of_profile = profile is not None and key[1] == f"profile {profile.name}"
        entry = None if is_of_profile else self._side.catalog.snapshot().find(row.name)
        whose = f"the limit of profile {row.profile!r}" if is_of_profile else "its limit"
        text = f"{whose}, {limit.max_calls}/{limit.window_s:g}s per {limit.scope}, was reached"
        rule = profile.origin if is_of_profile and profile else "" if entry is None else entry.spec.origin
        return Verdict("limited", "rate_limited", text, rule)

    def _take(self, row: AuditRow, verdict: Verdict, view: View | None, entry: ToolEntry | None) -> None:
        then = then_of(row)
        if row.outcome == "rate_limited" and then == "stopped":
            self._assume("calls stopped as repeated or invalid ones are not replayed", row)
        passes = verdict.now == "allowed" or (verdict.now == "asked" and row.consent == "yes")
        if view is None or entry is None or not passes or then == "stopped":
            self._count(row, then, verdict)
            return
        hits = windows_of(Prospect(view, row.name, self._side.catalog.executor, entry))
        if not hits:
            self._count(row, then, verdict)
            return
        number = len(self._timed)
        at = row.at + sum(row.stage_s.get(stage, 0.0) for stage in _BEFORE_LIMITS)
        was = {"ran": "passed", "limited": "limited"}.get(then, "unknown")
        self._timed.append(TimedCall(at, number, hits, cast("Any", was)))
        self._held[number] = _PendingCall(_slim(row), then, verdict)

    def _count(self, row: AuditRow, then: Then, verdict: Verdict) -> None:
        if not self._wanted.accepts(row):
            return
        kind = kind_of(then, verdict.now, had_yes=row.consent == "yes")
        self._counts[kind] += 1
        if kind != "same":
            self._changes.append(Replayed(row=_slim(row), kind=kind, then=then, verdict=verdict))


def _slim(row: AuditRow) -> AuditRow:
    """Return a row without its arguments, which are no longer needed."""
    return row if row.arguments is None else msgspec.structs.replace(row, arguments=None)


def _unclear(reason: str) -> Verdict:
    return Verdict("unclear", "", reason)


def _undeclared(agent: str) -> Verdict:
    return _unclear(f"the agent {agent!r} is not declared: it was removed, or a tool made it for one call")
