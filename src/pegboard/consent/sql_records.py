"""SQL records: consents in a table shared by several processes, on SQLite or PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

import orjson
from msgspec import convert

from pegboard.consent.grant_scope import check_span, closed_matching, grant_text, parameters_of
from pegboard.consent.limits import CONSENT_DECLINED_S, CONSENT_GOOD_S, CONSENT_REASON_CHARS
from pegboard.consent.owners import owner_key, principal_key, session_key
from pegboard.core.digests import canonical_json
from pegboard.core.identifiers import new_id
from pegboard.core.json_text import json_value
from pegboard.core.schema import compile_schema
from pegboard.core.steady_clock import steady_time
from pegboard.model.consent import Consent, ConsentAnswer, ConsentRequest, Grant, Parameters
from pegboard.model.error import CallError, PegboardError
from pegboard.model.json_types import JSONValue
from pegboard.storage.database import Database
from pegboard.storage.store_schema import Schema, StoreConnection

CONSENT_QUESTION_S = 86_400.0  # how long a filed question waits for a person, in seconds
CONSENT_OPEN_QUESTIONS = 100  # open questions of one principal
CONSENT_ALL_QUESTIONS = 10_000  # open questions of all principals
CONSENT_ARGUMENTS_BYTES = 65_536  # bytes of a question's stored arguments
CONSENT_KEPT_S = 31 * 86_400.0  # how long a record is kept after its end, in seconds
CONSENT_LISTED = 500  # records in one list

Run: TypeAlias = StoreConnection
T = TypeVar("T")

_TABLES = """
create table consents (
    id text primary key, state text not null, tool text not null, definition_hash text not null,
    args_digest text, arguments text, matching text, question text not null,
    credential text, user_id text, space_id text, session_id text, agent text,
    asked_at double precision not null, decided_at double precision, decided_by text,
    expires_at double precision not null, uses_left integer not null, uses integer not null,
    owner_key text, principal_key text, session_key text
);
create index consents_by_tool on consents (tool, state);
create unique index consents_open on consents (principal_key, tool, definition_hash, args_digest)
    where state = 'asked';
