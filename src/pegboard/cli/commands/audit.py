"""audit: show, check, export and prune the record of calls."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from pegboard.audit.audit_query import AUDIT_FOUND_ROWS, AuditFilter, iso_time, newest_rows, shown_row
from pegboard.audit.audit_row import AuditRow
from pegboard.audit.audit_store import AuditStore
from pegboard.audit.hash_chain import Head
from pegboard.audit.verify_chain import verify
from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.moment import Moment, seconds_of
from pegboard.cli.opened_audit import opened_audit
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import find_config
from pegboard.cli.terminal import Column
from pegboard.config.audits import signer_of
from pegboard.config.config import Config
from pegboard.model.json_types import JSON

AUDIT_FOLLOW_S = 0.5  # seconds between two looks for new rows
_SHOWN_ID_CHARS = 8  # characters of an id in a table; `show` finds a call by them

_TOOL = "Only calls of this tool, by id or requested name; a glob."
_USER = "Only calls of this user."
_KEY = "Only calls with the API key of this name."
_SPACE = "Only calls in this space."
_AGENT = "Only calls of this agent."
_KIND = "Only this outcome or event, such as ok, not_found, rate_limited, unknown, config_taken."
_SINCE = "Only rows since then: an age such as 30m, 12h or 7d, or a time in UTC such as 2026-11-27T10:00."
_UNTIL = "Only rows before then: an age or a time."
_SLOWER = "Only calls that took longer, in seconds."
_LIMIT = "The maximum number of rows."
_CALL_ID = "Id of the call, or the beginning of it."
_HEAD_FILE = "File with the output of `pegboard audit head --json`, kept where nobody can change it."
_OLDER = "Age of the rows to delete, such as 400d; by default `keep_days` of the config."
_COLUMNS = (
    Column(head="Time", is_id=True),
    Column(head="Call", is_id=True),
    Column(head="Who", style="bold"),
    Column(head="Tool"),
    Column(head="Outcome"),
    Column(head="Took"),
    Column(head="Rule"),
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The options that say which rows a command is about."""

    tool: Annotated[str, Parameter(help=_TOOL)] = ""
    user: Annotated[str, Parameter(help=_USER)] = ""
    key: Annotated[str, Parameter(help=_KEY)] = ""
    space: Annotated[str, Parameter(help=_SPACE)] = ""
    agent: Annotated[str, Parameter(help=_AGENT)] = ""
    kind: Annotated[str, Parameter(help=_KIND)] = ""
    since: Annotated[Moment | None, Parameter(help=_SINCE)] = None
    until: Annotated[Moment | None, Parameter(help=_UNTIL)] = None
    slower_than: Annotated[float, Parameter(help=_SLOWER, show_default=False)] = 0.0

    def filter(self, options: Options) -> AuditFilter:
        """Return the filter, with the profile of the shared options."""
        return AuditFilter(
            tool=self.tool,
            user=self.user,
            key=self.key,
            space=self.space,
            profile=options.chosen_profile or "",
            agent=self.agent,
            kind=self.kind,
            since=0.0 if self.since is None else seconds_of(self.since),
            until=math.inf if self.until is None else seconds_of(self.until),
            longer_than_s=self.slower_than,
        )


EVERYTHING = Wanted()


def ls_command(
    wanted: Wanted = EVERYTHING,
    *,
    limit: Annotated[int, Parameter(help=_LIMIT)] = 50,
    options: SharedOptions,
) -> None:
    """List the newest rows, the newest first."""
    with _store(options) as (_, store):
        rows = newest_rows(store, wanted.filter(options), limit=limit)
    if options.json:
        options.terminal.json({"rows": [shown_row(row) for row in rows]})
    elif rows:
        options.terminal.table(_COLUMNS, [_cells(row) for row in rows])
    else:
        options.terminal.note("No rows match.")


def show_command(call_id: Annotated[str, Parameter(help=_CALL_ID)], /, *, options: SharedOptions) -> None:
    """Print the rows of a call in full."""
    with _store(options) as (_, store):
        rows = newest_rows(store, AuditFilter(call_id=call_id), limit=AUDIT_FOUND_ROWS)
    if not rows:
        raise CommandError(f"No call has an id that begins with {call_id!r}.", kind="not_found", code=Exit.REFUSED)
    if len({row.call_id for row in rows}) > 1:
        raise CommandError(f"Several calls have an id that begins with {call_id!r}; give more of it.")
    options.terminal.json(shown_row(rows[0]) if len(rows) == 1 else {"rows": [shown_row(row) for row in rows]})


async def follow_command(
    wanted: Wanted = EVERYTHING,
    *,
    options: SharedOptions,
) -> None:
    """Print rows as they are written."""
    with _store(options) as (_, store):
        accepted = wanted.filter(options)
        seen = {chain: _last(store, chain) for chain in store.chains()} if wanted.since is None else dict[str, int]()
        while True:
            for chain in store.chains():
                for stored in store.rows(chain, after=seen.get(chain, 0)):
                    seen[chain] = max(stored.seq, seen.get(chain, 0))
                    _print(options, stored.raw, accepted)
            options.terminal.flush()
            await asyncio.sleep(AUDIT_FOLLOW_S)


