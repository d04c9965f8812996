"""Guard change: compares the guards of a tool, a profile or a config: weaker, stronger, or neither."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct
from pydantic import BaseModel

from pegboard.auth.rules import IdentityRules
from pegboard.catalog import Catalog
from pegboard.config import Config
from pegboard.config.forms.budget_form import BudgetForm
from pegboard.core.judge import applies
from pegboard.core.names import fold
from pegboard.model.bounds import Bounds
from pegboard.model.json_types import is_list, is_object
from pegboard.model.policy import Policy
from pegboard.model.profile import Profile
from pegboard.model.rate_limit import RateLimit
from pegboard.model.tool import ToolEntry

GuardVerdict = Literal["weaker", "stronger", "changed"]

_NONE = "none"
_OUTPUT_CHECKS = ("none", "relax", "warn", "strict")
_WHEN_STORE_IS_DOWN = ("open", "local", "closed")
# Keys of settings in the config that guard the reach of a tool, by the value or the list that is weaker.
_WEAKER_IF_TRUE = frozenset({"allow_private", "allow_superuser", "hard_links", "trust_annotations"})
_WEAKER_IF_FALSE = frozenset({"read_only"})
_WEAKER_IF_LONGER = frozenset({"allow_functions", "roots"})
_WEAKER_IF_SHORTER = frozenset({"skip"})
_TRUST = ("any", "first_use", "pinned")


class GuardChange(Struct, frozen=True, kw_only=True):
    """One guard that changed. `changed` means neither weaker nor stronger: each version allows something else."""

    guard: str
    verdict: GuardVerdict
    before: str = ""
    after: str = ""


class Guarded(Struct, frozen=True, kw_only=True):
    """A tool, with the catalog and the config that guard it."""

    entry: ToolEntry
    catalog: Catalog
    config: Config

    @property
    def bounds(self) -> Bounds:
        return self.config.bounds

    @property
    def is_read_only(self) -> bool:
        return self.entry.spec.is_read_only

    @property
    def rate_limit(self) -> RateLimit | None:
        return self.entry.spec.rate_limit or self.catalog.registry.declarations.default_limit

    @property
    def timeout_s(self) -> float:
        bounds = self.bounds
        return self.entry.spec.timeout_s or (
            bounds.tool_timeout_s if self.entry.agent is None else bounds.agent_timeout_s
        )

    @property
    def output_check(self) -> str:
        """How results are checked against a schema; `none` without a schema."""
        if self.entry.spec.output_schema is None and self.entry.exact_output is None:
            return "none"
        return self.entry.spec.output_check or ("warn" if self.entry.is_foreign else "strict")

    @property
    def hooks(self) -> frozenset[str]:
        """The hooks that may refuse or change a call, or its result."""
        registered = [hook for hook in self.catalog.registry.hooks if applies(hook.match, self.entry)]
        kinds = ("before", "around", "after")
        return frozenset(
            f"{hook.kind} {hook.name or getattr(hook.run, '__qualname__', 'hook')}{' (required)' * hook.required}"
            for hook in (*registered, *self.entry.hooks)
            if hook.kind in kinds
        )

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings in the config of the tool, or of the server that it comes from, by their path."""
        spec = self.entry.spec
        names = {fold(spec.qualified_id), fold(f"main.{spec.namespace}")}
        for tool in self.config.tools:
            namespace = tool.value.option("namespace") or "main"
            if fold(f"{namespace}.{tool.value.called}") in names:
                return dict(_flat(tool.value, ()))
        return {}


