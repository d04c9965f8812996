"""Stages: what a call must pass before it runs, each a function on its record. The Executor runs them in order."""

from __future__ import annotations

import asyncio
import logging
from asyncio import get_running_loop
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from pegboard.core.call.events import Listeners, emit
from pegboard.core.call.rate_limit import Key, scope_key
from pegboard.core.hooks import NO_HOOKS, ToolHooks, describe
from pegboard.core.judge import UP
from pegboard.core.registry import Plan, Snapshot
from pegboard.core.schema import Compiled, check_bounds, copied, is_small, json_path, parse_json, refused_arguments
from pegboard.core.stepping import InterruptedWaitError, Rest, Watch
from pegboard.core.stepping import begin as begin_waiting
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.hook import Hook, Verdict
from pegboard.model.json_types import JSON, JSONValue, is_awaitable, is_object
from pegboard.model.rate_limit import RateLimit
from pegboard.model.tool import ToolEntry, ToolSpec

if TYPE_CHECKING:
    from pegboard.core.executor import Guards
    from pegboard.core.redaction import Redactor
    from pegboard.core.view import View

log = logging.getLogger("pegboard")
Hits = Sequence[tuple[Key, RateLimit]]


class Call(Watch):
    """The record of one call on its way; hooks are shown it as a `HookCall`. Only the stages write to it."""

    entry: ToolEntry
    plan: Plan
    hooks: ToolHooks = NO_HOOKS
    asked: str | None = None
    given: JSONValue = None
    has_read: bool = False
    ran: bool = False
    is_by_hand: bool = False
    timeout_s: float = 0.0
    warnings: Mapping[str, JSONValue] | None = None
    told: asyncio.Task[None] | None = None
    made_ctx: CallContext | None = None

    # By position: names would cost every call a dictionary.
    def __init__(
        self, view: View, name: str, request: object, call_id: str, listeners: Listeners, guards: Guards,
        redactor: Redactor | None,
    ) -> None:  # fmt: skip
        self.view, self.name, self.request, self.call_id = view, name, request, call_id
        self.listeners, self.redactor = listeners, redactor
        self.guards, self.started = guards, guards.clock()
        self.loop, self.thread = get_running_loop(), get_ident()
        self.args: JSON = {}
        # The tool's wire name once it is found, before that the name that was asked.
        self.known_as = name

    @property
    def tool(self) -> ToolSpec:
        return self.entry.spec

    @property
    def wire_name(self) -> str:
        return self.entry.wire_name

    @property
    def ctx(self) -> CallContext:
        """The context of this call, made when first needed."""
        if self.made_ctx is None:
            self.made_ctx = CallContext.of_call(
                self.view.ctx,
                call_id=self.call_id,
                tool=self.entry.wire_name,
                emitter=partial(emit, self),
                redactor=self.redactor,
            )
        return self.made_ctx


# ---------------------------------------------------------------- 1 begin, 2 resolve


def begin(call: Call, guards: Guards) -> None:
    """Refuse what must not start: too deep, over budget, too much in flight, a flood of invalid calls."""
    ctx, bounds = call.view.ctx, guards.bounds
    if guards.closing:
        raise CallError("shutting_down", "The server is shutting down. Try again in a moment.")
    if ctx.depth > bounds.agent_depth:
        text = f"Agents are nested {ctx.depth} deep; {bounds.agent_depth} is the limit. Answer without calling on."
        raise CallError("recursion_limit", text)
    if len(guards.in_flight) > bounds.calls_in_flight:
        text = f"{bounds.calls_in_flight} calls are running already. Try again in a moment."
        raise CallError("busy", text, retry_after_s=1.0)
    if ctx.deadline is not None and ctx.deadline <= guards.clock():
        raise CallError("timeout", "The time for this request is over. Start a new one.", retryable=False)
    if not guards.flood.is_quiet and (wait_s := guards.flood.wait_s(ctx)) > 0.0:
        text = "Too many invalid calls from this caller. Read the schemas before calling again."
        raise CallError("rate_limited", text, retry_after_s=wait_s)
    if ctx.budget is not None:
        ctx.budget.spend(default=bounds.calls_per_request)


def take(call: Call, entry: ToolEntry | None, snapshot: Snapshot, guards: Guards) -> None:
    """Keep the tool that the View found on this, its newest snapshot. Unknown, hidden and denied answer alike."""
    view, name = call.view, call.name
    if entry is None:
        guards.flood.count(view.ctx)
        raise not_found(name, view.hint(name))
    call.entry, call.plan, call.known_as = entry, snapshot.plan(entry), entry.wire_name
    call.hooks = call.plan.hooks
    if entry.source is not None and entry.qualified_id in guards.states().get(entry.source, UP).changed:
        text = f"The definition of {name!r} changed since it was accepted; a person must review it first."
        raise CallError("needs_review", text)
    if guards.audit is not None and guards.audit_required and not guards.audit.is_up and not entry.spec.is_read_only:
        text = f"{name!r} changes things and the audit log is down. Read-only tools still work."
        raise CallError("audit_unavailable", text)
    if name != entry.wire_name and snapshot.is_former_name(name):
        call.warnings = {"renamed": f"{name!r} is now called {entry.wire_name!r}"}


