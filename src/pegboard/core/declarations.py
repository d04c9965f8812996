"""Declarations: everything that a catalog declares, as one frozen value that reload, reset and plan replace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from pegboard.core.entry_table import EntryTable
from pegboard.core.names import fold
from pegboard.core.ports import DocumentStore, DocumentSync, HoldsSecrets, Source
from pegboard.core.source_over import SourceOver
from pegboard.model.agent import AgentEntry
from pegboard.model.alert import NO_ALERTS, Alerts
from pegboard.model.bounds import DEFAULT_BOUNDS, Bounds
from pegboard.model.budget import Budget
from pegboard.model.error import DuplicateToolError
from pegboard.model.hook import Hook
from pegboard.model.memo import Question
from pegboard.model.probe import Part
from pegboard.model.profile import Profile
from pegboard.model.rate_limit import RateLimit
from pegboard.model.record import replace
from pegboard.model.secret import Secret
from pegboard.model.skill import Skill
from pegboard.model.tool import ToolEntry, ToolSpec


class NamedLater(NamedTuple):
    """Tools of a builder whose names are computed again for each snapshot."""

    names: Callable[[], Sequence[str]]
    entries: Callable[[tuple[str, ...]], Sequence[ToolEntry]]
    groups: tuple[str, ...] = ()
    """Known before there is a name, so that callers can select them."""


class Mirror(NamedTuple):
    """A name that exists for allow-lists only, such as an SDK's own tool."""

    groups: tuple[str, ...]
    full_names: object = None
    available: object = None
    listed: ToolEntry | None = None
    """The source's tool behind this name."""

    def entry(self, name: str) -> ToolEntry:
        """Return an entry for the judge: a tool with this name, in a namespace that nothing can be declared in."""
        if self.listed is not None:
            # A list of names asks for each entry again and again.
            key = (self.groups, id(self.available))
            kept: ToolEntry | None = self.listed.drawn.get("mirrored", {}).get(key)
            if kept is None:
                spec = replace(self.listed.spec, groups=self.groups, available=self.available)
                kept = replace(self.listed, spec=spec, wire_name=f"{spec.namespace}__{spec.name}", fingerprint="")
                # The value keeps `available` alive, so that its id cannot be reused.
                self.listed.drawn["mirrored"] = {key: kept}
            return kept
        spec = ToolSpec(name=name, namespace=MIRRORED, groups=self.groups, available=self.available)
        return ToolEntry(spec=spec, wire_name=name)


MIRRORED = "pegboard__mirror"


class MirroredSource(SourceOver, Struct, frozen=True):
    """A source whose tools are names for allow-lists only; an SDK runs them itself. Implements the port `Source`.

    Made by `Catalog.mirror`; it has the lifecycle of any source. It lists no tools here, so none can be called.
    """

    source: Source
    wanted_groups: tuple[str, ...] = ()
    available: object = None

    @property
    def name(self) -> str:
        """The name of the source; allow-lists call the server by it."""
        return self.source.name

    def entries(self) -> Sequence[ToolEntry]:
        """Return nothing: mirrored names are not tools here."""
        return ()

    def mirrors(self) -> dict[str, Mirror]:
        """Return the names that the source provides now."""
        return {
            f"mcp__{self.name}__{entry.spec.name}": Mirror(
                self.wanted_groups or entry.spec.groups, None, self.available, entry
            )
            for entry in self.source.entries()
        }

    def groups(self) -> frozenset[str]:
        """Return the groups that its names may have."""
        return frozenset(self.wanted_groups) or self.source.groups()


class PrivateSource(SourceOver, Struct, frozen=True):
    """A source whose tools belong to one agent. Implements the port `Source`, but lists no tools.

    Its tools keep the source's name, which is `name` here: two agents may each have a server with the same name.
    """

    source: Source
    name: str

    def entries(self) -> Sequence[ToolEntry]:
        """Return nothing: private tools are listed for their agent only."""
        return ()

    def private_entries(self) -> list[ToolEntry]:
        """Return the tools that it lists now, as the agent sees them."""
        return [replace(entry, source=self.name) for entry in self.source.entries()]

    def groups(self) -> frozenset[str]:
        """Return nothing: an agent gets all of its private tools."""
        return frozenset()

    def fits(self, other: object) -> bool:
        """Tell whether it can replace another after a reload of the config: if its source can."""
        fits: Callable[[object], bool] | None = getattr(self.source, "fits", None)
        return fits is not None and isinstance(other, PrivateSource) and fits(other.source)

    def renew(self, other: PrivateSource) -> None:
        """Take over the settings of the other and keep the connection; only if it `fits`."""
        source: Any = self.source
        source.renew(other.source)


