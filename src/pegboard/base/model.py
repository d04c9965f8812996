"""Model: the frozen records and small protocols that all modules share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, TypeGuard, cast

from pegboard.base.errors import DefinitionError, ErrorKind
from pegboard.base.policies import OPEN_POLICY, Policy

if TYPE_CHECKING:
    from pegboard.core.call_context import CallContext
    from pegboard.core.context import ToolContext

JSONValue: TypeAlias = Any
JSON: TypeAlias = dict[str, Any]

Code = Literal[
    "unknown", "internal", "group", "policy", "quarantine", "source", "factory", "available", "builder", "visible"
]
LimitScope = Literal["caller", "tool", "user", "space", "agent", "session"]
WhenStoreIsDown = Literal["closed", "open", "local"]
Runs = Literal["async", "thread", "inline"]


# ---------------------------------------------------------------- what a value is, as far as types can say


# Tells whether a value is a dict. Every call asks often, and this is one call into C where a function would be two.
is_object: Callable[[object], TypeGuard[JSON]] = cast("Any", dict).__instancecheck__


def is_list(value: object) -> TypeGuard[list[JSONValue]]:
    """Tell whether a value is a list."""
    return isinstance(value, list)


def is_awaitable(value: object) -> TypeGuard[Awaitable[Any]]:
    """Tell whether a value can be awaited."""
    return type(value) is CoroutineType or isinstance(value, Awaitable)


# ---------------------------------------------------------------- declarations


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotations:
    """Hints about a tool, in the words of MCP; `None` means not said. `extra` goes out as it is."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    extra: Mapping[str, JSONValue] = field(default_factory=dict[str, JSONValue])


@dataclass(frozen=True, kw_only=True, slots=True)
class RateLimit:
    """At most `max_calls` in any `window_s` seconds, counted apart for each `scope` and tool.

    `when_store_is_down` decides while a shared store does not answer; `None` means `local` for
    read-only tools and `closed` for the rest.
    """

    max_calls: int
    window_s: float
    scope: LimitScope = "caller"
    when_store_is_down: WhenStoreIsDown | None = None

    @classmethod
    def parse(cls, text: str) -> RateLimit:
        """Read `"10/60s"`: ten calls in sixty seconds.

        Raises:
            DefinitionError: the text has another form.
        """
        calls, _, window = text.partition("/")
        number = window.removesuffix("s")
        if not (calls.isascii() and calls.isdigit() and window.endswith("s") and number.replace(".", "", 1).isdigit()):
            raise DefinitionError(f'{text!r} is no rate limit; write for example "10/60s": ten calls in 60 seconds.')
        return cls(max_calls=int(calls), window_s=float(number))

    def __post_init__(self) -> None:
        if self.max_calls < 0 or self.window_s <= 0:
            raise DefinitionError(
                f"A rate limit of {self.max_calls} calls in {self.window_s} s makes no sense: "
                "calls must be 0 or more, the window longer than 0 s."
            )


ConsentRule: TypeAlias = "Literal['never', 'always', 'destructive'] | Callable[[Mapping[str, JSONValue]], bool]"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSpec:
    """The declaration of one tool, without its handler.

    `input_schema` and `output_schema` are JSON Schema 2020-12 and must not be changed in place.
    `aliases` maps an accepted argument name to the property it stands for. `available` has one of
    the forms of `pegboard.core.availability`. `origin` is where the declaration stands.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class BuilderRef:
    """A builder with the names it declares; one object shared by the entries it gives."""

    build: Builder
    names: tuple[str, ...]
    is_bundle: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolEntry:
    """One peg: a declaration, what runs it, and where it comes from.

    A handler with `needs_context=False` gets `None` for its context, which then need not be made.
    `source` names a supervised source (`None` for our own code). `is_foreign` marks definitions
    that come from outside, `is_toolset` namespaces that a policy may name as a whole.
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
    fingerprint: str = ""
    wire_name: str = ""
    qualified_id: str = field(init=False)
    is_conditional: bool = field(init=False)

    def __post_init__(self) -> None:
        # Kept, as they are asked on every call and for every tool of a list.
        object.__setattr__(self, "qualified_id", self.spec.qualified_id)
        conditional = self.source or self.builder or self.spec.factory or self.spec.available is not None
        object.__setattr__(self, "is_conditional", bool(conditional))