def not_found(name: str, hint: str) -> CallError:
    """Return the one error for every name that this caller may not use."""
    return CallError("not_found", f"No tool named {name[:200]!r} is available to this caller.{hint}")


# ---------------------------------------------------------------- 3 arguments


def read_arguments(request: object, guards: Guards) -> tuple[Any, bool]:
    """Return what a request holds, as JSON within the bounds that shares nothing with its sender; and if it is flat."""
    if isinstance(request, bytes):
        return parse_json(request, bounds=guards.bounds), False
    given: Any = {} if request is None else request
    if is_object(given):
        if is_small(given):
            return {**given}, True
    elif isinstance(given, Mapping):
        given = {**cast("JSON", given)}
    check_bounds(given, bounds=guards.bounds)
    return copied(given), False


def seen_arguments(call: Call, guards: Guards) -> JSONValue:
    """Return the arguments as observers are shown them: a copy, and nothing of what will be refused unread."""
    try:
        given, is_flat = read_arguments(call.request, guards)
    except CallError:
        return "(not read)"
    call.given, call.has_read = given, True
    return {**given} if is_flat else copied(given)


def check_arguments(call: Call, guards: Guards) -> None:
    """Judge the arguments: bounds first, then aliases, schema and defaults. Fills `call.args`.

    Refused ones are shown to the injected `repair`, which may fill it with what this same judge takes.
    """
    try:
        call.args = _judged(call, call.given if call.has_read else read_arguments(call.request, guards)[0])
    except CallError:
        if not guards.repair(call, lambda given: _judged(call, read_arguments(given, guards)[0])):
            guards.flood.count(call.view.ctx)
            raise


def _judged(call: Call, args: JSONValue) -> JSON:
    if not is_object(args):
        text = f"The arguments of {call.name!r} must be an object. (Host code gives JSON text as bytes.)"
        raise refused_arguments(text, "type", value=args)
    if call.entry.spec.aliases:
        args = unaliased(args, call.entry.spec.aliases)
    compiled = call.plan.arguments
    if not compiled.is_valid(args):
        raise _invalid(call.name, compiled, args)
    return compiled.with_defaults(args) if compiled.defaults else args


def unaliased(args: JSON, aliases: Mapping[str, str]) -> JSON:
    """Return the arguments with every alias as the property it stands for; refuses two values for one."""
    plain = {key: value for key, value in args.items() if key not in aliases}
    for alias, target in aliases.items():
        if alias in args:
            if target in plain and plain[target] != args[alias]:
                first = target if target in args else next(a for a, t in aliases.items() if t == target and a in args)
                text = f"conflicting values for {target!r} via {first!r} and {alias!r}"
                raise refused_arguments(text, "alias", path=json_path([alias]), value=args[alias])
            plain[target] = args[alias]
    return plain


def _invalid(name: str, compiled: Compiled, args: JSON) -> CallError:
    problems = compiled.problems(args)
    listed = "; ".join(f"{problem.path}: {problem.message}" for problem in problems[:10])
    more = f"; and {len(problems) - 10} more" if len(problems) > 10 else ""
    text = f"Invalid arguments for {name!r}: {listed}{more}. Correct them and call again."
    return CallError("invalid_arguments", text, details={"problems": [problem._asdict() for problem in problems]})


# ---------------------------------------------------------------- 4 before-hooks


async def ask_hooks(call: Call, guards: Guards) -> None:
    """Ask the before-hooks in order. One that denies, errs or hangs ends the call; new arguments are judged again."""
    rewrites = index = 0
    judged = copied(call.args)
    while index < len(call.hooks.before):
        hook = call.hooks.before[index]
        index += 1
        try:
            verdict = run_hook(hook, (call,), guards, call)
            if verdict is not None and not isinstance(verdict, Verdict):
                verdict = _verdict(await verdict)
        except (CallError, asyncio.CancelledError, InterruptedWaitError):
            raise
        except BaseException as error:  # boundary: foreign code; before the tool it fails closed
            log.warning("Before-hook %s failed; %r was refused.", describe(hook), call.name, exc_info=error)
            raise CallError("hook_refused", f"A check before {call.name!r} failed, so it was not run.") from error
        # What the next hook sees and what runs is what was judged, whatever this one wrote into the dict.
        if call.args != judged:
            call.args = copied(judged)
        if verdict is None or verdict.kind == "allow":
            continue
        if verdict.kind == "deny":
            raise CallError(verdict.error_kind, verdict.reason or "Tool execution was aborted")
        if verdict.kind == "ask":
            call.asked = verdict.reason or f"{describe(hook)} asks for a yes"
            continue
        rewrites += 1
        if rewrites > guards.bounds.argument_rewrites:
            raise CallError(
                "hook_refused", f"Hooks rewrote the arguments of {call.name!r} {rewrites} times; that is too often."
            )
        if verdict.args != judged:
            call.args = _judged(call, read_arguments(verdict.args, guards)[0])
            judged = copied(call.args)
            # Every hook must have seen the arguments that run.
            index = 0