class Declarations(Struct, frozen=True, kw_only=True, eq=False):
    """Everything that is declared. A field added here is kept by a reload and cleared by a reset automatically.

    `tools` and `resources` (resources, prompts and completions) are keyed by folded qualified id, in order of
    declaration; tools that sources list are not included, since they change by themselves. `identity` is the HTTP
    authentication, as `auth` reads it; `None` lets everybody in. `documents` is the store behind the document tools;
    `document_sync` keeps its live sources in step while a server runs.
    """

    name: str = "pegboard"
    tools: EntryTable = field(default_factory=EntryTable)
    resources: EntryTable = field(default_factory=EntryTable)
    named_later: tuple[NamedLater, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict[str, Source])
    mirrors: Mapping[str, Mirror] = field(default_factory=dict[str, Mirror])
    predicates: Mapping[str, Question] = field(default_factory=dict[str, Question])
    groups: Mapping[str, str] = field(default_factory=dict[str, str])
    profiles: Mapping[str, Profile] = field(default_factory=dict[str, Profile])
    hooks: tuple[Hook, ...] = ()
    agents: Mapping[str, AgentEntry] = field(default_factory=dict[str, AgentEntry])
    bounds: Bounds = DEFAULT_BOUNDS
    default_limit: RateLimit | None = None
    budgets: Mapping[str, Budget] = field(default_factory=dict[str, Budget])
    identity: Any = None
    secrets: tuple[Secret, ...] = ()
    documents: DocumentStore | None = None
    document_sync: DocumentSync | None = None
    skills: Mapping[str, Skill] = field(default_factory=dict[str, Skill])
    alerts: Alerts = NO_ALERTS
    parts: Callable[[Any], Iterable[Part]] = field(default=lambda catalog: ())
    """Returns the stores and servers that a catalog with these declarations depends on."""

    def with_entries(self, entries: Sequence[ToolEntry], *, replace_existing: bool = False) -> Declarations:
        """Return the declarations with these tools, resources, prompts or completions, all or none.

        Raises:
            DuplicateToolError: a qualified id is taken, and `replace_existing` is not set.
        """
        tools: dict[str, ToolEntry] = {}
        resources: dict[str, ToolEntry] = {}
        for entry in entries:
            place, declared = (tools, self.tools) if entry.offer is None else (resources, self.resources)
            key = fold(entry.qualified_id)
            known = place.get(key) or declared.get(key)
            if known is not None and not replace_existing:
                raise DuplicateToolError(entry.qualified_id, first=known.spec.origin, second=entry.spec.origin)
            place[key] = entry
        return replace(self, tools=self.tools.with_entries(tools), resources=self.resources.with_entries(resources))

    def all_mirrors(self) -> Mapping[str, Mirror]:
        """Return every name for allow-lists, including those that sources provide now."""
        mirrored = [source.mirrors() for source in self.sources.values() if isinstance(source, MirroredSource)]
        return {name: mirror for names in (*mirrored, self.mirrors) for name, mirror in names.items()}

    def with_secrets_of(self, sources: Iterable[Source]) -> Declarations:
        """Return the declarations with the credentials of these sources among the secrets to redact.

        They stay there when a source is removed, since running calls may still contain them.
        """
        held = (secret for source in sources if isinstance(source, HoldsSecrets) for secret in source.secrets())
        known = dict.fromkeys((*self.secrets, *held))
        return self if len(known) == len(self.secrets) else replace(self, secrets=tuple(known))

    def without_offers(self) -> Declarations:
        """Return the declarations of an empty catalog with the same protection."""
        names = ("name", "bounds", "default_limit", "budgets", "identity", "secrets")
        return Declarations(**{name: getattr(self, name) for name in names})

    def without(self, key: str) -> Declarations:
        """Return the declarations without the entry of a folded qualified id.

        Raises:
            KeyError: there is none.
        """
        for name in ("tools", "resources"):
            known: EntryTable = getattr(self, name)
            if key in known:
                return replace(self, **{name: known.without(key)})
        raise KeyError(key)
