"""consent: the inbox of questions that wait for a person, their answers, and grants given in advance."""

from __future__ import annotations

import getpass
import os
import re
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from msgspec import Struct

from pegboard.cli.arguments import read_arguments
from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import find_config, opened
from pegboard.cli.terminal import Column
from pegboard.config import load
from pegboard.config.consents import consent_store_of
from pegboard.config.yaml.problems import Report
from pegboard.consent.grant_scope import grant_for, grant_text, matching_of, parameters_of, scope_text
from pegboard.consent.json_form import consent_json
from pegboard.consent.limits import CONSENT_GOOD_S
from pegboard.consent.sql_records import ConsentStateError, SqlConsents
from pegboard.model.consent import Consent, Grant
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON
from pegboard.model.tool import ToolSpec
from pegboard.platforms import platform

Action = Literal["ls", "show", "approve", "deny", "grant", "forget"]
_ACTION = (
    "ls: list the questions that wait; show: print one whole; approve, deny: answer one; grant: allow several calls in "
    "advance; forget: take an answer or a grant back."
)
_NAME = "Id of the question or record, as `ls` and the refused call have it; for grant also the name of a tool."
_WHERE = "For grant: arguments that its calls must have, key=value, or key:=JSON."
_SAME = "For grant: an argument that must have the value that it has in the question."
_ANY = "For grant: an argument that may have any value."
_ANY_OTHER = (
    "For grant: let every argument that neither --where nor --any names have any value. Without it they must be absent "
    "or have their default."
)
_PREVIEW = "For grant: print what it would allow and leave open, and give nothing."
_YES = "For grant: do not ask before giving it."
_ALL = "With ls: answers and grants too."
_CALLS = "For grant: how many calls it allows."
_FOR = "How long a yes or a grant is good: 30m, 12h, 7d, or a date such as 2026-11-27, to its end."
_CREDENTIAL = "For grant of a tool: only callers with this credential, as `consent ls` has it; by default all of --as."
_COLUMNS = (
    Column(head="Id", style="bold"),
    Column(head="State"),
    Column(head="Tool"),
    Column(head="Who"),
    Column(head="Good until"),
    Column(head="Uses left"),
)
_SPAN = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DAY_S = 86_400


async def consent_command(
    action: Annotated[Action, Parameter(help=_ACTION)] = "ls",
    name: Annotated[str | None, Parameter(help=_NAME)] = None,
    /,
    *,
    all: Annotated[bool, Parameter(help=_ALL)] = False,  # noqa: A002 - the name of the option
    calls: Annotated[int | None, Parameter(help=_CALLS)] = None,
    where: Annotated[list[str] | None, Parameter(help=_WHERE, negative_iterable=())] = None,
    same: Annotated[list[str] | None, Parameter(help=_SAME, negative_iterable=())] = None,
    any_value: Annotated[list[str] | None, Parameter(name="--any", help=_ANY, negative_iterable=())] = None,
    any_other: Annotated[bool, Parameter(help=_ANY_OTHER, negative=())] = False,
    lasting: Annotated[str | None, Parameter(name=["--for", "--until"], help=_FOR)] = None,
    credential: Annotated[str | None, Parameter(help=_CREDENTIAL)] = None,
    preview: Annotated[bool, Parameter(help=_PREVIEW, negative=())] = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], help=_YES, negative=())] = False,
    options: SharedOptions,
) -> Exit:
    """Decide on calls that need a person's yes."""
    if (name is None) != (action == "ls"):
        takes = "takes no id" if action == "ls" else f"needs an id: `pegboard consent {action} ID`"
        raise CommandError(f"`pegboard consent {action}` {takes}.")
    scope = _Scope(where=where or (), same=same or (), any=any_value or (), any_other=any_other)
    giving = _Giving(calls=calls, scope=scope, credential=credential, is_preview=preview, is_sure=yes)
    if action != "grant" and giving != _Giving():
        raise CommandError(
            "--calls, --where, --same, --any, --any-other, --credential, --preview and --yes are for "
            "`pegboard consent grant`."
        )
    if action not in ("approve", "grant") and lasting is not None:
        raise CommandError("--for is for `pegboard consent approve` and `grant`.")
    store = _store(options)
    try:
        return await _done(store, action, name or "", all, lasting, giving, options)
    except ConsentStateError as error:
        raise CommandError(str(error), kind="consent_unknown", code=Exit.REFUSED) from None
    except (ValueError, DefinitionError) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"The consents cannot be used: {error}", kind="store_away", code=Exit.REFUSED) from None


async def _done(
    store: SqlConsents,
    action: Action,
    name: str,
    is_all: bool,
    lasting: str | None,
    giving: _Giving,
    options: Options,
) -> Exit:
    person, terminal = _person(), options.terminal
    good_s = CONSENT_GOOD_S if lasting is None else span_s(lasting, now=time.time())
    match action:
        case "ls":
            _list(await store.listed(is_open=not is_all), options)
            return Exit.DONE
        case "show":
            consent = await store.shown(name)
            if consent is None:
                raise ConsentStateError(f"There is no consent {name[:100]!r}.")
            note = None
        case "approve":
            consent = await store.decide(name, is_yes=True, decided_by=person, good_s=good_s)
            note = "Agreed. The same call passes once now, if its caller makes it again."
        case "deny":
            consent = await store.decide(name, is_yes=False, decided_by=person)
            note = "Declined. Its caller is not asked again in this session; `pegboard consent forget` takes that back."
        case "grant":
            if giving.calls is None or lasting is None:
                raise CommandError("Say how many calls, how long: `pegboard consent grant ID --calls 20 --for 7d`.")
            planned = await _planned(store, name, giving, good_s, options)
            if not _is_given(planned, giving, options):
                return Exit.DONE if giving.is_preview else Exit.REFUSED
            consent = await store.grant(planned.grant, decided_by=person, question_id=planned.question_id)
            note = f"Granted: up to {consent.uses} calls."
        case "forget":
            consent = await store.forget(name)
            note = "Forgotten."
    if options.json:
        terminal.json(consent_json(consent))
        return Exit.DONE
    if note is None or action == "approve":
        terminal.say(_text(consent))
    if note is not None:
        terminal.say(note)
    return Exit.DONE


