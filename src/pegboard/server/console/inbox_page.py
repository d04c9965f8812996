"""Inbox page: the open questions for a person: the exact call, its caller, and the possible answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from starlette.responses import RedirectResponse, Response

from pegboard.connections.connection_records import Person
from pegboard.consent.grant_scope import grant_for, grant_text
from pegboard.consent.limits import CONSENT_GOOD_S
from pegboard.core.digests import digest
from pegboard.model.consent import Consent, Grant
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.tool import ToolEntry
from pegboard.server.consent_inbox import (
    ConsentInbox,
    answered,
    completed_arguments,
    may_edit,
    shown_arguments_of,
    shown_digest,
    store_of,
    to_connect,
)
from pegboard.server.console.frame import frame
from pegboard.server.console.look_first import LOOKS_TOGETHER, Look, Looked, Lookup, look, lookup_of, readers_of
from pegboard.server.console.page_error import PageError
from pegboard.server.console.pages import SECURITY_HEADERS, Pages
from pegboard.server.console.schema_form import FormError, whole_arguments
from pegboard.server.console.shown_json import ShownValue, exact_json, one_line, shown_value
from pegboard.server.console.shown_time import ago
from pegboard.server.console.tool_detail import parameters
from pegboard.server.console.visit import Visit
from pegboard.server.principal import ANONYMOUS

CREDENTIAL_SHOWN_CHARS = 12  # of the digest that names a credential
ANSWER_SHOWN_CHARS = 160  # of the arguments of a decided call
HEADLINE_CHARS = 60  # of an argument in the title of a question

_KINDS = ("same", "any", "value", "out")
_USUAL = {"calls": "10", "hours": "24"}


class Question(NamedTuple):
    """A record with what a person needs to judge it; `about` and `risks` are of the tool as it is declared now.

    `shown` has the arguments that the call would run with, edited or not, in the order of their declaration, and
    `headline` the first of them in a few words. `lookup` has the calls with which the person can look first. `why` is
    the reason for asking, if the card shows all else that the question says.

    `arguments` are those that the call would run with, and `read` is their digest; `was` are those of the caller if
    somebody has edited them. `has_approved` says that the person is one of two who must.
    """

    consent: Consent
    asked: str
    who: str
    about: str
    why: str
    risks: tuple[str, ...]
    is_changed: bool
    arguments: Mapping[str, JSONValue] | None
    shown: Sequence[ShownValue]
    headline: str
    lookup: Lookup
    was: Mapping[str, JSONValue] | None
    read: str
    may_edit: bool
    has_approved: bool


class Answer(NamedTuple):
    """An answer or a grant in force: the call in one line, and for whom, since when and until when it holds.

    `scope` is the text of a grant.
    """

    consent: Consent
    arguments: str
    who: str
    decided: str
    until: str
    scope: str


class Change(NamedTuple):
    """An argument that differs, as JSON; empty where the call does not have it."""

    name: str
    before: str
    after: str


class InboxPage:
    """`/console/consents` and below: the open questions, the answers in force, and decisions."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def list(self, visit: Visit) -> Response:
        """Show what waits for this person; operators see all questions, without arguments unless they may decide."""
        return await self._list(visit, {})

    async def look(self, visit: Visit) -> Response:
        """Show the list with the results of calls that only read, which this person makes now.

        The form names one question (`of`), or none for all of them. It may have one more call (`tool`, `json`).
        """
        form, made, inbox = visit.form, list[tuple[str, Look]](), _inbox(visit)
        asked = [await inbox.record(form["of"])] if "of" in form else await inbox.listed(is_open=True)
        readers = await _readers(visit, asked)
        for one in asked:
            made += [(one.id, each) for each in lookup_of(visit, one, readers[one.tool]).ready]
            if "of" in form and form.get("tool") in {entry.wire_name for entry in readers[one.tool]}:
                made.append((one.id, Look(form["tool"], _sent_arguments(form))))
        done = dict[str, list[Looked]]()
        for (consent_id, _), looked in zip(made, await look(visit, [each for _, each in made]), strict=False):
            done.setdefault(consent_id, []).append(looked)
        return await self._list(visit, done)

    async def _list(self, visit: Visit, done: Mapping[str, Sequence[Looked]]) -> Response:
        inbox = _inbox(visit)
        store = store_of(visit.gateway.catalog)
        mine = await inbox.listed(is_open=False)
        others = list[Consent]()
        if visit.is_operator and store is not None:
            own = {consent.id for consent in mine}
            others = [one for one in await answered(store.listed()) if one.id not in own]
        now = visit.now()
        asked = [one for one in mine if one.state == "asked"]
        readers = await _readers(visit, asked)
        questions = [
            _question(visit, one)._replace(lookup=lookup_of(visit, one, readers[one.tool], done.get(one.id, ())))
            for one in asked
        ]
        looks = [each for one in questions for each in one.lookup.ready]
        values = {
            "open": questions,
            "closed": [_answer(one, now) for one in mine if one.state != "asked"],
            "others": [_question(visit, one) for one in others],
            "has_store": store is not None, "may_decide": inbox.store is not None,
            "notice": _notice(visit.query, mine),
            "to_connect": await to_connect(visit.gateway.catalog, _self(visit)),
            "looks": min(len(looks), LOOKS_TOGETHER), "look_tools": dict.fromkeys(each.tool for each in looks),
            "waits": sum(not one.has_approved for one in questions),
        }  # fmt: skip
        return self._pages.page("inbox.html", {**frame(visit, "consents"), **values})

    async def waiting(self, visit: Visit) -> Response:
        """Return the number of calls that wait for this person, for the navigation, which loads it after the page."""
        inbox = _inbox(visit)
        try:
            count = sum(not _has_approved(inbox, one) for one in await inbox.listed(is_open=True))
        except CallError:
            # The page of consents says what is wrong with the store.
            count = 0
        return self._pages.page("waiting.html", {"waits": count})

    async def show(self, visit: Visit) -> Response:
        """Show one question with the form of a grant."""
        return await self._question_page(visit, {})

    async def approve(self, visit: Visit) -> Response:
        """Approve one call, with the arguments that the page showed."""
        read = visit.form.get("read")
        decided = await _inbox(visit).approve(visit.path["id"], good_s=CONSENT_GOOD_S, read=read)
        return _back_to_inbox(visit, "approved" if decided.state == "agreed" else "one_of_two", decided)

    async def edit(self, visit: Visit) -> Response:
        """Show a form with the arguments of the call."""
        consent = await _inbox(visit).record(visit.path["id"])
        if not may_edit(consent):
            text = "The arguments cannot be edited: they hold values that are not shown, or are too long to be stored."
            raise PageError(409, "Not possible", text)
        return await self._edit_page(visit, consent, exact_json(dict(shown_arguments_of(consent) or {})))

    async def approve_edited(self, visit: Visit) -> Response:
        """Show what the edited call would run with, and how it differs; approve it once the person has read that."""
        inbox, form = _inbox(visit), visit.form
        consent = await inbox.record(visit.path["id"])
        text = form.get("json", "")
        try:
            edited = completed_arguments(visit.gateway.catalog, consent, whole_arguments(text))
        except FormError as fault:
            return await self._edit_page(visit, consent, text, fault=str(fault))
        except CallError as error:
            if error.error.kind != "invalid_arguments":
                raise
            return await self._edit_page(visit, consent, text, fault=error.error.message)
        if form.get("read") != digest([consent.id, shown_digest(consent), digest(edited)]):
            return await self._edit_page(visit, consent, exact_json(edited), edited=edited)
        decided = await inbox.approve(
            consent.id, good_s=CONSENT_GOOD_S, edited=edited, read=shown_digest(consent)
        )  # fmt: skip
        return _back_to_inbox(visit, "approved" if decided.state == "agreed" else "one_of_two", decided)

    async def _edit_page(
        self, visit: Visit, consent: Consent, text: str, *, edited: JSON | None = None, fault: str = ""
    ) -> Response:
        entry = visit.gateway.registry.snapshot().find(consent.tool)
        values = {
            "one": await _with_lookup(visit, consent), "json": text, "fault": fault, "edited": edited,
            "changes": [] if edited is None else _changes(consent.arguments or {}, edited),
            "read": "" if edited is None else digest([consent.id, shown_digest(consent), digest(edited)]),
            "parameters": [] if entry is None else parameters(entry.spec.input_schema),
        }  # fmt: skip
        return self._pages.page("edit.html", {**frame(visit, "consents"), **values}, status=422 if fault else 200)

    async def decline(self, visit: Visit) -> Response:
        """Decline, which holds for the caller's session; the caller reads the reason, if there is one."""
        decided = await _inbox(visit).decline(visit.path["id"], reason=visit.form.get("reason", ""))
        return _back_to_inbox(visit, "declined", decided)

    async def revoke(self, visit: Visit) -> Response:
        """Revoke an answer or a grant."""
        forgotten = await _inbox(visit).forget(visit.path["id"])
        return _back_to_inbox(visit, "revoked", forgotten)

    async def grant(self, visit: Visit) -> Response:
        """Show what a grant would allow, in words; give it if the person has read that."""
        inbox, consent_id, form = _inbox(visit), visit.path["id"], visit.form
        asked = await inbox.record(consent_id)
        try:
            text = grant_text(_grant(asked, form))
        except ValueError as error:
            return await self._question_page(visit, form, fault=str(error))
        # The digest of the text is in the form: what is given is what was read.
        if form.get("read") != digest(text):
            return await self._question_page(visit, form, scope=text)
        granted = await inbox.grant(consent_id, lambda question: _grant(question, form))
        return _back_to_inbox(visit, "granted", granted)

    async def _question_page(
        self, visit: Visit, form: Mapping[str, str], *, fault: str = "", scope: str = ""
    ) -> Response:
        consent = await _inbox(visit).record(visit.path["id"])
        asked = consent.arguments or {}
        names = [
            *asked,
            *(name for name in (consent.parameters.names if consent.parameters else ()) if name not in asked),
        ]
        values = {
            "one": await _with_lookup(visit, consent), "form": {**_USUAL, **form}, "fault": fault,
            "scope": _shortened(scope, consent), "read": digest(scope),
            "names": [(name, name in asked, form.get(f"kind:{name}") or ("same" if name in asked else "out"),
                       form.get(f"value:{name}", "")) for name in names],
        }  # fmt: skip
        return self._pages.page("question.html", {**frame(visit, "consents"), **values}, status=409 if fault else 200)


