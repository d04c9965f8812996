"""Hooks: selects the hooks that run before, around and after a tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from pegboard.core.names import matches_folded
from pegboard.model.hook import Hook, HookKind
from pegboard.model.tool import ToolEntry


class ToolHooks(Struct, frozen=True):
    """The hooks of one tool in running order; catalog-wide ones outside those of its class."""

    before: tuple[Hook, ...] = ()
    around: tuple[Hook, ...] = ()
    after: tuple[Hook, ...] = ()
    on_error: tuple[Hook, ...] = ()
    on_complete: tuple[Hook, ...] = ()


NO_HOOKS = ToolHooks()


def hooks_of(entry: ToolEntry, catalog_wide: Sequence[Hook]) -> ToolHooks:
    """Return the hooks of a tool. A pattern is a glob over its names."""
    wide = [hook for hook in catalog_wide if matches_folded(hook.match, entry.folded_names)]
    if not wide and not entry.hooks:
        return NO_HOOKS

    def pick(kind: HookKind) -> tuple[Hook, ...]:
        return tuple(hook for hook in (*wide, *entry.hooks) if hook.kind == kind)

    return ToolHooks(
        pick("before"), pick("around"), pick("after")[::-1], pick("on_error")[::-1], pick("on_complete")[::-1]
    )


def describe(hook: Hook) -> str:
    """Return the name of a hook for messages and logs."""
    return hook.name or getattr(hook.run, "__qualname__", repr(hook.run))


def wrap(around: Sequence[Hook], call: Any, run: Callable[[], Any]) -> Callable[[], Any]:
    """Return `run` inside the around-hooks, the first one outermost."""
    for hook in reversed(around):
        run = _around(hook, call, run)
    return run


def _around(hook: Hook, call: Any, proceed: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: hook.run(call, proceed)