class _Scope(Struct, frozen=True, kw_only=True):
    """The arguments that a grant fixes and leaves open, as the words of the command line."""

    where: Sequence[str] = ()
    same: Sequence[str] = ()
    any: Sequence[str] = ()
    any_other: bool = False


class _Giving(Struct, frozen=True, kw_only=True):
    """The options of a grant."""

    calls: int | None = None
    scope: _Scope = _Scope()
    credential: str | None = None
    is_preview: bool = False
    is_sure: bool = False


class _Planned(Struct, frozen=True, kw_only=True):
    """A grant that is not given yet, and the question that it answers."""

    grant: Grant
    question_id: str | None = None


async def _planned(store: SqlConsents, name: str, giving: _Giving, lasts_s: float, options: Options) -> _Planned:
    """Return the grant for the caller of a question, or of a tool for the person of `--as`."""
    calls, scope = giving.calls or 0, giving.scope
    asked = await store.shown(name)
    if asked is not None and asked.state == "asked":
        if giving.credential is not None:
            raise CommandError("--credential is for the grant of a tool; that of a question is for whoever asked.")
        grant = grant_for(
            asked, calls=calls, lasts_s=lasts_s, where=_values(scope, None), same=scope.same, any=scope.any,
            any_other=scope.any_other,
        )  # fmt: skip
        return _Planned(grant=grant, question_id=name)
    if scope.same:
        raise CommandError("--same is for the grant of a question; for a tool say the value: --where NAME=VALUE.")
    identity = options.identity
    if identity.user is None and giving.credential is None:
        raise CommandError(
            f"There is no open question {name[:100]!r}. To grant calls of a tool say to whom: --as user=ann, or "
            "--credential NAME."
        )
    async with opened(options, tool=name) as (_, view):
        entry = await view.afind(name)
        if entry is None:
            raise CommandError(view.absence(name), kind="not_found", code=Exit.REFUSED)
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


def _is_given(planned: _Planned, giving: _Giving, options: Options) -> bool:
    """Show what a grant allows and leaves open, and ask the person at the terminal, if there is one."""
    text, terminal = grant_text(planned.grant), options.terminal
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


def _text(consent: Consent) -> str:
    """Return the text of a record; for a grant of an earlier version, made from what it allows."""
    if consent.question or consent.matching is None:
        return consent.question
    return f"{consent.uses} calls of {consent.tool!r}. {scope_text(consent.matching, max_chars=None)}"


def _store(options: Options) -> SqlConsents:
    path = find_config(options.config, start=Path.cwd())
    config, report = load(path, env=os.environ), Report()
    store = consent_store_of(config, report)
    if report:
        raise DefinitionError(report.sorted(config.files, config.secrets))
    if not isinstance(store, SqlConsents):
        raise CommandError(
            f"{str(path)!r} keeps no questions for people. Say where: "
            'consents: {store: "sqlite:./pegboard.db"}, or a postgresql:// address.',
            kind="no_inbox",
        )
    return store


def _person() -> str:
    """Return who decides: whoever has the shell and the file."""
    return f"cli:{getpass.getuser()}"


def span_s(text: str, *, now: float) -> float:
    """Read a span such as 12h, or a day, which lasts to its end; return seconds from now.

    Raises:
        ValueError: it is neither, or is over.
    """
    span = _SPAN.fullmatch(text)
    if span is not None:
        return float(int(span[1]) * _UNIT_S[span[2]])
    try:
        day = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no span: write 30m, 12h, 7d, or a day such as 2026-11-27.") from None
    left_s = day.timestamp() + (_DAY_S if "T" not in text and " " not in text else 0) - now
    if left_s <= 0:
        raise ValueError(f"{text!r} is over.")
    return left_s


def _list(consents: Sequence[Consent], options: Options) -> None:
    if options.json:
        options.terminal.json({"consents": [consent_json(consent) for consent in consents]})
        return
    if consents:
        options.terminal.table(_COLUMNS, [_cells(consent) for consent in consents])
        options.terminal.say("")
    for consent in consents:
        if consent.state == "asked" or consent.is_grant:
            options.terminal.say(f"{consent.id}: {_text(consent)}")
    waiting = sum(consent.state == "asked" for consent in consents)
    options.terminal.say(f"{waiting} question{'' if waiting == 1 else 's'} {'waits' if waiting == 1 else 'wait'}.")


def _cells(consent: Consent) -> tuple[str, ...]:
    who = ", ".join(part for part in (consent.user_id, consent.space_id, consent.credential) if part) or "nobody known"
    until = datetime.fromtimestamp(consent.expires_at, tz=UTC).isoformat(" ", "minutes")
    state = "granted" if consent.is_grant else consent.state
    uses = f"{consent.uses_left} of {consent.uses}" if consent.uses else ""
    return consent.id, state, consent.tool, who, until, uses