# ---------------------------------------------------------------- who may use it


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """A named slice of the catalog for one kind of caller. `include=None` takes all groups."""

    name: str
    include: tuple[str, ...] | None = None
    policy: Policy = OPEN_POLICY
    exposure: Literal["direct", "two_tool", "search", "auto"] = "auto"
    token_budget: int = 8_000
    pinned: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    require_context: bool = False
    rate_limit: RateLimit | None = None
    limits: Mapping[str, float] = field(default_factory=dict[str, float], hash=False)
    origin: str = ""


class Fix(NamedTuple):
    """The smallest change that passes one code: what kind, on what, in words."""

    kind: Code
    subject: str
    text: str


class Decision(NamedTuple):
    """Whether one caller may use one tool now, and why; `next` is the code met once `fix` is applied."""

    code: Code
    reason: str = ""
    fix: Fix | None = None
    next: Code | None = None
    next_reason: str = ""

    @property
    def visible(self) -> bool:
        return self.code == "visible"


SourceStatus = Literal["ok", "connecting", "unreachable", "auth_required", "quarantined"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceState:
    """How one source is. `is_up` decides code `source`: it stays true while a grace period runs.

    `quarantined` are qualified ids to hide; `changed` are those that stay listed with their
    pinned definition while calls answer `needs_review`.
    """

    status: SourceStatus = "ok"
    is_up: bool = True
    reason: str = ""
    quarantined: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()


# ---------------------------------------------------------------- hooks, events, consent


class Verdict(NamedTuple):
    """What a before-hook answers. `None` from a hook means `allow`."""

    kind: Literal["allow", "deny", "ask", "replace"]
    reason: str = ""
    args: JSON | None = None
    error_kind: ErrorKind = "hook_refused"

    @classmethod
    def allow(cls, reason: str = "") -> Verdict:
        return cls("allow", reason)

    @classmethod
    def deny(cls, reason: str) -> Verdict:
        return cls("deny", reason)

    @classmethod
    def ask(cls, reason: str) -> Verdict:
        return cls("ask", reason)

    @classmethod
    def replace(cls, args: JSON, reason: str = "") -> Verdict:  # pyright: ignore[reportIncompatibleMethodOverride] - the contract's word
        return cls("replace", reason, args)


HookKind = Literal["before", "around", "after", "on_error", "on_complete"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hook:
    """User code at one point of the path. `match` is a glob over qualified id and wire name.

    Signatures, sync or async: `before(call) -> Verdict | None` · `around(call, proceed)`, which
    awaits `proceed()` and returns a value · `after(call, result) -> value | None` ·
    `on_error(call, result)` · `on_complete(call, result)`.
    """

    kind: HookKind
    run: Callable[..., Any]
    match: str = "*"
    required: bool = False
    name: str = ""


class HookCall(Protocol):
    """What a hook sees of the call: the tool, its wire name, its arguments and the context."""

    @property
    def tool(self) -> ToolSpec: ...
    @property
    def wire_name(self) -> str: ...
    @property
    def args(self) -> JSON: ...
    @property
    def ctx(self) -> CallContext: ...


EventType = Literal[
    "on_tool_call", "on_tool_result", "on_sub_agent_start", "on_sub_agent_chunk", "on_sub_agent_tool_call",
    "on_sub_agent_tool_result", "on_sub_agent_end", "on_progress", "on_batch_started", "on_batch_completed",
]  # fmt: skip


class Event(NamedTuple):
    """Something that happened in a call. `seq` grows within a request; `at` is seconds since 1970."""

    type: EventType
    tool: str
    request_id: str
    call_id: str
    parent_call_id: str | None
    seq: int
    at: float
    ok: bool | None = None
    payload: Mapping[str, JSONValue] = {}


class Observer(Protocol):
    """Any object with some of the methods named in `EventType`, each taking an `Event`, sync or async."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsentRequest:
    """One concrete call that needs a person's yes; it binds definition, arguments and person."""

    tool: str
    definition_hash: str
    args_digest: str
    arguments: Mapping[str, JSONValue]
    reason: str
    user_id: str | None
    space_id: str | None
    session_id: str | None
    agent: str | None
    call_id: str


Approve: TypeAlias = "Callable[[ConsentRequest], Awaitable[bool] | bool]"
