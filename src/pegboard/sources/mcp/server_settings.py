"""Server settings: the operator's settings for one MCP server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from pegboard.core.digests import digest
from pegboard.core.names import check_namespace, matches
from pegboard.core.ports import HoldsSecrets
from pegboard.egress.credential_redaction import CredentialRedactor, credentials_in, revealed
from pegboard.model.bounds import DEFAULT_BOUNDS, Bounds
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret
from pegboard.sources.foreign_text import cleaned

if TYPE_CHECKING:
    import httpx2  # noqa: TID251 - the type of what a caller gives

Transport = Literal["stdio", "sse", "http"]
Trust = Literal["first_use", "pinned", "any"]

SimpleConsent = Literal["never", "destructive", "always"]
_STRICTNESS: Sequence[SimpleConsent] = get_args(SimpleConsent)

ProtocolVersion = Literal["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSettings:
    """One MCP server: how to reach it, which of its tools to use, and how far to trust it.

    `name` is the namespace of its tools. `only`, `skip` and the keys of `tool_groups`, `tool_consents` and
    `call_intent` are globs over original tool names. `call_intent` lists properties that `useTools` fills from the
    model's intent. `rename` maps original names to ours. `own` are fields for every ToolSpec, e.g. `rate_limit` or
    `consent`. `grace_s` is how long tools stay listed after the server is lost. `trust=None` means `pinned` if a lock
    exists and `first_use` otherwise. `auth` is an `httpx2.Auth`, such as the SDK's `OAuthClientProvider`, for an HTTP
    server; its requests to other hosts may go only to public addresses and to the hosts or `host:port` in `auth_hosts`.
    `program_id` marks the processes of a stdio server, so that they can be found; empty if nobody looks for them.
    `min_protocol_version` is the oldest accepted protocol revision.

    Raises:
        DefinitionError: the name is not a namespace, or the transport lacks its command or URL.
    """

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str | Secret] = field(default_factory=dict[str, "str | Secret"], repr=False)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str | Secret] = field(default_factory=dict[str, "str | Secret"], repr=False)
    auth: httpx2.Auth | None = field(default=None, repr=False)
    auth_hosts: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    skip: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    groups: tuple[str, ...] = ("core",)
    tool_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    tool_consents: Mapping[str, SimpleConsent] = field(default_factory=dict[str, "SimpleConsent"])
    call_intent: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    own: Mapping[str, Any] = field(default_factory=dict[str, Any])
    timeout_s: float = 30.0
    start: Literal["eager", "lazy"] = "eager"
    grace_s: float = 60.0
    trust_annotations: bool = False
    trust: Trust | None = None
    min_protocol_version: ProtocolVersion | None = None
    program_id: str = ""
    origin: str = ""
    bounds: Bounds = DEFAULT_BOUNDS

    def __post_init__(self) -> None:
        check_namespace(self.name)
        needed, value = ("command", self.command) if self.transport == "stdio" else ("url", self.url)
        if not value:
            raise DefinitionError(f"The MCP server {self.name!r} has transport {self.transport!r}: give its {needed}.")

    def takes(self, tool: str) -> bool:
        """Tell whether this tool of the server is selected; `skip` wins."""
        if any(matches(glob, (tool,)) for glob in self.skip):
            return False
        return self.only is None or any(matches(glob, (tool,)) for glob in self.only)

    def groups_of(self, tool: str) -> tuple[str, ...]:
        """Return the groups of one tool: those of every matching glob, else those of the server."""
        chosen = [group for glob, groups in self.tool_groups.items() if matches(glob, (tool,)) for group in groups]
        return tuple(dict.fromkeys(chosen)) or self.groups

    def own_of(self, tool: str) -> Mapping[str, Any]:
        """Return our own fields for one tool, with the strictest of the matching consent rules."""
        rules = [rule for glob, rule in self.tool_consents.items() if matches(glob, (tool,))]
        return {**self.own, "consent": max(rules, key=_STRICTNESS.index)} if rules else self.own

    def filled_by_intent(self, tool: str) -> frozenset[str]:
        """Return the properties of one tool that are filled from a batch's intent."""
        return frozenset(name for glob, names in self.call_intent.items() if matches(glob, (tool,)) for name in names)

    def secrets(self) -> Iterator[Secret]:
        """Yield the credentials for the server."""
        for value in (*self.env.values(), *self.headers.values()):
            if isinstance(value, Secret):
                yield from credentials_in(value)
        if isinstance(self.auth, HoldsSecrets):
            yield from self.auth.secrets()

    def without_secrets(self, text: str, *, max_bytes: int | None = None) -> str:
        """Return a server's text for display: without its credentials and invisible characters, cut last."""
        # Cleaned first: invisible characters could hide a secret.
        clean = CredentialRedactor(self.secrets()).text(cleaned(text))
        return cleaned(clean, max_bytes=max_bytes)

    @property
    def too_many_values(self) -> str:
        """The error text for a message with too many values."""
        values, containers = self.bounds.json_values, self.bounds.answer_containers
        return (
            f"{self.name!r} sent a message of more than {values} values, or {containers} lists and objects, which was "
            "not read. Ask for less, or raise `json_values` or `answer_containers` under `limits:`."
        )

    @property
    def connection(self) -> tuple[object, ...]:
        """The settings that a connection depends on; while they are equal, it can stay."""
        at = (self.name, self.transport, self.command, self.args, self.cwd, self.url, self.auth, self.auth_hosts)
        return (*at, revealed(self.env), revealed(self.headers), self.start, self.bounds, self.min_protocol_version)

    def reaches(self, tool: str) -> str:
        """Return a digest that identifies the server and its tool, independent of our names.

        The working folder is excluded: its path differs between machines that share consents.
        """
        return digest([self.transport, self.command, list(self.args), self.url, tool])

    @property
    def all_groups(self) -> frozenset[str]:
        """Every group that a tool of this server may have."""
        return frozenset(self.groups) | {group for groups in self.tool_groups.values() for group in groups}