def _inbox(visit: Visit) -> ConsentInbox:
    return ConsentInbox(visit.gateway.catalog, visit.person)


def _self(visit: Visit) -> Person | None:
    """Return the owner of the reader's own accounts, also when they look through another caller."""
    user = visit.person.user
    return None if user is None else Person(user_id=user, space_id=visit.person.space)


def _back_to_inbox(visit: Visit, done: str, consent: Consent) -> Response:
    address = visit.url("/consents", done=done, of=consent.id)
    return RedirectResponse(address, status_code=303, headers=SECURITY_HEADERS)


def _notice(query: Mapping[str, str], mine: Sequence[Consent]) -> str:
    """Return what the last decision was, and what follows from it; its record is read again, not the address."""
    done = query.get("done", "")
    if done == "revoked":
        return "Revoked. The next such call asks again."
    consent = next((one for one in mine if one.id == query.get("of")), None)
    if consent is None:
        return ""
    call, who, until = f"{consent.tool} {_arguments(consent)}".rstrip(), _who(consent), _until(consent)
    if done == "one_of_two" and consent.state == "asked":
        return f"You approved {call} for {who}. It can run when another person has approved it, too."
    if done == "granted" and consent.is_grant:
        return f"Allowed {consent.tool} for {who}: calls within these bounds run without asking until {until}."
    if done == "approved" and consent.state == "agreed":
        edited = " with your arguments" if consent.edited is not None else ""
        text = f"It has not run yet: {who} must make the same call again, which then runs once{edited}"
        return f"Approved: {call} for {who}. {text}, until {until}."
    if done == "declined" and consent.state == "declined":
        told = "The caller reads your reason." if consent.decline_reason else "The caller is given no reason."
        return f"Declined: {call} for {who}. The same call is refused in the same session until {until}. {told}"
    return ""