def guards_of_tool(before: Guarded, after: Guarded) -> Iterator[GuardChange]:
    """Yield the guards of one tool that changed."""
    old, new = before.entry.spec, after.entry.spec
    yield from _consent(before, after)
    yield from rate_limits(before.rate_limit, after.rate_limit, was=before.is_read_only, now=after.is_read_only)
    yield from _less_is_stronger("timeout", before.timeout_s, after.timeout_s, unit=" s")
    yield from _less_is_stronger("max_concurrency", old.max_concurrency, new.max_concurrency)
    old_bytes = old.max_result_bytes or before.bounds.result_bytes
    yield from _less_is_stronger("max_result_bytes", old_bytes, new.max_result_bytes or after.bounds.result_bytes)
    yield from _more_is_stronger("output check", before.output_check, after.output_check, _OUTPUT_CHECKS)
    yield from _availability(before, after)
    yield from _flag("internal_only", old.internal_only, new.internal_only)
    yield from _flag("unknown arguments refused", not old.allow_unknown, not new.allow_unknown)
    yield from _present("factory", old.factory, new.factory)
    yield from _sets("groups", old.groups, new.groups, is_weaker_if_longer=True)
    yield from _sets("hooks", before.hooks, after.hooks, is_weaker_if_longer=False)
    settings = list(_settings(before.settings, after.settings))
    yield from settings
    if before.entry.reaches != after.entry.reaches and not settings:
        yield GuardChange(guard="what a call reaches", verdict="changed")


def guards_of_profile(before: Profile, after: Profile) -> Iterator[GuardChange]:
    """Yield the rules of one profile that changed."""
    yield from _globs("include", before.include, after.include)
    yield from _policies(before.policy, after.policy)
    yield from rate_limits(before.rate_limit, after.rate_limit, was=False, now=False)
    yield from _flag("require_context", before.require_context, after.require_context)
    for name in dict.fromkeys((*before.limits, *after.limits)):
        yield from _less_is_stronger(f"limits.{name}", before.limits.get(name), after.limits.get(name))


def guards_of_config(before: Config, after: Config, rules: tuple[object, object]) -> Iterator[GuardChange]:
    """Yield the changes to guards of all profiles: access, and the limits of the process."""
    for name in Bounds.__struct_fields__:
        if name not in ("tool_timeout_s", "agent_timeout_s", "result_bytes"):  # part of the guards of each tool
            yield from _less_is_stronger(f"limits.{name}", getattr(before.bounds, name), getattr(after.bounds, name))
    old, new = rules
    yield from _identity(
        old if isinstance(old, IdentityRules) else None, new if isinstance(new, IdentityRules) else None
    )
    yield from _budgets(_rules(before), _rules(after))
    read = {form.value.model_dump().get("setting") for config in (before, after) for form in config.predicates.values()}
    for name in dict.fromkeys((*before.settings, *after.settings)):
        if name in read and before.settings.get(name) != after.settings.get(name):
            # Without the values: settings may hold anything.
            yield GuardChange(guard=f"settings.{name}, which a predicate reads", verdict="changed")


def _rules(config: Config) -> Mapping[str, BudgetForm]:
    return {} if config.budgets is None else config.budgets.value.rules


def _budgets(before: Mapping[str, BudgetForm], after: Mapping[str, BudgetForm]) -> Iterator[GuardChange]:
    """Yield the budgets that changed. A budget that counts other calls, or in another way, is `changed`."""
    for name in dict.fromkeys((*before, *after)):
        old, new, guard = before.get(name), after.get(name), f"budgets.{name}"
        if old is None or new is None:
            shown = {"before": _budget_text(old), "after": _budget_text(new)}
            yield GuardChange(guard=guard, verdict="weaker" if new is None else "stronger", **shown)
        elif _counting(old) != _counting(new):
            shown = {"before": _budget_text(old), "after": _budget_text(new)}
            yield GuardChange(guard=guard, verdict="changed", **shown)
        else:
            yield from _less_is_stronger(f"{guard}.calls", old.calls, new.calls)
            yield from _less_is_stronger(f"{guard}.cost", old.cost, new.cost, unit=f" {new.unit}")


def _counting(budget: BudgetForm) -> dict[str, Any]:
    """Return the settings that decide which calls a budget counts, and how."""
    return budget.model_dump(exclude={"calls", "cost"})


