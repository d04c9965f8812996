"""Retries: repeats a request to a language model if its endpoint was busy or unreachable."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from pydantic_ai.exceptions import ModelHTTPError, ModelQuotaExceededError

from pegboard.model.error import CallError

RETRY_FIRST_S = 0.5  # seconds before the first retry; each further wait is twice as long
RETRY_MOST_S = 8.0  # the longest wait in seconds, unless the endpoint asks for another
RETRY_AFTER_S = 60.0  # the longest wait in seconds that an endpoint may ask for; beyond it there is no retry

T = TypeVar("T")
_BUSY: Final = frozenset({408, 429})
_FIRST_SERVER_FAULT = 500


def _anything() -> None:
    """Allow every retry."""


async def retried(
    send: Callable[[], Awaitable[T]],
    *,
    max_retries: int,
    left_s: Callable[[], float],
    before_retry: Callable[[], None] = _anything,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    dice: Callable[[], float] = random.random,
) -> T:
    """Return the result of `send`, with up to `max_retries` retries if there was no answer.

    A wait that would exceed the remaining `left_s` seconds is not started. `before_retry` charges another request to a
    budget.

    Raises:
        Exception: the last failure, also if the time or the budget is used up.
    """
    for number in range(max_retries):
        try:
            return await send()
        except Exception as error:
            wait_s = wait_before_retry(error, number, dice)
            if wait_s is None or wait_s >= left_s() or not _is_affordable(before_retry):
                raise
        await sleep(wait_s)
    return await send()


def _is_affordable(charge: Callable[[], None]) -> bool:
    try:
        charge()
    except CallError:
        return False
    return True


def wait_before_retry(error: BaseException, number: int, dice: Callable[[], float]) -> float | None:
    """Return the wait after a failure; `None` if the request must not be repeated.

    A request may be repeated if the connection failed before anything was sent, or if the endpoint answered that it was
    busy or failed. A broken stream was partly answered, and a used-up quota stays used up.
    """
    # Between half and all of it, so that callers refused together do not return together.
    usual_s = min(RETRY_MOST_S, RETRY_FIRST_S * 2**number) * (1 + dice()) / 2
    if isinstance(error, ModelHTTPError) and not isinstance(error, ModelQuotaExceededError):
        if error.status_code not in _BUSY and error.status_code < _FIRST_SERVER_FAULT:
            return None
        if error.retry_after is None:
            return usual_s
        return error.retry_after if error.retry_after <= RETRY_AFTER_S else None
    return usual_s if _was_never_sent(error) else None


def _was_never_sent(error: BaseException) -> bool:
    """Tell whether our client could not connect, for a temporary reason."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, CallError):
            failure = cause.error
            return failure.kind == "upstream_unavailable" and failure.retryable and not failure.outcome_unknown
        cause = cause.__cause__ or cause.__context__
    return False