def _answer(consent: Consent, now: float) -> Answer:
    return Answer(
        consent, _arguments(consent), _who(consent), ago(consent.decided_at or now, now), _until(consent),
        _shortened(consent.question, consent),
    )  # fmt: skip


def _arguments(consent: Consent) -> str:
    """Return the arguments that the call would run with, edited or not, in one line that may be cut.

    They are redacted as in the store.
    """
    shown = shown_arguments_of(consent)
    return "" if shown is None else one_line(dict(shown), ANSWER_SHOWN_CHARS)


def _who(consent: Consent) -> str:
    """Return who made the call, in words."""
    parts = [
        consent.user_id or _credential(consent), f"in space {consent.space_id}" if consent.space_id else "",
        f"through agent {consent.agent}" if consent.agent else "",
    ]  # fmt: skip
    return " ".join(filter(None, parts))


def _question(visit: Visit, consent: Consent) -> Question:
    snapshot = visit.gateway.registry.snapshot()
    entry, arguments = snapshot.find(consent.tool), shown_arguments_of(consent)
    risks, about, declared = list[str](), "", list[str]()
    if entry is not None:
        declared = [one.name for one in parameters(entry.spec.input_schema)]
        about = entry.spec.description.strip().partition("\n")[0]
        hints = entry.spec.annotations
        risks += ["destructive"] if hints.destructive else []
        risks += ["reaches outside"] if hints.open_world else []
        risks += ["only reads"] if hints.read_only else []
        risks = risks or ["changes something"]
    shown = _shown(arguments or {}, declared)
    is_changed = entry is None or entry.fingerprint != consent.definition_hash
    return Question(
        consent, ago(consent.asked_at, visit.now()), _who(consent), about, _why(consent), tuple(risks),
        is_changed, arguments, shown, _headline(shown), Lookup(()),
        None if consent.edited is None else consent.arguments,
        shown_digest(consent), may_edit(consent), _has_approved(_inbox(visit), consent),
    )  # fmt: skip


