"""Hook: user code that runs at one point of a call, and its verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pegboard.model.error import ErrorKind
from pegboard.model.json_types import JSON
from pegboard.model.loop_record import LoopRecord


class Verdict(NamedTuple):
    """The verdict of a before-hook. `None` from a hook means `allow`."""

    kind: Literal["allow", "deny", "ask", "replace"]
    reason: str = ""
    args: JSON | None = None
    error_kind: ErrorKind = "hook_refused"

    @classmethod
    def allow(cls, reason: str = "") -> Verdict:
        return cls("allow", reason)

    @classmethod
    def deny(cls, reason: str) -> Verdict:
        return cls("deny", reason)

    @classmethod
    def ask(cls, reason: str) -> Verdict:
        return cls("ask", reason)

    @classmethod
    def replace(cls, args: JSON, reason: str = "") -> Verdict:  # pyright: ignore[reportIncompatibleMethodOverride] - the contract's word
        return cls("replace", reason, args)


HookKind = Literal["before", "around", "after", "on_error", "on_complete"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hook:
    """User code at one point of the call path. `match` is a glob over qualified id and wire name.

    Signatures, sync or async: `before(call) -> Verdict | None` · `around(call, proceed)`, which awaits `proceed()` and
    returns a value · `after(call, result) -> value | None` · `on_error(call, result)` · `on_complete(call, result)`. A
    sync hook that has been slow once runs in a thread from then on.
    """

    kind: HookKind
    run: Callable[..., Any]
    match: str = "*"
    required: bool = False
    name: str = ""
    pace: LoopRecord = field(default_factory=LoopRecord, compare=False, repr=False)
