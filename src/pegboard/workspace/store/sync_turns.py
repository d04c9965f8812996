"""Sync turns: lets one process sync a live source, and stores the outcome of its last run."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from pegboard.workspace.store.connection import Connection


class SyncState(Struct, frozen=True, kw_only=True):
    """The state of a live source, recorded by the process that has the turn.

    `beat` grows while that process lives. Times are seconds since 1970, 0 for never. `trouble` is the error of the last
    run; empty if it had none. `failures` counts the files that could not be read in the last run that ended well.
    """

    worker: str = ""
    beat: int = 0
    tried_at: float = 0.0
    synced_at: float = 0.0
    documents: int = 0
    failures: int = 0
    trouble: str = ""


_NOBODY = SyncState()


def state_of(db: Connection, space: str, source: str) -> SyncState | None:
    """Return the state of a live source; `None` if no process has had the turn."""
    row: Any = db.execute("select value from settings where name = ?", (_name(space, source),)).fetchone()
    return None if row is None else msgspec.json.decode(row[0], type=SyncState)


def take_turn(db: Connection, space: str, source: str, worker: str, *, over: SyncState | None) -> SyncState:
    """Take or keep the turn. It is free if nobody has it, or if its holder has not reported since `over`.

    Return the state afterwards; its `worker` says who has the turn.
    """
    name = _name(space, source)
    db.execute("insert into settings (name, value) values (?, ?) on conflict do nothing", (name, _encoded(_NOBODY)))
    row: Any = db.execute(f"select value from settings where name = ?{db.dialect.lock}", (name,)).fetchone()  # noqa: S608 - words of ours
    state = msgspec.json.decode(row[0], type=SyncState)
    is_silent = over is not None and (state.worker, state.beat) == (over.worker, over.beat)
    if state.worker not in ("", worker) and not is_silent:
        return state
    return _put(db, name, msgspec.structs.replace(state, worker=worker, beat=state.beat + 1))


def put_outcome(db: Connection, space: str, source: str, outcome: SyncState) -> None:
    """Record how a run ended, if its worker still has the turn."""
    state = state_of(db, space, source)
    if state is not None and state.worker == outcome.worker:
        _put(db, _name(space, source), msgspec.structs.replace(outcome, beat=state.beat))


def leave_turn(db: Connection, space: str, source: str, worker: str) -> None:
    """Release the turn."""
    state = state_of(db, space, source)
    if state is not None and state.worker == worker:
        _put(db, _name(space, source), msgspec.structs.replace(state, worker=""))


def _put(db: Connection, name: str, state: SyncState) -> SyncState:
    db.execute("update settings set value = ? where name = ?", (_encoded(state), name))
    return state


def _encoded(state: SyncState) -> str:
    return msgspec.json.encode(state).decode()


def _name(space: str, source: str) -> str:
    """Return the name of the setting. It has the source's name and not its id, since the source may not exist yet."""
    return f"sync of {len(space)} {space} {source}"
