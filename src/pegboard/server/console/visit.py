"""Visit: a request of a person who is logged in, and the caller through whose eyes they look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, urlencode

from msgspec import Struct
from starlette.types import Receive, Send

from pegboard.core.ports import AuditEvent
from pegboard.core.view import View
from pegboard.model.json_types import JSON
from pegboard.model.record import CarriesCredentials, replace
from pegboard.server.gateway import Gateway
from pegboard.server.health import OPERATOR
from pegboard.server.principal import Identity, Principal

LENS_CHARS = 200  # of a user, space or role that an operator looks through

LOOKING = "console"
"""The credential of a caller through whose eyes an operator looks; it makes no calls."""


class SentFile(NamedTuple):
    """A file of a form: the name that the browser gave, and its bytes."""

    name: str
    content: bytes


NO_FILES: Mapping[str, tuple[SentFile, ...]] = {}


class Lens(Struct, frozen=True, kw_only=True):
    """The caller to look through, as the address of the page has it; empty fields are the person's own."""

    profile: str = ""
    user: str = ""
    space: str = ""
    role: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str], prefix: str = "") -> Lens:
        """Read the query of an address; the names of its fields may have a prefix."""
        return cls(**{name: query.get(prefix + name, "").strip()[:LENS_CHARS] for name in cls.__struct_fields__})

    def query(self, prefix: str = "") -> dict[str, str]:
        """Return the fields that are set, for the query of a link."""
        return {prefix + name: value for name in self.__struct_fields__ if (value := getattr(self, name))}

    @property
    def whose(self) -> str:
        """The caller in words; empty for the person who looks."""
        if not self.is_of_another:
            return ""
        parts = [self.user or "somebody", f"in space {self.space}" if self.space else ""]
        return " ".join(filter(None, [*parts, f"with role {', '.join(self.roles)}" if self.roles else ""]))

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(filter(None, (part.strip() for part in self.role.split(","))))

    @property
    def is_of_another(self) -> bool:
        """Whether it names a person, and not only a profile."""
        return bool(self.user or self.space or self.role)


class Visit(CarriesCredentials, frozen=True, kw_only=True):
    """A request of a person who is logged in.

    `person` has their rights in the console. `acts_as` is the principal of their calls, `None` if they have no
    profile here. `looks_as` is the principal whose tools the page shows; with `is_own` it is the same as `acts_as`, so
    a call is possible. `form` and `files` have what a POST sent.
    """

    gateway: Gateway
    person: Identity
    acts_as: Principal | None
    looks_as: Principal
    is_own: bool
    lens: Lens
    profiles: Sequence[str]
    """The profiles that this person may choose, in the order of the config."""
    base: str
    """The path of the console, without a slash at the end."""
    here: str
    """The path of the page in the console."""
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    form: Mapping[str, str]
    files: Mapping[str, tuple[SentFile, ...]]
    form_token: str
    origin: str
    """The address of the server as the browser uses it, such as `http://127.0.0.1:8420`."""
    can_log_out: bool
    sees_bodies: bool
    """Whether the arguments and results of calls that this person sees are shown: of their own, or to operators who
    may."""
    receive: Receive
    send: Send

    @property
    def is_operator(self) -> bool:
        return OPERATOR in self.person.roles

    @property
    def name(self) -> str:
        """The name of the person, for people and for records."""
        return self.person.user or self.person.key or self.person.credential

    def note(self, event: AuditEvent, detail: JSON) -> None:
        """Record a change that this person made in the audit, if there is one."""
        audit = self.gateway.catalog.executor.ports.audit
        if audit is not None:
            audit.note(event, detail, by=self.name)

    @property
    def session_of(self) -> Principal:
        """The principal whose credential a stream of this person ends with."""
        if self.acts_as is not None and self.acts_as.identity.credential == self.person.credential:
            return self.acts_as
        # Operators without their own profile, and the person at the terminal.
        return Principal(identity=self.person, profile=None)

    def now(self) -> float:
        """Return the time in seconds since 1970, by the clock of the calls."""
        return self.gateway.catalog.executor.ports.wall_clock()

    def url(self, path: str = "", **query: str) -> str:
        """Return the address of a page of the console, seen by the same caller."""
        return self.address(path, {**self.lens.query(), **{name: value for name, value in query.items() if value}})

    def own_url(self, path: str, **query: str) -> str:
        """Return the address of a page as `url`, but seen by the person themself, who alone can call tools."""
        return self.address(path, query) if self.lens.is_of_another else self.url(path, **query)

    @property
    def own_address(self) -> str:
        """The address of this page as the person sees it who is logged in."""
        lens = Lens.__struct_fields__
        return self.address(self.here, {name: value for name, value in self.query.items() if name not in lens})

    def address(self, path: str, query: Mapping[str, str]) -> str:
        """Return the address of a page of the console with exactly this query."""
        return f"{self.base}{quote(path)}" + (f"?{urlencode(query)}" if query else "")

    def view(self, principal: Principal | None = None) -> View:
        """Return the tools of the caller through whose eyes the person looks, or of another, with a new context."""
        gateway, principal = self.gateway, self.looks_as if principal is None else principal
        return gateway.catalog.view(gateway.context(principal), profile=principal.profile)

    def through(self, lens: Lens) -> Principal:
        """Return the caller of another lens; a person who is not an operator has their own profiles alone."""
        profile = lens.profile or self.looks_as.profile
        if self.acts_as is not None and not (self.is_operator and lens.is_of_another):
            return replace(self.acts_as, profile=profile)
        return seen_through(lens, self.person, None, profile)


def seen_through(lens: Lens, person: Identity, own: Principal | None, usual: str | None = None) -> Principal:
    """Return the caller of an operator's lens. The profile comes from the lens, else from `own`, else it is `usual`."""
    who = person
    if lens.is_of_another:
        who = Identity(credential=LOOKING, user=lens.user or None, space=lens.space or None, roles=lens.roles)
    profile = lens.profile or (None if own is None else own.profile) or usual
    return Principal(identity=who, profile=profile, session=who.credential)
