"""Consent: ask a person to approve one concrete call."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from pegboard.core.call.record import Asked, AskedConsent, Call
from pegboard.core.consent_text import QuestionTooLongError, consent_text
from pegboard.core.coroutine_runner import InterruptedWaitError, Pending, begin
from pegboard.core.digests import digest
from pegboard.core.limits import NO_LIMIT_S
from pegboard.core.ports import ConsentRecords
from pegboard.core.safe_text import safe
from pegboard.model.consent import ConsentAnswer, ConsentRequest
from pegboard.model.context import seconds_left
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_awaitable
from pegboard.model.record import replace
from pegboard.model.result import ToolResult

log = logging.getLogger("pegboard")
T = TypeVar("T")
_FAILED: Final = object()
"""No answer: asking failed, or returned something that is neither yes nor no."""
_NO_INBOX = "Two people decide in an inbox, and this catalog has none. Operators: set `consents: {store: …}`."
_NO_USER = (
    "The caller is neither of them, so it must be known, and its credential names no user. Operators: add `user:` to "
    "its rule in `identity.map`."
)


def consent_reason(call: Call) -> str | None:
    """Return why a person must approve this call; `None` if nobody needs to."""
    rule, name = call.entry.spec.consent, call.name
    if call.question is not None or rule == "never":
        return call.question
    if isinstance(rule, str):
        return standing_reason(call)
    try:
        needed = rule(call.args)
    except BaseException as error:  # boundary: foreign code; if it fails, a person is asked
        log.warning("The consent rule of %r failed; a person is asked.", name, exc_info=error)
        needed = True
    return f"{name!r} needs approval for these arguments" if needed is not False else None


def standing_reason(call: Asked) -> str | None:
    """Return why a person must approve every call of the tool, whatever its arguments."""
    because = call.entry.asks_because
    return None if because is None else f"{call.name!r} {because}"


def can_be_asked(call: Asked) -> bool:
    """Tell whether anybody could approve a call: the host's callback, a client that can ask its user, or an inbox."""
    ctx = call.view.ctx
    if call.entry.spec.four_eyes:
        return call.ports.consents.takes_questions and ctx.user_id is not None
    if ctx.approve is not None or call.ports.consents.takes_questions:
        return True
    can = getattr(ctx.client, "can", None)
    return ctx.client is not None if can is None else can("elicitation") is True


async def ask_consent(call: Call, reason: str) -> ConsentRequest:
    """Find an existing answer for this call, or ask: the host's callback, the client, the inbox.

    Returns the request that was approved, which may have other arguments: those of a person who edited them. They are
    the arguments of the call from then on. Anything but a clear yes ends the call.
    """
    ctx = call.view.ctx
    request = _request(call, reason, call.args, call_id=call.call_id)
    asked = call.asked = AskedConsent(request)
    answer = await _carried(call, request)
    if answer is None:
        answer = await _of_store(call, call.ports.consents.recall(request))
    # A host and a client answer for one person, who may be the one who asks.
    if answer is None and request.approvals_needed == 1:
        answer = await _first_answer(call, request)
    if answer is None:
        raise await _unanswered(call, asked)
    asked.answer, asked.consent_id = "yes" if answer.is_yes else "no", answer.consent_id
    if not answer.is_yes:
        because = _because(answer.decline_reason)
        text = f"{call.name!r} was not run: a person declined it{because}. Do not ask again; choose another way."
        raise CallError("consent_declined", text)
    carry = getattr(ctx.request.client, "carry", None)
    if carry is not None:
        carry(request, answer.consent_id)
    if answer.edited is None:
        return request
    # The guards judge the edited call again as if its caller had made it.
    call.request = call.args = dict(answer.edited)
    asked.is_edited = True
    return replace(request, arguments=answer.edited, args_digest=digest(answer.edited))


async def missing_yes(call: Asked) -> str | None:
    """Return who must still approve a call of a tool that always asks; `None` if an unused approval waits."""
    request, consents = _request(call, "", {}, call_id=""), call.ports.consents
    try:
        if await consents.has_yes(request):
            return None
        progress = "" if request.approvals_needed == 1 else await consents.progress(request)
        declined = await consents.declined(request)
    except OSError as error:
        text = f"{call.name!r} is not run: whether a person agreed cannot be looked up now. Try again in a moment."
        raise CallError("storage_unavailable", text, retryable=True) from error
    before = f"; a person declined such a call in this session{_because(declined)}" if declined else ""
    return f"{deciders_of(call)} agree first" + (f", {progress} have" if progress else "") + before


def _because(reason: str) -> str:
    """Return the reason of a no as the end of a clause; in quotes, since it is a person's text and not ours."""
    return f" and said: {json.dumps(safe(reason), ensure_ascii=False)}" if reason else ""


def deciders_of(call: Asked) -> str:
    """Return the people who decide about a call, for a sentence that continues with `agree`."""
    return "two people other than the caller must" if call.entry.spec.four_eyes else "a person must"


