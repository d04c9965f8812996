"""Tool: the declaration of a tool, and the entry that joins it with what runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from pegboard.model.call_context import CallContext
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError
from pegboard.model.hook import Hook
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.rate_limit import RateLimit
from pegboard.model.record import lazy_property, replace
from pegboard.model.resource import Offer

Runs = Literal["async", "thread", "inline"]


class Annotations(Struct, frozen=True, kw_only=True):
    """Hints about a tool, in the words of MCP; `None` means not said. `extra` goes out as it is."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    extra: Mapping[str, JSONValue] = field(default_factory=dict[str, JSONValue])


ConsentRule: TypeAlias = "Literal['never', 'always', 'destructive'] | Callable[[Mapping[str, JSONValue]], bool]"


class ToolSpec(Struct, frozen=True, kw_only=True):
    """The declaration of one tool, without its handler.

    `input_schema` and `output_schema` are JSON Schema 2020-12 and must not be changed in place.
    `aliases` maps an accepted argument name to the property it stands for. `available` has one of
    the forms of `pegboard.core.predicates`. `origin` is where the declaration stands. `output_check` of `None` is
    `strict` for our own tools and `warn` for foreign ones.
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
    timeout_s: float | None = None
    max_concurrency: int | None = None
    max_result_bytes: int | None = None
    output_check: Literal["strict", "warn"] | None = None
    consent: ConsentRule = "never"
    task: Literal["forbidden", "optional", "required"] = "forbidden"
    repair: bool = False
    renamed_from: tuple[str, ...] = ()
    deprecated: str | None = None
    replaced_by: str | None = None
    origin: str = ""

    @property
    def qualified_id(self) -> str:
        """The one identity of the tool: `namespace.name`."""
        return f"{self.namespace}.{self.name}"

    @property
    def is_read_only(self) -> bool:
        return self.annotations.read_only is True

    def definition(self) -> JSON:
        """Return what the model is shown and a lock pins, as JSON without empty keys."""
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
        """Return a copy with more properties, for one caller; this declaration stays as it is."""
        schema = dict(self.input_schema)
        schema["properties"] = {**schema.get("properties", {}), **(extra_properties or {})}
        required = [*schema.get("required", []), *extra_required]
        if required:
            schema["required"] = list(dict.fromkeys(required))
        return replace(self, input_schema=schema)

    @classmethod
    def from_openai(cls, definition: JSON, **options: Any) -> ToolSpec:
        """Read an OpenAI function definition, with or without its `{"type": "function"}` wrapper.

        `options` are other fields of this class, e.g. `groups`. The handler is given apart.

        Raises:
            DefinitionError: there is no name.
        """
        function: JSON = definition.get("function", definition)
        if not isinstance(function.get("name"), str):
            raise DefinitionError('An OpenAI definition needs "function": {"name": …}; this one has no name.')
        schema: JSON = function.get("parameters") or {"type": "object", "properties": {}}
        described: JSON = {"description": function.get("description", ""), "input_schema": schema}
        return cls(name=function["name"], **(described | options))

    def bind(self, handler: Handler, *, runs: Runs = "async") -> ToolEntry:
        """Return the declaration together with the code that runs it, e.g. for a builder to give back."""
        return ToolEntry(spec=self, handler=handler, runs=runs)


class Handler(Protocol):
    """Code that runs one call: validated arguments in, any value that a result can be made of out."""

    def __call__(self, ctx: CallContext, args: JSON, /) -> Awaitable[object] | object: ...


Builder: TypeAlias = "Callable[[ToolContext], object]"


class BuilderRef(Struct, frozen=True, kw_only=True):
    """A builder with the names it declares; one object shared by the entries it gives."""

    build: Builder
    names: tuple[str, ...]
    is_bundle: bool = False


class ToolEntry(Struct, frozen=True, kw_only=True, dict=True, weakref=True):
    """One peg: a declaration, what runs it, and where it comes from.

    A handler with `needs_context=False` gets `None` for its context, which then need not be made.
    `source` names a supervised source (`None` for our own code). `is_foreign` marks definitions
    that come from outside, `is_toolset` namespaces that a policy may name as a whole. `offer` is what it is where it
    is no tool: a resource, prompt or completion, which are judged and run alike. `agent` is the agent that a tool runs.
    `exact_output` is what results were said to be where less is demanded of them (`output_check="warn"`).
    `reread` makes of a result that misses its promise what the annotation means by it, and raises where it is nothing.
    `stray_words` are names that the docstring describes as parameters and that are none.
    `reaches` is a digest of what beside the declaration says what a call does, as an address or settings; empty where
    only code says it. It is a part of the fingerprint.
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
    reread: Callable[[object], object] | None = None
    stray_words: tuple[str, ...] = ()
    reaches: str = ""
    fingerprint: str = ""
    wire_name: str = ""

    def called(self, wire_name: str) -> ToolEntry:
        """Return the same under this wire name."""
        return self if self.wire_name == wire_name else self._with(wire_name=wire_name)

    def sealed(self, fingerprint: str) -> ToolEntry:
        """Return the same with its fingerprint."""
        return self._with(fingerprint=fingerprint)

    def _with(self, **changes: str) -> ToolEntry:
        same = replace(self, **changes)
        kept: dict[str, Any] = vars(same)
        kept.update((name, value) for name, value in vars(self).items() if name not in _OF_ITS_NAMES)
        return same

    # Computed once, since both are asked on every call and for every tool of a list.

    @lazy_property
    def qualified_id(self) -> str:
        """The one identity of the tool: `namespace.name`."""
        return self.spec.qualified_id

    @lazy_property
    def is_conditional(self) -> bool:
        """Whether anything but groups and policy may hide it."""
        spec = self.spec
        return bool(self.source or self.builder or spec.factory or spec.available is not None or spec.deprecated)

    @lazy_property
    def condition(self) -> Hashable:
        """What may hide it beside groups, policy and builder: whatever hides one tool of a condition hides them all.

        But for a quarantine, which names tools. `None` where nothing may.
        """
        if self.hangs_on_source_alone or not self.is_conditional:
            return self.source
        spec = self.spec
        return (self.source, spec.factory, _as_key(spec.available), spec.deprecated)

    @lazy_property
    def hangs_on_source_alone(self) -> bool:
        """Whether nothing may hide it, beside groups and policy, but how its source is."""
        spec = self.spec
        return bool(self.source) and not (self.builder or spec.factory or spec.available is not None or spec.deprecated)

    @lazy_property
    def drawn(self) -> dict[str, Any]:
        """A scratch place for what exporters draw from this entry alone; it lives as long as the entry does."""
        return {}

    @lazy_property
    def is_for_apps_alone(self) -> bool:
        """Whether only its interface may use it, through the host: no list that a model reads has it.

        Ours say so, and those of a server behind us. The extension leaves it to hosts to keep such tools from the
        model; who does not declare it is no such host, and what searches or calls by a name of the model's is ours.
        Source: MCP Apps (`io.modelcontextprotocol/ui`), `_meta.ui.visibility`.
        """
        ui: Any = self.spec.meta.get("ui") if self.spec.meta else None
        visibility: Any = ui.get("visibility") if isinstance(ui, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - JSON
        return isinstance(visibility, list | tuple) and "app" in visibility and "model" not in visibility

    @lazy_property
    def names(self) -> tuple[str, ...]:
        """Every name that it is known by: on the wire, `namespace.name` and `namespace__name`."""
        spec = self.spec
        return tuple(dict.fromkeys((self.wire_name, spec.qualified_id, f"{spec.namespace}__{spec.name}")))

    @lazy_property
    def folded_names(self) -> tuple[str, ...]:
        """Its names in the form in which globs are held against them, those that it had before too.

        A rule or a hook that was written for the former name goes on meaning it: a renaming opens nothing.
        """
        place, former = self.spec.namespace, self.spec.renamed_from
        told = [*self.names, *(known for old in former for known in (old, f"{place}.{old}", f"{place}__{old}"))]
        return tuple(dict.fromkeys(name.casefold() for name in told))


# What is worked out of an entry's wire name, too: it is another's under another name.
_OF_ITS_NAMES = ("names", "folded_names", "drawn")


def _as_key(form: Any) -> Hashable:
    """Return a form of `available` as a value that equals that of the same form alone."""
    if isinstance(form, Mapping):
        return frozenset((key, _as_key(inner)) for key, inner in form.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - checked later
    if isinstance(form, list | tuple):
        return tuple([_as_key(inner) for inner in form])  # pyright: ignore[reportUnknownVariableType] - as above
    return type(form), form  # pyright: ignore[reportUnknownVariableType] - 0 is not False
