"""Tool: the declaration of a tool, and the entry that adds its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct, field

from pegboard.model.budget import Cost
from pegboard.model.call_context import CallContext, RunningCall
from pegboard.model.caller import Caller
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.hook import Hook
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.rate_limit import RateLimit
from pegboard.model.record import lazy_property, replace
from pegboard.model.resource import Offer

Runs = Literal["async", "thread", "inline"]
OutputCheck = Literal["strict", "warn", "relax"]


class Annotations(Struct, frozen=True, kw_only=True):
    """MCP's hints about a tool; `None` means not declared. `extra` is sent unchanged."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    extra: Mapping[str, JSONValue] = field(default_factory=dict[str, JSONValue])


ConsentRule: TypeAlias = "Literal['never', 'always', 'destructive'] | Callable[[Mapping[str, JSONValue]], bool]"


class ToolSpec(Struct, frozen=True, kw_only=True):
    """The declaration of one tool, without its handler.

    `input_schema` and `output_schema` are JSON Schema 2020-12 and must not be changed in place. `aliases` maps an
    accepted argument name to its property. `available` has one of the forms of `pegboard.core.predicates`. `origin` is
    the location of the declaration. `output_check=None` means `strict` for our own tools and `warn` for foreign ones.
    `cost` is counted for each call that runs, in addition to costs that it reports.
    `four_eyes` means that two people must approve each call that needs consent. If `consent` is `never`, every call
    needs it.
    """

    name: str
    namespace: str = "main"
    description: str = ""
    title: str | None = None
    input_schema: JSON = field(default_factory=lambda: {"type": "object", "properties": {}})
    output_schema: JSON | None = None
    groups: tuple[str, ...] = ("core",)
    available: object = None
    factory: str | None = None
    internal_only: bool = False
    full_names: object = None
    annotations: Annotations = Annotations()
    icons: tuple[JSON, ...] = ()
    meta: Mapping[str, JSONValue] = field(default_factory=dict[str, JSONValue])
    examples: tuple[JSONValue, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    allow_unknown: bool = False
    rate_limit: RateLimit | None = None
    cost: Cost | None = None
    timeout_s: float | None = None
    max_concurrency: int | None = None
    max_result_bytes: int | None = None
    output_check: OutputCheck | None = None
    consent: ConsentRule = "never"
    four_eyes: bool = False
    task: Literal["forbidden", "optional", "required"] = "forbidden"
    repair: bool = False
    renamed_from: tuple[str, ...] = ()
    deprecated: str | None = None
    replaced_by: str | None = None
    origin: str = ""

    @property
    def qualified_id(self) -> str:
        """The unique id of the tool: `namespace.name`."""
        return f"{self.namespace}.{self.name}"

    @property
    def is_read_only(self) -> bool:
        return self.annotations.read_only is True

    def definition(self) -> JSON:
        """Return the definition that models see and locks pin, as JSON without empty keys."""
        own = self.annotations
        hints = {"title": self.title, "readOnlyHint": own.read_only, "destructiveHint": own.destructive,
                 "idempotentHint": own.idempotent, "openWorldHint": own.open_world, **own.extra}  # fmt: skip
        shown: JSON = {
            "name": self.name, "title": self.title, "description": self.description, "inputSchema": self.input_schema,
            "outputSchema": self.output_schema, "annotations": {k: v for k, v in hints.items() if v is not None},
            "icons": list(self.icons), "_meta": dict(self.meta),
        }  # fmt: skip
        return {key: value for key, value in shown.items() if key == "inputSchema" or value not in (None, "", {}, [])}

    def extended(self, *, extra_properties: JSON | None = None, extra_required: Sequence[str] = ()) -> ToolSpec:
        """Return a copy with additional properties, for one caller; the original does not change."""
        schema = dict(self.input_schema)
        schema["properties"] = {**schema.get("properties", {}), **(extra_properties or {})}
        required = [*schema.get("required", []), *extra_required]
        if required:
            schema["required"] = list(dict.fromkeys(required))
        return replace(self, input_schema=schema)

    @classmethod
    def from_openai(cls, definition: JSON, **options: Any) -> ToolSpec:
        """Read an OpenAI function definition, with or without its `{"type": "function"}` wrapper.

        Definitions in the form of Anthropic or MCP (`input_schema`, `inputSchema`) are read as well.

        `options` are other fields of this class, e.g. `groups`. The handler is passed separately.

        Raises:
            DefinitionError: it is not one definition, its name is missing, or an option is not a field of this class.
        """
        if not isinstance(definition, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller may err
            raise DefinitionError(f"from_openai reads one definition at a time; this is a {type(definition).__name__}.")
        unknown = sorted(options.keys() - cls.__struct_fields__)
        if unknown:
            raise DefinitionError(
                f"ToolSpec has no field {unknown[0]!r}: its fields are {', '.join(cls.__struct_fields__)}."
                " The handler goes to register(ToolSpec.from_openai(…), handler=function)."
            )
        function: JSON = definition.get("function", definition)
        if not isinstance(function.get("name"), str):
            raise DefinitionError('An OpenAI definition needs "function": {"name": …}; this one has no name.')
        # Anthropic and MCP name it otherwise.
        schema: JSON = function.get("parameters") or function.get("input_schema") or function.get("inputSchema") or {}
        schema = schema or {"type": "object", "properties": {}}
        described: JSON = {"description": function.get("description", ""), "input_schema": schema}
        return cls(name=function["name"], **(described | options))

    def bind(self, handler: Handler, *, runs: Runs = "async") -> ToolEntry:
        """Return the declaration together with its handler, e.g. from a builder."""
        return ToolEntry(spec=self, handler=handler, runs=runs)


class Handler(Protocol):
    """Code that runs one call: takes validated arguments and returns any value that can become a result."""

    def __call__(self, ctx: CallContext, args: JSON, /) -> Awaitable[object] | object: ...


class Account(Protocol):
    """An account of the caller at the service behind a tool, which calls of the tool use. Equal only to itself."""

    async def missing(self, caller: Caller) -> str | None:
        """Return why a call of this caller would be refused with `connection_required`; `None` if it would not.

        Sends nothing, and makes no link.

        Raises:
            CallError: the store of connections does not answer.
        """
        ...

    def fix(self) -> str:
        """Return the remedy for a missing account in a few words, such as `connect mail`."""
        ...

    async def required(self, caller: Caller) -> CallError:
        """Return the error of such a call, with a link to connect if there can be one.

        Raises:
            CallError: the store of connections does not answer.
        """
        ...


Builder: TypeAlias = "Callable[[ToolContext], object]"


class BuilderRef(Struct, frozen=True, kw_only=True):
    """A builder and the names it declares; its entries share one of these."""

    build: Builder
    names: tuple[str, ...]
    is_bundle: bool = False


class OfferedTitles(NamedTuple):
    """The titles that an MCP server gave a tool: its own, and that in its annotations."""

    title: str | None
    of_annotations: str | None


class ToolEntry(Struct, frozen=True, kw_only=True, dict=True, weakref=True):
    """A tool in the catalog: a declaration, its handler, and its source.

    A handler with `needs_context=False` gets `None` as its context, which saves making one. `source` names a supervised
    source (`None` for our own code). `is_foreign` marks definitions from outside, `is_toolset` namespaces that a policy
    may name as a whole. `offer` is set if the entry is not a tool but a resource, prompt or completion; these are
    judged and run like tools. `agent` names the agent that a tool runs. `exact_output` is the declared output schema if
    results are checked against a weaker one (`output_check="warn"`). `offered` is set for tools of MCP servers, which
    lists show with these titles and the exact output schema. `reread` converts a result that misses its schema
    to the annotated type, and raises if it cannot. `stray_words` are names that the docstring describes as parameters
    although they are not. `reaches` is a digest of settings outside the declaration that determine what a call does,
    such as an address; it is empty if only code does. It is part of the fingerprint. `denied_as` are further folded
    names that can deny it in a policy, but not allow it. `account` is set if calls use an account of the caller.
    `prepare` is awaited before each run, outside the tool's time limit: it loads what the first run needs.
    """

    spec: ToolSpec
    handler: Handler | None = None
    runs: Runs = "async"
    builder: BuilderRef | None = None
    hooks: tuple[Hook, ...] = ()
    needs_context: bool = True
    source: str | None = None
    is_foreign: bool = False
    is_toolset: bool = False
    offer: Offer | None = None
    agent: str | None = None
    exact_output: JSON | None = None
    offered: OfferedTitles | None = None
    reread: Callable[[object], object] | None = None
    stray_words: tuple[str, ...] = ()
    reaches: str = ""
    fingerprint: str = ""
    wire_name: str = ""
    denied_as: tuple[str, ...] = ()
    account: Account | None = None
    prepare: Callable[[RunningCall], Awaitable[None]] | None = None

    def called(self, wire_name: str) -> ToolEntry:
        """Return a copy with this wire name."""
        return self if self.wire_name == wire_name else self._with(wire_name=wire_name)

    def sealed(self, fingerprint: str) -> ToolEntry:
        """Return a copy with its fingerprint."""
        return self._with(fingerprint=fingerprint)

    def _with(self, **changes: str) -> ToolEntry:
        same = replace(self, **changes)
        kept: dict[str, Any] = vars(same)
        kept.update((name, value) for name, value in vars(self).items() if name not in _OF_ITS_NAMES)
        return same

    # Computed once, since every call and every list asks for both.

    @lazy_property
    def qualified_id(self) -> str:
        """The unique id of the tool: `namespace.name`."""
        return self.spec.qualified_id

    @lazy_property
    def asks_because(self) -> str | None:
        """Why a person must approve every call of the tool, whatever its arguments; `None` if that is not so."""
        rule, hints = self.spec.consent, self.spec.annotations
        if rule == "always":
            return "needs approval for every call"
        if rule != "destructive":
            return None
        # Our own tools declare it. For foreign tools it is assumed, unless they are trusted to be read-only.
        may_destroy = hints.read_only is not True if self.is_foreign else hints.destructive is True
        if may_destroy and hints.extra.get("readOnlyHint") is True and hints.destructive is not True:
            return "is read-only according to its server, whose hints are not trusted (`trust_annotations`)"
        return "may destroy something" if may_destroy else None

    @property
    def connects_to(self) -> str:
        """The name that people use to connect the account of the tool."""
        return self.source or self.spec.name

    @lazy_property
    def is_conditional(self) -> bool:
        """Whether anything in addition to groups and policy may hide it."""
        return bool(self.source or self._has_own_condition)

    @property
    def _has_own_condition(self) -> bool:
        spec = self.spec
        return bool(self.builder or self.account or spec.factory or spec.available is not None or spec.deprecated)

    @lazy_property
    def condition(self) -> Hashable:
        """The conditions that may hide the tool besides groups, policy and builder; equal ones hide alike.

        Quarantine is an exception, since it names tools. `None` if nothing may hide the tool.
        """
        if self.hangs_on_source_alone or not self.is_conditional:
            return self.source
        spec = self.spec
        return (self.source, self.account, spec.factory, _as_key(spec.available), spec.deprecated)

    @lazy_property
    def hangs_on_source_alone(self) -> bool:
        """Whether only the state of its source may hide it, besides groups and policy."""
        return bool(self.source) and not self._has_own_condition

    @lazy_property
    def drawn(self) -> dict[str, Any]:
        """A cache for what exporters render from this entry; it lives as long as the entry."""
        return {}

    @lazy_property
    def is_for_apps_alone(self) -> bool:
        """Whether only the tool's own interface may call it, through the host; lists for models leave it out.

        Both our own tools and those of upstream servers can declare this. The extension relies on hosts to hide such
        tools from the model. A client that does not declare the extension does not hide them, and search and calls by
        model-facing names are ours, so we hide them there.
        Source: MCP Apps (`io.modelcontextprotocol/ui`), `_meta.ui.visibility`.
        """
        ui: Any = self.spec.meta.get("ui") if self.spec.meta else None
        visibility: Any = ui.get("visibility") if isinstance(ui, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - JSON
        return isinstance(visibility, list | tuple) and "app" in visibility and "model" not in visibility

    @lazy_property
    def names(self) -> tuple[str, ...]:
        """All names of the tool: its wire name, `namespace.name` and `namespace__name`."""
        spec = self.spec
        return tuple(dict.fromkeys((self.wire_name, spec.qualified_id, f"{spec.namespace}__{spec.name}")))

    @lazy_property
    def folded_names(self) -> tuple[str, ...]:
        """The casefolded names that globs are compared with, including former names.

        A rule or a hook written for a former name still applies: renaming a tool never lifts a restriction.
        """
        place, former = self.spec.namespace, self.spec.renamed_from
        told = [*self.names, *(known for old in former for known in (old, f"{place}.{old}", f"{place}__{old}"))]
        return tuple(dict.fromkeys(name.casefold() for name in told))


# Values that depend on an entry's wire name; a copy with another name computes them again.
_OF_ITS_NAMES = ("names", "folded_names", "drawn")


def _as_key(form: Any) -> Hashable:
    """Return a hashable form of `available` that is equal only for equal conditions."""
    if isinstance(form, Mapping):
        return frozenset((key, _as_key(inner)) for key, inner in form.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - checked later
    if isinstance(form, list | tuple):
        return tuple([_as_key(inner) for inner in form])  # pyright: ignore[reportUnknownVariableType] - as above
    return type(form), form  # pyright: ignore[reportUnknownVariableType] - 0 is not False
