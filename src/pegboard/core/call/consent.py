"""Consent: a person's yes to one concrete call."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pegboard.core.call.record import Asked, Call
from pegboard.core.digests import digest
from pegboard.core.stepping import InterruptedWaitError, Pending, begin
from pegboard.model.bounds import NO_LIMIT_S
from pegboard.model.consent import ConsentRequest
from pegboard.model.context import seconds_left
from pegboard.model.error import CallError
from pegboard.model.json_types import is_awaitable

log = logging.getLogger("pegboard")


def consent_reason(call: Call) -> str | None:
    """Return why a person must say yes to this call; `None` when nobody need be asked."""
    rule, name = call.entry.spec.consent, call.name
    if call.question is not None or rule == "never":
        return call.question
    if isinstance(rule, str):
        return standing_reason(call)
    try:
        needed = rule(call.args)
    except BaseException as error:  # boundary: foreign code; in doubt a person is asked
        log.warning("The consent rule of %r failed; a person is asked.", name, exc_info=error)
        needed = True
    return f"{name!r} asks for a yes for these arguments" if needed is not False else None


def standing_reason(call: Asked) -> str | None:
    """Return why a person must say yes to every call of the tool, whatever its arguments."""
    rule, name = call.entry.spec.consent, call.name
    if rule == "always":
        return f"{name!r} asks for a yes before every call"
    if rule != "destructive":
        return None
    # Our own tools say so; foreign ones may, unless they are trusted to be read-only.
    hints = call.entry.spec.annotations
    may_destroy = hints.read_only is not True if call.entry.is_foreign else hints.destructive is True
    return f"{name!r} may destroy something" if may_destroy else None


def can_be_asked(call: Asked) -> bool:
    """Tell whether anybody could give a yes: the host's callback, a client that can ask its user, or an inbox."""
    ctx = call.view.ctx
    if ctx.approve is not None or call.guards.inbox is not None:
        return True
    can = getattr(ctx.client, "can", None)
    return ctx.client is not None if can is None else can("elicitation") is True


async def ask_consent(call: Call, reason: str) -> ConsentRequest:
    """Ask: the host's callback, then the client, then the inbox. Anything but a clear yes ends the call.

    Returns what the yes was given to.
    """
    ctx, name = call.view.ctx, call.name
    request = ConsentRequest(
        tool=call.entry.qualified_id, definition_hash=call.entry.fingerprint, args_digest=digest(call.args),
        arguments=call.args, reason=reason, user_id=ctx.user_id, space_id=ctx.space_id, session_id=ctx.session_id,
        agent=ctx.agent, call_id=call.call_id,
    )  # fmt: skip
    call.asked = request
    answer = await _answer(call, request)
    call.consent = "nobody" if answer is None else "yes" if answer is True else "no"
    if answer is None:
        filed = (
            "" if call.guards.inbox is None else f" The question is filed as {await call.guards.inbox.file(request)!r}."
        )
        raise CallError("consent_required", f"{name!r} was not run: a person must agree first ({reason}).{filed}")
    if answer is not True:
        raise CallError(
            "consent_declined", f"{name!r} was not run: a person declined it. Do not ask again; choose another way."
        )
    return request


async def _answer(call: Call, request: ConsentRequest) -> bool | None:
    ctx = call.view.ctx
    if ctx.approve is not None:
        # The host's own callback decides alone: its `None` is no yes.
        return await _ask_person(ctx.approve, request, call) or False
    answer = None if ctx.client is None else await _ask_person(ctx.client.approve, request, call)
    if answer is None and call.guards.inbox is not None:
        return await call.guards.inbox.spend(request)
    return answer


async def _ask_person(ask: Any, request: ConsentRequest, call: Call) -> bool | None:
    """Ask; a failing question is a no. There is no time limit but the request's own deadline."""
    left_s = seconds_left(call.view.ctx, clock=call.guards.clock)
    try:
        answer = ask(request)
        if is_awaitable(answer):
            answer = begin(answer, timeout_s=NO_LIMIT_S if left_s is None else left_s, scope=call)
            answer = await answer if type(answer) is Pending else answer
    except InterruptedWaitError as stopped:
        if stopped.reason != "timeout":
            raise
        raise CallError("consent_expired", f"{call.name!r} was not run: nobody answered in time.") from None
    except (asyncio.CancelledError, CallError):
        raise
    except BaseException as error:  # boundary: foreign code; no clear yes is a no
        log.warning("Asking for consent to %r failed; taken as a no.", call.name, exc_info=error)
        return False
    return answer if answer is None else answer is True
