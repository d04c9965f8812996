"""consent: the inbox of open questions, their answers, and grants given in advance."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec import Struct

from pegboard.auth.keyring import credential_of
from pegboard.auth.keys import KeyStore
from pegboard.auth.rule_matching import grant_of
from pegboard.cli.arguments import read_arguments
from pegboard.cli.command_error import CommandError, Exit, refused
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import find_config, opened
from pegboard.cli.recorded_change import anote_change
from pegboard.cli.terminal import Column
from pegboard.config import Config, load
from pegboard.config.consents import consent_store_of
from pegboard.config.identity import rules_of
from pegboard.config.source_auth import connections_of
from pegboard.config.yaml.problems import Report
from pegboard.connections.connection_json import awaited_json
from pegboard.connections.connection_records import AwaitedConnection
from pegboard.consent.decision_record import Decision, decision_record
from pegboard.consent.grant_scope import grant_for, grant_text, matching_of, parameters_of, scope_text
from pegboard.consent.json_form import consent_json
from pegboard.consent.limits import CONSENT_GOOD_S
from pegboard.consent.sql_records import NO_GRANT, ConsentStateError, SqlConsents
from pegboard.core.consent_text import shown_arguments
from pegboard.model.consent import Consent, Grant
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.tool import ToolSpec
from pegboard.platforms import platform

_QUESTION = "Id of the question, as `pegboard consent ls` and the refused call show it."
_RECORD = "Id of the question, answer or grant, as `pegboard consent ls --all` shows it."
_GRANTED = "Id of the question, or the name of a tool with --as or --credential."
_WHERE = "Arguments that the calls must have, key=value, or key:=JSON."
_SAME = "An argument that must have the value that it has in the question."
_ANY = "An argument that may have any value."
_ANY_OTHER = (
    "Allow any value for arguments that neither --where nor --any names. Without this option, such "
    "arguments must be absent or have their default."
)
_PREVIEW = "Print the calls that the grant would allow; create no grant."
_YES = "Give the grant without asking."
_ALL = "Include answers and grants."
_REASON = "The reason for the denial, for the caller to read."
_CALLS = "Number of calls that the grant allows."
_FOR = "How long the approval is valid: 30m, 12h, 7d, or until the end of a date such as 2026-11-27."
_CREDENTIAL = "For a tool: only callers with this API key, by its name, or with the credential that --json shows."
QuestionId = Annotated[str, Parameter(help=_QUESTION)]
RecordId = Annotated[str, Parameter(help=_RECORD)]
Lasting = Annotated[str | None, Parameter(name=["--for", "--until"], help=_FOR)]
_COLUMNS = (
    Column(head="Id", style="bold", is_id=True),
    Column(head="State"),
    Column(head="Tool"),
    Column(head="Who"),
    Column(head="Good until"),
    Column(head="Uses left"),
)
_SPAN = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DAY_S = 86_400


async def ls_command(
    *,
    all: Annotated[bool, Parameter(help=_ALL)] = False,  # noqa: A002 - the name of the option
    options: SharedOptions,
) -> None:
    """List the open questions, and the accounts that calls wait for.

    Only the owner can connect an account, with the link in the answer to the call or with `pegboard connect`.
    """
    with _inbox(options) as inbox:
        _list(await inbox.store.listed(is_open=not all), await inbox.to_connect(), inbox.key_names(), options)


async def show_command(name: RecordId, /, *, options: SharedOptions) -> None:
    """Print a question, answer or grant in full."""
    with _inbox(options) as inbox:
        consent = await inbox.store.shown(name)
        if consent is None:
            raise ConsentStateError(f"There is no consent {name[:100]!r}.")
        _say(options, consent, _text(consent, inbox.key_names()))


async def approve_command(name: QuestionId, /, *, lasting: Lasting = None, options: SharedOptions) -> None:
    """Approve a question: the call runs once when its caller repeats it."""
    with _inbox(options) as inbox:
        good_s = CONSENT_GOOD_S if lasting is None else span_s(lasting, now=time.time())
        consent = await inbox.store.decide(
            name, is_yes=True, decided_by=_person(), good_s=good_s, approver=platform.current_user()
        )
        await _note(inbox, options, consent, "approved")
        note = "Approved. The same call now runs once, if its caller repeats it."
        if consent.state == "asked":
            note = (
                f"Approved: {consent.progress}. After another person has approved it, the caller can repeat the call."
            )
        if consent.edited is not None:
            options.terminal.say(f"Runs with: {shown_arguments(consent.edited, max_chars=None)}")
        _say(options, consent, _text(consent, inbox.key_names()), note)


async def deny_command(
    name: QuestionId, /, *, reason: Annotated[str, Parameter(help=_REASON)] = "", options: SharedOptions
) -> None:
    """Deny a question: the same call is refused for the rest of the session."""
    with _inbox(options) as inbox:
        consent = await inbox.store.decide(name, is_yes=False, decided_by=_person(), reason=reason)
        await _note(inbox, options, consent, "denied")
        note = "Declined. Its caller is not asked again in this session; `pegboard consent forget` undoes that."
        _say(options, consent, note)


async def grant_command(
    name: Annotated[str, Parameter(help=_GRANTED)],
    /,
    *,
    calls: Annotated[int | None, Parameter(help=_CALLS)] = None,
    lasting: Lasting = None,
    where: Annotated[list[str] | None, Parameter(help=_WHERE, negative_iterable=())] = None,
    same: Annotated[list[str] | None, Parameter(help=_SAME, negative_iterable=())] = None,
    any_value: Annotated[list[str] | None, Parameter(name="--any", help=_ANY, negative_iterable=())] = None,
    any_other: Annotated[bool, Parameter(help=_ANY_OTHER, negative=())] = False,
    credential: Annotated[str | None, Parameter(help=_CREDENTIAL)] = None,
    preview: Annotated[bool, Parameter(help=_PREVIEW, negative=())] = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], help=_YES, negative=())] = False,
    options: SharedOptions,
) -> Exit:
    """Allow several calls in advance."""
    if calls is None or lasting is None:
        raise CommandError("Give the number of calls and a duration: `pegboard consent grant ID --calls 20 --for 7d`.")
    scope = _Scope(where=where or (), same=same or (), any=any_value or (), any_other=any_other)
    giving = _Giving(calls=calls, scope=scope, credential=credential, is_preview=preview, is_sure=yes)
    with _inbox(options) as inbox:
        if credential is not None:
            fingerprints = {key: fingerprint for fingerprint, key in inbox.key_names().items()}
            giving = replace(giving, credential=fingerprints.get(credential, credential))
        planned = await _planned(inbox.store, name, giving, span_s(lasting, now=time.time()), options)
        if not _is_confirmed(planned, giving, inbox.key_names(), options):
            return Exit.DONE if giving.is_preview else Exit.REFUSED
        consent = await inbox.store.grant(planned.grant, decided_by=_person(), question_id=planned.question_id)
        await _note(inbox, options, consent, "granted")
        _say(options, consent, f"Granted: up to {consent.uses} calls.")
    return Exit.DONE


async def forget_command(name: RecordId, /, *, options: SharedOptions) -> None:
    """Remove an answer or a grant."""
    with _inbox(options) as inbox:
        consent = await inbox.store.forget(name)
        await _note(inbox, options, consent, "forgotten")
        _say(options, consent, "Forgotten.")


async def _note(inbox: _Inbox, options: Options, consent: Consent, decision: Decision) -> None:
    event, detail = decision_record(consent, decision)
    await anote_change(inbox.config, options.terminal, event, detail)


def _say(options: Options, consent: Consent, *texts: str) -> None:
    if options.json:
        options.terminal.json(consent_json(consent))
        return
    for text in texts:
        options.terminal.say(text)


class _Scope(Struct, frozen=True, kw_only=True):
    """The arguments that a grant fixes and those that it leaves open, as on the command line."""

    where: Sequence[str] = ()
    same: Sequence[str] = ()
    any: Sequence[str] = ()
    any_other: bool = False


class _Giving(Struct, frozen=True, kw_only=True):
    """The options of a grant."""

    calls: int
    scope: _Scope
    credential: str | None = None
    is_preview: bool = False
    is_sure: bool = False


class _Planned(Struct, frozen=True, kw_only=True):
    """A grant to be given, and the question that it answers."""

    grant: Grant
    question_id: str | None = None


async def _planned(store: SqlConsents, name: str, giving: _Giving, lasts_s: float, options: Options) -> _Planned:
    """Return the grant for the caller of a question, or for a tool and the person in `--as`."""
    calls, scope = giving.calls, giving.scope
    asked = await store.shown(name)
    if asked is not None and asked.state == "asked":
        if asked.approvals_needed > 1:
            raise CommandError(NO_GRANT, code=Exit.REFUSED)
        if giving.credential is not None:
            raise CommandError("--credential needs a tool; a question already has its caller.")
        grant = grant_for(
            asked, calls=calls, lasts_s=lasts_s, where=_values(scope, None), same=scope.same, any=scope.any,
            any_other=scope.any_other,
        )  # fmt: skip
        return _Planned(grant=grant, question_id=name)
    if scope.same:
        raise CommandError("--same needs a question; for a tool give the value: --where NAME=VALUE.")
    identity = options.identity
    if identity.user is None and giving.credential is None:
        raise CommandError(
            f"There is no open question {name[:100]!r}. To grant calls of a tool, name the caller: --as user=ann, or "
            "--credential NAME."
        )
    async with opened(options, tool=name) as (_, view):
        entry = await view.afind(name)
        if entry is None:
            raise CommandError(view.absence(name), kind="not_found", code=Exit.REFUSED)
        if entry.spec.four_eyes:
            raise CommandError(NO_GRANT, code=Exit.REFUSED)
    grant = Grant(
        tool=entry.qualified_id, definition_hash=entry.fingerprint, calls=calls, lasts_s=lasts_s,
        matching=matching_of(_values(scope, entry.spec)), any=tuple(scope.any), any_other=scope.any_other,
        parameters=parameters_of(entry.spec.input_schema), user_id=identity.user, space_id=identity.space,
        credential=giving.credential,
    )  # fmt: skip
    return _Planned(grant=grant)


def _values(scope: _Scope, spec: ToolSpec | None) -> JSON:
    values = read_arguments(scope.where, None, spec=spec) if scope.where else {}
    assert isinstance(values, dict)
    return values


def _is_confirmed(planned: _Planned, giving: _Giving, key_names: Mapping[str, str], options: Options) -> bool:
    """Show the fixed and open arguments of a grant, and ask the person at the terminal, if there is one."""
    text, terminal = _named(grant_text(planned.grant), key_names), options.terminal
    if giving.is_preview and options.json:
        terminal.json({"preview": text})
        return False
    if giving.is_preview:
        terminal.say(text)
        return False
    terminal.note(text)
    if giving.is_sure or options.json or not (sys.stdin.isatty() and terminal.err.isatty()):
        return True
    platform.forget_typed(sys.stdin)
    terminal.err.write("Give this grant? [y/N] ")
    terminal.err.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _named(text: str, key_names: Mapping[str, str]) -> str:
    """Return a text with the name of each API key instead of its fingerprint."""
    for fingerprint, name in key_names.items():
        text = text.replace(fingerprint, name)
    return text


def _text(consent: Consent, key_names: Mapping[str, str]) -> str:
    """Return the text of a record; for a grant of an earlier version, a text made from its contents."""
    if consent.question or consent.matching is None:
        text = _named(consent.question, key_names)
        if consent.decline_reason:
            return f"{text} Declined: {consent.decline_reason}"
        if consent.edited is None:
            return text
        return f"{text} {consent.edited_by} edited them: {shown_arguments(consent.edited, max_chars=None)}"
    return f"{consent.uses} calls of {consent.tool!r}. {scope_text(consent.matching, max_chars=None)}"


class _Inbox(Struct, frozen=True, kw_only=True):
    """The store of questions, and the config that names it."""

    store: SqlConsents
    config: Config

    async def to_connect(self) -> list[AwaitedConnection]:
        """Return the accounts that calls of people wait for."""
        connections = connections_of(self.config, Report())
        if connections is None:
            return []
        try:
            return await connections.awaited()
        except CallError as error:
            raise refused(error) from None
        finally:
            await connections.close()

    def key_names(self) -> dict[str, str]:
        """Return the names of API keys, by the stored fingerprint of their callers' rights."""
        declared = self.config.identity
        rules = None if declared is None else rules_of(declared.value, self.config.path)
        if rules is None or rules.key_store is None or not rules.key_store.exists():
            return {}
        keys = KeyStore(rules.key_store).listed()
        grants = ((grant_of(rules.map, credential_of(key)), key.name) for key in keys)
        return {grant.owner: name for grant, name in grants if grant is not None}


