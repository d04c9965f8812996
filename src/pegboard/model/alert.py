"""Alert: the states that an operator wants to be alerted about, the receivers, and one such state."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from pegboard.model.secret import Secret

AlertKind = Literal[
    "changed", "quarantined", "flagged", "down", "config_refused", "store_down", "audit_broken", "task_stuck",
    "consent_waiting", "budget",
]  # fmt: skip


class AlertRule(Struct, frozen=True, kw_only=True):
    """The kinds of alerts that go to one receiver: a URL, with the secret that signs messages to it, or a command.

    The URL is a secret, because many receivers are known by a token in theirs.
    """

    on: frozenset[AlertKind]
    url: Secret | None = None
    secret: Secret | None = None
    command: tuple[str, ...] = ()


class Alerts(Struct, frozen=True, kw_only=True):
    """The alerts of a config, and the folder where the workers of one machine agree on who sends them."""

    rules: tuple[AlertRule, ...] = ()
    folder: str = ""


NO_ALERTS = Alerts()


class AlertState(Struct, frozen=True, kw_only=True):
    """Something that is wrong now. `subject` is its name within its kind, such as that of a source or a store.

    `names` are the tools that it is about; the same subject with other names is a new state. `text` may quote foreign
    texts.
    """

    kind: AlertKind
    subject: str
    text: str
    names: tuple[str, ...] = ()