create table used_answers (mark text primary key, until double precision not null);
"""
_FOUR_EYES = """
alter table consents add column approvals_needed integer not null default 1;
alter table consents add column approvers text not null default '[]';
alter table consents add column edited text;
alter table consents add column edited_by text;
"""
_REASON = "alter table consents add column decline_reason text;"
SCHEMA = Schema(
    name="consents",
    sqlite=(_TABLES, "alter table consents add column parameters text;", _FOUR_EYES, _REASON),
    tables=("consents", "used_answers"),
    # A login that may use the tables may lack the right to read their versions.
    unrecorded=lambda connection: (
        int(connection.has("used_answers"))
        + int(connection.has("consents", "parameters"))
        + int(connection.has("consents", "approvers"))
        + int(connection.has("consents", "decline_reason"))
    ),
)
_FIELDS = (
    "id", "state", "tool", "definition_hash", "args_digest", "arguments", "matching", "question", "credential",
    "user_id", "space_id", "session_id", "agent", "asked_at", "decided_at", "decided_by", "expires_at", "uses_left",
    "uses", "parameters", "approvals_needed", "approvers", "edited", "edited_by",
    "decline_reason",
)  # fmt: skip
_KEYS = ("owner_key", "principal_key", "session_key")
_NAMES = ", ".join((*_FIELDS, *_KEYS))
_INSERT = f"insert into consents ({_NAMES}) values (:{_NAMES.replace(', ', ', :')})"  # noqa: S608 - names of ours
_SELECT = f"select {', '.join(_FIELDS)} from consents"  # noqa: S608 - names of ours
_OPEN = "id = :id and state = 'asked' and expires_at > :now"
_LOCK = f"update consents set state = state where {_OPEN} returning {', '.join(_FIELDS)}"  # noqa: S608 - names of ours
_ANSWER = f"delete from consents where {_OPEN} returning owner_key, approvals_needed"  # noqa: S608 - words of ours
_SERVER_TIME = "select cast(extract(epoch from clock_timestamp()) as double precision)"
# An expired record stays expired when the clock is turned back: no use is left that could be taken or returned.
_CLOSE = (
    "update consents set uses = 0, uses_left = 0 where state = 'agreed' and uses > 0 and expires_at <= :now "
    "and (cast(:tool as text) is null or tool = :tool)"
)
_DROP_QUESTIONS = "delete from consents where state = 'asked' and expires_at <= :now"
_TAKE = (
    "update consents set uses_left = uses_left - 1 where id = :id and uses_left > 0 and expires_at > :now returning id"
)


_NO_APPROVER = (
    "Two people must approve this call, and your credential names no user, so we cannot tell whether you are one of "
    "two. Operators: add `user:` to its rule in `identity.map`."
)
_WAS_EDITED = (
    "{by!r} has edited the arguments of this call. Read them, then approve in the console, or over HTTP with them as "
    "`arguments`, so that you approve what you have read."
)
NO_GRANT = "Two people must approve each call of this tool, so one person cannot allow several calls in advance."


class ConsentStateError(PegboardError):
    """A decision is impossible: there is no record with this id, or it is already decided."""


class SqlConsents:
    """Stores consents in a database; implements `pegboard.core.ports.ConsentRecords` and `UsedAnswers`.

    It connects for each operation and keeps nothing open, so forks and threads may share it. Every method raises
    `ConnectionError` if the database does not respond.

    Args:
        database: the database with the tables of `SCHEMA`.
        page: the address of the server with the page for decisions, without a slash at its end.
        wall_clock: seconds since 1970, the same for all who share the database; by default the clock of the PostgreSQL
            server, or of this machine for SQLite.

    Raises:
        DefinitionError: the location of the database is invalid.
    """

    takes_questions = True

    def __init__(
        self, database: Database, *, page: str | None = None, wall_clock: Callable[[], float] | None = None
    ) -> None:
        database.check_place()
        self._database, self._page, self._clock = database, page, wall_clock

    async def _do(self, work: Callable[[Run, float], T]) -> T:
        def run() -> T:
            with self._database.transaction() as execute:
                now = self._now(execute)
                try:
                    return work(execute, now)
                except ConsentStateError as error:
                    # Committed, so that expiries found here stay recorded.
                    refused = error
            raise refused

        return await asyncio.to_thread(run)

    def _now(self, run: Run) -> float:
        """Return the time; on PostgreSQL the server's, unless a clock was passed."""
        if self._clock is not None:
            return self._clock()
        return steady_time() if run.is_sqlite else float(run(_SERVER_TIME)[0][0])

    # -- for calls

    async def recall(self, request: ConsentRequest) -> ConsentAnswer | None:
        """Return the valid answer for a call; see `ports.ConsentRecords`."""
        return await self._do(lambda run, now: _recall(run, now, request))

    async def has_yes(self, request: ConsentRequest) -> bool:
        """Tell whether an approval waits for a call; see `ports.ConsentRecords`."""

        def work(run: Run, now: float) -> bool:
            run(_CLOSE, now=now, tool=request.tool)
            return any(_is_for(agreed, request) for agreed in _agreed(run, now, request, digest=None))

        return await self._do(work)

    async def record(self, request: ConsentRequest, *, is_yes: bool, decided_by: str) -> ConsentAnswer:
        """Record an answer; see `ports.ConsentRecords`."""

        def work(run: Run, now: float) -> ConsentAnswer:
            row = _row_of(request, "", now)
            decided: dict[str, Any] = {"decided_at": now, "decided_by": decided_by}
            if is_yes:
                # Its call uses it up, unless the call returns it.
                decided |= {"state": "agreed", "expires_at": now + CONSENT_GOOD_S, "uses": 1}
            else:
                decided |= {"state": "declined", "expires_at": now + CONSENT_DECLINED_S}
            run(_INSERT, **(row | decided))
            return ConsentAnswer(row["id"], is_yes)

        return await self._do(work)

    async def progress(self, request: ConsentRequest) -> str:
        """Return the progress of this caller's open question; see `ports.ConsentRecords`."""

        def work(run: Run, now: float) -> str:
            rows = run(
                f"{_SELECT} where state = 'asked' and expires_at > :now and principal_key = :principal "
                "and tool = :tool and definition_hash = :definition and approvals_needed > 1",
                now=now, principal=principal_key(request), tool=request.tool, definition=request.definition_hash,
            )  # fmt: skip
            return max((_consent(row).progress for row in rows), default="")

        return await self._do(work)

    async def declined(self, request: ConsentRequest) -> str:
        """Return the reason of this session's newest no to the tool; see `ports.ConsentRecords`."""

        def work(run: Run, now: float) -> str:
            rows = run(
                "select decline_reason from consents where state = 'declined' and tool = :tool "
                "and session_key = :session and expires_at > :now and decline_reason is not null "
                "order by decided_at desc, id limit 1",
                tool=request.tool, session=session_key(request), now=now,
            )  # fmt: skip
            return rows[0][0] if rows else ""

        return await self._do(work)

    async def edited(self, consent_id: str) -> Mapping[str, JSONValue] | None:
        """Return the edited arguments of a call; see `ports.ConsentRecords`."""
        rows = await self._do(lambda run, now: run("select edited from consents where id = :id", id=consent_id))
        return _json(rows[0][0]) if rows else None

    async def stands(self, consent_id: str) -> bool:
        """Tell whether an approval is not revoked; see `ports.ConsentRecords`."""
        sql = "select 1 from consents where id = :id and state = 'agreed'"
        return bool(await self._do(lambda run, now: run(sql, id=consent_id)))

    async def give_back(self, consent_id: str) -> None:
        """Return an unused approval; see `ports.ConsentRecords`."""
        sql = "update consents set uses_left = uses_left + 1 where id = :id and uses_left < uses and state = 'agreed'"
        await self._do(lambda run, now: run(sql, id=consent_id))

    async def file(self, request: ConsentRequest, text: str) -> str:
        """Store a question; see `ports.ConsentRecords`."""
        return await self._do(lambda run, now: _file(run, now, request, text))

    def link(self, consent_id: str) -> str | None:
        """Return the address where a person can decide a question; `None` without such a page."""
        return None if self._page is None else f"{self._page}/consents/{consent_id}"

    async def use_up(self, mark: str, *, keep_s: float) -> bool:
        """Mark an answer as used; see `ports.UsedAnswers`."""

        def work(run: Run, now: float) -> bool:
            run("delete from used_answers where until < :now", now=now)
            sql = "insert into used_answers (mark, until) values (:mark, :until) on conflict do nothing returning mark"
            return bool(run(sql, mark=mark, until=now + keep_s))

        return await self._do(work)

    # -- for people

    async def listed(self, *, is_open: bool = True, space_id: str | None = None) -> list[Consent]:
        """Return open questions, or with `is_open=False` answers and grants too; the youngest first.

        `space_id` selects one space.
        """
        parts = ["expires_at > :now"] + (["state = 'asked'"] if is_open else [])
        parts += [] if space_id is None else ["space_id = :space"]
        sql = f"{_SELECT} where {' and '.join(parts)} order by asked_at desc, id limit {CONSENT_LISTED}"

        def work(run: Run, now: float) -> list[Consent]:
            run(_CLOSE, now=now, tool=None)
            return [_consent(row) for row in run(sql, now=now, space=space_id)]

        return await self._do(work)

    async def shown(self, consent_id: str) -> Consent | None:
        """Return one record; `None` if the id is unknown."""
        rows = await self._do(lambda run, now: run(f"{_SELECT} where id = :id", id=consent_id))
        return _consent(rows[0]) if rows else None

    async def decide(
        self,
        consent_id: str,
        *,
        is_yes: bool,
        decided_by: str,
        good_s: float = CONSENT_GOOD_S,
        approver: str = "",
        edited: Mapping[str, JSONValue] | None = None,
        reason: str = "",
    ) -> Consent:
        """Answer an open question. A yes is valid for one call within `good_s`; a no is remembered in its session.

        If two people must approve, the question stays open after the first yes. Both are known by `approver`, the name
        of a user. A yes counts for the arguments that its person saw: `edited` arguments drop an earlier yes to others,
        and once somebody has edited them, each further yes names the arguments that it is for.

        Args:
            consent_id: the question.
            is_yes: whether the call may run.
            decided_by: the credential or program of the person, for the record.
            good_s: seconds.
            approver: the user who decides; needed where two people must approve.
            edited: the new arguments of the call, complete and valid; `None` for those of the caller.
            reason: why the person declines, for the caller to read; empty for none.

        Raises:
            ConsentStateError: there is no open question with this id, or this yes would not count.
            ValueError: `good_s` is not positive, or too long; or the edited arguments or the reason are too long.
        """
        check_span(good_s)
        reason = reason.strip()
        if len(reason) > CONSENT_REASON_CHARS:
            raise ValueError(f"A reason has at most {CONSENT_REASON_CHARS} characters, not {len(reason):,}.")
        new = None if edited is None else canonical_json(dict(edited))
        if new is not None and len(new) > CONSENT_ARGUMENTS_BYTES:
            raise ValueError(f"Arguments of a consent have at most {CONSENT_ARGUMENTS_BYTES:,} bytes.")

        def work(run: Run, now: float) -> Consent:
            # Locks the row: two people may decide at the same time.
            rows = run(_LOCK, id=consent_id, now=now)
            if not rows:
                raise _not_open(run, now, consent_id)
            decided = _decided(_consent(rows[0]), is_yes=is_yes, approver=approver, decided_by=decided_by, edited=new)
            if decided["state"] != "asked":
                ends = now + (good_s if is_yes else CONSENT_DECLINED_S)
                decided |= {"decided_at": now, "decided_by": decided_by, "expires_at": ends}
            if decided["state"] == "declined":
                decided["decline_reason"] = reason or None
            names = ", ".join(f"{name} = :{name}" for name in decided)
            run(f"update consents set {names} where id = :id", **decided, id=consent_id)  # noqa: S608 - names of ours
            return _consent(run(f"{_SELECT} where id = :id", id=consent_id)[0])

        return await self._do(work)

    async def grant(self, grant: Grant, *, decided_by: str, question_id: str | None = None) -> Consent:
        """Allow several calls in advance, and close the open question that the grant answers, if any.

        Such a grant is for the caller of the question, and for the network of an unauthenticated one.
        `grant_scope.grant_text` says what a grant leaves open; show it to the person first.

        Raises:
            ConsentStateError: there is no open question with this id.
            ValueError: no calls or too many, too long a time, an invalid schema, or one that no call could fit.
        """
        try:
            compile_schema(dict(grant.matching))
            matching, text = closed_matching(grant), grant_text(grant)
        except CallError as error:
            raise ValueError(f"What a grant's calls must fit cannot be used: {error.error.message}") from None
        consent_id = new_id()

        def work(run: Run, now: float) -> Consent:
            asked: list[tuple[Any, ...]] = []
            if question_id is not None:
                asked = run(_ANSWER, id=question_id, now=now)
                if not asked:
                    raise _not_open(run, now, question_id)
                if asked[0][1] > 1:
                    raise ValueError(NO_GRANT)
            row: dict[str, Any] = {
                **dict.fromkeys((*_FIELDS, *_KEYS)), "approvals_needed": 1, "approvers": "[]",
                "id": consent_id, "state": "agreed", "tool": grant.tool,
                "definition_hash": grant.definition_hash, "matching": orjson.dumps(matching).decode(),
                "question": text, "credential": grant.credential, "user_id": grant.user_id, "space_id": grant.space_id,
                "asked_at": now, "decided_at": now, "decided_by": decided_by, "expires_at": now + grant.lasts_s,
                "uses_left": grant.calls, "uses": grant.calls, "owner_key": asked[0][0] if asked else None,
            }  # fmt: skip
            run(_INSERT, **row)
            return _consent(run(f"{_SELECT} where id = :id", id=consent_id)[0])

        return await self._do(work)

    async def forget(self, consent_id: str) -> Consent:
        """Delete a record: a no, so that the question can be asked again; a yes or a grant, to revoke it.

        Raises:
            ConsentStateError: there is no record with this id.
        """

        def work(run: Run, now: float) -> Consent:
            rows = run(f"{_SELECT} where id = :id", id=consent_id)
            run("delete from consents where id = :id", id=consent_id)
            if not rows:
                raise _not_open(run, now, consent_id)
            return _consent(rows[0])

        return await self._do(work)


