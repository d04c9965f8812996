"""Argument repair: suggests corrections when the arguments stage has refused a call.

Every suggestion is validated by the same stage as any other arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from pegboard.core.call.arguments import unaliased
from pegboard.core.call.record import Call
from pegboard.core.json_reader import parse_json
from pegboard.core.json_text import json_bytes
from pegboard.core.schema import check_bounds
from pegboard.model.bounds import KIB
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_object
from pegboard.providers.repair.guesses import Repair
from pegboard.providers.repair.mending import mended
from pegboard.providers.repair.text_forms import unfenced

REPAIRED_BYTES = 64 * KIB  # bytes of the largest arguments that are repaired, since each guess scans all of them


def repair(call: Call, judge: Callable[[object], JSON]) -> bool:
    """Correct the refused arguments of a call whose tool has `repair`; `False` means that the call stays refused.

    `judge` is the arguments stage: it returns valid arguments with defaults, or raises. The changes are listed in the
    result's meta, as `repaired: [{path, repair}, …]`.
    """
    if not call.entry.spec.repair:
        return False
    try:
        whole, repairs = _read(call.request)
        if whole is None:
            return False
        check_bounds(whole)
        size = len(json_bytes(whole))
        if size > REPAIRED_BYTES:
            return False
        aliases = call.entry.spec.aliases
        result = mended(call.plan.arguments, unaliased(whole, aliases) if aliases else whole, aliases, size=size)
        if result is None:
            return False
        call.args = judge(result.args)
    except (CallError, TypeError, ValueError):
        return False
    listed = [item._asdict() for item in (*repairs, *result.repairs)]
    call.warnings = {**(call.warnings or {}), "repaired": listed}
    return True


def _read(arguments: object) -> tuple[JSON | None, tuple[Repair, ...]]:
    """Return the arguments as an object, also from doubly encoded JSON; `None` if that fails."""
    if isinstance(arguments, Mapping):
        return dict(cast("JSON", arguments)), ()
    if not isinstance(arguments, str | bytes):
        return None, ()
    repairs: tuple[Repair, ...] = () if isinstance(arguments, bytes) else (Repair("$", "json_in_text"),)
    value: Any = arguments.decode("utf-8", "replace") if isinstance(arguments, bytes) else arguments
    for _ in range(2):
        bare = unfenced(value)
        if bare != value:
            repairs = (*repairs, Repair("$", "code_fence"))
        value = parse_json(bare)
        if is_object(value):
            return value, repairs
        if not isinstance(value, str):
            break
        repairs = (*repairs, Repair("$", "json_in_text"))
    return None, ()
