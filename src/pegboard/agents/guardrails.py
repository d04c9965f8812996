"""Guardrails: an operator's functions that judge the query and the answer of a run."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from pegboard.model.agent import Guardrail
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError
from pegboard.model.hook import Verdict
from pegboard.model.json_types import JSONValue
from pegboard.model.record import replace

log = logging.getLogger("pegboard")


class GuardedRun(Struct, frozen=True, kw_only=True):
    """The data that a guardrail gets about a run: the agent, its context, and the query or answer to judge."""

    agent: str
    ctx: ToolContext
    value: JSONValue


OffLoop = Callable[[Callable[[], Any], ToolContext], Awaitable[Any]]


async def guarded(guardrails: Sequence[Guardrail], run: GuardedRun, *, limit_s: float, off_loop: OffLoop) -> JSONValue:
    """Return the value after all guardrails, called in order. One that fails or times out refuses.

    `off_loop` runs a sync guardrail in one of the caller's threads.

    Raises:
        CallError: `hook_refused`.
    """
    for guardrail in guardrails:
        try:
            async with asyncio.timeout(limit_s):
                verdict = await _verdict_of(guardrail, run, off_loop)
        except Exception as error:  # boundary: foreign code; a value that cannot be judged is refused
            log.warning("The guardrail %r of agent %r failed: refused.", guardrail.name, run.agent, exc_info=True)
            raise CallError("hook_refused", f"A guardrail of the agent {run.agent!r} could not judge it.") from error
        if verdict is None or verdict.kind == "allow":
            continue
        if verdict.kind != "replace":
            raise CallError("hook_refused", verdict.reason or f"A guardrail of the agent {run.agent!r} refused it.")
        run = replace(run, value=verdict.args)
    return run.value


async def _verdict_of(guardrail: Guardrail, run: GuardedRun, off_loop: OffLoop) -> Verdict | None:
    """Call a guardrail; a sync one in a thread, since it may be slow."""
    if inspect.iscoroutinefunction(guardrail.run):
        answer: Any = await guardrail.run(run)
    else:
        answer = await off_loop(partial(guardrail.run, run), run.ctx)
    if answer is None or isinstance(answer, Verdict):
        return answer
    raise TypeError(f"a guardrail answers with a Verdict or None, not with a {type(answer).__name__}")
