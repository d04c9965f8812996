"""keys: create, list, rotate and revoke the API keys of HTTP callers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pegboard.auth.keys import ApiKey, KeyStore, KeyStoreError
from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import find_config
from pegboard.cli.recorded_change import note_change
from pegboard.cli.terminal import Column
from pegboard.config import Config, load
from pegboard.config.identity import key_store_of
from pegboard.core.ports import AuditEvent
from pegboard.model.json_types import JSON

_NAME = "Name of the key, as in the rules under `identity.map`."
_NAME_OR_ID = "Name or id of the key."
_DAYS = "Days until the key expires. Default: it does not expire."
_DAYS_AGAIN = "Days until the new key expires. Default: the lifetime of the old one."
_OVERLAP = "How long the old key stays valid: 24h, 30m, 7d. Default: the old key ends at once."
_ALL = "Revoke all keys with this name, including the one that `rotate` created."
_COLUMNS = (
    Column(head="Name", style="bold"),
    Column(head="Id", is_id=True),
    Column(head="State"),
    Column(head="Made"),
    Column(head="Ends"),
)
_DAY_S = 86_400
_JUST_ROTATED_S = _DAY_S  # a key that ended within this time was probably replaced by the one to be revoked


def ls_command(*, options: SharedOptions) -> None:
    """List the names and states of the keys."""
    _list(_store(options)[1], options)


def add_command(
    name: Annotated[str, Parameter(help=_NAME)],
    /,
    *,
    days: Annotated[int | None, Parameter(help=_DAYS)] = None,
    options: SharedOptions,
) -> None:
    """Create a key and show it once."""
    config, store = _store(options)
    _show(lambda: store.add(name, lifetime_s=_lifetime_s(days)), name, config, options, event="key_added")


def rotate_command(
    name: Annotated[str, Parameter(help=_NAME)],
    /,
    *,
    days: Annotated[int | None, Parameter(help=_DAYS_AGAIN)] = None,
    overlap: Annotated[timedelta | None, Parameter(help=_OVERLAP)] = None,
    options: SharedOptions,
) -> None:
    """Create a key that replaces another, and show it once."""
    overlap_s = int((overlap or timedelta()).total_seconds())
    if overlap_s < 0:
        raise CommandError("--overlap may not be negative.")
    config, store = _store(options)
    lifetime_s = _lifetime_s(days)
    make = partial(store.rotate, name, overlap_s=overlap_s, lifetime_s=lifetime_s)
    _show(make, name, config, options, event="key_rotated")
    options.terminal.note("The old key ends " + (f"in {overlap}." if overlap else "now."))


def revoke_command(
    name: Annotated[str, Parameter(help=_NAME_OR_ID)],
    /,
    *,
    all: Annotated[bool, Parameter(help=_ALL, negative="")] = False,  # noqa: A002 - the name of the option
    options: SharedOptions,
) -> None:
    """Revoke a key: its callers are refused from the next request on."""
    config, store = _store(options)
    _revoke(store, name, options, is_all=all)
    note_change(config, options.terminal, "key_revoked", {"key": name})


def _lifetime_s(days: int | None) -> int | None:
    if days is not None and days < 1:
        raise CommandError(f"--days {days} is too few; a key lasts at least 1 day.")
    return None if days is None else days * _DAY_S


def _store(options: Options) -> tuple[Config, KeyStore]:
    path = find_config(options.config, start=Path.cwd())
    config = load(path, env=os.environ)
    file = None if config.identity is None else key_store_of(config.identity.value, config.path)
    if file is None:
        raise CommandError(
            f"{str(path)!r} accepts no API keys. Add a store for them: "
            'identity: {api_keys: {store: "sqlite:./pegboard.db"}}.',
            kind="no_key_store",
        )
    return config, KeyStore(file)


def _show(
    make: Callable[[], tuple[str, ApiKey]], name: str, config: Config, options: Options, *, event: AuditEvent
) -> None:
    """Create a key and show it once."""
    try:
        text, key = make()
    except KeyStoreError as error:
        raise _refused(error) from None
    note_change(config, options.terminal, event, {"key": name, "id": key.id})
    if options.json:
        options.terminal.json({"key": text, **_row(key)})
    else:
        # Alone on the output, so that it can be piped to a secret store.
        options.terminal.say(text)
        options.terminal.note(f"This is the key {name!r}. Keep it now: it is shown only once, and not stored.")
    rules = () if config.identity is None else config.identity.value.map
    if not any(rule.when.key == name for rule in rules):
        options.terminal.note(
            "No rule names it yet, so it may do nothing. "
            f"Add to identity.map: {{when: {{key: {name}}}, user: …, profiles: […]}}"
        )


def _list(store: KeyStore, options: Options) -> None:
    try:
        keys = store.listed()
    except KeyStoreError as error:
        raise _refused(error) from None
    if options.json:
        options.terminal.json({"keys": [_row(key) for key in keys]})
        return
    if keys:
        options.terminal.table(_COLUMNS, [list(_cells(key)) for key in keys])
        options.terminal.say("")
    options.terminal.say(f"{len(keys)} key{'' if len(keys) == 1 else 's'} in {str(store.path)!r}.")


def _revoke(store: KeyStore, name: str, options: Options, *, is_all: bool) -> None:
    try:
        if not is_all:
            _check_one(store.listed(), name)
        keys = store.revoke(name)
    except KeyStoreError as error:
        raise _refused(error) from None
    if options.json:
        options.terminal.json({"revoked": [{"name": key.name, "id": key.id} for key in keys]})
    for key in () if options.json else keys:
        options.terminal.say(f"Revoked {key.name!r} ({key.id}). Requests with it are refused from now on.")


def _check_one(keys: Sequence[ApiKey], name: str) -> None:
    """Refuse a name that several keys have: after a rotation the operator may mean the old one, and would lose both.

    Raises:
        CommandError: several keys have the name.
    """
    since = time.time() - _JUST_ROTATED_S
    several = [key for key in keys if key.name == name and key.revoked_at is None and key.is_good(since)]
    if len(several) < 2:
        return
    now = time.time()
    shown = ", ".join(f"{key.id} ({key.state(now)}, made {_day(key.created_at)[:16]})" for key in several)
    raise CommandError(
        f"{name!r} is the name of {len(several)} keys: {shown}, the newest last. "
        f"Revoke one by its id: `pegboard keys revoke {several[0].id}`, or all with --all.",
        kind="key_refused",
        code=Exit.REFUSED,
    )


def _refused(error: Exception) -> CommandError:
    return CommandError(str(error), kind="key_refused", code=Exit.REFUSED)


def _row(key: ApiKey) -> JSON:
    return {
        "name": key.name,
        "id": key.id,
        "state": key.state(time.time()),
        "createdAt": _day(key.created_at),
        "expiresAt": None if key.expires_at is None else _day(key.expires_at),
        "revokedAt": None if key.revoked_at is None else _day(key.revoked_at),
    }


def _cells(key: ApiKey) -> tuple[str, ...]:
    row = _row(key)
    ended: str | None = row["revokedAt"] or row["expiresAt"]
    return key.name, key.id, str(row["state"]), str(row["createdAt"])[:10], "" if ended is None else ended[:10]


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat()
