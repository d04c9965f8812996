"""Attempts: run a step, with retries and a timeout for each try."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import random
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from pegboard.model.error import CallError
from pegboard.model.json_types import is_awaitable

STEP_FIRST_RETRY_S = 0.2  # seconds before the first retry of a step; doubled after each retry
STEP_LONGEST_RETRY_S = 10.0  # the longest wait before a retry of a step, in seconds

running_step: ContextVar[str | None] = ContextVar("pegboard_running_step", default=None)
"""The idempotency key of the step that is running."""


def key_of(owner: str, step: str) -> str:
    """Return the idempotency key of a step of one task or call: the same for each try and after a restart."""
    return hashlib.sha256(f"{owner}\0{step}".encode()).hexdigest()[:32]


async def attempted(
    name: str,
    run: Callable[..., Any],
    args: tuple[object, ...],
    *,
    retries: int,
    timeout_s: float | None,
    check: Callable[[], object],
    of: str,
) -> Any:
    """Return the result of a step. Errors are retried `retries` times, with waits that double.

    `check` is called before each retry and raises to stop retrying. `of` is the id of the task or call.
    """
    wait_s = STEP_FIRST_RETRY_S
    limit = asyncio.timeout(timeout_s)
    token = running_step.set(key_of(of, name))
    try:
        while True:
            try:
                async with limit:
                    return await _tried(run, args)
            except Exception as error:  # boundary: foreign code, whose errors are retried
                if isinstance(error, TimeoutError) and limit.expired():
                    error = CallError("timeout", f"Step {name!r} gave no answer within {timeout_s:g} s.")
                    error.__cause__ = None
                if not retries or (isinstance(error, CallError) and not _may_be_tried_again(error)):
                    raise error from error.__cause__
            retries -= 1
            # Jitter, so that many callers waiting for one service do not retry at the same moment.
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            wait_s = min(2 * wait_s, STEP_LONGEST_RETRY_S)
            check()
            limit = asyncio.timeout(timeout_s)
    finally:
        running_step.reset(token)


def _may_be_tried_again(error: CallError) -> bool:
    return error.error.retryable or error.error.kind == "timeout"


async def _tried(run: Callable[..., Any], args: tuple[object, ...]) -> Any:
    if inspect.iscoroutinefunction(run):
        return await run(*args)
    value = await asyncio.to_thread(run, *args)
    # A plain callable may return a coroutine, e.g. a lambda or a partial: await it on the loop.
    return await value if is_awaitable(value) else value