def _recall(run: Run, now: float, request: ConsentRequest) -> ConsentAnswer | None:
    """Find a no of this session, else use a yes to exactly this call, else a matching grant."""
    run(_CLOSE, now=now, tool=request.tool)
    declined = run(
        "select id, decline_reason from consents where state = 'declined' and tool = :tool "
        "and session_key = :session and args_digest = :digest and expires_at > :now order by expires_at desc limit 1",
        session=session_key(request), tool=request.tool, digest=request.args_digest, now=now,
    )  # fmt: skip
    if declined:
        return ConsentAnswer(declined[0][0], is_yes=False, decline_reason=declined[0][1] or "")
    for agreed in _agreed(run, now, request, digest=request.args_digest):
        is_match = _is_for(agreed, request) and (agreed.args_digest is not None or _fits(agreed.matching, request))
        if is_match and run(_TAKE, id=agreed.id, now=now):
            return ConsentAnswer(agreed.id, is_yes=True, edited=_json(agreed.edited))
    return None


class _Agreed(NamedTuple):
    """An approval with uses left: the fields that say for whom and what it is."""

    id: str
    matching: str
    credential: str | None
    user_id: str | None
    space_id: str | None
    args_digest: str | None
    principal_key: str | None
    owner_key: str | None
    approvals_needed: int
    edited: str | None