def _request(call: Asked, reason: str, args: JSON, *, call_id: str) -> ConsentRequest:
    ctx, entry = call.view.ctx, call.entry
    return ConsentRequest(
        tool=entry.qualified_id, definition_hash=entry.fingerprint, args_digest=digest(args), arguments=args,
        reason=reason, user_id=ctx.user_id, space_id=ctx.space_id, session_id=ctx.session_id, agent=ctx.agent,
        call_id=call_id, credential=ctx.caller.credential, address=ctx.caller.address, request_id=ctx.request.id,
        is_session_brief=ctx.caller.is_session_brief, input_schema=entry.spec.input_schema,
        approvals_needed=2 if entry.spec.four_eyes else 1,
    )  # fmt: skip


async def _carried(call: Call, request: ConsentRequest) -> ConsentAnswer | None:
    """Return the answer that a client that calls again or a task carries for this call.

    An approval that was revoked since does not count.
    """
    carried, consents = getattr(call.view.ctx.request.client, "carried", None), call.ports.consents
    answer = None if carried is None else await _of_store(call, carried(request, consents.stands))
    if answer is None or not answer.is_yes:
        return answer
    return answer._replace(edited=await _of_store(call, consents.edited(answer.consent_id)))


async def _first_answer(call: Call, request: ConsentRequest) -> ConsentAnswer | None:
    """Ask each way in turn until one has an answer, and record it; `None` if none has."""
    ctx = call.view.ctx
    answer, decided_by = None, "host"
    if ctx.approve is not None:
        answer = await _ask_person(ctx.approve, request, call)
    if answer is None and ctx.client is not None:
        answer, decided_by = await _ask_person(ctx.client.approve, request, call), "client"
    if answer is _FAILED:
        # Nobody said no, so no refusal is recorded.
        return ConsentAnswer("", False)
    if answer is None:
        return None
    return await _of_store(call, call.ports.consents.record(request, is_yes=answer is True, decided_by=decided_by))


async def _unanswered(call: Call, asked: AskedConsent) -> CallError:
    """Return the refusal of a call that nobody has answered; its question is filed where there is an inbox."""
    consents, request = call.ports.consents, asked.request
    text = f"{call.name!r} was not run: {deciders_of(call)} agree first ({request.reason})."
    if not consents.takes_questions:
        return CallError("consent_required", text if request.approvals_needed == 1 else f"{text} {_NO_INBOX}")
    if request.approvals_needed > 1 and request.user_id is None:
        return CallError("consent_required", f"{text} {_NO_USER}")
    if call.redactor is not None:
        # Stored arguments are redacted; the digest identifies the original ones.
        request = replace(request, arguments=call.redactor.value(dict(request.arguments)))
    try:
        question = consent_text(request)
    except QuestionTooLongError as error:
        too_long = f"{text} The question would be too long to read ({error}). Make calls with smaller arguments."
        return CallError("consent_required", too_long)
    asked.consent_id = consent_id = await _of_store(call, consents.file(request, question))
    link = consents.link(consent_id)
    where = f"`pegboard consent approve {consent_id}`" + ("" if link is None else f" or {link}")
    progress = "" if request.approvals_needed == 1 else await _of_store(call, consents.progress(request))
    text = (
        f"{text} The question is filed as {consent_id!r}{f' ({progress} have agreed)' if progress else ''}. "
        f"Only a person can decide on it: {where}. "
        "When that is done, make the same call again."
    )
    details = {"consent_id": consent_id} if link is None else {"consent_id": consent_id, "consent_url": link}
    return CallError("consent_required", text, details=details)


async def settle_consent(call: Call, asked: AskedConsent, result: ToolResult) -> None:
    """Return an unused approval, and tell a client that calls again that its answer was used.

    Does nothing if the call continues in a next round.
    """
    client = call.view.ctx.request.client
    # A task made from the call keeps the approval.
    if asked.answer == "yes" and not call.ran and result.task_id is None:
        keeps = getattr(client, "keeps", None)
        if keeps is None or not keeps(asked.request):
            await give_back(call.ports.consents, asked.consent_id)
    spent = getattr(client, "spent", None)
    if spent is not None and (result.error is None or result.error.kind != "consent_required"):
        spent(asked.request)


async def give_back(consents: ConsentRecords, consent_id: str) -> None:
    """Return an unused approval to the store, if the store supports it."""
    try:
        await consents.give_back(consent_id)
    except OSError as error:
        log.warning("The consent %r stays used: it could not be given back (%s).", consent_id, error)


async def _of_store(call: Call, asked: Awaitable[T]) -> T:
    try:
        return await asked
    except OSError as error:
        log.warning("The store of consents does not answer (%s); %r was not run.", error, call.name)
        text = f"{call.name!r} was not run: whether a person agreed cannot be looked up now. Try again in a moment."
        raise CallError("storage_unavailable", text, retryable=True) from error


async def _ask_person(ask: Any, request: ConsentRequest, call: Call) -> object:
    """Ask; return `True`, `False`, or `None` if nobody can answer. `_FAILED` means any other outcome.

    The only time limit is the deadline of the request.
    """
    left_s = seconds_left(call.view.ctx, clock=call.ports.clock)
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
    except BaseException as error:  # boundary: foreign code; only a clear yes counts
        log.warning("Asking for consent to %r failed; taken as a no.", call.name, exc_info=error)
        return _FAILED
    return answer if answer is None or answer is True or answer is False else _FAILED
