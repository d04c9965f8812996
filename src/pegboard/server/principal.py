"""Principal: the caller of a request, its profile, and the context that the host creates for it."""

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
from pegboard.telemetry.served_request import REQUEST_ID

CALLERS_REMEMBERED = 1_024  # principals whose `Caller` is cached

ANONYMOUS = "anonymous"
DEFAULT_PROFILE = "default"
_WORDS = ("user", "space", "roles", "session", "profile", "subject_token")
Whose = tuple[str | None, ...]
"""The owner of one share of a common limit: `Principal.shares_as`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """The caller according to a verified credential or the host; never taken from the request's own claims.

    `credential` names what was verified; sessions, cursors and sealed states belong to it. `proof` is what remains of
    it, see `Caller`. `key` is the name of an API key. `key_id` and `ends_at` belong to a key or token: open streams end
    with them. `subject_token` is the token, if sources exchange it: another token of the same person makes another
    identity.
    """

    credential: str = ANONYMOUS
    user: str | None = None
    space: str | None = None
    roles: tuple[str, ...] = ()
    session: str | None = None
    proof: str = field(default="", repr=False)
    key: str = ""
    key_id: str = field(default="", repr=False, compare=False)
    ends_at: float | None = field(default=None, repr=False, compare=False)
    subject_token: Secret | None = field(default=None, repr=False)

    @classmethod
    def of(cls, source: object) -> Identity:
        """Read an identity from a mapping, an object with such attributes, or `None` for anonymous.

        Raises:
            DefinitionError: an unknown field.
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
            subject_token=fields.get("subject_token"),
        )


def _attributes(source: object) -> Mapping[str, Any]:
    return {word: getattr(source, word) for word in _WORDS if hasattr(source, word)}


class Principal(Struct, frozen=True, kw_only=True):
    """One identity using one profile; `profile=None` is for a catalog without profiles.

    `address` is the network of an anonymous caller; empty for all others.
    """

    identity: Identity
    profile: str | None
    session: str | None = None
    address: str = ""
    is_session_brief: bool = False
    door: str = ""
    """The transport, if the server does not know it from each request: `stdio`."""

    def __hash__(self) -> int:
        # Called for each request. The fields left out rarely differ where these are equal.
        return hash((self.identity.credential, self.profile, self.session, self.address))

    @property
    def owner(self) -> str:
        """The owner of sessions, cursors and sealed states."""
        return f"{self.identity.credential}|{self.profile or ''}"

    @property
    def shares_as(self) -> Whose:
        """The owner of one share of common limits (slots, streams, sessions), the same for all profiles."""
        identity = self.identity
        return (identity.credential, identity.user, identity.space, self.address)

    def in_session(self, session_id: str) -> Principal:
        """Return this principal within a session of an earlier MCP revision."""
        return replace(self, session=session_id, is_session_brief=True)


ContextFor = Callable[[Principal], ToolContext]
"""The context of a host that creates its contexts itself."""


class ContextMaker(Protocol):
    """Creates the context of one request; `client` is the channel to its sender."""

    def __call__(
        self, principal: Principal, client: ClientBridge | None = None, hops: tuple[str, ...] = ()
    ) -> ToolContext: ...


class Configured(Protocol):
    """The parts of a loaded config that serving needs, shared by all contexts."""

    @property
    def settings(self) -> Mapping[str, JSONValue]: ...

    @property
    def secrets(self) -> Mapping[str, Secret]: ...

    @property
    def space(self) -> str | None:
        """The space of unidentified callers."""
        ...


class HostContexts:
    """Creates the context of each request: one `Host` for all, one `Caller` per principal, and a new `Request`."""

    def __init__(self, host: Host, context_type: type[ToolContext], *, space: str | None = None) -> None:
        self._host, self._context_type, self._space = host, context_type, space
        self._callers = BoundedCache[Principal, Caller](max_entries=CALLERS_REMEMBERED)

    def __call__(
        self, principal: Principal, client: ClientBridge | None = None, hops: tuple[str, ...] = ()
    ) -> ToolContext:
        caller = self._callers.get(principal) or self._callers.remember(principal, _caller_of(principal, self._space))
        # Created for each request: calling the class would take twice as long.
        request = new_tuple(
            Request,
            (
                REQUEST_ID.get() or new_id(),
                client,
                None,
                None,
                CallBudget(),
                0,
                None,
                None,
                None,
                None,
                None,
                principal.door or ("http" if client is None else "mcp"),
                hops,
                None,
                None,
            ),
        )
        return context_of(self._context_type, caller, self._host, request)


def _caller_of(principal: Principal, open_space: str | None) -> Caller:
    identity = principal.identity
    is_anonymous = identity.user is None and identity.space is None and not identity.roles
    return Caller(
        user_id=identity.user,
        space_id=open_space if is_anonymous else identity.space,
        session_id=principal.session,
        roles=frozenset(identity.roles),
        credential=identity.credential,
        address=principal.address,
        is_session_brief=principal.is_session_brief,
        proof=identity.proof,
        key=identity.key,
        subject_token=identity.subject_token,
    )


def context_maker(config: object, *, context_type: type[ToolContext] = ToolContext) -> ContextMaker:
    """Return the function that creates the context of one request.

    `config` is a loaded config, whose settings and secrets are in every context; a callable that takes the
    `Principal` and returns the context; or `None` for contexts that contain only the caller.
    """
    if callable(config):
        return _with_client(cast("ContextFor", config))
    if config is None:
        return HostContexts(NO_HOST, context_type)
    configured = cast("Configured", config)
    host = Host(settings=configured.settings, secrets=configured.secrets)
    return HostContexts(host, context_type, space=configured.space)


def _with_client(make: ContextFor) -> ContextMaker:
    """Return a factory that lets the host create the context, and adds the client if the host did not."""

    def make_with_client(
        principal: Principal, client: ClientBridge | None = None, hops: tuple[str, ...] = ()
    ) -> ToolContext:
        ctx = make(principal)
        if principal.address and not ctx.caller.address:
            ctx = replace(ctx, caller=replace(ctx.caller, address=principal.address))
        if client is None or ctx.client is not None:
            own = principal.door or ("http" if client is None else "mcp")
            return ctx.with_request(hops=hops, door=ctx.request.door or own)
        return ctx.with_request(client=client, hops=hops, door=ctx.request.door or principal.door or "mcp")

    return make_with_client


def choose_profile(profiles: Mapping[str, Profile], named: str | None) -> str | None:
    """Return the profile behind `/mcp`: the named one, else `default`, else the first declared.

    Raises:
        DefinitionError: it does not exist.
    """
    if named is not None:
        if named not in profiles:
            raise DefinitionError(f"Unknown profile {named!r}.{nearest(named, profiles, label='Profiles')}")
        return named
    return DEFAULT_PROFILE if DEFAULT_PROFILE in profiles else next(iter(profiles), None)