def _sent_arguments(form: Mapping[str, str]) -> JSON:
    try:
        return whole_arguments(form.get("json", ""))
    except FormError as fault:
        raise PageError(422, "Not called", str(fault)) from None


async def _readers(visit: Visit, asked: Sequence[Consent]) -> Mapping[str, Sequence[ToolEntry]]:
    """Return the tools with which this person can look first, by the tool of the question."""
    return {tool: await readers_of(visit, tool) for tool in dict.fromkeys(one.tool for one in asked)}


async def _with_lookup(visit: Visit, consent: Consent) -> Question:
    """Return a question with the calls with which this person can look first."""
    readers = await readers_of(visit, consent.tool)
    return _question(visit, consent)._replace(lookup=lookup_of(visit, consent, readers))


def _shown(arguments: Mapping[str, JSONValue], declared: Sequence[str]) -> list[ShownValue]:
    """Return the arguments in the order of their declaration; undeclared ones last."""
    names = [*(name for name in declared if name in arguments), *(name for name in arguments if name not in declared)]
    return [shown_value(name, arguments[name]) for name in names]


def _headline(shown: Sequence[ShownValue]) -> str:
    """Return the first argument, such as `order "A-3"`; empty if it is too long for a title."""
    first = f"{shown[0].name} {shown[0].value}" if shown else ""
    return first if len(first) <= HEADLINE_CHARS and "\n" not in first else ""


