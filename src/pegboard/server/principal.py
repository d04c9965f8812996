"""Principal: who sends a request, through which profile, and the context that the host makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from msgspec import Struct

from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.identifiers import new_id
from pegboard.core.names import nearest
from pegboard.model.caller import Caller
from pegboard.model.context import ToolContext, context_of
from pegboard.model.context_ports import ClientBridge
from pegboard.model.error import DefinitionError
from pegboard.model.host import NO_HOST, Host
from pegboard.model.json_types import JSONValue
from pegboard.model.profile import Profile
from pegboard.model.record import replace
from pegboard.model.request import CallBudget, Request
from pegboard.model.result import new_tuple
from pegboard.model.secret import Secret

CALLERS_REMEMBERED = 1_024  # principals whose `Caller` is at hand

ANONYMOUS = "anonymous"
DEFAULT_PROFILE = "default"
_WORDS = ("user", "space", "roles", "session", "profile")
Whose = tuple[str | None, ...]
"""Who has one share of what there is for all: `Principal.shares_as`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Who asks, as a verified credential or the host says; never taken from a request's own words.

    `credential` names what was verified: sessions, cursors and sealed states belong to it. `proof` is what is kept of
    it, see `Caller`. `key_id` and `ends_at` are those of a key and of a token, with which open streams end.
    """

    credential: str = ANONYMOUS
    user: str | None = None
    space: str | None = None
    roles: tuple[str, ...] = ()
    session: str | None = None
    proof: str = field(default="", repr=False)
    key_id: str = field(default="", repr=False, compare=False)
    ends_at: float | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, source: object) -> Identity:
        """Read an identity from a mapping, from an object with such attributes, or from `None`, which is nobody.

        Raises:
            DefinitionError: an unknown word.
        """
        if source is None or isinstance(source, Identity):
            return source or cls()
        fields = cast("Mapping[str, Any]", source) if isinstance(source, Mapping) else _attributes(source)
        for word in fields:
            if word not in _WORDS:
                raise DefinitionError(f"Unknown identity word {word!r}.{nearest(word, _WORDS, label='Words')}")
        roles = fields.get("roles") or ()
        return cls(
            credential="host",
            user=fields.get("user"),
            space=fields.get("space"),
            roles=(roles,) if isinstance(roles, str) else tuple(roles),
            session=fields.get("session"),
        )


def _attributes(source: object) -> Mapping[str, Any]:
    return {word: getattr(source, word) for word in _WORDS if hasattr(source, word)}


class Principal(Struct, frozen=True, kw_only=True):
    """One identity looking through one profile; `profile=None` is a catalog without profiles.

    `address` is the network of somebody whom nobody vouches for; empty for all others.
    """

    identity: Identity
    profile: str | None
    session: str | None = None
    address: str = ""
    is_session_brief: bool = False

    def __hash__(self) -> int:
        # Asked for each request. What is left out differs in next to nobody of whom this is the same.
        return hash((self.identity.credential, self.profile, self.session, self.address))

    @property
    def owner(self) -> str:
        """What sessions, cursors and sealed states are bound to."""
        return f"{self.identity.credential}|{self.profile or ''}"

    @property
    def shares_as(self) -> Whose:
        """Who has one share of what there is for all: places, streams, sessions; whatever the profile."""
        who = self.identity
        return (who.credential, who.user, who.space, self.address)

    def in_session(self, session_id: str) -> Principal:
        """Return the same, in a session of an earlier revision of MCP."""
        return replace(self, session=session_id, is_session_brief=True)


ContextFor = Callable[[Principal], ToolContext]
"""What a host gives, that makes its contexts itself."""


class ContextMaker(Protocol):
    """Makes the context of one request; `client` is the way back to whoever sent it."""

    def __call__(
        self, principal: Principal, client: ClientBridge | None = None, hops: tuple[str, ...] = ()
    ) -> ToolContext: ...


class Configured(Protocol):
    """What serve needs of a loaded config: what every context of it holds."""

    @property
    def settings(self) -> Mapping[str, JSONValue]: ...

    @property
    def secrets(self) -> Mapping[str, Secret]: ...

    @property
    def space(self) -> str | None:
        """The space of callers of whom nothing is known."""
        ...


class HostContexts:
    """Makes the context of each request: one `Host` for all, one `Caller` a principal, and a fresh `Request`."""

    def __init__(self, host: Host, context_type: type[ToolContext], *, space: str | None = None) -> None:
        self._host, self._context_type, self._space = host, context_type, space
        self._callers = BoundedCache[Principal, Caller](max_entries=CALLERS_REMEMBERED)

    def __call__(
        self, principal: Principal, client: ClientBridge | None = None, hops: tuple[str, ...] = ()
    ) -> ToolContext:
        caller = self._callers.get(principal) or self._callers.remember(principal, _caller_of(principal, self._space))
        # Each request makes one: the way around the class takes half of the time.
        request = new_tuple(
            Request, (new_id(), client, None, None, CallBudget(), 0, None, None, None, None, None, "", hops, None)
        )
        return context_of(self._context_type, caller, self._host, request)


def _caller_of(principal: Principal, open_space: str | None) -> Caller:
    who = principal.identity
    is_anonymous = who.user is None and who.space is None and not who.roles
    return Caller(
        user_id=who.user,
        space_id=open_space if is_anonymous else who.space,
        session_id=principal.session,
        roles=frozenset(who.roles),
        credential=who.credential,
        address=principal.address,
        is_session_brief=principal.is_session_brief,
        proof=who.proof,
    )


def context_maker(config: object, *, context_type: type[ToolContext] = ToolContext) -> ContextMaker:
    """Return what makes the context of one request.

    `config` is a loaded config, whose settings and secrets every context gets; a callable that
    takes the `Principal` and makes the context; or `None`: then a context holds nothing but who asks.
    """
    if callable(config):
        return _with_client(cast("ContextFor", config))
    if config is None:
        return HostContexts(NO_HOST, context_type)
    configured = cast("Configured", config)
    host = Host(settings=configured.settings, secrets=configured.secrets)
    return HostContexts(host, context_type, space=configured.space)


def _with_client(make: ContextFor) -> ContextMaker:
    """Return what has the host make a context, and adds the client where the host has set none."""

    def make_with_client(
        principal: Principal, client: ClientBridge | None = None, hops: tuple[str, ...] = ()
    ) -> ToolContext:
        ctx = make(principal)
        if principal.address and not ctx.caller.address:
            ctx = replace(ctx, caller=replace(ctx.caller, address=principal.address))
        if client is None or ctx.client is not None:
            return ctx.with_request(hops=hops) if hops else ctx
        return ctx.with_request(client=client, hops=hops)

    return make_with_client


def choose_profile(profiles: Mapping[str, Profile], named: str | None) -> str | None:
    """Return the profile behind `/mcp`: the one named, else `default`, else the first declared.

    Raises:
        DefinitionError: there is no such profile.
    """
    if named is not None:
        if named not in profiles:
            raise DefinitionError(f"Unknown profile {named!r}.{nearest(named, profiles, label='Profiles')}")
        return named
    return DEFAULT_PROFILE if DEFAULT_PROFILE in profiles else next(iter(profiles), None)
