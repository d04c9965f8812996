"""Alert book: the alerts sent to each receiver, so that each state is reported once, and once when it ends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from pegboard.model.alert import AlertKind, AlertRule, AlertState
from pegboard.model.record import replace

ALERTS_AN_HOUR = 60  # messages to one receiver within an hour; others are left out and counted
_HOUR_S = 3_600.0

StateKey = tuple[AlertKind, str]


class SentAlert(Struct, frozen=True, kw_only=True):
    """A state that was reported to a receiver, and when it was first seen, in seconds since 1970."""

    kind: AlertKind
    subject: str
    text: str
    since: float
    names: tuple[str, ...] = ()


class AlertChange(NamedTuple):
    """A change to report to a receiver: a state that began or changed, or one that is over."""

    status: Literal["began", "over"]
    alert: SentAlert


class _Receiver(Struct):
    """The states reported to one receiver, the times of messages in the last hour, and states that were left out."""

    known: dict[StateKey, SentAlert] = field(default_factory=dict[StateKey, SentAlert])
    sent_at: deque[float] = field(default_factory=deque[float])
    left_out: set[tuple[str, StateKey]] = field(default_factory=set[tuple[str, StateKey]])
    left_out_count: int = 0


class AlertBook:
    """The states reported to each receiver. One worker of a server keeps it, and the next one continues it.

    Args:
        clock: a monotonic clock in seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._receivers: dict[str, _Receiver] = {}

    def load(self, content: bytes) -> None:
        """Continue the book of another worker; unreadable content counts as an empty book."""
        try:
            stored = msgspec.json.decode(content, type=dict[str, tuple[SentAlert, ...]])
        except (msgspec.DecodeError, ValueError):
            stored = {}
        self._receivers = {
            name: _Receiver(known={(each.kind, each.subject): each for each in known}) for name, known in stored.items()
        }

    def content(self) -> bytes:
        """Return the book for `load`."""
        return msgspec.json.encode({name: (*each.known.values(),) for name, each in self._receivers.items()})

    def keep_only(self, receivers: Iterable[str]) -> None:
        """Forget receivers that are no longer declared."""
        self._receivers = {name: self._receivers[name] for name in receivers if name in self._receivers}

    def changes(
        self,
        receiver: str,
        rule: AlertRule,
        states: Mapping[StateKey, AlertState],
        undecided: Set[StateKey],
        *,
        now: float,
    ) -> list[AlertChange]:
        """Return the changes to send to a receiver now, in order of their keys.

        `undecided` are states that are unknown now, such as those of a source that still connects: they stay as they
        are. A message that is left out because the receiver got too many is counted once, and sent later if it is still
        true.
        """
        known = self._receiver(receiver).known
        wanted = {key: state for key, state in states.items() if key[0] in rule.on}
        changes: list[AlertChange] = []
        for key in sorted(known.keys() | wanted.keys()):
            state, before = wanted.get(key), known.get(key)
            if state is None:
                if before is not None and key not in undecided:
                    changes.append(AlertChange("over", before))
            elif before is None:
                alert = SentAlert(kind=state.kind, subject=state.subject, text=state.text, since=now, names=state.names)
                changes.append(AlertChange("began", alert))
            elif before.names != state.names:
                changes.append(AlertChange("began", replace(before, text=state.text, names=state.names)))
        room = self._room(receiver)
        for change in changes[room:]:
            self._leave_out(receiver, change)
        return changes[:room]

    def subjects(self, kind: AlertKind) -> frozenset[str]:
        """Return the subjects of a kind that were reported to any receiver."""
        return frozenset(key[1] for each in self._receivers.values() for key in each.known if key[0] == kind)

    def left_out(self, receiver: str) -> int:
        """Return the number of messages withheld from a receiver since the last one."""
        return self._receiver(receiver).left_out_count

    def note_sent(self, receiver: str, change: AlertChange) -> None:
        """Record that a receiver got a message."""
        known = self._receiver(receiver)
        key: StateKey = (change.alert.kind, change.alert.subject)
        known.sent_at.append(self._clock())
        known.left_out_count = 0
        known.left_out.discard((change.status, key))
        if change.status == "over":
            known.known.pop(key, None)
        else:
            known.known[key] = change.alert

    def _room(self, receiver: str) -> int:
        """Return the number of messages that a receiver may get now."""
        sent_at, now = self._receiver(receiver).sent_at, self._clock()
        while sent_at and now - sent_at[0] >= _HOUR_S:
            sent_at.popleft()
        return ALERTS_AN_HOUR - len(sent_at)

    def _leave_out(self, receiver: str, change: AlertChange) -> None:
        known = self._receiver(receiver)
        mark: tuple[str, StateKey] = (change.status, (change.alert.kind, change.alert.subject))
        if mark not in known.left_out:
            known.left_out.add(mark)
            known.left_out_count += 1

    def _receiver(self, name: str) -> _Receiver:
        return self._receivers.setdefault(name, _Receiver())
