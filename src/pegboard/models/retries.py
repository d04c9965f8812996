"""Retries: send a request to a language model again when its endpoint was busy or could not be reached."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from pydantic_ai.exceptions import ModelHTTPError, ModelQuotaExceededError

from pegboard.model.error import CallError

RETRY_FIRST_S = 0.5  # before the first retry; each further one waits twice as long
RETRY_MOST_S = 8.0  # unless the endpoint says how long
RETRY_AFTER_S = 60.0  # an endpoint that asks for a longer wait is not waited for

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
    """Return what `send` returns, sent again up to `max_retries` times where nothing was answered.

    A wait that is not shorter than `left_s`, the seconds left for the answer, is not begun. `before_retry` charges
    another request to a budget.

    Raises:
        Exception: how the last request failed, also where the time or the budget is used up.
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
    """Return how long to wait after a failure; `None` where the same request is not to be sent again.

    A request may be sent again when the connection failed before anything was sent, and when the endpoint answered
    that it was busy or failed. A stream that broke off was answered in part, and a used-up quota stays used up.
    """
    # Between half of it and all: many callers that were refused together come back one by one.
    usual_s = min(RETRY_MOST_S, RETRY_FIRST_S * 2**number) * (1 + dice()) / 2
    if isinstance(error, ModelHTTPError) and not isinstance(error, ModelQuotaExceededError):
        if error.status_code not in _BUSY and error.status_code < _FIRST_SERVER_FAULT:
            return None
        if error.retry_after is None:
            return usual_s
        return error.retry_after if error.retry_after <= RETRY_AFTER_S else None
    return usual_s if _was_never_sent(error) else None


def _was_never_sent(error: BaseException) -> bool:
    """Tell whether our own client could not connect, for a reason that may pass."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, CallError):
            failure = cause.error
            return failure.kind == "upstream_unavailable" and failure.retryable and not failure.outcome_unknown
        cause = cause.__cause__ or cause.__context__
    return False
