"""Judge again: repeat the guards of a call after a person was asked."""

from __future__ import annotations

from pegboard.core.call.arguments import check_arguments
from pegboard.core.call.begin import check_start
from pegboard.core.call.hook_stages import ask_before
from pegboard.core.call.record import Call
from pegboard.core.call.resolve import resolve, resolve_awaiting
from pegboard.core.call.task_decision import is_of_task
from pegboard.core.digests import digest
from pegboard.core.json_text import json_bytes
from pegboard.model.consent import ConsentRequest
from pegboard.model.error import AsyncPredicateError, CallError

EDITED = "edited"
"""The warning of a result whose call ran with the arguments of a person instead of those of its caller."""


async def judge_again(call: Call, agreed: ConsentRequest) -> None:
    """Run every guard again, as if the call began now, and compare the outcome with the approved request.

    A person may take an hour. Profile, policy, predicates, definition, bounds and hooks are the current ones; the
    caller checks the limits afterwards.

    Raises:
        CallError: the refusal of a guard; `consent_mismatch` if the call differs from the approved one.
    """
    if digest(call.args) != agreed.args_digest:
        raise _mismatch(call, "its arguments changed after the yes")
    call.renew()
    check_start(call)
    await call.view.ctx.memo.renew(call.view.ctx)
    try:
        resolve(call, call.view.snapshot)
    except AsyncPredicateError:
        await resolve_awaiting(call)
    if call.entry.fingerprint != agreed.definition_hash:
        raise _mismatch(call, "its definition changed after the yes")
    check_arguments(call)
    if call.hooks.before:
        await ask_before(call)
    if call.executor.repeats.rows:
        check_repeats(call)
    if digest(call.args) != agreed.args_digest:
        raise _mismatch(call, "its arguments changed after the yes")
    if call.asked is not None and call.asked.is_edited:
        ran_with = json_bytes(dict(agreed.arguments)).decode()
        text = f"A person changed the arguments before they approved the call. It ran with {ran_with}"
        call.warnings = {**(call.warnings or {}), EDITED: text}


def check_repeats(call: Call) -> None:
    """Refuse what has failed too often; see `RepeatBreaker.check`. The run of a task is not refused.

    The task was judged when it was created, and its caller got a task id.
    """
    if is_of_task(call):
        return
    repeats, schema = call.executor.repeats, call.plan.arguments.schema
    repeats.check(call.view.ctx, call.entry, call.args, schema, name=call.name, call_id=call.call_id)


def _mismatch(call: Call, what: str) -> CallError:
    text = f"{call.name!r} was not run: {what}. Call it again, and the person is asked about it as it is now."
    return CallError("consent_mismatch", text)