def _verdict(answer: object) -> Verdict | None:
    if answer is None or isinstance(answer, Verdict):
        return answer
    raise TypeError(f"a hook must give a Verdict or None, not a {type(answer).__name__}")


class HookTimeoutError(Exception):
    """A hook did not answer in time."""


def run_hook(hook: Hook, args: tuple[object, ...], guards: Guards, call_watch: Watch) -> Any:
    """Run one hook within its second. Returns what it gave, or an awaitable while an async one really waits."""
    limit_s = guards.bounds.hook_s
    started = perf_counter()
    answer = hook.run(*args)
    if answer is not None and is_awaitable(answer):
        watch = Watch(hook.name)
        watch.reason = call_watch.reason
        answer = begin_waiting(answer, timeout_s=limit_s, watch=watch)
        if type(answer) is Rest:
            return _async_hook(answer, hook, watch, call_watch)
    if perf_counter() - started > limit_s:
        raise HookTimeoutError(f"{describe(hook)} took more than {limit_s:g} s")
    return answer


async def _async_hook(rest: Rest, hook: Hook, watch: Watch, call_watch: Watch) -> Any:
    call_watch.attach(lambda: watch.interrupt(call_watch.reason or "cancelled"))
    try:
        return await rest
    except InterruptedWaitError as stopped:
        if call_watch.reason is not None:
            raise
        raise HookTimeoutError(f"{describe(hook)} gave no answer in time") from stopped
    finally:
        call_watch.attach(None)


# ---------------------------------------------------------------- 5, 7 rate limit


def limits_of(call: Call, guards: Guards) -> Hits:
    """Return the windows that this call counts in: the tool's own (or the default), and the profile's."""
    ctx, entry, profile = call.view.ctx, call.entry, call.view.profile
    own = entry.spec.rate_limit or guards.default_limit
    found = [] if own is None else [(scope_key(own.scope, ctx, entry.qualified_id), own)]
    if profile is not None and profile.rate_limit is not None:
        found.append((scope_key(profile.rate_limit.scope, ctx, f"profile {profile.name}"), profile.rate_limit))
    if ctx.client is None or not found:
        return found
    # A call that ended with a question goes on, with the answer, as another one.
    has_paid = getattr(ctx.client, "has_paid", None)
    return [] if has_paid is not None and has_paid(entry.qualified_id) else found


def pass_limits(call: Call, guards: Guards, hits: Hits, *, charge: bool) -> Awaitable[None] | None:
    """Look at the limits, or charge them in one atomic step; a refused call is not recorded.

    Returns what to await when the store is not in memory.
    """
    try:
        wait_s: Any = guards.limits.wait_s(hits, charge=charge)
    except OSError as error:
        wait_s = _without_store(call, guards, hits, charge=charge, error=error)
    if wait_s == 0.0:
        return None
    if is_awaitable(wait_s):
        return _pass_remote(call, guards, hits, wait_s, charge=charge)
    raise _rate_limited(call, wait_s)


async def _pass_remote(call: Call, guards: Guards, hits: Hits, asked: Awaitable[float | None], *, charge: bool) -> None:
    try:
        wait_s = await asked
    except OSError as error:
        wait_s = _without_store(call, guards, hits, charge=charge, error=error)
    if wait_s != 0.0:
        raise _rate_limited(call, wait_s)


def _rate_limited(call: Call, wait_s: float | None) -> CallError:
    when = "" if wait_s is None else f" It can be used again in {wait_s:.3g} s."
    text = (
        f"{call.name!r} is temporarily unavailable: its rate limit is reached.{when} Other tools may be used meanwhile."
    )
    return CallError("rate_limited", text, retryable=wait_s is not None, retry_after_s=wait_s)


def _without_store(call: Call, guards: Guards, hits: Hits, *, charge: bool, error: OSError) -> float | None:
    default = "local" if call.entry.spec.is_read_only else "closed"
    rules = [limit.when_store_is_down or default for _, limit in hits]
    log.warning("The rate limit store is down (%s); %r is decided by %s.", error, call.name, sorted(set(rules)))
    if "closed" in rules:
        text = f"{call.name!r} cannot be used now: its rate limit cannot be checked. Try again in a moment."
        raise CallError("ratelimit_unavailable", text)
    local = [hit for hit, rule in zip(hits, rules, strict=True) if rule == "local"]
    return guards.local_limits.wait_s(local, charge=charge)