def _budget_text(budget: BudgetForm | None) -> str:
    if budget is None:
        return _NONE
    limits = [f"{budget.calls} calls"] if budget.calls is not None else []
    limits += [f"{budget.cost:g} {budget.unit}"] if budget.cost is not None else []
    per = budget.per if isinstance(budget.per, str) else f"{budget.per:g} s"
    of = [
        f"{key} {', '.join(names)}"
        for key, names in (
            ("tools", budget.tools), ("profiles", budget.profiles), ("users", budget.users), ("each", budget.each),
        )
        if names
    ]  # fmt: skip
    return f"{' and '.join(limits)} per {per}{''.join(f', {part}' for part in of)}"


# ---------------------------------------------------------------- single guards


def _consent(before: Guarded, after: Guarded) -> Iterator[GuardChange]:
    (old, old_level), (new, new_level) = _consent_level(before.entry), _consent_level(after.entry)
    if old_level != new_level:
        yield GuardChange(
            guard="consent", verdict="stronger" if new_level > old_level else "weaker", before=old, after=new
        )
    elif old_level == 1 and old != new:
        yield GuardChange(guard="consent", verdict="changed", before=old, after=new)


def _consent_level(entry: ToolEntry) -> tuple[str, int]:
    """Return the rule in words, and 2 if every call asks, 1 if the arguments decide, else 0."""
    rule = entry.spec.consent
    if not isinstance(rule, str):
        return getattr(rule, "__qualname__", type(rule).__name__), 1
    asks = entry.asks_because is not None
    return (rule if asks or rule == "never" else f"{rule}, which this tool is not"), 2 if asks else 0


def rate_limits(before: RateLimit | None, after: RateLimit | None, *, was: bool, now: bool) -> Iterator[GuardChange]:
    """Yield how a rate limit changed; `was` and `now` tell whether the tool only reads."""
    if before == after and was == now:
        return
    shown = {"before": _limit_text(before), "after": _limit_text(after)}
    if before is None or after is None:
        if before is not after:
            yield GuardChange(guard="rate_limit", verdict="weaker" if after is None else "stronger", **shown)
        return
    if before.scope != after.scope:
        yield GuardChange(guard="rate_limit", verdict="changed", **shown)
    elif (before.max_calls, before.window_s) != (after.max_calls, after.window_s):
        verdict = "stronger" if _is_within(after, before) else "weaker" if _is_within(before, after) else "changed"
        yield GuardChange(guard="rate_limit", verdict=verdict, **shown)
    old = before.when_store_is_down or ("local" if was else "closed")
    new = after.when_store_is_down or ("local" if now else "closed")
    yield from _more_is_stronger("rate_limit when its store is down", old, new, _WHEN_STORE_IS_DOWN)


def _is_within(strict: RateLimit, loose: RateLimit) -> bool:
    """Tell whether the loose limit admits all calls that the strict one admits.

    As many strict windows as cover one loose window bound the calls in it.
    """
    return strict.max_calls * math.ceil(loose.window_s / strict.window_s) <= loose.max_calls


def _limit_text(limit: RateLimit | None) -> str:
    return _NONE if limit is None else f"{limit.max_calls}/{limit.window_s:g}s per {limit.scope}"


def _availability(before: Guarded, after: Guarded) -> Iterator[GuardChange]:
    old, new = before.entry.spec.available, after.entry.spec.available
    if (old is None) != (new is None):
        yield GuardChange(
            guard="available",
            verdict="weaker" if new is None else "stronger",
            before=_condition_text(old),
            after=_condition_text(new),
        )
    elif _condition_text(old) != _condition_text(new):
        yield GuardChange(guard="available", verdict="changed", before=_condition_text(old), after=_condition_text(new))
    else:
        for name in sorted(set(_names_in(old)) & (before.config.predicates.keys() | after.config.predicates.keys())):
            forms = [config.predicates.get(name) for config in (before.config, after.config)]
            if forms[0] is None or forms[1] is None or forms[0].value != forms[1].value:
                yield GuardChange(guard=f"available, by predicate {name!r}", verdict="changed")