def export_command(
    wanted: Wanted = EVERYTHING,
    *,
    options: SharedOptions,
) -> None:
    """Print rows as JSON, one a line, the oldest first."""
    with _store(options) as (_, store):
        accepted = wanted.filter(options)
        for chain in store.chains():
            for stored in store.rows(chain):
                _print(options, stored.raw, accepted, as_json=True)


def verify_command(*, head: Annotated[Path | None, Parameter(help=_HEAD_FILE)] = None, options: SharedOptions) -> Exit:
    """Check that no row was changed, removed or added."""
    with _store(options) as (config, store):
        known = [] if head is None else _heads_in(head)
        checked = [*verify(store, signer_of(config), known=known)]
    if options.json:
        options.terminal.json({
            "chains": [
                {
                    "chain": each.chain, "rows": each.rows, "end": each.end.seq, "proven": each.proven,
                    "forgotten": each.forgotten, "faults": [fault._asdict() for fault in each.faults],
                }
                for each in checked
            ]
        })  # fmt: skip
    else:
        for each in checked:
            name = f"{each.chain}: " if each.chain else ""
            for fault in each.faults:
                options.terminal.say(f"{name}{fault.text}.")
            state = f"{len(each.faults)} faults" if each.faults else "all in order"
            options.terminal.say(f"{name}{each.rows} rows, {state}; a head proves the rows up to {each.proven}.")
            if each.forgotten:
                options.terminal.say(f"{name}{each.forgotten} of these rows lost names by `pegboard forget`.")
    return Exit.REFUSED if any(each.faults for each in checked) else Exit.DONE


def head_command(*, options: SharedOptions) -> None:
    """Print the signed end of each chain, to keep elsewhere."""
    with _store(options) as (config, store):
        heads = [head for chain in store.chains() if (head := _newest_head(store.heads(chain))) is not None]
        if not signer_of(config).has_key:
            options.terminal.note("Without `audit: {sign_key}` anybody who can write the store can forge a head.")
    if options.json:
        options.terminal.json({"heads": [head._asdict() for head in heads]})
        return
    for head in heads:
        options.terminal.say(f"{head.chain or 'row'} {head.seq} {head.hash} {head.signature}".rstrip())


def prune_command(
    *, older_than: Annotated[timedelta | None, Parameter(help=_OLDER)] = None, options: SharedOptions
) -> None:
    """Delete rows that are older than a time."""
    with _store(options) as (config, store):
        assert config.audit is not None
        age_s = older_than.total_seconds() if older_than is not None else config.audit.value.keep_days * 86_400.0
        now = time.time()
        count = store.prune(now - age_s, signer_of(config), now=now)
    if options.json:
        options.terminal.json({"deleted": count})
    else:
        options.terminal.say(f"{count} rows deleted.")


def _store(options: Options) -> AbstractContextManager[tuple[Config, AuditStore]]:
    return opened_audit(find_config(options.config, start=Path.cwd()))


def _last(store: AuditStore, chain: str) -> int:
    last = 0
    for stored in store.rows(chain):
        last = max(last, stored.seq)
    return last


def _newest_head(heads: Iterable[Head]) -> Head | None:
    ends = (head for head in heads if head.kind != "forgotten")
    return max(ends, key=lambda head: (head.seq, head.at), default=None)


class _Heads(msgspec.Struct, frozen=True):
    """The output of `pegboard audit head --json`."""

    heads: tuple[JSON, ...]


def _heads_in(path: Path) -> list[Head]:
    try:
        content = path.read_bytes()  # raw: the operator's own file
        return [Head(**head) for head in msgspec.json.decode(content, type=_Heads).heads]
    except (OSError, msgspec.DecodeError, TypeError) as error:
        raise CommandError(f"{str(path)!r} is not the output of `pegboard audit head --json`: {error}") from None


def _print(options: Options, raw: bytes, wanted: AuditFilter, *, as_json: bool = False) -> None:
    try:
        row = msgspec.json.decode(raw, type=AuditRow)
    except msgspec.DecodeError:
        return
    if not wanted.accepts(row):
        return
    if as_json or options.json:
        options.terminal.say(raw.decode("utf-8", "replace"))
    else:
        options.terminal.say("  ".join(cell for cell in _cells(row) if cell))


def _cells(row: AuditRow) -> list[str]:
    outcome = row.outcome or row.event
    if row.decision not in ("", "visible"):
        outcome = f"{outcome} ({row.decision})"
    return [
        iso_time(row.at)[:19],
        row.call_id[:_SHOWN_ID_CHARS],
        _who(row),
        row.tool or row.name,
        outcome,
        f"{row.duration_s * 1e3:,.1f} ms" if row.event == "call" else "",
        row.rule,
    ]


def _who(row: AuditRow) -> str:
    """Return the user and the name of the API key, or else the beginning of the credential's hash."""
    named = row.user or row.key or row.credential[:_SHOWN_ID_CHARS]
    return f"{named} ({row.key})" if row.key and row.key != named else named