@contextmanager
def _inbox(options: Options) -> Generator[_Inbox]:
    """Yield the inbox that the config names; report errors of its store."""
    try:
        yield _declared_inbox(options)
    except ConsentStateError as error:
        raise CommandError(str(error), kind="consent_unknown", code=Exit.REFUSED) from None
    except (ValueError, DefinitionError) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"The consents cannot be used: {error}", kind="store_away", code=Exit.REFUSED) from None


def _declared_inbox(options: Options) -> _Inbox:
    path = find_config(options.config, start=Path.cwd())
    config, report = load(path, env=os.environ), Report()
    store = consent_store_of(config, report)
    if report:
        raise DefinitionError(report.sorted(config.files, config.secrets))
    if not isinstance(store, SqlConsents):
        raise CommandError(
            f"{str(path)!r} has no store for questions to people. Add one: "
            'consents: {store: "sqlite:./pegboard.db"}, or a postgresql:// address.',
            kind="no_inbox",
        )
    return _Inbox(store=store, config=config)


def _person() -> str:
    """Return the name of the person who decides: the user of the shell."""
    return f"cli:{platform.current_user()}"


def span_s(text: str, *, now: float) -> float:
    """Read a duration such as 12h, or a day, which is included; return seconds from now.

    Raises:
        ValueError: it is neither, or is in the past.
    """
    span = _SPAN.fullmatch(text)
    if span is not None:
        return float(int(span[1]) * _UNIT_S[span[2]])
    try:
        day = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a duration: write 30m, 12h, 7d, or a day such as 2026-11-27.") from None
    left_s = day.timestamp() + (_DAY_S if "T" not in text and " " not in text else 0) - now
    if left_s <= 0:
        raise ValueError(f"{text!r} is in the past.")
    return left_s


