"""consent: the inbox of questions that wait for a person, their answers, and grants given in advance."""

from __future__ import annotations

import getpass
import os
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from pegboard.cli.arguments import read_arguments
from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import find_config, opened
from pegboard.cli.terminal import Column
from pegboard.config import load
from pegboard.config.consents import consent_store_of
from pegboard.config.yaml.problems import Report
from pegboard.consent.json_form import consent_json
from pegboard.consent.limits import CONSENT_GOOD_S
from pegboard.consent.sql_records import ConsentStateError, SqlConsents, matching_of
from pegboard.model.consent import Consent, Grant
from pegboard.model.error import DefinitionError

Action = Literal["ls", "show", "approve", "deny", "grant", "forget"]
_ACTION = (
    "ls: list the questions that wait; show: print one whole; approve, deny: answer one; grant: allow several calls in "
    "advance; forget: take an answer or a grant back."
)
_NAME = "Id of the question or record, as `ls` and the refused call have it; for grant also the name of a tool."
_WHERE = "For grant: arguments that its calls must have, key=value, or key:=JSON. Without any all arguments will do."
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
    lasting: Annotated[str | None, Parameter(name=["--for", "--until"], help=_FOR)] = None,
    credential: Annotated[str | None, Parameter(help=_CREDENTIAL)] = None,
    options: SharedOptions,
) -> None:
    """Decide on calls that need a person's yes."""
    if (name is None) != (action == "ls"):
        takes = "takes no id" if action == "ls" else f"needs an id: `pegboard consent {action} ID`"
        raise CommandError(f"`pegboard consent {action}` {takes}.")
    if action != "grant" and (calls is not None or where or credential is not None):
        raise CommandError("--calls, --where and --credential are for `pegboard consent grant`.")
    if action not in ("approve", "grant") and lasting is not None:
        raise CommandError("--for is for `pegboard consent approve` and `grant`.")
    store = _store(options)
    try:
        await _done(store, action, name or "", all, calls, where or (), lasting, credential, options)
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
    calls: int | None,
    where: Sequence[str],
    lasting: str | None,
    credential: str | None,
    options: Options,
) -> None:
    person, terminal = _person(), options.terminal
    good_s = CONSENT_GOOD_S if lasting is None else span_s(lasting, now=time.time())
    match action:
        case "ls":
            _list(await store.listed(is_open=not is_all), options)
            return
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
            if calls is None or lasting is None:
                raise CommandError("Say how many calls, how long: `pegboard consent grant ID --calls 20 --for 7d`.")
            consent = await _granted(store, name, calls, where, good_s, credential, options)
            note = f"Granted: up to {consent.uses} calls."
        case "forget":
            consent = await store.forget(name)
            note = "Forgotten."
    if options.json:
        terminal.json(consent_json(consent))
        return
    if note is None or action == "approve":
        terminal.say(consent.question or f"{consent.uses} calls of {consent.tool!r} that match {consent.matching}")
    if note is not None:
        terminal.say(note)


async def _granted(
    store: SqlConsents,
    name: str,
    calls: int,
    where: Sequence[str],
    lasts_s: float,
    credential: str | None,
    options: Options,
) -> Consent:
    """Give a grant to whoever asked a question, or of a tool to the person of `--as`."""
    values = read_arguments(where, None, spec=None) if where else {}
    assert isinstance(values, dict)
    matching = matching_of(values)
    asked = await store.shown(name)
    if asked is not None and asked.state == "asked":
        if credential is not None:
            raise CommandError("--credential is for the grant of a tool; that of a question is for whoever asked.")
        grant = Grant(
            tool=asked.tool, definition_hash=asked.definition_hash, calls=calls, lasts_s=lasts_s, matching=matching,
            user_id=asked.user_id, space_id=asked.space_id, credential=asked.credential,
        )  # fmt: skip
        return await store.grant(grant, decided_by=_person(), question_id=name)
    identity = options.identity
    if identity.user is None and credential is None:
        raise CommandError(
            f"There is no open question {name[:100]!r}. To grant calls of a tool say to whom: --as user=ann, or "
            "--credential NAME."
        )
    async with opened(options, tool=name) as (_, view):
        entry = await view.afind(name)
        if entry is None:
            raise CommandError(view.absence(name), kind="not_found", code=Exit.REFUSED)
    grant = Grant(
        tool=entry.qualified_id, definition_hash=entry.fingerprint, calls=calls, lasts_s=lasts_s, matching=matching,
        user_id=identity.user, space_id=identity.space, credential=credential,
    )  # fmt: skip
    return await store.grant(grant, decided_by=_person())


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
        if consent.state == "asked":
            options.terminal.say(f"{consent.id}: {consent.question}")
    waiting = sum(consent.state == "asked" for consent in consents)
    options.terminal.say(f"{waiting} question{'' if waiting == 1 else 's'} {'waits' if waiting == 1 else 'wait'}.")


def _cells(consent: Consent) -> tuple[str, ...]:
    who = ", ".join(part for part in (consent.user_id, consent.space_id, consent.credential) if part) or "nobody known"
    until = datetime.fromtimestamp(consent.expires_at, tz=UTC).isoformat(" ", "minutes")
    state = "granted" if consent.is_grant else consent.state
    uses = f"{consent.uses_left} of {consent.uses}" if consent.uses else ""
    return consent.id, state, consent.tool, who, until, uses
