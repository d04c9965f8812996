"""Audit row: the record of one call, or of one change of what may be called."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import Struct

from pegboard.core.ports import AuditEvent
from pegboard.model.json_types import JSONValue

EventKind = Literal["call", "begin"] | AuditEvent
"""`begin` is a call that was still running when the rows of its time were written; its `call` row comes later."""

NO_COSTS: Mapping[str, float] = {}
NO_STAGES: Mapping[str, float] = {}


class AuditRow(Struct, kw_only=True, omit_defaults=True):
    """One row of the audit. Fields that are empty are left out of its JSON. `call_rows` fills it; then it stays.

    `seq` is the number of the row in its chain, and `previous` the hash of the row before it. `at` is the start of the
    call, in seconds since 1970. `key` is the name of an API key, and `credential` identifies the credential by a hash.
    `tool` is the qualified id, and `name` the name that was requested. `decision` is the
    code of the judge's decision, `reason` explains it, and `rule` is the place of the rule, as `file:line`.
    `arguments` is filled only with `bodies: redacted`. `result_bytes` counts the text of the result. `connection` is
    the id of the account over which the call was sent, `issuer` and `scopes` are those of its token. `costs` has the
    amount in each unit. `detail` describes an event that is not a call. `salt` is random, so that the hash of a row
    tells nothing about a forgotten name.
    """

    seq: int = 0
    previous: str = ""
    event: EventKind = "call"
    at: float
    call_id: str = ""
    request_id: str = ""
    parent_call_id: str = ""
    name: str = ""
    tool: str = ""
    definition: str = ""
    credential: str = ""
    key: str = ""
    user: str = ""
    space: str = ""
    session: str = ""
    roles: tuple[str, ...] = ()
    agent: str = ""
    profile: str = ""
    door: str = ""
    client: str = ""
    arguments_digest: str = ""
    arguments: JSONValue = None
    decision: str = ""
    reason: str = ""
    rule: str = ""
    consent: str = ""
    consent_id: str = ""
    limit_keys: tuple[str, ...] = ()
    outcome: str = ""
    outcome_unknown: bool = False
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
    detail: Mapping[str, JSONValue] = {}
    salt: str = ""

    @property
    def has_run(self) -> bool:
        """Whether the call is known to have passed every guard."""
        return has_run(self.outcome, self.stage_s)

    @property
    def time(self) -> str:
        """The start of the call in UTC, as ISO 8601 with milliseconds."""
        return datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def has_run(outcome: str, stage_s: Mapping[str, float]) -> bool:
    """Return whether a call with this outcome and these stages is known to have passed every guard."""
    return "run" in stage_s or outcome == "ok"


_decoder = msgspec.json.Decoder(AuditRow)


def read_row(raw: bytes) -> AuditRow:
    """Return a stored row.

    Raises:
        msgspec.DecodeError: it was changed to something that is not a row.
    """
    return _decoder.decode(raw)
