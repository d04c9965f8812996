"""Context: the caller, the host and the request as handlers and predicates see them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from pegboard.model.caller import NOBODY, Caller
from pegboard.model.consent import Approve
from pegboard.model.context_ports import ClientBridge
from pegboard.model.error import DefinitionError, NoFactoryError
from pegboard.model.host import NO_HOST, Host
from pegboard.model.json_types import JSONValue
from pegboard.model.memo import Memo
from pegboard.model.policy import OPEN_POLICY, Policy
from pegboard.model.record import replace
from pegboard.model.request import CallBudget, Request, new_request
from pegboard.model.secret import Secret

# Maps each field of a context to the value that holds it and the field's name there.
_PLACES: Mapping[str, tuple[str, str]] = {
    **{
        name: ("caller", name)
        for name in ("user_id", "space_id", "session_id", "agent", "roles", "policy", "subject_token")
    },
    **{
        name: ("host", name)
        for name in ("settings", "secrets", "upstream_credentials", "factories", "services", "approve")
    },
    **{
        name: ("request", name)
        for name in (
            "client", "deadline", "budget", "depth", "parent_call", "conversation", "message", "message_queue",
        )
    },
    "request_id": ("request", "id"),
    "callbacks": ("request", "observers"),
}  # fmt: skip
_VALUES = frozenset({"caller", "host", "request"})
_ANSWERS = frozenset({"memo", "sequence"})
_OF_THE_PARENT = frozenset({
    "user_id", "space_id", "roles", "subject_token", "depth", "budget", "deadline", "upstream_credentials",
})  # fmt: skip


C = TypeVar("C", bound="ToolContext")


class _FieldsOfThreeValues(type):
    """Lets a context be constructed and copied from its flat fields or from its three values."""

    def __call__(cls, **fields: Any) -> Any:
        if not fields.keys() <= _VALUES:
            fields = _grouped(fields)
        return super().__call__(**fields)


def _grouped(fields: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments with the flat fields grouped into the three values, without any cached answers.

    Cached answers hold for one caller only, so a copy starts without them.
    """
    parts: dict[str, dict[str, Any]] = {"caller": {}, "host": {}, "request": {}}
    rest: dict[str, Any] = {}
    for name, value in fields.items():
        if name in _PLACES:
            part, inner = _PLACES[name]
            parts[part][inner] = value
        elif name not in _ANSWERS:
            rest[name] = value
    if "roles" in parts["caller"]:
        roles = parts["caller"]["roles"]
        parts["caller"]["roles"] = frozenset([roles] if isinstance(roles, str) else roles)
    # Most contexts are made from flat fields only; copying an empty default takes several times as long.
    if given := parts["caller"]:
        rest["caller"] = replace(rest["caller"], **given) if "caller" in rest else Caller(**given)
    if given := parts["host"]:
        rest["host"] = replace(rest["host"], **given) if "host" in rest else Host(**given)
    if parts["request"]:
        rest["request"] = (rest.get("request") or new_request())._replace(**parts["request"])
    return rest


if TYPE_CHECKING:
    # The flat fields that users read and write. A test compares them with `_PLACES`.
    @dataclass(frozen=True, kw_only=True, eq=False)
    class _Face:
        user_id: str | None = None
        space_id: str | None = None
        session_id: str | None = None
        agent: str | None = None
        roles: frozenset[str] | Sequence[str] = frozenset()
        subject_token: Secret | None = None
        client: ClientBridge | None = None
        request_id: str = ""
        conversation: object = None
        message: object = None
        message_queue: object = None
        settings: Mapping[str, JSONValue] = field(default_factory=dict[str, Any])
        secrets: Mapping[str, Secret] = field(default_factory=dict[str, Secret])
        upstream_credentials: Mapping[str, Secret] = field(default_factory=dict[str, Secret])
        factories: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])
        services: Mapping[str, Any] = field(default_factory=dict[str, Any])
        callbacks: object = None
        approve: Approve | None = None
        policy: Policy = OPEN_POLICY
        depth: int = 0
        budget: CallBudget | None = None
        deadline: float | None = None
        parent_call: str | None = None
