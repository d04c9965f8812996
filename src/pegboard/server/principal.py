"""Principal: who sends a request, through which profile, and the context that the host makes of it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from pegboard.core.names import nearest
from pegboard.model.context import ToolContext
from pegboard.model.context_ports import ClientBridge
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSONValue
from pegboard.model.profile import Profile
from pegboard.model.secret import Secret

ANONYMOUS = "anonymous"
DEFAULT_PROFILE = "default"
_WORDS = ("user", "space", "roles", "session", "profile")


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Who asks, as a verified credential or the host says; never taken from a request's own words.

    `credential` names what was verified: sessions, cursors and sealed states belong to it.
    """

    credential: str = ANONYMOUS
    user: str | None = None
    space: str | None = None
    roles: tuple[str, ...] = ()
    session: str | None = None

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Principal:
    """One identity looking through one profile; `profile=None` is a catalog without profiles."""

    identity: Identity
    profile: str | None
    session: str | None = None

    @property
    def owner(self) -> str:
        """What sessions, cursors and sealed states are bound to."""
        return f"{self.identity.credential}|{self.profile or ''}"


ContextFor = Callable[[Principal], ToolContext]
"""What a host gives, that makes its contexts itself."""


class ContextMaker(Protocol):
    """Makes the context of one request; `client` is the way back to whoever sent it."""

    def __call__(self, principal: Principal, client: ClientBridge | None = None) -> ToolContext: ...


class Configured(Protocol):
    """What serve needs of a loaded config: what every context of it holds."""

    @property
    def settings(self) -> Mapping[str, JSONValue]: ...

    @property
    def secrets(self) -> Mapping[str, Secret]: ...


def context_maker(config: object, *, context_type: type[ToolContext] = ToolContext) -> ContextMaker:
    """Return what makes the context of one request.

    `config` is a loaded config, whose settings and secrets every context gets; a callable that
    takes the `Principal` and makes the context; or `None`: then a context holds nothing but who asks.
    """
    if callable(config):
        return _with_client(cast("ContextFor", config))
    settings: Mapping[str, JSONValue] = {}
    secrets: Mapping[str, Secret] = {}
    if config is not None:
        configured = cast("Configured", config)
        settings, secrets = configured.settings, configured.secrets
    # Nobody may guess the id of somebody else's request; one random prefix a process keeps them cheap.
    prefix, numbers = os.urandom(8).hex(), itertools.count(1)

    def make(principal: Principal, client: ClientBridge | None = None) -> ToolContext:
        who = principal.identity
        return context_type(
            user_id=who.user,
            space_id=who.space,
            roles=who.roles,
            session_id=principal.session,
            client=client,
            request_id=f"{prefix}-{next(numbers)}",
            settings=settings,
            secrets=secrets,
        )

    return make


def _with_client(make: ContextFor) -> ContextMaker:
    """Return what has the host make a context, and adds the client where the host has set none."""

    def make_with_client(principal: Principal, client: ClientBridge | None = None) -> ToolContext:
        ctx = make(principal)
        return ctx if client is None or ctx.client is not None else replace(ctx, client=client)

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
