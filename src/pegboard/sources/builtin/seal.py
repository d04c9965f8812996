"""Seal: keep the secrets of a tool's config out of all that the tool says."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any

from pegboard.base.content import call_error
from pegboard.base.errors import CallError
from pegboard.base.model import JSON, Handler, is_awaitable
from pegboard.base.redaction import Redactor
from pegboard.base.secrets import Secret
from pegboard.core.call_context import CallContext


def sealed(handler: Handler, secrets: Sequence[Secret]) -> Handler:
    """Return the handler with the secrets taken out of its values and errors, in whatever spelling.

    The catalog redacts what it knows; this holds also for a tool that is registered by hand.
    """
    redactor = Redactor(secrets)

    def run(ctx: CallContext, args: JSON) -> Any:
        try:
            value = handler(ctx, args)
        except CallError as exc:
            raise _clean(exc, redactor) from None
        return _later(value, redactor) if is_awaitable(value) else redactor.value(value)

    return run


async def _later(value: Awaitable[Any], redactor: Redactor) -> Any:
    try:
        return redactor.value(await value)
    except CallError as exc:
        raise _clean(exc, redactor) from None


def _clean(exc: CallError, redactor: Redactor) -> CallError:
    error = exc.error
    return call_error(
        replace(
            error,
            message=redactor.text(error.message),
            hint=redactor.text(error.hint),
            details=redactor.value(dict(error.details)),
        )
    )
