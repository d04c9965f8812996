"""Class hooks: run `perform` and the hook methods of a class tool on one instance per call."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from pegboard.authoring.class_fields import ClassFields
from pegboard.authoring.class_results import Rendered
from pegboard.authoring.signature import asks_for_call, is_async, is_generator
from pegboard.model.call_context import CallContext
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.hook import Hook, HookKind, Verdict
from pegboard.model.hook_call import HookCall
from pegboard.model.json_types import JSON
from pegboard.model.result import ToolResult
from pegboard.model.tool import Handler, Runs

_KINDS: tuple[HookKind, ...] = ("before", "around", "after", "on_error", "on_complete")
_MORE = {"before": None, "around": "proceed", "after": "result", "on_error": "result", "on_complete": "result"}


class Instances:
    """Makes one instance per call, for its hooks and `perform`; a new one if a hook replaced the arguments."""

    def __init__(self, cls: type[Any], fields: ClassFields) -> None:
        self._cls, self._fields = cls, fields

    def of(self, ctx: CallContext, args: JSON, *, coerced: bool = True) -> Any:
        """Return the instance of this call; `coerced=False` takes arguments unconverted, since they may be invalid."""
        known = ctx.scratch.get("instance")
        if known is not None and known[0] is args:
            return known[1]
        if coerced:
            self._fields.check_blank(args)
        instance: Any = object.__new__(self._cls)
        instance.ctx = ctx
        instance.rendered = Rendered()
        self._fields.fill(instance, args, coerced=coerced)
        ctx.scratch["instance"] = (args, instance)
        return instance


# ---------------------------------------------------------------- perform


def runs_of(perform: Callable[..., Any], *, inline: bool) -> Runs:
    """Return whether a tool's `perform` runs on the loop, in a thread or inline."""
    return "async" if is_async(perform) else "inline" if inline else "thread"


def perform_handler(cls: type[Any], instances: Instances, *, write: Callable[[Any], Any] | None, where: str) -> Handler:
    """Return the handler that calls `perform`, with the context if it takes one.

    Raises:
        DefinitionError: `perform` has other parameters than a context, or is a generator.
    """
    method: Callable[..., Any] = cls.perform
    names = _parameters(method)
    if is_generator(method) or len(names) > 1:
        message = f"{cls.__name__}.perform takes the context at most, and returns its result: perform(self, ctx)."
        raise DefinitionError(Problem(where=where, message=message))
    wants_call = bool(names) and asks_for_call(method, names[0], where=where)

    def arguments(ctx: CallContext) -> tuple[object, ...]:
        return () if not names else (ctx,) if wants_call else (ctx.plain(),)

    def end(instance: Any, returned: object) -> object:
        result = instance.rendered.finished(returned)
        return result if write is None or isinstance(result, ToolResult) else write(result)

    async def perform_async(ctx: CallContext, args: JSON) -> object:
        instance = instances.of(ctx, args)
        return end(instance, await instance.perform(*arguments(ctx)))

    def perform(ctx: CallContext, args: JSON) -> object:
        instance = instances.of(ctx, args)
        return end(instance, instance.perform(*arguments(ctx)))

    return perform_async if is_async(method) else perform


def _parameters(method: Callable[..., Any]) -> list[str]:
    """Return the names of a method's parameters after `self`."""
    return list(inspect.signature(method).parameters)[1:]


# ---------------------------------------------------------------- hooks


def class_hooks(cls: type, base: type, instances: Instances, *, where: str) -> tuple[Hook, ...]:
    """Return the hook methods of the class and of all its bases; hooks of bases run outside those of subclasses.

    A subclass adds hooks and cannot remove one, since that would silently drop a check of its base.

    Raises:
        DefinitionError: a hook is not a plain method, or has a parameter that its kind does not provide.
    """
    return tuple(
        Hook(kind=kind, run=run, name=f"{owner.__name__}.{kind}", required=kind == "after")
        for owner, kind, method in _methods(cls, base, where)
        for run in (_hook(kind, method, instances, _hook_parameters(owner, kind, method, where)),)
    )


def _methods(cls: type, base: type, where: str) -> Iterator[tuple[type, HookKind, Callable[..., Any]]]:
    for owner in reversed(cls.__mro__):
        for kind in _KINDS if owner not in base.__mro__ else ():
            method = owner.__dict__.get(kind)
            if isinstance(method, classmethod | staticmethod):
                raise DefinitionError(Problem(where=where, message=f"{owner.__name__}.{kind} must be a plain method."))
            if inspect.isfunction(method):
                yield owner, kind, method


def _hook_parameters(owner: type, kind: HookKind, method: Callable[..., Any], where: str) -> list[tuple[str, bool]]:
    """Return the parameters of a hook method, by name, and for a context whether it is the call's."""
    names = _parameters(method)
    more = _MORE[kind]
    known = {"ctx", "call"} | ({more} if more else set[str]())
    unknown = [name for name in names if name not in known]
    if unknown:
        message = f"{owner.__name__}.{kind} asks for {unknown}; it may take {sorted(known)}, by these names."
        raise DefinitionError(Problem(where=where, message=message))
    return [(name, name == "ctx" and asks_for_call(method, name, where=where)) for name in names]


def _hook(
    kind: HookKind, method: Callable[..., Any], instances: Instances, wanted: list[tuple[str, bool]]
) -> Callable[..., Any]:
    # After a call its arguments may be invalid; the hook still needs an instance, since these always run.
    coerced = kind not in ("on_error", "on_complete")

    def arguments(call: HookCall, more: tuple[Any, ...]) -> Iterator[object]:
        for name, wants_call in wanted:
            if name == "ctx":
                yield call.ctx if wants_call else call.ctx.plain()
            else:
                yield call if name == "call" else more[0]

    def run(call: HookCall, *more: Any) -> Any:
        instance = instances.of(call.ctx, call.args, coerced=coerced)
        rendered: Rendered = instance.rendered
        seen = len(rendered.blocks)
        answer = method(instance, *arguments(call, more))
        if isinstance(answer, Awaitable):
            return _awaited(rendered, answer, kind, more, seen)  # pyright: ignore[reportUnknownArgumentType] - foreign
        return _settled(rendered, answer, kind, more, seen)

    return run


async def _awaited(rendered: Rendered, answer: Awaitable[Any], kind: HookKind, more: tuple[Any, ...], seen: int) -> Any:
    return _settled(rendered, await answer, kind, more, seen)


def _settled(rendered: Rendered, answer: Any, kind: HookKind, more: tuple[Any, ...], seen: int) -> Any:
    """Return the hook's answer, after its reported error and rendered blocks."""
    if kind in ("before", "around"):
        rendered.raise_reported()
    if kind == "before":
        return Verdict.deny("") if answer is False else None if answer is True else answer
    return rendered.after(answer, more[0], seen=seen) if kind == "after" else answer