else:

    class _Face(metaclass=_FieldsOfThreeValues):
        """The flat fields, read from the three values."""

    for _name, _place in _PLACES.items():
        setattr(_Face, _name, property(attrgetter(".".join(_place))))


@dataclass(frozen=True, kw_only=True, eq=False)
class ToolContext(_Face):
    """The caller, the host and the request of one request or turn. Trusted: never built from a model's output.

    It combines three values: `caller` (one per credential and profile), `host` (one per config) and `request`. Hosts
    make one per request from flat fields: `ToolContext(user_id="ann", secrets={…})`; transports make one from the three
    values. Each predicate is evaluated once per context. Subclasses are frozen, keyword-only dataclasses. They may add
    fields, and properties or methods that predicates refer to by name. `dataclasses.replace` takes flat fields too; a
    copy starts with a fresh memo.

    >>> from dataclasses import replace
    >>> ctx = ToolContext(user_id="ann", roles=["reader"])
    >>> replace(ctx, space_id="s1").caller.roles
    frozenset({'reader'})
    """

    caller: Caller = NOBODY
    host: Host = field(default=NO_HOST, repr=False)
    request: Request = field(default_factory=new_request)
    memo: Memo = field(default_factory=Memo, repr=False)
    sequence: Iterator[int] = field(default_factory=itertools.count, repr=False)

    def plain(self) -> ToolContext:
        """Return the context of the request: this one, unless it belongs to a call."""
        return self

    def with_request(self, **changes: Any) -> ToolContext:
        """Return a copy with other fields of `Request`, such as `client=` or `observers=`, and a fresh memo."""
        return replace(self, request=self.request._replace(**changes))

    def inside(self, *, host: Host, request: Request, asks_anew: bool = False) -> ToolContext:
        """Return this context for nested calls. Cached answers are reused.

        With `asks_anew` they are not, because something in the nested calls may change them.
        """
        added = {name: getattr(self, name) for name in context_fields(type(self)) if name not in _PLACES}
        if asks_anew:
            added["memo"] = Memo()
        return sharing_answers(type(self), self, caller=self.caller, host=host, request=request, **added)

    def factory(self, name: str) -> Callable[..., Any]:
        """Return the factory that the host supplied under `name`.

        Raises:
            NoFactoryError: a `KeyError`; there is none. In a predicate, write `"name" in ctx.factories`.
        """
        try:
            return self.factories[name]
        except KeyError:
            raise NoFactoryError(name) from None

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

        `credentials` names the upstream credentials that the child gets; by default none. `changes` are other fields,
        e.g. `conversation`, but not identity or limits.

        Raises:
            DefinitionError: a change would give the child another identity or other limits.
        """
        whole = self.plain()
        unknown = set(changes) - context_fields(type(whole))
        if unknown:
            raise DefinitionError(f"A context has no field {', '.join(sorted(unknown))}.")
        fixed = _OF_THE_PARENT & set(changes)
        if fixed:
            raise DefinitionError(f"A child context keeps its parent's {', '.join(sorted(fixed))}.")
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


def sharing_answers(kind: type[C], origin: ToolContext, **fields: Any) -> C:
    """Return a context of the same request that reuses the cached answers and the event sequence of `origin`.

    For code that runs calls; `dataclasses.replace` makes a context with a fresh memo. `fields` are the three values and
    the fields that the class adds, not flat fields; a `memo` among them replaces the memo of `origin`.
    """
    return type.__call__(kind, **{"memo": origin.memo, "sequence": origin.sequence, **fields})


def context_of(kind: type[C], caller: Caller, host: Host, request: Request) -> C:
    """Return the same context as `kind(caller=…, host=…, request=…)`, without looking for flat fields."""
    return type.__call__(kind, caller=caller, host=host, request=request)


def context_fields(kind: type[ToolContext]) -> frozenset[str]:
    """Return the names of the fields that construct a context of this class: flat ones and those that a host added."""
    added = {item.name for item in fields(kind) if item.init} - _VALUES - _ANSWERS
    return frozenset(_PLACES) | added


def seconds_left(ctx: ToolContext, *, clock: Callable[[], float] = time.monotonic) -> float | None:
    """Return the seconds until the request's deadline, or `None` without a deadline."""
    deadline = ctx.request.deadline
    return None if deadline is None else deadline - clock()