def _agreed(run: Run, now: float, request: ConsentRequest, *, digest: str | None) -> list[_Agreed]:
    """Return the unused approvals of a tool, for one call first; with a digest only those of that call, and grants."""
    rows = run(
        "select id, matching, credential, user_id, space_id, args_digest, principal_key, owner_key, "
        "approvals_needed, edited from consents "
        "where state = 'agreed' and tool = :tool and definition_hash = :definition and uses_left > 0 "
        "and expires_at > :now and (cast(:digest as text) is null or args_digest = :digest or args_digest is null) "
        "order by args_digest is null, expires_at, id",
        tool=request.tool, definition=request.definition_hash, digest=digest, now=now,
    )  # fmt: skip
    return [_Agreed(*row) for row in rows]


def _is_for(agreed: _Agreed, request: ConsentRequest) -> bool:
    """Tell whether an approval is for this caller, and given by as many people as are needed now."""
    if agreed.approvals_needed < request.approvals_needed:
        return False
    if agreed.args_digest is not None:
        return agreed.principal_key == principal_key(request)
    if agreed.owner_key is not None:
        return agreed.owner_key == owner_key(request)
    caller = (request.user_id, request.space_id, request.credential if agreed.credential is not None else None)
    return caller == (agreed.user_id, agreed.space_id, agreed.credential)