def _condition_text(form: object) -> str:
    if form is None:
        return _NONE
    if callable(form):
        return getattr(form, "__qualname__", type(form).__name__)
    return str(form)


def _names_in(form: object) -> Iterator[str]:
    if isinstance(form, str):
        yield form.removeprefix("!").strip()
    elif is_object(form):
        for key, inner in form.items():
            yield key
            yield from _names_in(inner)
    elif is_list(form) or isinstance(form, tuple):
        for inner in form:  # pyright: ignore[reportUnknownVariableType] - any form of a condition
            yield from _names_in(inner)  # pyright: ignore[reportUnknownArgumentType] - as above


def _policies(before: Policy, after: Policy) -> Iterator[GuardChange]:
    yield from _globs("allow", before.allow, after.allow)
    yield from _sets("deny", before.deny, after.deny, is_weaker_if_longer=False)


def _globs(name: str, before: Sequence[str] | None, after: Sequence[str] | None) -> Iterator[GuardChange]:
    """Compare allow-lists; `None` allows everything."""
    if before is None or after is None:
        if before is not after:
            yield GuardChange(
                guard=name, verdict="weaker" if after is None else "stronger", before=_list(before), after=_list(after)
            )
        return
    yield from _sets(name, before, after, is_weaker_if_longer=True)


def _identity(before: IdentityRules | None, after: IdentityRules | None) -> Iterator[GuardChange]:
    if before == after:
        return
    if before is None or after is None:
        is_gone = after is None
        yield GuardChange(
            guard="identity",
            verdict="weaker" if is_gone else "stronger",
            before="nobody is asked" if before is None else "credentials",
            after="nobody is asked" if is_gone else "credentials",
        )
        return
    old, new = before.anonymous, after.anonymous
    yield from _sets(
        "identity.anonymous", () if old is None else old.profiles, () if new is None else new.profiles,
        is_weaker_if_longer=True,
    )  # fmt: skip
    yield from _flag(
        "identity.anonymous on loopback alone", not (old and old.is_anywhere), not (new and new.is_anywhere)
    )
    if before.tokens != after.tokens:
        first, second = before.tokens, after.tokens
        same_issuer = first and second and (first.issuer, first.audience, first.jwks_url) == (
            second.issuer, second.audience, second.jwks_url,
        )  # fmt: skip
        if first and second and same_issuer:
            yield from _sets("identity.jwt.scopes", first.scopes, second.scopes, is_weaker_if_longer=False)
        else:
            yield GuardChange(
                guard="identity.jwt", verdict="weaker" if first is None else "stronger" if second is None else "changed"
            )
    if before.key_store != after.key_store and (before.key_store is None or after.key_store is None):
        yield GuardChange(guard="identity.api_keys", verdict="weaker" if before.key_store is None else "stronger")
    if _written(before.map) != _written(after.map):
        yield from _mapped(before, after)


def _mapped(before: IdentityRules, after: IdentityRules) -> Iterator[GuardChange]:
    """Compare the rules of keys one by one; those of claims overlap, so they are compared as a whole."""
    old = {rule.key: _written(rule) for rule in reversed(before.map) if rule.key is not None}
    new = {rule.key: _written(rule) for rule in reversed(after.map) if rule.key is not None}
    for key in dict.fromkeys((*old, *new)):
        if key not in new:
            yield GuardChange(guard=f"identity.map of key {key!r}", verdict="stronger", before="a rule", after=_NONE)
        elif key not in old:
            yield GuardChange(guard=f"identity.map of key {key!r}", verdict="weaker", before=_NONE, after="a rule")
        elif old[key] != new[key]:
            yield GuardChange(guard=f"identity.map of key {key!r}", verdict="changed")
    claims = [_written([rule for rule in rules.map if rule.key is None]) for rules in (before, after)]
    if claims[0] != claims[1]:
        yield GuardChange(guard="identity.map of tokens", verdict="changed")


