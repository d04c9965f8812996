"""Context: who asks, built by the host for one request, and the memory of what was asked on it."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.consent import Approve
from pegboard.model.context_ports import ClientBridge
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSONValue
from pegboard.model.memo import Memo
from pegboard.model.policy import OPEN_POLICY, Policy
from pegboard.model.secret import Secret


class CallBudget:
    """How many calls one root request may still make; shared by all its sub-agents.

    `max_calls=None` takes the bound `calls_per_request`.
    """

    __slots__ = ("max_calls", "used")

    def __init__(self, max_calls: int | None = None) -> None:
        self.max_calls = max_calls
        self.used = 0

    def spend(self, *, default: int | None = None) -> None:
        """Take one call from the budget.

        Raises:
            CallError: `budget_exceeded`, when none is left.
        """
        limit = default if self.max_calls is None else self.max_calls
        if limit is None:
            limit = DEFAULT_BOUNDS.calls_per_request
        if self.used >= limit:
            raise CallError(
                "budget_exceeded",
                f"This request has made its {limit} calls. Finish with what is known, or start a new request.",
                hint="Hosts: one ToolContext a request; `budget=CallBudget(n)` changes the number.",
            )
        self.used += 1


@dataclass(frozen=True, kw_only=True, eq=False)
class ToolContext:
    """Who asks, and what the host lends for one request or turn. Trusted: never built from a model's words.

    Make one a request: predicates are asked once a context. Subclasses may add fields, and
    properties or methods that serve as predicates by their name.
    """

    user_id: str | None = None
    space_id: str | None = None
    session_id: str | None = None
    agent: str | None = None
    roles: frozenset[str] | Sequence[str] = frozenset()
    client: ClientBridge | None = None
    request_id: str = field(default_factory=lambda: os.urandom(16).hex())
    conversation: object = None
    message: object = None
    message_queue: object = None
    settings: Mapping[str, JSONValue] = field(default_factory=dict[str, Any], repr=False)
    secrets: Mapping[str, Secret] = field(default_factory=dict[str, Secret], repr=False)
    upstream_credentials: Mapping[str, Secret] = field(default_factory=dict[str, Secret], repr=False)
    factories: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]], repr=False)
    services: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    callbacks: object = None
    approve: Approve | None = None
    policy: Policy = OPEN_POLICY
    depth: int = 0
    budget: CallBudget | None = field(default_factory=CallBudget)
    deadline: float | None = None
    parent_call: str | None = None
    memo: Memo = field(default_factory=Memo, init=False, repr=False, compare=False)
    sequence: Iterator[int] = field(default_factory=itertools.count, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "roles", frozenset([self.roles] if isinstance(self.roles, str) else self.roles))
        given: dict[str, Any] = {**self.upstream_credentials, **self.secrets}
        for name, value in given.items():
            if not isinstance(value, Secret):
                raise DefinitionError(f"The secret {name!r} is a plain {type(value).__name__}: wrap it, Secret(…).")

    def plain(self) -> ToolContext:
        """Return the request's own context: this one, unless it belongs to a call."""
        return self

    def factory(self, name: str) -> Callable[..., Any]:
        """Return the factory that the host supplied under `name`; `KeyError` if none."""
        return self.factories[name]

    def child(
        self,
        *,
        agent: str | None = None,
        policy: Policy | None = None,
        credentials: Sequence[str] = (),
        parent_call: str | None = None,
        callbacks: object = None,
        **changes: Any,
    ) -> ToolContext:
        """Return the context of a sub-agent: never more rights than this one, a fresh memo, the same budget.

        `credentials` names the upstream credentials that the child gets; by default none.
        `changes` are other fields, e.g. `conversation`; identity and limits are not among them.

        Raises:
            DefinitionError: a change that would lend the child somebody else's identity or limits.
        """
        unknown = set(changes) - {item.name for item in fields(self) if item.init}
        if unknown:
            raise DefinitionError(f"A context has no field {', '.join(sorted(unknown))}.")
        fixed = {"user_id", "space_id", "roles", "depth", "budget", "deadline", "upstream_credentials"} & set(changes)
        if fixed:
            raise DefinitionError(f"A child context keeps its parent's {', '.join(sorted(fixed))}.")
        whole = self.plain()
        return replace(
            whole,
            **changes,
            agent=agent or self.agent,
            policy=self.policy if policy is None else self.policy.intersect(policy),
            upstream_credentials={n: v for n, v in self.upstream_credentials.items() if n in credentials},
            depth=self.depth + 1,
            parent_call=parent_call or getattr(self, "call_id", None) or self.parent_call,
            callbacks=self.callbacks if callbacks is None else callbacks,
        )


def seconds_left(ctx: ToolContext, *, clock: Callable[[], float] = time.monotonic) -> float | None:
    """Return the seconds until the request's deadline, or `None` where it has none."""
    return None if ctx.deadline is None else ctx.deadline - clock()