def _why(consent: Consent) -> str:
    """Return the reason in a question that shows the tool and the arguments in full; empty for any other question."""
    asked, _, arguments = consent.question.partition(". Arguments: ")
    try:
        is_same = json.loads(arguments) == consent.arguments
    except ValueError:  # no JSON, as where long values are shortened
        is_same = False
    return asked.partition("? ")[2] if is_same else ""


def _has_approved(inbox: ConsentInbox, consent: Consent) -> bool:
    """Return whether this person is one of the two who must approve, and has."""
    return inbox.approver != "" and inbox.approver in consent.approvers


def _changes(before: Mapping[str, JSONValue], after: Mapping[str, JSONValue]) -> list[Change]:
    """Return the top-level arguments that differ, in the order of the names."""
    return [
        Change(
            name, exact_json(before[name]) if name in before else "", exact_json(after[name]) if name in after else ""
        )
        for name in sorted({*before, *after})
        if (name in before, before.get(name)) != (name in after, after.get(name))
    ]


def _credential(consent: Consent) -> str:
    if not consent.credential or consent.credential == ANONYMOUS:
        return "an anonymous caller"
    return f"credential {consent.credential[:CREDENTIAL_SHOWN_CHARS]}…"


def _shortened(text: str, consent: Consent) -> str:
    """Return the text of a grant with the beginning of the credential, whose 64 characters say no more to a person."""
    credential = consent.credential or ""
    is_long = len(credential) > 2 * CREDENTIAL_SHOWN_CHARS
    return text.replace(credential, f"{credential[:CREDENTIAL_SHOWN_CHARS]}…") if is_long else text


def _until(consent: Consent) -> str:
    return datetime.fromtimestamp(consent.expires_at, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")


def _grant(asked: Consent, form: Mapping[str, str]) -> Grant:
    """Return the grant that a form describes.

    Raises:
        ValueError: a number or a value is not one, or no call could match.
    """
    where, same, open_names = dict[str, JSONValue](), list[str](), list[str]()
    for field, kind in form.items():
        word, _, name = field.partition(":")
        if word != "kind":
            continue
        if kind not in _KINDS:
            raise ValueError(f"{name!r}: choose one of the values of the list.")
        if kind == "same":
            same.append(name)
        elif kind == "any":
            open_names.append(name)
        elif kind == "value":
            where[name] = _value(name, form.get(f"value:{name}", ""))
    return grant_for(
        asked, calls=int(_number(form, "calls")), lasts_s=_number(form, "hours") * 3600.0, where=where, same=same,
        any=open_names, any_other="any_other" in form,
    )  # fmt: skip


def _value(name: str, text: str) -> JSONValue:
    try:
        value: Any = json.loads(text)
    except ValueError:
        raise ValueError(f'The value of {name!r} is not JSON. Write texts in quotes: "like this".') from None
    return value


def _number(form: Mapping[str, str], name: str) -> float:
    text = form.get(name, "")
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} is a number, not {text[:20]!r}.") from None
    if not 0 < value < 1e6:
        raise ValueError(f"{name} must be more than 0 and less than 1,000,000.")
    return value


def refused(error: CallError) -> PageError:
    """Return the page for a decision that was not possible."""
    kind, text = error.error.kind, error.error.message
    status = {"not_found": 404, "storage_unavailable": 503, "invalid_arguments": 422}.get(kind, 409)
    title = {404: "Not found", 503: "Not now", 409: "Decided meanwhile"}.get(status, "Not possible")
    return PageError(status, title, text)