def _written(value: object) -> bytes:
    def template_text(inner: Any) -> str:
        return str(inner.text)

    return msgspec.json.encode(value, enc_hook=template_text)


def _settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[GuardChange]:
    for path in dict.fromkeys((*before, *after)):
        key, old, new = path.rpartition(".")[2], before.get(path), after.get(path)
        if old == new:
            continue
        if key in _WEAKER_IF_TRUE:
            yield from _flag(path, not old, not new, words=(str(bool(old)).lower(), str(bool(new)).lower()))
        elif key in _WEAKER_IF_FALSE:
            yield from _flag(path, bool(old), bool(new))
        elif key == "allow_hosts":
            yield from _globs(path, old or None, new or None)  # an empty list is every host
        elif key == "only":
            yield from _globs(path, old, new)
        elif key in _WEAKER_IF_LONGER | _WEAKER_IF_SHORTER:
            yield from _sets(path, old or (), new or (), is_weaker_if_longer=key in _WEAKER_IF_LONGER)
        elif key == "trust" and old in _TRUST and new in _TRUST:
            yield from _more_is_stronger(path, old, new, _TRUST)
        elif key in ("trust", "min_protocol_version"):
            yield GuardChange(guard=path, verdict="changed", before=str(old or _NONE), after=str(new or _NONE))


def _flat(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a form by their path."""
    items: Any = None
    if isinstance(value, BaseModel):
        items = ((name, getattr(value, name)) for name in type(value).model_fields)
    elif isinstance(value, Mapping):
        items = value.items()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - any form
    if items is None:
        yield ".".join(path), value
        return
    for name, inner in items:
        yield from _flat(inner, (*path, str(name)))


# ---------------------------------------------------------------- orders


def _flag(guard: str, before: bool, after: bool, *, words: tuple[str, str] | None = None) -> Iterator[GuardChange]:
    """Compare a guard that is on or off."""
    if before != after:
        old, new = words or (str(before).lower(), str(after).lower())
        yield GuardChange(guard=guard, verdict="stronger" if after else "weaker", before=old, after=new)


def _present(guard: str, before: str | None, after: str | None) -> Iterator[GuardChange]:
    if before != after:
        verdict: GuardVerdict = "weaker" if after is None else "stronger" if before is None else "changed"
        yield GuardChange(guard=guard, verdict=verdict, before=before or _NONE, after=after or _NONE)


def _less_is_stronger(
    guard: str, before: float | None, after: float | None, *, unit: str = ""
) -> Iterator[GuardChange]:
    """Compare two limits; `None` means no limit."""
    old, new = (math.inf if value is None else value for value in (before, after))
    if old != new:
        texts = [_NONE if value is None else f"{value:,.15g}{unit}" for value in (before, after)]
        yield GuardChange(guard=guard, verdict="stronger" if new < old else "weaker", before=texts[0], after=texts[1])


def _more_is_stronger(guard: str, before: str, after: str, order: Sequence[str]) -> Iterator[GuardChange]:
    if before != after:
        verdict: GuardVerdict = "stronger" if order.index(after) > order.index(before) else "weaker"
        yield GuardChange(guard=guard, verdict=verdict, before=before, after=after)


def _sets(guard: str, before: Any, after: Any, *, is_weaker_if_longer: bool) -> Iterator[GuardChange]:
    old, new = set(before), set(after)
    if old == new:
        return
    verdict: GuardVerdict = "changed"
    if old < new or new < old:
        verdict = "weaker" if (old < new) == is_weaker_if_longer else "stronger"
    yield GuardChange(guard=guard, verdict=verdict, before=_list(sorted(before)), after=_list(sorted(after)))


def _list(names: Sequence[str] | None) -> str:
    return "everything" if names is None else ", ".join(names) or _NONE
