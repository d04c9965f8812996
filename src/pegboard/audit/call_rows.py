"""Call rows: make the rows of the records of calls."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from operator import sub
from typing import Any, NamedTuple, cast

import msgspec
import orjson
from msgspec import Struct

from pegboard.audit.audit_row import NO_COSTS, NO_STAGES, AuditRow, EventKind
from pegboard.audit.hash_chain import Unsealed
from pegboard.core.call.finished_call import FinishedRun, Marks, StartedCall, stage_seconds
from pegboard.core.digests import canonical_json
from pegboard.core.judge import VISIBLE
from pegboard.core.redaction import Redactor
from pegboard.model.budget import MICROS
from pegboard.model.call_context import AccountUse, UpstreamOutcome
from pegboard.model.caller import Caller
from pegboard.model.decision import Decision
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.result import new_tuple
from pegboard.model.tool import ToolEntry

NAME_CHARS = 128  # characters of a requested name
STAGE_FORMS = 1_000  # orders of stages whose text is kept
UNIT_CHARS = 40  # characters of a unit of cost
REASON_CHARS = 1_000  # characters of the reason of a decision

_PLACE = re.compile(r"\(([^()\s]+:\d+)\)")
_NOTHING = hashlib.sha256(b"{}").hexdigest()
_encoder = msgspec.json.Encoder()
_ONLY_TIME = b'{"at":0.0'
_stage_forms: dict[tuple[str | float, ...], bytes] = {}


_CallerTexts = tuple[str, str, str, str, str, str, tuple[str, ...], str]


class EndedCall(NamedTuple):
    """The data of a finished call that its row needs, without its result and its context.

    `arguments` are a copy that nobody else changes: a flat object, or canonical JSON; empty if they were not read.
    """

    started: StartedCall
    tool: str
    entry: ToolEntry | None
    arguments: JSON | str
    decision: Decision | None
    consent: str
    consent_id: str
    limit_keys: tuple[tuple[str | None, ...], ...]
    kind: str
    outcome_unknown: bool
    upstream: UpstreamOutcome | None
    account: AccountUse | None
    costs: Mapping[str, int]
    duration_s: float
    marks: Marks
    ended: float
    result_bytes: int
    redactor: Redactor | None


class CallPart(Struct, kw_only=True, omit_defaults=True):
    """The fields of an `AuditRow` that differ from call to call; the others follow in its JSON."""

    at: float
    call_id: str = ""
    request_id: str = ""
    parent_call_id: str = ""
    arguments_digest: str = ""
    arguments: JSONValue = None
    consent: str = ""
    consent_id: str = ""
    limit_keys: tuple[str, ...] = ()
    transport: str = ""
    protocol: str = ""
    tool_outcome: str = ""
    connection: str = ""
    issuer: str = ""
    scopes: tuple[str, ...] = ()
    costs: Mapping[str, float] = NO_COSTS
    duration_s: float = 0.0
    stage_s: Mapping[str, float] = NO_STAGES
    argument_bytes: int = 0
    result_bytes: int = 0


class CallRows:
    """Makes one row for each call that has ended, and a `begin` row for each that runs for longer than a batch.

    Args:
        has_bodies: whether rows contain the arguments, without secrets.
    """

    def __init__(self, *, has_bodies: bool) -> None:
        self._has_bodies = has_bodies
        self._waiting: dict[int, StartedCall] = {}
        self._callers: dict[tuple[int, int], _CallerTexts] = {}
        """The callers in the current batch."""
        self._shared: dict[tuple[object, ...], bytes] = {}
        """The values that rows of the current batch share."""

    @property
    def has_waiting(self) -> bool:
        """Whether there are calls that began in the last batch and have neither a row nor an end."""
        return bool(self._waiting)

    def forget(self) -> None:
        """Forget the calls that began."""
        self._waiting = {}

    def rows_of(self, records: Iterable[object], *, is_last: bool) -> list[Unsealed]:
        """Return the rows of some records, in order. With `is_last` a call that runs gets its `begin` row at once."""
        before, self._waiting = self._waiting, {}
        rows: list[Unsealed] = []
        for record in records:
            kind = type(record)
            if kind is StartedCall:
                self._waiting[id(record)] = cast("StartedCall", record)
            elif kind is tuple:
                # The fields of an `EndedCall`, which would take longer to make and to read.
                fields = cast("tuple[Any, ...]", record)
                began = fields[0]
                key = id(began)
                if before.pop(key, None) is None:
                    self._waiting.pop(key, None)
                # Made without calling the class, which takes three times as long.
                rows.append(new_tuple(Unsealed, (began.at, self._body_of(fields))))
            elif kind is FinishedRun:
                run = cast("FinishedRun", record)
                if before.pop(id(run.started), None) is None:
                    self._waiting.pop(id(run.started), None)
                rows.append(self.unsealed(self._run_row(run)))
            elif isinstance(record, AuditRow):
                rows.append(self.unsealed(record))
        running = [*before.values()]
        if is_last:
            running += self._waiting.values()
            self._waiting = {}
        begun = [self.unsealed(self._begin_row(call)) for call in running]
        self._callers, self._shared = {}, {}
        return [*begun, *rows]

    def unsealed(self, row: AuditRow) -> Unsealed:
        """Return a row as the bytes that a chain takes."""
        return Unsealed(row.at, _encoder.encode(row))

    def _body_of(self, call: tuple[Any, ...]) -> bytes:
        """Return the row of a call as JSON. Most fields are the same for many calls, and are encoded once a batch.

        `call` has the fields of an `EndedCall`.
        """
        # Unpacked at once: reading fields one by one costs more.
        (
            started, _, entry, arguments, _, consent, consent_id, limit_keys, kind, is_unknown,
            upstream, account, costs, duration_s, marks, ended, size, clean,
        ) = call  # fmt: skip
        call_id, request_id, parent_call_id, name, caller, profile, door, client, at, rule, _ = started
        if entry is None:
            row = self._hidden_row(new_tuple(EndedCall, call))
            end = b""
        else:
            # All of these are kept alive by the records of the batch, so that no other has their ids.
            key = (id(caller), id(clean), id(entry), name, profile, door, client, rule, kind, is_unknown)
            end = self._shared.get(key)
            if end is None:
                end = self._shared[key] = self._shared_of(new_tuple(EndedCall, call), entry)
            row = CallPart(at=at, call_id=call_id, request_id=request_id)
            if parent_call_id:
                row.parent_call_id = parent_call_id
        # Empty fields are left, as setting costs as much as encoding.
        if arguments != "":
            arguments = (
                arguments.encode("utf-8", "surrogatepass") if type(arguments) is str else canonical_json(arguments)
            )
            row.arguments_digest, row.argument_bytes = _digest(arguments), len(arguments)
            if self._has_bodies:
                row.arguments = _body(arguments, clean)
        if consent or consent_id:
            row.consent, row.consent_id = consent, consent_id
        if limit_keys:
            row.limit_keys = tuple([_text("/".join([part or "" for part in key]), 256, clean) for key in limit_keys])
        if upstream is not None:
            row.transport, row.protocol, row.tool_outcome = upstream
        if account is not None:
            row.connection, row.issuer, row.scopes = account
        if costs:
            row.costs = _costs_of(costs, clean)
        row.duration_s, row.result_bytes = round(duration_s, 6), size
        if marks:
            row.stage_s = cast("Mapping[str, float]", stages_of(marks, ended))
        return _encoder.encode(row)[:-1] + end if end else _encoder.encode(row)

    def _hidden_row(self, call: EndedCall) -> AuditRow:
        """Return the row of a call whose tool is not visible, with the decision."""
        began, decision, clean = call.started, call.decision, call.redactor
        reason, rule = "", began.rule
        if decision is not None and not decision.visible:
            reason = _text(decision.reason, REASON_CHARS, clean)
            rule = place_in(reason) or rule
        row = self._begun(began, clean, event="call", rule=rule, outcome=call.kind, is_unknown=call.outcome_unknown)
        if decision is not None:
            row.decision, row.reason = decision.code, reason
        return row

    def _shared_of(self, call: EndedCall, entry: ToolEntry) -> bytes:
        """Return the end of a row's JSON, from the first comma on: the fields that calls like this one share."""
        began = call.started._replace(at=0.0, call_id="", request_id="", parent_call_id=None)
        row = self._begun(
            began, call.redactor, event="call", rule=began.rule, outcome=call.kind, is_unknown=call.outcome_unknown
        )
        row.tool, row.definition, row.decision = entry.qualified_id, entry.fingerprint, VISIBLE.code
        return _encoder.encode(row).removeprefix(_ONLY_TIME)

    def _run_row(self, run: FinishedRun) -> AuditRow:
        """Return the row of an agent's run. Its arguments are canonical JSON, and its output the number of bytes."""
        began = run.started
        row = self._begun(began, began.redactor, event="call", rule="", outcome=run.kind, is_unknown=False)
        row.tool = "" if run.kind == "not_found" else _text(began.name, NAME_CHARS, began.redactor)
        arguments = cast("bytes", run.arguments)
        row.arguments_digest, row.argument_bytes = _digest(arguments), len(arguments)
        if self._has_bodies:
            row.arguments = _body(arguments, began.redactor)
        row.costs = _costs_of(run.costs, began.redactor)
        row.duration_s, row.result_bytes = round(run.duration_s, 6), cast("int", run.output)
        if run.kind == "ok":
            row.decision = VISIBLE.code
        return row

    def _begin_row(self, call: StartedCall) -> AuditRow:
        return self._begun(call, call.redactor, event="begin", rule=call.rule, outcome="unknown", is_unknown=True)

    def _begun(
        self, call: StartedCall, clean: Redactor | None, *, event: EventKind, rule: str, outcome: str, is_unknown: bool
    ) -> AuditRow:
        """Return a row with the fields that the beginning of a call determines."""
        caller = call.caller
        # Both are kept alive by the records of the batch, so that no other has their ids.
        key = (id(caller), id(clean))
        who = self._callers.get(key)
        if who is None:
            who = self._callers[key] = _texts_of(caller, clean)
        credential, api_key, user, space, session, agent, roles, salt = who
        return AuditRow(
            event=event,
            at=call.at,
            call_id=call.call_id,
            request_id=call.request_id,
            parent_call_id=call.parent_call_id or "",
            name=_text(call.name, NAME_CHARS, clean),
            credential=credential,
            key=api_key,
            roles=roles,
            user=user,
            space=space,
            session=session,
            agent=agent,
            profile=call.profile or "",
            door=call.door,
            client=_text(call.client, NAME_CHARS, clean),
            rule=rule,
            outcome=outcome,
            outcome_unknown=is_unknown,
            salt=salt,
        )