def _list(
    consents: Sequence[Consent], to_connect: Sequence[AwaitedConnection], key_names: Mapping[str, str], options: Options
) -> None:
    if options.json:
        listed = [consent_json(consent) for consent in consents]
        options.terminal.json({"consents": listed, "connections": [awaited_json(each) for each in to_connect]})
        return
    if consents:
        options.terminal.table(_COLUMNS, [_cells(consent, key_names) for consent in consents])
        options.terminal.say("")
    for consent in consents:
        if consent.state == "asked" or consent.is_grant:
            options.terminal.say(f"{consent.id}: {_text(consent, key_names)}")
    for each in to_connect:
        until = datetime.fromtimestamp(each.expires_at, tz=UTC).isoformat(" ", "minutes")
        command = f"pegboard connect {each.source} --as user={each.person.user_id}"
        options.terminal.say(f"{each.person.user_id} must connect to {each.source} (until {until}): {command}")
    waiting = sum(consent.state == "asked" for consent in consents)
    options.terminal.say(f"{waiting} question{'' if waiting == 1 else 's'} {'waits' if waiting == 1 else 'wait'}.")


def _cells(consent: Consent, key_names: Mapping[str, str]) -> tuple[str, ...]:
    # A fingerprint of an unnamed credential tells a person nothing; `--json` has it.
    parts = (consent.user_id, consent.space_id, key_names.get(consent.credential or ""))
    unnamed = "a credential without a name" if consent.credential else "nobody known"
    who = ", ".join(part for part in parts if part) or unnamed
    until = datetime.fromtimestamp(consent.expires_at, tz=UTC).isoformat(" ", "minutes")
    state = "granted" if consent.is_grant else consent.state
    state = f"{state} ({consent.progress})" if consent.state == "asked" and consent.progress else state
    uses = f"{consent.uses_left} of {consent.uses}" if consent.uses else ""
    return consent.id, state, consent.tool, who, until, uses
