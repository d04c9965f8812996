"""Call rows: make the rows of the records of calls."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
import orjson

from pegboard.audit.audit_row import AuditRow
from pegboard.audit.hash_chain import Unsealed
from pegboard.core.call.finished_call import StartedCall, UpstreamOutcome
from pegboard.core.redaction import Redactor
from pegboard.model.decision import Decision
from pegboard.model.json_types import JSONValue
from pegboard.model.tool import ToolEntry

NAME_CHARS = 128  # characters of a requested name
REASON_CHARS = 1_000  # characters of the reason of a decision

_PLACE = re.compile(r"\(([^()\s]+:\d+)\)")
_NOTHING = hashlib.sha256(b"{}").hexdigest()
_encoder = msgspec.json.Encoder()


class EndedCall(NamedTuple):
    """The data of a finished call that its row needs, without its result and its context.

    `arguments` is their canonical JSON, from which nothing can be changed later.
    """

    started: StartedCall
    tool: str
    entry: ToolEntry | None
    arguments: bytes
    decision: Decision | None
    consent: str
    consent_id: str
    limit_keys: tuple[tuple[str | None, ...], ...]
    kind: str
    outcome_unknown: bool
    upstream: UpstreamOutcome | None
    duration_s: float
    stage_s: Mapping[str, float]
    result_bytes: int
    redactor: Redactor | None


class CallRows:
    """Makes one row for each call that has ended, and a `begin` row for each that runs for longer than a batch.

    Args:
        has_bodies: whether rows contain the arguments, without secrets.
    """

    def __init__(self, *, has_bodies: bool) -> None:
        self._has_bodies = has_bodies
        self._waiting: dict[int, StartedCall] = {}

    @property
    def has_waiting(self) -> bool:
        """Whether there are calls that began in the last batch and have neither a row nor an end."""
        return bool(self._waiting)

    def forget(self) -> None:
        """Forget the calls that began."""
        self._waiting = {}

    def made_of(self, records: Iterable[object], *, is_last: bool) -> list[Unsealed]:
        """Return the rows of some records, in order. With `is_last` a call that runs gets its `begin` row at once."""
        before, self._waiting = self._waiting, {}
        rows: list[Unsealed] = []
        for record in records:
            if isinstance(record, StartedCall):
                self._waiting[id(record)] = record
            elif isinstance(record, EndedCall):
                key = id(record.started)
                if before.pop(key, None) is None:
                    self._waiting.pop(key, None)
                rows.append(self.unsealed(self._row_of(record)))
            elif isinstance(record, AuditRow):
                rows.append(self.unsealed(record))
        running = [*before.values()]
        if is_last:
            running += self._waiting.values()
            self._waiting = {}
        return [*(self.unsealed(_begin_row(call)) for call in running), *rows]

    def unsealed(self, row: AuditRow) -> Unsealed:
        """Return a row as the bytes that a chain takes."""
        return Unsealed(row.at, _encoder.encode(row))

    def _row_of(self, call: EndedCall) -> AuditRow:
        began, entry, decision, upstream = call.started, call.entry, call.decision, call.upstream
        caller, clean = began.caller, call.redactor
        reason, rule = "", began.rule
        if decision is not None and not decision.visible:
            reason = _text(decision.reason, REASON_CHARS, clean)
            rule = place_in(reason) or rule
        return AuditRow(
            at=began.at,
            call_id=began.call_id,
            request_id=began.request_id,
            parent_call_id=began.parent_call_id or "",
            name=_text(began.name, NAME_CHARS, clean),
            tool="" if entry is None else entry.qualified_id,
            definition="" if entry is None else entry.fingerprint,
            credential=_text(caller.credential, NAME_CHARS, clean),
            key=_text(caller.key, NAME_CHARS, clean),
            user=_text(caller.user_id or "", NAME_CHARS, clean),
            space=_text(caller.space_id or "", NAME_CHARS, clean),
            session=_text(caller.session_id or "", NAME_CHARS, clean),
            roles=tuple([_text(role, NAME_CHARS, clean) for role in sorted(caller.roles)]) if caller.roles else (),
            agent=_text(caller.agent or "", NAME_CHARS, clean),
            profile=began.profile or "",
            door=began.door,
            arguments_digest=_NOTHING if call.arguments == b"{}" else hashlib.sha256(call.arguments).hexdigest(),
            arguments=_body(call.arguments, clean) if self._has_bodies else None,
            decision="" if decision is None else decision.code,
            reason=reason,
            rule=rule,
            consent=call.consent,
            consent_id=call.consent_id,
            limit_keys=tuple([_text("/".join([part or "" for part in key]), 256, clean) for key in call.limit_keys]),
            outcome=call.kind,
            outcome_unknown=call.outcome_unknown,
            transport="" if upstream is None else upstream.transport,
            protocol="" if upstream is None else upstream.protocol,
            tool_outcome="" if upstream is None else upstream.tool,
            duration_s=round(call.duration_s, 6),
            stage_s={stage: round(seconds, 6) for stage, seconds in call.stage_s.items()},
            argument_bytes=len(call.arguments),
            result_bytes=call.result_bytes,
        )


def place_in(reason: str) -> str:
    """Return the place of the rule in a reason of the judge, as `file:line`; empty if it names none."""
    place = _PLACE.search(reason)
    return "" if place is None else place.group(1)


def _begin_row(call: StartedCall) -> AuditRow:
    caller, clean = call.caller, call.redactor
    return AuditRow(
        event="begin",
        at=call.at,
        call_id=call.call_id,
        request_id=call.request_id,
        parent_call_id=call.parent_call_id or "",
        name=_text(call.name, NAME_CHARS, clean),
        credential=_text(caller.credential, NAME_CHARS, clean),
        key=_text(caller.key, NAME_CHARS, clean),
        user=_text(caller.user_id or "", NAME_CHARS, clean),
        space=_text(caller.space_id or "", NAME_CHARS, clean),
        session=_text(caller.session_id or "", NAME_CHARS, clean),
        roles=tuple([_text(role, NAME_CHARS, clean) for role in sorted(caller.roles)]) if caller.roles else (),
        agent=_text(caller.agent or "", NAME_CHARS, clean),
        profile=call.profile or "",
        door=call.door,
        rule=call.rule,
        outcome="unknown",
        outcome_unknown=True,
    )


def _text(text: str, most: int, redactor: Redactor | None) -> str:
    """Return a text without secrets, not longer than `most`, and without lone surrogates."""
    if not text:
        return text
    if redactor is not None:
        # Before it is cut: half a secret is not found.
        text = redactor.text(text)
    text = text[:most]
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _body(arguments: bytes, redactor: Redactor | None) -> JSONValue:
    value = orjson.loads(arguments.decode("utf-8", "replace"))
    clean = value if redactor is None else redactor.value(value)
    return msgspec.Raw(orjson.dumps(clean))
