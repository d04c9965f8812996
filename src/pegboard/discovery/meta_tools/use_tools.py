"""useTools: run a batch of tools, each as a separate guarded call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from pegboard.core.names import fold
from pegboard.discovery.limits import BATCH_CALLS_AT_ONCE
from pegboard.discovery.meta_tools.batch_results import Outcome, shown_outcomes
from pegboard.discovery.meta_tools.catalog_listing import CatalogListing, echoed, find
from pegboard.discovery.meta_tools.intent import CallIntent, fault_of, filled, without_intent
from pegboard.discovery.meta_tools.shared import MetaTools
from pegboard.model.call_context import CallContext
from pegboard.model.call_intent import SERVICE
from pegboard.model.context import ToolContext
from pegboard.model.error import ErrorKind
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.model.record import replace
from pegboard.model.result import ToolResult, call_error
from pegboard.model.tool import ToolEntry

_STRUCTURE = 'Structure: calls: [{ agent: "…", tool: "…", params: {…} }]'
_REQUIRED = f"calls array is required. {_STRUCTURE}"
_PARAMS = ("params", "parameters", "arguments")
_KEYS = frozenset(("agent", "namespace", "tool", "name", "continueOnFailure", *_PARAMS))
_BATCH_KEYS = frozenset(("context", "strategy", "calls"))


class _Item(Struct, frozen=True, kw_only=True):
    """One call of a batch as the model wrote it: `asked` is the called name, `fault` the reason if it is not a call."""

    index: int
    agent: str = ""
    tool: str = ""
    asked: str = ""
    params: JSONValue = None
    goes_on: bool = False
    entry: ToolEntry | None = None
    fault: str = ""


async def use_tools(meta: MetaTools, ctx: CallContext, args: JSON) -> JSON | ToolResult:
    """Run the calls in order or in parallel; report the outcome of each."""
    calls: JSONValue = args.get("calls")
    if not is_list(calls) or not calls:
        return {"success": False, "error": _REQUIRED}
    fault = await _batch_fault(meta, args, calls)
    if fault:
        return {"success": False, "error": fault}
    meta.loop_guard.went_on(meta.view.ctx, meta.profile)
    items = [await _read(index, call, meta) for index, call in enumerate(calls)]
    strategy = "parallel" if args.get("strategy") == "parallel" else "serial"
    intent = CallIntent.of(args.get("context"))
    about = {"batch_id": ctx.call_id, "strategy": strategy}
    await ctx.emitter("on_batch_started", {**about, "calls": len(items), "context": intent.as_json()}, None)
    batch = _Batch(meta, ctx, intent, items)
    done = await (batch.in_parallel() if strategy == "parallel" else batch.in_order())
    failed = sum(outcome.has_failed for outcome in done)
    await ctx.emitter("on_batch_completed", {**about, "calls": len(items), "failed": failed}, not failed)
    _ask_alone(done, ctx)
    return shown_outcomes(done, cap_bytes=meta.bounds.result_bytes)


async def _batch_fault(meta: MetaTools, args: JSON, calls: list[JSONValue]) -> str | None:
    most, count = meta.bounds.use_tools_calls, len(calls)
    if not args.keys() <= _BATCH_KEYS:
        strange = echoed(next(key for key in args if key not in _BATCH_KEYS), chars=80)
        # Refuse parameters outside of the calls, since the tools would run without them.
        return f'"{strange}" is next to `calls`; parameters belong into the call. {_STRUCTURE}'
    if count > most:
        return f"{meta.names.use} runs at most {most} calls in a batch; this one has {count}. Split it."
    strategy = args.get("strategy", "serial")
    if strategy not in ("serial", "parallel"):
        return f'strategy "{echoed(strategy)}" is not one of serial, parallel.'
    intent = CallIntent.of(args.get("context"))
    return await fault_of(intent, meta.view.ctx, meta.documents, is_required=meta.require_context)


# ---------------------------------------------------------------- parsing


async def _read(index: int, call: JSONValue, meta: MetaTools) -> _Item:
    if not is_object(call):
        return _Item(index=index, fault=f"call {index} is not an object. {_correct('…', '…')}")
    agent: Any = call.get("agent", call.get("namespace"))
    tool: Any = call.get("tool", call.get("name"))
    named = agent if isinstance(agent, str) and agent.strip() else None
    if not isinstance(tool, str) or not tool.strip():
        agent = echoed(named or "")
        return _Item(index=index, agent=agent, fault=f"call {index} names no tool. {_correct(agent or '…', '…')}")
    asked, entry = await find(meta.view, tool, named) or (f"{named}.{tool}" if named else tool, None)
    wrong_form = _wrong_form(index, call, agent)
    if wrong_form:
        meant = entry or (await _listing(meta)).nearest(tool, named)
        wrong_form = f"{wrong_form} {_correct(echoed(named or '…'), echoed(tool), meant)}"
    agent, tool = (echoed(named or ""), echoed(tool)) if entry is None else (entry.spec.namespace, entry.spec.name)
    params: list[JSONValue] = [call[key] for key in _PARAMS if key in call]
    return _Item(
        index=index,
        agent=agent,
        tool=tool,
        asked=asked,
        params=params[0] if params else {},
        goes_on=call.get("continueOnFailure") is True,
        entry=entry,
        fault=wrong_form,
    )


def _wrong_form(index: int, call: JSON, agent: Any) -> str:
    """Return the fault in the form of a call that names a tool; empty if there is none."""
    if agent is not None and not isinstance(agent, str):
        return f"call {index} has an agent that is not a text."
    if sum(key in call for key in _PARAMS) > 1:
        return f"call {index} has its parameters twice."
    if not call.keys() <= _KEYS:
        strange = echoed(next(key for key in call if key not in _KEYS), chars=80)
        # Refuse misplaced parameters, since the tool would run without them.
        return f'call {index} has the unknown key "{strange}"; parameters go into params.'
    if not isinstance(call.get("continueOnFailure", False), bool):
        return f"call {index} has a continueOnFailure that is neither true nor false."
    return ""


async def _listing(meta: MetaTools) -> CatalogListing:
    return CatalogListing.of(await meta.view.atools())


async def _is_for_apps_alone(meta: MetaTools, name: str) -> bool:
    """Tell whether a name is for interfaces only: no model may call it, and only models use batches."""
    entry = await meta.view.afind(name)
    return entry is not None and entry.is_for_apps_alone


async def _not_found(meta: MetaTools, tool: str, agent: str | None) -> str:
    if fold(tool) in map(fold, meta.names):
        return f"{tool} cannot be called through {meta.names.use}: put the calls of all tools into one batch."
    listing = await _listing(meta)
    if agent is None:
        text = listing.no_name(tool)
    else:
        text = listing.no_tool(tool, agent) if agent in listing.agents else listing.no_agent(agent)
    near = listing.nearest(tool, agent)
    corrected = "" if near is None else f" {_correct('', '', near)}"
    return f"{text}. Call {meta.names.get} to see what is available.{corrected}"


def _correct(agent: str, tool: str, entry: ToolEntry | None = None) -> str:
    """Return the form of a correct call, with the names of the tool and its parameters if it is known."""
    schema: JSON = {}
    if entry is not None:
        agent, tool, schema = entry.spec.namespace, entry.spec.name, without_intent(entry.spec.input_schema)
    names = list(schema.get("required") or ()) or list(schema.get("properties") or ())
    params = ", ".join(f'"{name}": …' for name in names[:10]) or "…"
    return f'Correct: {{ "agent": "{agent}", "tool": "{tool}", "params": {{ {params} }} }}'


# ---------------------------------------------------------------- running


class _Batch:
    """The running calls of one batch."""

    def __init__(self, meta: MetaTools, ctx: CallContext, intent: CallIntent, items: Sequence[_Item]) -> None:
        self._meta, self._ctx, self._intent, self._items = meta, ctx, intent, items
        self._lanes = asyncio.Semaphore(BATCH_CALLS_AT_ONCE)
        self._fractions = [0.0] * len(items)
        self._inner = _inner_context(ctx, intent, is_alone=len(items) == 1)

    def _call_id(self, item: _Item) -> str:
        return f"{self._ctx.call_id}.{item.index}"

    async def in_order(self) -> list[Outcome]:
        """Run one call after the other; after a failure the rest is skipped, unless the call said to continue."""
        done: list[Outcome] = []
        stopped = False
        for item in self._items:
            if stopped:
                done.append(self._outcome(item, is_skipped=True))
                continue
            done.append(await self._run(item))
            stopped = done[-1].has_failed and not item.goes_on
        return done

    async def in_parallel(self) -> list[Outcome]:
        """Run read-only and idempotent calls together, and the others one after the other."""
        places: list[Outcome | None] = [None] * len(self._items)

        async def lane(items: Sequence[_Item]) -> None:
            for item in items:
                async with self._lanes:
                    places[item.index] = await self._run(item)

        together = [item for item in self._items if _may_overlap(item)]
        apart = [item for item in self._items if not _may_overlap(item)]
        async with asyncio.TaskGroup() as group:
            for items in (*([item] for item in together), apart):
                group.create_task(lane(items))
        return [outcome for outcome in places if outcome is not None]

    async def _run(self, item: _Item) -> Outcome:
        if item.fault:
            return self._outcome(item, fault=item.fault, kind="invalid_arguments")
        params = item.params
        if item.entry is not None and is_object(params):
            params = filled(params, item.entry.spec.input_schema, self._intent)
        if item.entry is None and await _is_for_apps_alone(self._meta, item.asked):
            return self._outcome(item, fault=await _not_found(self._meta, item.tool, item.agent or None))
        # An unknown name takes the same path: it is counted and recorded like any other call.
        result = await self._meta.run(item.asked, params, self._inner, self._call_id(item), _Relay(self, item.index))
        self.tell(item.index, 1.0, "")
        if item.entry is None and result.error is not None and result.error.kind == "not_found":
            return self._outcome(item, fault=await _not_found(self._meta, item.tool, item.agent or None))
        return self._outcome(item, result=self._with_way_to_ask(result))

    def _with_way_to_ask(self, result: ToolResult) -> ToolResult:
        """Return the result; if this batch could not ask for an approval, it says how to get one."""
        could_ask = self._inner.request.client is self._ctx.request.client
        error = result.error
        if could_ask or error is None or error.kind != "consent_required" or "consent_id" in error.details:
            return result
        hint = f"Call it alone in a batch of {self._meta.names.use}, so that a person can be asked."
        return result._replace(error=replace(error, hint=hint))

    def _outcome(
        self,
        item: _Item,
        *,
        result: ToolResult | None = None,
        fault: str = "",
        kind: ErrorKind = "not_found",
        is_skipped: bool = False,
    ) -> Outcome:
        has_wrong_params = result is not None and result.error is not None and result.error.kind == "invalid_arguments"
        return Outcome(
            index=item.index,
            agent=item.agent,
            tool=item.tool,
            call_id=self._call_id(item),
            result=result,
            fault=fault,
            fault_kind=kind,
            correct=_correct(item.agent, item.tool, item.entry) if has_wrong_params else "",
            is_skipped=is_skipped,
        )

    def tell(self, index: int, fraction: float, message: str) -> None:
        """Report the progress of one call as progress of the batch."""
        self._fractions[index] = max(self._fractions[index], min(fraction, 1.0))
        self._ctx.progress(sum(self._fractions) / len(self._items), message)


def _inner_context(ctx: CallContext, intent: CallIntent, *, is_alone: bool) -> ToolContext:
    """Return the request's context for the calls of a batch, with its intent."""
    whole = ctx.plain()
    # Such a client would repeat the whole batch with the answer, and calls that ran would run twice.
    client = None if not is_alone and _asks_by_calling_again(ctx) else whole.client
    return whole.inside(
        host=replace(whole.host, services={**whole.services, SERVICE: intent}),
        request=whole.request._replace(parent_call=ctx.call_id, client=client),
        # Some tools are hidden outside of a space.
        asks_anew=intent.narrows_to is not None,
    )


def _asks_by_calling_again(ctx: ToolContext) -> bool:
    return getattr(ctx.client, "asks_by_calling_again", False) is True


class _Relay:
    """An observer of one inner call that forwards its progress to the observers of the batch."""

    own_call_only = True

    def __init__(self, batch: _Batch, index: int) -> None:
        self._batch, self._index = batch, index

    def on_progress(self, event: Any) -> None:
        fraction, message = event.payload.get("fraction"), event.payload.get("message")
        if isinstance(fraction, int | float):
            self._batch.tell(self._index, fraction, message if isinstance(message, str) else "")


def _may_overlap(item: _Item) -> bool:
    hints = None if item.entry is None else item.entry.spec.annotations
    return hints is None or hints.read_only is True or hints.idempotent is True


def _ask_alone(done: Sequence[Outcome], ctx: CallContext) -> None:
    """Let the only call of a batch send its question to a client that answers by calling again.

    Raises:
        CallError: `consent_required`, which such a client understands.
    """
    error = done[0].result.error if len(done) == 1 and done[0].result is not None else None
    if error is not None and error.kind == "consent_required" and _asks_by_calling_again(ctx):
        raise call_error(error)