def _fits(matching: str, request: ConsentRequest) -> bool:
    return compile_schema(orjson.loads(matching)).is_valid(dict(request.arguments))


def _file(run: Run, now: float, request: ConsentRequest, text: str) -> str:
    run("delete from consents where expires_at < :end", end=now - CONSENT_KEPT_S)
    run(_DROP_QUESTIONS, now=now)
    row = _row_of(request, text, now)
    known = run(
        "select id from consents where state = 'asked' and principal_key = :principal_key and tool = :tool "
        "and definition_hash = :definition_hash and args_digest = :args_digest",
        **{name: row[name] for name in ("principal_key", "tool", "definition_hash", "args_digest")},
    )
    if known:
        return known[0][0]
    (own, of_all), *_ = run(
        "select coalesce(sum(case when owner_key = :owner then 1 else 0 end), 0), count(*) from consents "
        "where state = 'asked'",
        owner=row["owner_key"],
    )
    if own >= CONSENT_OPEN_QUESTIONS or of_all >= CONSENT_ALL_QUESTIONS:
        whose = "of yours " if own >= CONSENT_OPEN_QUESTIONS else ""
        raise CallError(
            "consent_required",
            f"{request.tool!r} was not run: a person must agree first, and too many questions {whose}wait for an "
            "answer already. Have some of them decided, then call again.",
        )
    run(f"{_INSERT} on conflict do nothing", **row)
    # Another process may have filed the same question just now.
    same = run(
        "select id from consents where state = 'asked' and principal_key = :principal_key and tool = :tool "
        "and definition_hash = :definition_hash and args_digest = :args_digest",
        **{name: row[name] for name in ("principal_key", "tool", "definition_hash", "args_digest")},
    )
    return same[0][0]