def stages_of(marks: Marks, ended: float) -> msgspec.Raw:
    """Return the seconds of each stage as JSON, in whole microseconds.

    The same stages come again and again, so the text around the numbers is kept.
    """
    times: list[Any] = [*marks[1::2], ended]
    names = tuple(marks[::2])
    form = _stage_forms.get(names)
    if form is None:
        if len(_stage_forms) >= STAGE_FORMS or len(set(names)) < len(names):
            return msgspec.Raw(_encoder.encode(stage_seconds(marks, ended)))
        text = "{" + ",".join([f'"{name}":%.6f' for name in names]) + "}"
        form = _stage_forms[names] = text.encode()
    return msgspec.Raw(form % (*map(sub, times[1:], times),))


def place_in(reason: str) -> str:
    """Return the place of the rule in a reason of the judge, as `file:line`; empty if it names none."""
    place = _PLACE.search(reason)
    return "" if place is None else place.group(1)


def _texts_of(caller: Caller, clean: Redactor | None) -> _CallerTexts:
    """Return the caller's fields, without secrets: credential, key, user, space, session, agent, roles; and a salt."""
    texts = (caller.credential, caller.key, caller.user_id, caller.space_id, caller.session_id, caller.agent)
    credential, key, user, space, session, agent = (_text(text or "", NAME_CHARS, clean) for text in texts)
    roles = tuple([_text(role, NAME_CHARS, clean) for role in sorted(caller.roles)]) if caller.roles else ()
    return credential, key, user, space, session, agent, roles, secrets.token_hex(8) if user or key else ""


def _text(text: str, most: int, redactor: Redactor | None) -> str:
    """Return a text without secrets, not longer than `most`, and without lone surrogates."""
    if not text:
        return text
    if redactor is not None:
        # Before it is cut: half a secret is not found.
        text = redactor.text(text)
    text = text[:most]
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _costs_of(costs: Mapping[str, int], clean: Redactor | None) -> Mapping[str, float]:
    return {_text(unit, UNIT_CHARS, clean): amount / MICROS for unit, amount in costs.items()}


def _digest(arguments: bytes) -> str:
    """Return the SHA-256 of arguments, as consents use it; empty if they were not read."""
    if arguments == b"{}":
        return _NOTHING
    return hashlib.sha256(arguments).hexdigest() if arguments else ""


def _body(arguments: bytes, redactor: Redactor | None) -> JSONValue:
    value = orjson.loads(arguments.decode("utf-8", "replace"))
    clean = value if redactor is None else redactor.value(value)
    return msgspec.Raw(orjson.dumps(clean))