def _row_of(request: ConsentRequest, text: str, now: float) -> dict[str, Any]:
    arguments = canonical_json(dict(request.arguments))
    is_kept = len(arguments) <= CONSENT_ARGUMENTS_BYTES
    return {
        "id": new_id(), "state": "asked", "tool": request.tool, "definition_hash": request.definition_hash,
        "args_digest": request.args_digest, "arguments": arguments.decode("utf-8", "replace") if is_kept else None,
        "matching": None, "question": text, "credential": request.credential, "user_id": request.user_id,
        "space_id": request.space_id, "session_id": request.session_id, "agent": request.agent, "asked_at": now,
        "decided_at": None, "decided_by": None, "expires_at": now + CONSENT_QUESTION_S, "uses_left": 0, "uses": 0,
        "parameters": _parameters(request), "approvals_needed": request.approvals_needed, "approvers": "[]",
        "edited": None, "edited_by": None, "decline_reason": None,
        "owner_key": owner_key(request), "principal_key": principal_key(request),
        "session_key": session_key(request),
    }  # fmt: skip


def _parameters(request: ConsentRequest) -> str | None:
    """Return the parameters of the tool as JSON; `None` if they are unknown, or too long to store."""
    if request.input_schema is None:
        return None
    parameters = parameters_of(request.input_schema)
    written = canonical_json(
        {"names": list(parameters.names), "required": list(parameters.required), "defaults": dict(parameters.defaults)}
    )
    return written.decode("utf-8", "replace") if len(written) <= CONSENT_ARGUMENTS_BYTES else None


def _consent(row: tuple[Any, ...]) -> Consent:
    fields = dict(zip(_FIELDS, row, strict=True))
    for name in ("arguments", "matching", "parameters", "edited", "approvers"):
        fields[name] = _json(fields[name])
    fields["approvers"] = tuple(fields["approvers"])
    if fields["parameters"] is not None:
        fields["parameters"] = convert(fields["parameters"], Parameters)
    return Consent(**fields)


def _json(text: str | None) -> Any:
    return None if text is None else json_value(text.encode())


def _decided(asked: Consent, *, is_yes: bool, approver: str, decided_by: str, edited: bytes | None) -> dict[str, Any]:
    """Return the changed fields of a question that a person decides; it stays open while others must approve, too.

    Raises:
        ConsentStateError: the yes would not count.
    """
    if not is_yes:
        return {"state": "declined", "uses": 0, "uses_left": 0}
    fields: dict[str, Any] = {"state": "agreed", "uses": 1, "uses_left": 1}
    approvers = asked.approvers
    known = None if asked.edited is None else canonical_json(dict(asked.edited))
    if edited is None and known is not None:
        raise ConsentStateError(_WAS_EDITED.format(by=asked.edited_by))
    if edited != known:
        assert edited is not None
        fields |= {"edited": edited.decode("utf-8", "replace"), "edited_by": approver or decided_by}
        # Nobody has approved these arguments yet.
        approvers = ()
    if asked.approvals_needed == 1:
        return fields
    if not approver:
        raise ConsentStateError(_NO_APPROVER)
    if approver == asked.user_id:
        raise ConsentStateError("Two people other than the caller must approve this call, and you are the caller.")
    if approver in approvers:
        raise ConsentStateError(f"You have approved this call ({asked.progress}). Another person must, too.")
    approvers = (*approvers, approver)
    fields["approvers"] = canonical_json([*approvers]).decode()
    if len(approvers) < asked.approvals_needed:
        fields |= {"state": "asked", "uses": 0, "uses_left": 0}
    return fields


def _not_open(run: Run, now: float, consent_id: str) -> ConsentStateError:
    rows = run("select state, expires_at from consents where id = :id", id=consent_id)
    if not rows:
        return ConsentStateError(f"There is no consent {consent_id[:100]!r}.")
    if rows[0][0] != "asked":
        return ConsentStateError(f"The question {consent_id!r} is decided already: {rows[0][0]}.")
    run(_DROP_QUESTIONS, now=now)
    return ConsentStateError(f"The question {consent_id!r} has expired. Its caller can ask again.")
